"""CartPole with thirty passes over each batch, with and without something that holds the policy back (chapter 10)."""

from rlbook_lib import ppo
from rlbook_lib.training import evaluate_policy

SEEDS = range(20)
CASES = {
    "clip": {"epochs": 30, "clip": 0.2},
    "no clip": {
        "epochs": 30,
        "objective": "penalty",
        "kl_coefficient": 1e-9,
        "kl_rule": "fixed",
    },  # the plain surrogate
    "one pass": {"epochs": 1, "clip": 0.2},
    "penalty": {"epochs": 30, "objective": "penalty", "kl_coefficient": 1.0, "kl_target": 0.01},
}


def run(seed, **settings):
    """The greedy return (five episodes) after every second update, and what every update measured."""
    config = ppo.PPOConfig(total_steps=16_384, **settings)
    curves = {"return": [], "kl": [], "clip_fraction": []}
    for record in ppo.iterate_ppo("CartPole-v1", config, seed=seed):
        curves["kl"].append(record.metrics["kl"])
        curves["clip_fraction"].append(record.metrics["clip_fraction"])
        if record.update % 2 == 0:
            curves["return"].append(evaluate_policy(record.policy, "CartPole-v1", episodes=5, seed=1000).mean())
    return curves
