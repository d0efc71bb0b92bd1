"""DQN on CartPole: the very program that chapter 5 shows, ten seeds of each setting, and the agent at three stages of its training.

The program is read from the page, so that what is recorded is what the reader sees.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from claims import cells
from torch import nn

from rlbook_lib.environments import cartpole_change

SEEDS = range(10)
CASES: dict[str, dict[str, Any]] = {
    f"C = {interval}, memory {size}": {"copy_every": interval, "size": size}
    for interval in (1, 100, 1000)
    for size in (128, 2000, 20_000)
}
CASES["C = 100, memory 20000"]["film"] = True  # as the page has it
STAGES = {"before": 1, "halfway": 600, "after": 4000}  # updates
EVERY = 200  # updates between two tests
FRAMES, STEPS = 76, 4  # of the film; environment steps of 0.02 s for each frame


def program() -> dict[str, Any]:
    """``dqn`` as the page defines it, and what it needs."""
    return cells("05_dqn", "dqn-small", "dqn-memory", "dqn-program")


def steps_held(names: dict[str, Any], network: nn.Module) -> float:
    """Greedy play: steps that the pole stands, mean of twenty fresh episodes."""
    env = gymnasium.make_vec("CartPole-v1", 20, vectorization_mode="vector_entry_point")
    s, alive, steps = env.reset(seed=1000)[0], np.ones(20, dtype=bool), np.zeros(20)
    while alive.any():
        s, _, terminated, truncated, _ = env.step(names["greedy"](network, s))
        steps += alive
        alive &= ~(terminated | truncated)
    return float(steps.mean())


def filmed(network: nn.Module, seed: int) -> dict[str, list[float]]:
    """A greedy episode: place, angle and both action values of each frame, and its length; a pole that fell drops to the ground."""
    env = gymnasium.make("CartPole-v1")
    state, steps, over = env.reset(seed=seed)[0].astype(float), 0, False
    rows: list[tuple[float, ...]] = []
    while len(rows) < FRAMES:
        with torch.no_grad():
            q = network(torch.as_tensor(state, dtype=torch.float32)).numpy()
        rows.append((round(state[0], 3), round(state[2], 3), round(float(q[0]), 2), round(float(q[1]), 2)))
        for _ in range(STEPS):
            if not over:
                with torch.no_grad():
                    action = int(network(torch.as_tensor(state, dtype=torch.float32)).argmax())
                observation, _, terminated, truncated, _ = env.step(action)
                state, steps, over = observation.astype(float), steps + 1, terminated or truncated
            elif abs(state[2]) < np.pi / 2:  # nobody pushes any more
                change = cartpole_change(state[:, None], np.full(1, 0.5), np.cos(state[2:3]), np.sin(state[2:3]))
                state = state + 0.02 * np.array([float(np.ravel(part)[0]) for part in change])
    place, angle, left, right = (list(column) for column in zip(*rows))
    return {"place": place, "angle": angle, "left": left, "right": right, "steps": [steps]}


def run(seed: int, film: bool = False, **settings: Any) -> dict[str, list[float]]:
    """Steps that the greedy agent holds the pole, after each 200 updates; and the film, of three seeds."""
    names, curve = program(), []
    curves: dict[str, list[float]] = {}
    for update, network in enumerate(names["dqn"](seed, **settings), start=1):
        if update % EVERY == 0:
            random = torch.get_rng_state()
            curve.append(steps_held(names, network))
            torch.set_rng_state(random)
        if film and update in STAGES.values():
            stage = next(name for name, when in STAGES.items() if when == update)
            shot = (
                filmed(network, seed) if seed < 3 else {"place": [], "angle": [], "left": [], "right": [], "steps": []}
            )
            curves |= {f"{stage} {name}": values for name, values in shot.items()}
    return {"steps": curve} | curves
