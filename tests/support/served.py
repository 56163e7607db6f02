"""What suites in Python share: a `trainyard up` of their own, with a private data folder and free ports.

Nothing of it outlives the `with` block: jobs are cancelled, the program is stopped as Ctrl-C stops it, and whatever
still names the data folder after that is killed.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


class Served:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-served-"))
        # As root, Postgres and replicas run as other accounts, which have to get here.
        self.folder.chmod(0o755)
        self.url = f"http://127.0.0.1:{free_port()}"
        self.metrics = f"127.0.0.1:{free_port()}"
        self.process = None
        self.program = os.environ.get("TRAINYARD_BIN", TARGET / "debug/trainyard")
        self.environment = {
            name: value for name, value in os.environ.items()
            if name != "DATABASE_URL" and not name.startswith(("TRAINYARD_", "PG"))
        } | {"XDG_CONFIG_HOME": str(self.folder / "config")}

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_):
        try:
            self.cancel_jobs()
        finally:
            self.end()

    def start(self):
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(
            [self.program, "up", "--data", self.folder / "data", "--listen", self.url.removeprefix("http://"),
             "--metrics-listen", self.metrics],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        client_file = self.folder / "config/trainyard/client.json"
        self.until(lambda: client_file.exists() and self.ready(), 90, "the server to be ready")
        self.token = json.loads(client_file.read_text())["token"]
        # The worker makes this machine's cluster and node after the server answers.
        self.until(lambda: self.get("/api/v1/nodes")["items"], 60, "this machine's node")

    def ready(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"trainyard ended with {self.process.returncode}:\n{self.words()}")
        try:
            return urllib.request.urlopen(self.url + "/readyz", timeout=5).status == 200
        except OSError:
            return False

    def words(self):
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    def until(self, holds, seconds, what):
        deadline = time.monotonic() + seconds
        while not (found := holds()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {seconds} s for {what}:\n{self.words()}")
            time.sleep(0.1)
        return found

    def send(self, method, path, body=None, headers=None):
        """Status and body (JSON, if it is) of a request with the admin's token."""
        head = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            head.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(self.url + path, body, head, method=method)
        try:
            response = urllib.request.urlopen(request, timeout=30)
        except urllib.error.HTTPError as error:
            response = error
        text = response.read()
        return response.status, json.loads(text) if "json" in response.headers.get("Content-Type", "") else text

    def get(self, path):
        status, body = self.send("GET", path)
        if status != 200:
            raise RuntimeError(f"GET {path}: {status} {body}")
        return body

    def made(self, method, path, body=None, headers=None):
        status, answer = self.send(method, path, body, headers)
        if not 200 <= status < 300:
            raise RuntimeError(f"{method} {path}: {status} {answer}")
        return answer

    def job_until(self, job, phases, seconds=90):
        reached = lambda: (found := self.get(f"/api/v1/jobs/{job}"))["phase"] in phases and found
        return self.until(reached, seconds, f"job {job} to be {' or '.join(phases)}")

    def machine_that_died(self):
        """The id of another machine's node: its worker is killed as soon as the node is there. It looks lost 20 s later.

        The other machine is a mount namespace with a machine id of its own. None where this account may not make one."""
        here = {node["id"] for node in self.get("/api/v1/nodes")["items"]}
        data, machine = self.folder / "other", self.folder / "machine-id"
        data.mkdir()
        shutil.copy(self.folder / "data/keys", data)
        machine.write_text(uuid.uuid4().hex)
        apart = ["unshare", "--mount"] + ([] if os.getuid() == 0 else ["--user", "--map-current-user", "--keep-caps"])
        if subprocess.run(apart + ["true"], capture_output=True).returncode != 0:
            return None
        bind = '[ ! -e /etc/machine-id ] || mount --bind "$0" /etc/machine-id; exec "$@"'
        url = f"postgres://trainyard@localhost/postgres?host={self.folder}/data/postgres/run"
        worker = subprocess.Popen(
            apart + ["sh", "-ec", bind, machine, self.program, "work", "--data", data,
                     "--metrics-listen", f"127.0.0.1:{free_port()}"],
            env=self.environment | {"DATABASE_URL": url}, stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )
        others = lambda: [node["id"] for node in self.get("/api/v1/nodes")["items"] if node["id"] not in here]
        try:
            return self.until(others, 60, "another machine's node")[0]
        finally:
            worker.kill()
            worker.wait()

    def cancel_jobs(self):
        if self.process is None or self.process.poll() is not None:
            return
        open_jobs = "/api/v1/jobs?limit=200&" + "&".join(
            f"state={phase}" for phase in ("queued", "starting", "running", "stopping", "suspended"))
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            status, page = self.send("GET", open_jobs)
            # Made-up requests may have shut the admin out; then the jobs end with the folder that they name.
            if status != 200 or not page["items"]:
                return
            for job in page["items"]:
                if job["wanted"] != "cancel":
                    self.send("POST", f"/api/v1/jobs/{job['id']}/cancel")
            time.sleep(0.2)

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in self.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.folder, ignore_errors=True)

    def left(self):
        """Processes whose command line names our folder."""
        needle = str(self.folder).encode()
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if needle in (entry / "cmdline").read_bytes():
                        yield int(entry.name)
                except OSError:
                    continue


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def example(name):
    """A job document of `examples/`, as a tree."""
    import yaml

    return yaml.safe_load((ROOT / "examples" / name / "job.yaml").read_text())
