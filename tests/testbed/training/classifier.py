"""Tells two clouds of points apart, on data that it makes itself. Writes checkpoints if told where, and goes on from the last."""

import argparse
import os
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--checkpoint", help="folder; none is written without it")
parser.add_argument("--every", type=int, default=20)
parser.add_argument("--pause", type=float, default=0.0, help="seconds between steps, to last")
args = parser.parse_args()

torch.manual_seed(0)
points = torch.randn(512, 8) + torch.repeat_interleave(torch.tensor([-1.0, 1.0]), 256)[:, None]
labels = torch.repeat_interleave(torch.tensor([0, 1]), 256)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first = 0
path = args.checkpoint and os.path.join(args.checkpoint, "last.pt")
if path and os.path.exists(path):
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["step"]
    print(f"resumed step={first}")
for step in range(first + 1, args.steps + 1):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(points), labels)
    loss.backward()
    optimizer.step()
    if step % args.every == 0:
        print(f"step={step} loss={loss.item():.4f}")
        if path:
            os.makedirs(args.checkpoint, exist_ok=True)
            # Renamed into place, so that a kill in the middle leaves the last whole one.
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path + ".part")
            os.replace(path + ".part", path)
            print(f"checkpoint step={step} path={path}")
    time.sleep(args.pause)
accuracy = (model(points).argmax(1) == labels).float().mean().item()
print(f"done steps={args.steps} accuracy={accuracy:.3f}")
assert accuracy > 0.9
