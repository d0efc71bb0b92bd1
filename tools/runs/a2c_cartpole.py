"""A2C on CartPole at one fairly large learning rate: the greedy return in the course of training, ten seeds."""

from __future__ import annotations

from rlbook_lib.policy_gradient import A2CConfig, iterate_a2c
from rlbook_lib.training import evaluate_policy

SEEDS = range(10)
CASES = {"n = 32": {"n": 32, "learning_rate": 7e-3}}
STEPS, EVERY = 36_864, 8  # environment steps; updates of 16 x 32 steps between two tests


def run(seed: int, n: int, learning_rate: float) -> dict[str, list[float]]:
    """Greedy return, mean of 10 episodes, after every eighth update."""
    config = A2CConfig(total_steps=STEPS, learning_rate=learning_rate, psi="n_step", n=n)
    returns = [
        float(evaluate_policy(record.policy, "CartPole-v1", episodes=10, seed=1000).mean())
        for record in iterate_a2c("CartPole-v1", config, seed=seed)
        if record.update % EVERY == 0
    ]
    return {"return": returns}
