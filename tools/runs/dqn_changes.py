"""The library's DQN on CartPole, with one of its changes to chapter 5's program taken back, and with one alone: ten seeds."""

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
        held.append(float(evaluate_policy(record.policy, "CartPole-v1", episodes=20, seed=1000).mean()))
    return {"steps": held}
