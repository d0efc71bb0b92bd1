"""DQN on the maze of six cells with targets of one and of five steps: the learned value of the start cell (an exercise of chapter 5)."""

from __future__ import annotations

import numpy as np

from rlbook_lib.dqn import DQNConfig, iterate_dqn
from rlbook_lib.maze import Maze

SEEDS = range(6)
CASES = {f"n = {n}": {"n": n} for n in (1, 5)}
UPDATES, EVERY = 2000, 100
START = np.eye(6, dtype=np.float32)[:1]


def run(seed: int, n: int) -> dict[str, list[float]]:
    """Largest action value of the start cell after every hundredth update; the policy goes on exploring."""
    config = DQNConfig(
        total_steps=100 + 4 * UPDATES,
        copies=4,
        batch_size=32,
        learning_rate=5e-3,
        gamma=0.9,
        n_step=n,
        tau=0.1,
        buffer_capacity=1000,
        hidden=(16,),
        epsilon_steps=500,
        epsilon_end=0.5,
        learning_starts=100,
        return_scale=10.0,
        steps_per_update=1,
    )
    values = [
        float(record.policy.numpy(START).max())
        for record in iterate_dqn(lambda: Maze("L1"), config, seed=seed)
        if record.update % EVERY == 0 and record.update <= UPDATES
    ]
    return {"value": values}
