"""The library's DQN on CartPole, with one of its changes to chapter 5's program taken back, and with one alone: ten seeds.

Then, with all four taken back, one setting that is another in chapter 5's program.
"""

from __future__ import annotations

from typing import Any

from rlbook_lib.dqn import DQNConfig, iterate_dqn
from rlbook_lib.training import evaluate_policy

SEEDS = range(10)
BACK: dict[str, dict[str, Any]] = {
    "n-step": {"n_step": 1},
    "average": {"target": "copy"},
    "Huber": {"loss": "squared"},
    "double": {"double": False},
}
ALL_BACK = {key: value for change in BACK.values() for key, value in change.items()}
CASES: dict[str, dict[str, Any]] = {
    "all": {},
    **{f"without {name}": change for name, change in BACK.items()},
    **{
        f"only {name}": {key: value for other, change in BACK.items() if other != name for key, value in change.items()}
        for name in BACK
    },
    "without all four": ALL_BACK,
    "copy every 12": ALL_BACK | {"copy_interval": 12},
    "memory of 80,000": ALL_BACK | {"buffer_capacity": 80_000},
    "batch of 128": ALL_BACK | {"batch_size": 128},
    "rate of 0.001": ALL_BACK | {"learning_rate": 1e-3},
}
EVERY = 12_000  # environment steps between two tests


def run(seed: int, **changes: Any) -> dict[str, list[float]]:
    """Steps that the greedy agent holds the pole, mean of twenty fresh episodes, ten times in a run."""
    held: list[float] = []
    for record in iterate_dqn("CartPole-v1", DQNConfig(**changes), seed=seed):
        if record.env_steps < EVERY * (len(held) + 1):
            continue
        held.append(float(evaluate_policy(record.policy, "CartPole-v1", episodes=20, seed=1000).mean()))
    return {"steps": held}
