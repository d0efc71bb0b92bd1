"""How far the ratios of real updates leave the clip's range: this book's settings for CartPole and usual ones (chapter 10)."""

import torch

from rlbook_lib import ppo

SEEDS = range(5)
CASES = {
    "here": {
        "copies": 16,
        "steps": 64,
        "epochs": 6,
        "minibatches": 1,
        "learning_rate": 7e-3,
        "hidden": [64],
        "activation": "relu",
    },
    "usual": {
        "copies": 4,
        "steps": 128,
        "epochs": 4,
        "minibatches": 4,
        "learning_rate": 2.5e-4,
        "hidden": [64, 64],
        "activation": "tanh",
    },
}


def run(seed, hidden, **settings):
    """Twenty updates at epsilon 0.2: the largest and the smallest ratio after each, the share outside, the mean KL."""
    config = ppo.PPOConfig(total_steps=100_000, clip=0.2, hidden=tuple(hidden), **settings)
    learner = ppo.Learner("CartPole-v1", config, seed)
    curves = {"highest": [], "lowest": [], "outside": [], "kl": []}
    for _ in range(20):
        batch = ppo.prepare_batch(learner.collector.collect(), learner.networks.value, config)
        metrics = learner.improve(batch)
        policy = learner.networks.policy
        with torch.no_grad():
            rho = ppo.probability_ratio(policy.log_prob_of(policy(batch.observations), batch.actions), batch.log_probs)
        curves["highest"].append(rho.max().item())
        curves["lowest"].append(rho.min().item())
        curves["outside"].append(metrics["clip_fraction"])
        curves["kl"].append(metrics["kl"])
    learner.environments.close()
    return curves
