"""A network learns the corridor of chapter 5 from all its transitions at once: the program of the page, twelve networks each.

The program is read from the page, so that what is recorded is what the reader sees.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from claims import cells

SEEDS = range(12)
CASES: dict[str, dict[str, Any]] = {f"C = {c}": {"copy_every": c} for c in (1, 10, 50, 100)} | {
    "average": {"average": 0.04}
}
CASES |= {f"{case}, position": settings | {"inputs": "position"} for case, settings in CASES.items()}
UPDATES, EVERY = 3000, 50


def program() -> dict[str, Any]:
    """``train_corridor`` as the page defines it, and what it needs."""
    return cells("05_dqn", "dqn-small", "dqn-strip", "dqn-corridor")


def run(seed: int, inputs: str = "one-hot", **settings: Any) -> dict[str, list[float]]:
    """Every fifty updates: error of the state values, cells whose greedy action is wrong; the values themselves for seed 0."""
    names = program()
    coded = names["one_hot"] if inputs == "one-hot" else torch.linspace(-1, 1, names["CELLS"])[:, None]
    exact = 10 * names["GAMMA"] ** np.arange(names["CELLS"] - 2, -1, -1)
    values, wrong, largest = [], [], 0.0
    for update, network in enumerate(names["train_corridor"](seed, updates=UPDATES, inputs=coded, **settings), start=1):
        with torch.no_grad():
            q = network(coded)[:-1].numpy()
        largest = max(largest, float(q.max()))
        if update % EVERY == 0:
            values.append(q.max(axis=1))
            wrong.append(float((q[:, 0] >= q[:, 1]).sum()))
    errors = np.sqrt(((np.array(values) - exact) ** 2).mean(axis=1))
    kept = np.round(values, 2).ravel().tolist() if seed == 0 else []
    return {"error": errors.tolist(), "wrong": wrong, "largest": [largest], "values": kept}
