"""REINFORCE on CartPole: the very program that chapter 6 shows, with ten seeds, and the agent at three stages of its training.

The program is read from the page, so that what is recorded is what the reader sees.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from claims import cells
from torch import nn
from torch.distributions import Categorical

from rlbook_lib.environments import cartpole_change

SEEDS = range(10)
CASES: dict[str, dict[str, Any]] = {
    "plain": {"film": True},
    "baseline": {"baseline": True},
    "rate 0.001": {"baseline": True, "rate": 0.001},
    "rate 0.1": {"baseline": True, "rate": 0.1},
}
STAGES = {"before": 0, "halfway": 15, "after": 59}  # updates
FRAMES, EVERY = 76, 4  # of the film; environment steps of 0.02 s


def program() -> dict[str, Any]:
    """``play`` and ``reinforce`` as the page defines them."""
    return cells("06_policy_gradients", "pg-program", "pg-program2")


def filmed(policy: nn.Module, seed: int) -> dict[str, list[float]]:
    """One episode, actions sampled: place and angle of each frame, and its length; a pole that fell drops to the ground."""
    torch.manual_seed(seed)
    env = gymnasium.make("CartPole-v1")
    state, steps, over = env.reset(seed=seed)[0].astype(float), 0, False
    places: list[float] = []
    angles: list[float] = []
    for step in range(FRAMES * EVERY):
        if step % EVERY == 0:
            places.append(round(float(state[0]), 3))
            angles.append(round(float(state[2]), 3))
        if len(places) == FRAMES:
            break
        if not over:
            action = Categorical(logits=policy(torch.as_tensor(state, dtype=torch.float32))).sample().item()
            observation, _, over, _, _ = env.step(int(action))
            state, steps = observation.astype(float), step + 1
        elif abs(state[2]) < np.pi / 2:  # nobody pushes any more
            change = cartpole_change(state[:, None], np.full(1, 0.5), np.cos(state[2:3]), np.sin(state[2:3]))
            state = state + 0.02 * np.array([float(np.ravel(part)[0]) for part in change])
    return {"place": places, "angle": angles, "steps": [steps]}


def less_likely(policy: nn.Module, seed: int) -> float:
    """Probability of the less likely action, mean over the steps of 16 fresh episodes: how random the policy still is."""
    env = gymnasium.make_vec("CartPole-v1", 16, vectorization_mode="vector_entry_point")
    states, _, rewards = program()["play"](policy, env, seed)
    with torch.no_grad():
        chances = torch.softmax(policy(states), dim=-1).min(dim=-1).values
    return float(chances[rewards > 0].mean())


def run(seed: int, film: bool = False, **settings: Any) -> dict[str, list[float]]:
    """Mean return of each update's 16 episodes, how random the last policy is, and the film."""
    returns: list[float] = []
    curves: dict[str, list[float]] = {}
    for update, (policy, mean) in enumerate(program()["reinforce"](seed, **settings)):
        returns.append(mean)
        if film and update in STAGES.values():
            stage = next(name for name, when in STAGES.items() if when == update)
            random = torch.get_rng_state()
            curves |= {f"{stage} {name}": values for name, values in filmed(policy, seed).items()}
            torch.set_rng_state(random)
    return {"return": returns, "less likely": [less_likely(policy, seed)]} | curves
