"""A2C on CartPole with seven values of GAE's lambda: the greedy return in the course of training, twenty seeds (chapter 7)."""

from __future__ import annotations

from rlbook_lib.policy_gradient import A2CConfig, iterate_a2c
from rlbook_lib.training import evaluate_policy

SEEDS = range(20)
CASES = {f"{lam:g}": {"lam": lam} for lam in (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 1.0)}
STEPS, EVERY = 36_864, 8  # environment steps; updates of 16 x 32 steps between two tests


def run(seed: int, lam: float) -> dict[str, list[float]]:
    """Greedy return, mean of 10 episodes, after every eighth update."""
    config = A2CConfig(total_steps=STEPS, learning_rate=7e-3, psi="gae", lam=lam, n=32)
    returns = [
        float(evaluate_policy(record.policy, "CartPole-v1", episodes=10, seed=1000).mean())
        for record in iterate_a2c("CartPole-v1", config, seed=seed)
        if record.update % EVERY == 0
    ]
    return {"return": returns}
