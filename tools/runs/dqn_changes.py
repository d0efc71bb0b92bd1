"""The library's DQN on CartPole, with one of its changes to chapter 5's program taken back, and with one alone: ten seeds."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rlbook_lib.dqn import DQNConfig, iterate_dqn

SEEDS = range(10)
BACK: dict[str, dict[str, Any]] = {
    "n-step": {"n_step": 1},
    "average": {"target": "copy"},
    "Huber": {"loss": "squared"},
    "double": {"double": False},
}
CASES: dict[str, dict[str, Any]] = {
    "all": {},
    **{f"without {name}": change for name, change in BACK.items()},
    **{
        f"only {name}": {key: value for other, change in BACK.items() if other != name for key, value in change.items()}
        for name in BACK
    },
    "without all four": {key: value for change in BACK.values() for key, value in change.items()},
}
EVERY = 12_000  # environment steps between two tests


def run(seed: int, **changes: Any) -> dict[str, list[float]]:
    """Steps that the greedy agent holds the pole, mean of twenty fresh episodes, ten times in a run."""
    held: list[float] = []
    for record in iterate_dqn("CartPole-v1", DQNConfig(**changes), seed=seed):
        if record.env_steps < EVERY * (len(held) + 1):
            continue
        env = gymnasium.make_vec("CartPole-v1", 20, vectorization_mode="vector_entry_point")
        s, alive, steps = env.reset(seed=1000)[0], np.ones(20, dtype=bool), np.zeros(20)
        while alive.any():
            s, _, terminated, truncated, _ = env.step(record.policy.numpy(s).argmax(1))
            steps += alive
            alive &= ~(terminated | truncated)
        held.append(float(steps.mean()))
    return {"steps": held}
