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


def lacking(world):
    """Operations that can't get a 2xx on this machine, each with the reason."""
    if world.dead:
        return {}
    return {"declare_gone": "this account may make no mount namespace, which a second machine is made of"}


def send_good(served, world, counts, skipped):
    """One good request per operation, its answer held against the document. Answers what is wrong, by operation."""
    wrong = {}
    requests = good.requests(world)
    schema = schemathesis.openapi.from_path(DOCUMENT)
    for found in schema.get_all_operations():
        operation = found.ok()
        name = operation.definition.raw["operationId"]
        if name in skipped:
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
        skipped = lacking(world)
        wrong = send_good(served, world, counts, skipped)
        fuzzed = fuzz(served, world, counts)
        # Whatever was asked of it, the server is still there and well.
        assert served.ready(), served.words()
    print()
    table(counts)
    operations = {item["operationId"]: f"{method.upper()} {path}"
                  for path, methods in json.loads(DOCUMENT.read_text())["paths"].items() for method, item in methods.items()}
    for name, label in operations.items():
        if name not in skipped and not any(200 <= status < 300 for status in counts[label]):
            wrong.setdefault(name, "no request got a 2xx")
    if not fuzzed:
        wrong["st run"] = "made-up requests found faults, see above"
    for name, words in wrong.items():
        print(f"FAILED  {name}: {words}")
    for name, reason in skipped.items():
        print(f"skipped: {name}: {reason}")
    passed = max(0, len(operations) + 1 - len(wrong) - len(skipped))
    print(f"{passed} passed, {len(wrong)} failed, {len(skipped)} skipped")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
