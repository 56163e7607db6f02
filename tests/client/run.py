"""Generates the client, and does with it what a person's script would do."""

import importlib
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from served import ROOT, Served, example

signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))


def generate(folder):
    generator = pathlib.Path(sys.executable).parent / "openapi-python-client"
    done = subprocess.run(
        [generator, "generate", "--path", ROOT / "openapi/trainyard.json", "--output-path", folder / "client",
         "--meta", "none"],
        capture_output=True, text=True,
    )
    print(done.stdout + done.stderr, end="")
    assert done.returncode == 0, "the generator takes the document"
    sys.path.insert(0, str(folder))
    return done.stdout + done.stderr


class Client:
    def __init__(self, served):
        self.api = importlib.import_module("client").AuthenticatedClient(base_url=served.url, token=served.token)

    def call(self, tag, operation, expect, **arguments):
        """Calls an operation by the name that the document gives it, and answers what its body was read into."""
        module = importlib.import_module(f"client.api.{tag}.{operation}")
        response = module.sync_detailed(client=self.api, **arguments)
        assert response.status_code == expect, f"{operation}: {response.status_code} {response.content[:500]}"
        return response.parsed

    def submit(self, document):
        models = importlib.import_module("client.models")
        return self.call("jobs", "create_job", 201, body=models.JobDocument.from_dict(document))

    def until(self, job, phases, seconds=60):
        deadline = time.monotonic() + seconds
        while True:
            found = self.call("jobs", "get_job", 200, job=job.id)
            if found.phase.value in phases:
                return found
            assert time.monotonic() < deadline, f"{job.name} is {found.phase} after {seconds} s: {found.message}"
            time.sleep(0.2)


def a_job_is_submitted_and_followed_to_its_end(client):
    document = example("single") | {"name": "from-a-generated-client"}
    document["env"] |= {"PACE": "0"}
    job = client.submit(document)
    assert job.name == "from-a-generated-client" and job.phase.value == "queued", job
    ended = client.until(job, ["succeeded", "failed", "cancelled"])
    assert ended.phase.value == "succeeded", f"{ended.phase}: {ended.message}"
    assert ended.document.roles[0].name == "main", ended.document

    def lines():
        page = client.call("logs", "read_logs", 200, job=job.id, tail=200)
        return [line.text for line in page.items]

    # Output is stored soon after a job's end.
    deadline = time.monotonic() + 30
    while not any(text.startswith("y = ") for text in lines()) and time.monotonic() < deadline:
        time.sleep(0.2)
    texts = lines()
    steps = [text for text in texts if text.startswith("step=")]
    assert len(steps) == 50 and texts[-1].startswith("y = "), texts
    attempts = client.call("attempts", "list_attempts", 200, job=job.id)
    assert [attempt.outcome.value for attempt in attempts.items] == ["succeeded"], attempts
    kinds = [event.kind for event in client.call("jobs", "list_job_events", 200, job=job.id).items]
    assert kinds[-1] == "job.created" and len(kinds) > 2, kinds


def a_running_job_is_cancelled(client):
    document = example("single") | {"name": "to-be-cancelled"}
    document["env"] |= {"STEPS": "100000", "PACE": "0.1"}
    job = client.submit(document)
    client.until(job, ["running"])
    client.call("jobs", "cancel_job", 202, job=job.id)
    assert client.until(job, ["succeeded", "failed", "cancelled"]).phase.value == "cancelled"


def a_refusal_is_a_problem_with_its_fields(client):
    document = example("single") | {"name": "Not A Name"}
    models = importlib.import_module("client.models")
    problem = client.call("jobs", "create_job", 422, body=models.JobDocument.from_dict(document))
    assert problem.code and any(fault.path == "name" for fault in problem.errors), problem


def lists_have_pages(client):
    page = client.call("jobs", "list_jobs", 200, limit=1)
    assert len(page.items) == 1 and page.next_, page
    other = client.call("jobs", "list_jobs", 200, limit=1, cursor=page.next_)
    assert other.items and other.items[0].id != page.items[0].id, other


def main():
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="trainyard-client-") as folder, Served() as served:
        words = generate(pathlib.Path(folder))
        client = Client(served)

        # What the generator can't take it leaves out of the client, with a warning. A second way to write a body is
        # all that may be missing.
        def every_operation_is_in_the_client(_):
            document = json.loads((ROOT / "openapi/trainyard.json").read_text())
            wanted = {operation["operationId"] for item in document["paths"].values() for operation in item.values()}
            there = {path.stem for path in pathlib.Path(folder).glob("client/api/*/*.py")} - {"__init__"}
            assert there == wanted, f"missing: {wanted - there}"
            assert "Unable to process schema" not in words, words

        for test in (every_operation_is_in_the_client, a_job_is_submitted_and_followed_to_its_end,
                     a_running_job_is_cancelled, a_refusal_is_a_problem_with_its_fields, lists_have_pages):
            try:
                test(client)
                passed += 1
                print(f"ok      {test.__name__}")
            except Exception as error:
                failed += 1
                print(f"FAILED  {test.__name__}: {type(error).__name__}: {error}")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
