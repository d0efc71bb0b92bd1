"""A network counts the steps in the corridor of chapter 5, from all its transitions at once: the program of the page, twelve networks each.

The program is read from the page, so that what is recorded is what the reader sees.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from claims import cells

SEEDS = range(12)
CASES: dict[str, dict[str, Any]] = {
    "C = 1": {"copy_every": 1},
    "C = 50": {"copy_every": 50},
    "average": {"average": 0.04},
    "C = 1, position": {"copy_every": 1, "inputs": "place"},
    "C = 50, position": {"copy_every": 50, "inputs": "place"},
}
UPDATES, EVERY = 2000, 10
FILMED = 600  # updates whose values and labels are kept, for seed 0


def program() -> dict[str, Any]:
    """``train_counting`` as the page defines it, and what it needs."""
    return cells("05_dqn", "dqn-small", "dqn-strip", "dqn-neighbors", "dqn-corridor")


def run(seed: int, inputs: str = "one_hot", **settings: Any) -> dict[str, list[float]]:
    """Every ten updates: the error of the counts, and the largest; the counts and their labels themselves for seed 0."""
    names = program()
    coded = names[inputs]
    exact = np.arange(names["CELLS"], 0, -1)
    values, labels = [], []
    for k, (network, y) in enumerate(names["train_counting"](seed, updates=UPDATES, inputs=coded, **settings)):
        if k % EVERY == 0:
            with torch.no_grad():
                values.append(network(coded)[:, 0].numpy().copy())
            labels.append(y.numpy().copy())
    rows = FILMED // EVERY + 1 if seed == 0 else 0
    errors = np.sqrt(((np.array(values) - exact) ** 2).mean(axis=1))
    return {
        "error": np.round(errors[::5], 4).tolist(),
        "largest": np.round(np.max(values, axis=1)[::5], 3).tolist(),
        "most": [round(float(np.max(values)), 3)],
        "values": np.round(values[:rows], 2).ravel().tolist(),
        "labels": np.round(labels[:rows], 2).ravel().tolist(),
    }
