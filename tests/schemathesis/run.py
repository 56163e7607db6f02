"""Seeds a server, sends the good requests, lets Schemathesis make up the rest, and counts."""

import collections
import json
import os
import pathlib
import signal
import subprocess
import sys

import schemathesis

import good
from served import ROOT, Served

signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))

DOCUMENT = ROOT / "openapi/trainyard.json"
SEED = os.environ.get("TRAINYARD_SEED", "20261130")
EXAMPLES = os.environ.get("TRAINYARD_EXAMPLES", "100" if os.environ.get("TRAINYARD_TEST_LONG") else "6")
CHECKS = ("not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
          "response_schema_conformance,negative_data_rejection,unsupported_method,ignored_auth")
# Operations that may go without a 2xx, each with its reason. It may only shrink.
WITHOUT_2XX = {
    "POST /api/v1/nodes/{node}/gone": "the only machine is here and alive; tests/stories/gone.rs has one that is gone",
}


def send_good(served, world, counts):
    """One good request per operation, its answer held against the document. Answers what is wrong, by operation."""
    wrong = {}
    requests = good.requests(world)
    schema = schemathesis.openapi.from_path(DOCUMENT)
    for found in schema.get_all_operations():
        operation = found.ok()
        name = operation.definition.raw["operationId"]
        if operation.label in WITHOUT_2XX:
            continue
        if name not in requests:
            wrong[name] = "tests/schemathesis/good.py has no good request for it"
            continue
        try:
            case = operation.Case(**requests[name]())
            response = case.call(base_url=served.url, headers={"Authorization": f"Bearer {served.token}"}, timeout=30)
            counts[operation.label][response.status_code] += 1
            if not 200 <= response.status_code < 300:
                wrong[name] = f"a good request got {response.status_code}: {response.text[:400]}"
            case.validate_response(response)
        except (Exception, BaseExceptionGroup) as error: # failed checks come as a group of their own
            wrong.setdefault(name, f"{type(error).__name__}: {error}")
    return wrong


def fuzz(served, world, counts):
    """`st run` with fixed seed and bounded examples; whether it found nothing."""
    (served.folder / "seeds").write_text(json.dumps(good.seeds(world)))
    mine = os.environ | {
        "SCHEMATHESIS_HOOKS": "hooks", "TRAINYARD_SEEDS": str(served.folder / "seeds"),
        "TRAINYARD_COUNTS": str(served.folder / "counts"),
    }
    done = subprocess.run(
        [pathlib.Path(sys.executable).parent / "st", "run", DOCUMENT, "--url", served.url,
         "--header", f"Authorization: Bearer {served.token}", "--phases", "examples,coverage,fuzzing", "--checks", CHECKS,
         "--max-examples", EXAMPLES, "--seed", SEED, "--continue-on-failure", "--request-timeout", "20",
         "--generation-database", "none", "--no-color", "--warnings", "off", "--max-time", "110"],
        env=mine, cwd=served.folder,
    )
    for label, statuses in json.loads((served.folder / "counts").read_text()).items():
        for status, count in statuses.items():
            counts[label][int(status)] += count
    return done.returncode == 0


def table(counts):
    classes = ("2xx", "3xx", "4xx", "5xx")
    print(f"{'operation':<64}" + "".join(f"{name:>7}" for name in classes) + "  statuses")
    for label, statuses in sorted(counts.items(), key=lambda item: item[0].split(" ")[::-1]):
        sums = collections.Counter()
        for status, count in statuses.items():
            sums[f"{status // 100}xx"] += count
        seen = " ".join(f"{status}:{count}" for status, count in sorted(statuses.items()))
        print(f"{label:<64}" + "".join(f"{sums[name]:>7}" for name in classes) + f"  {seen}")
    total = sum(sum(statuses.values()) for statuses in counts.values())
    print(f"{total} requests to {len(counts)} operations, seed {SEED}")


def main():
    counts = collections.defaultdict(collections.Counter)
    with Served() as served:
        world = good.World(served)
        wrong = send_good(served, world, counts)
        fuzzed = fuzz(served, world, counts)
        # Whatever was asked of it, the server is still there and well.
        assert served.ready(), served.words()
    print()
    table(counts)
    operations = [f"{method.upper()} {path}" for path, item in json.loads(DOCUMENT.read_text())["paths"].items()
                  for method in item]
    bare = {label for label in operations if not any(200 <= status < 300 for status in counts[label])}
    for label in sorted(bare - set(WITHOUT_2XX)):
        wrong.setdefault(label, "no request got a 2xx")
    for label in sorted(set(WITHOUT_2XX) - bare):
        wrong.setdefault(label, "it gets a 2xx by now: strike it off WITHOUT_2XX")
    if not fuzzed:
        wrong["st run"] = "made-up requests found faults, see above"
    for name, words in wrong.items():
        print(f"FAILED  {name}: {words}")
    print(f"{max(0, len(operations) + 1 - len(wrong))} passed, {len(wrong)} failed")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
