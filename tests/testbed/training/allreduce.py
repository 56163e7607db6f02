"""Sums each rank's number over all ranks with gloo and checks the sum. Finds its place from whichever variables the job kind sets."""

import os
import socket
import time

import torch
import torch.distributed as dist


def first(*names, default=None):
    for name in names:
        if os.environ.get(name):
            return os.environ[name]
    return default


rank = int(first("RANK", "PET_NODE_RANK", "JOB_COMPLETION_INDEX", default="0"))
world = int(first("WORLD_SIZE", "PET_NNODES", default="1"))
os.environ["MASTER_ADDR"] = first("MASTER_ADDR", "PET_MASTER_ADDR", default="127.0.0.1")
os.environ["MASTER_PORT"] = first("MASTER_PORT", "PET_MASTER_PORT", default="29500")
# Gloo binds to what the host's name resolves to, which in a pod can be an address of another network.
os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")
started = time.time()
# The first rank's name appears in DNS when its pod has an address, which may be after this one's.
while True:
    try:
        socket.gethostbyname(os.environ["MASTER_ADDR"])
        break
    except OSError:
        if time.time() - started > 60:
            raise
        time.sleep(0.2)
dist.init_process_group("gloo", rank=rank, world_size=world)
number = torch.full((4,), float(rank + 1))
dist.all_reduce(number)
expected = world * (world + 1) / 2
assert number.tolist() == [expected] * 4, number
print(f"allreduce rank={rank} world={world} sum={expected:g} host={os.uname().nodename} node={os.environ.get('NODE', '?')} seconds={time.time() - started:.2f}")
dist.barrier()
