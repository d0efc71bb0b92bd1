"""How far the ratios of real updates leave the clip's range: in the lesson's setting and with shorter steps (chapter 10)."""

import torch

from rlbook_lib import ppo

SEEDS = range(5)
CASES = {"base": {"learning_rate": 7e-3}, "shorter steps": {"learning_rate": 3e-4}}


def run(seed, **settings):
    """Sixteen updates at epsilon 0.2: the largest and the smallest ratio after each, the share outside, the mean KL."""
    config = ppo.PPOConfig(total_steps=100_000, epochs=30, clip=0.2, **settings)
    learner = ppo.Learner("CartPole-v1", config, seed)
    curves = {"highest": [], "lowest": [], "outside": [], "kl": []}
    for _ in range(16):
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
