"""What `st run` loads: seeded ids in two of three requests, and counts of what was answered.

The run and its hooks are two processes; the seeds come and the counts go through files that the environment names.
"""

import atexit
import collections
import json
import os
import random

import schemathesis

SEEDS = json.load(open(os.environ["TRAINYARD_SEEDS"]))
COUNTS = collections.defaultdict(collections.Counter)
DICE = random.Random(20)


def negative(case, part):
    """Whether this part of the request was made to be wrong."""
    components = case.meta.components if case.meta else {}
    for location, info in components.items():
        if location.value == part:
            return info.mode.value == "negative"
    return False


@schemathesis.hook
def before_call(context, case, **kwargs):
    operation = case.operation.definition.raw.get("operationId")
    if not negative(case, "path") and DICE.random() < 0.67:
        seeds = SEEDS["special"].get(operation, {}) | {}
        for name in case.path_parameters or {}:
            known = seeds.get(name) or SEEDS["path"].get(name)
            if known:
                case.path_parameters[name] = DICE.choice(known)
    # Made-up documents are checked and not run: nobody wants their commands on this machine.
    if operation == "create_job" and not negative(case, "query"):
        case.query = {**(case.query or {}), "dry_run": "true"}
    # A check's wait is not what is tested here.
    if operation == "ask_check" and case.headers:
        case.headers.pop("Prefer", None)


@schemathesis.hook
def after_call(context, case, response):
    COUNTS[case.operation.label][response.status_code] += 1


@atexit.register
def write():
    with open(os.environ["TRAINYARD_COUNTS"], "w") as file:
        json.dump({label: dict(counts) for label, counts in COUNTS.items()}, file)
