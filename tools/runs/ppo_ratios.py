"""The ratios of one batch of CartPole, pass by pass, for four clip ranges (chapter 10)."""

import numpy as np
import torch

from rlbook_lib import ppo

SEEDS = range(5)
CASES = {str(clip): {"clip": clip} for clip in (0.1, 0.2, 0.3, 0.5)}
PASSES = (0, 1, 3, 10, 30)
SHOWN = 30  # ratios of so many good and so many bad actions


def run(seed, clip):
    """After four updates: one batch, thirty passes; the ratios of some steps, and what held for all 1,024."""
    config = ppo.PPOConfig(total_steps=100_000, epochs=10, clip=clip)
    learner = ppo.Learner("CartPole-v1", config, seed)
    for _ in range(4):
        learner.improve(ppo.prepare_batch(learner.collector.collect(), learner.networks.value, config))
    batch = ppo.prepare_batch(learner.collector.collect(), learner.networks.value, config)
    advantages = batch.advantages.numpy()
    drawn = np.random.default_rng(seed).permutation(len(advantages))
    good, bad = (drawn[sign * advantages[drawn] > 0][:SHOWN] for sign in (1, -1))
    curves = {"passes": PASSES, "flat": [], "outside": [], "lowest": [], "highest": [], "kl": []}
    for done in range(PASSES[-1] + 1):
        if done in PASSES:
            policy = learner.networks.policy
            with torch.no_grad():
                outputs = policy(batch.observations)
                rho = (policy.log_prob_of(outputs, batch.actions) - batch.log_probs).exp().numpy()
                curves["kl"].append(policy.kl_of(batch.outputs, outputs).mean().item())
            flat = (advantages > 0) & (rho > 1 + clip) | (advantages < 0) & (rho < 1 - clip)
            curves["flat"].append(flat.mean())
            curves["outside"].append((np.abs(rho - 1) > clip).mean())
            curves["lowest"].append(rho.min())
            curves["highest"].append(rho.max())
            curves[f"good {done}"], curves[f"bad {done}"] = np.sort(rho[good]), np.sort(rho[bad])
        one = ppo.PPOConfig(total_steps=100_000, epochs=1, clip=clip)
        ppo.ppo_update(
            learner.networks, learner.run.optimizer, batch, one, epsilon=clip, beta=1.0, shuffle=learner.run.shuffle
        )
    learner.environments.close()
    return curves
