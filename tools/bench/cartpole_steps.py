"""How many CartPole steps a CPU-second? The book's batched CartPole against Gymnasium's vector CartPole.

    python tools/bench/cartpole_steps.py

Random actions, drawn beforehand; checks, resets and the book of finished episodes included. Repeats
alternate, CPU-seconds count, one thread, the median comes first. Writes ``tools/bench/results/cartpole_steps.json``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from common import cpu_seconds, machine, save, summary, table  # first: it fixes the number of threads

import gymnasium
import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rlbook_lib.environments import BatchedCartPole, TorchCartPole  # noqa: E402

STEPS = {64: 4000, 1024: 1000, 16384: 60}  # of all copies together, in one timing
REPEATS = 7


def runs(copies: int, steps: int) -> dict:
    """One function per contender that takes the same actions."""
    actions = np.random.default_rng(0).integers(2, size=(steps, copies))
    actions_in_torch = torch.tensor(actions)
    ours, on_torch = BatchedCartPole(copies, seed=0), TorchCartPole(copies, seed=0, device="cpu")
    theirs = gymnasium.make_vec("CartPole-v1", num_envs=copies, vectorization_mode="vector_entry_point")
    for environment in (ours, on_torch):
        environment.reset()
    theirs.reset(seed=0)

    def run(environment, rows):
        for row in rows:
            environment.step(row)
        if environment is not theirs:
            environment.pop_episodes()

    return {"numpy": lambda: run(ours, actions), "torch": lambda: run(on_torch, actions_in_torch),
            "gymnasium": lambda: run(theirs, actions)}


def main() -> None:
    torch.set_num_threads(1)
    record = {"what": "CartPole steps per CPU-second, one thread", "repeats": REPEATS,
              "machine": machine(["numpy", "torch", "gymnasium"]), "copies": {}}
    rows = []
    for copies, steps in STEPS.items():
        seconds, _ = cpu_seconds(runs(copies, steps), REPEATS)
        speed = {name: copies * steps / summary(taken)["median_s"] for name, taken in seconds.items()}
        ratio = float(np.median(np.array(seconds["gymnasium"]) / np.array(seconds["numpy"])))
        record["copies"][str(copies)] = {
            "steps": steps, "seconds": {name: summary(taken) for name, taken in seconds.items()},
            "steps_per_second": {name: round(value) for name, value in speed.items()},
            "numpy_over_gymnasium": round(ratio, 3),
        }
        rows.append({"copies": str(copies), **{name: f"{value / 1e6:.2f} M" for name, value in speed.items()},
                     "numpy / gymnasium": f"{ratio:.2f}"})
    print(table(rows))
    save("cartpole_steps", record)


if __name__ == "__main__":
    main()
