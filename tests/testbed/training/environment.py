"""Prints what a job kind told its pod, as one line of JSON."""

import json
import os

PREFIXES = ("TF_", "MASTER_", "RANK", "WORLD_SIZE", "PET_", "JOB_", "JOBSET_", "TRAINYARD_", "HOSTNAME")
print(json.dumps({k: v for k, v in sorted(os.environ.items()) if k.startswith(PREFIXES)}))
