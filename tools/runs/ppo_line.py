"""CartPole: objectives of one batch and the true return along the line from the old policy to the new one (chapter 10)."""

import copy

import numpy as np
import torch

from rlbook_lib import ppo
from rlbook_lib.environments import vectorize

SEEDS = range(10)
CASES = {"after 8 updates": {"updates": 8}}
ALPHAS = [0.5 * k for k in range(17)]


def mean_return(policy, episodes=100, seed=1000):
    """Of the policy as it acts, undiscounted."""
    env, rng, running = (
        vectorize("CartPole-v1", episodes, seed=seed),
        np.random.default_rng(seed),
        np.ones(episodes, dtype=bool),
    )
    env.reset()
    total = np.zeros(episodes)
    while running.any():
        actions, _, _ = policy.sample(env.observations, rng)
        step = env.step(actions)
        total += running * step.rewards
        running &= ~(step.terminated | step.truncated)
    return total.mean()


def run(seed, updates):
    """One more update of thirty passes at epsilon 0.2, and what lies on the line through both policies."""
    config = ppo.PPOConfig(total_steps=100_000, epochs=30, clip=0.2)
    learner = ppo.Learner("CartPole-v1", config, seed)
    for _ in range(updates):
        learner.improve(ppo.prepare_batch(learner.collector.collect(), learner.networks.value, config))
    batch = ppo.prepare_batch(learner.collector.collect(), learner.networks.value, config)
    old = copy.deepcopy(learner.networks.policy)
    learner.improve(batch)
    new = learner.networks.policy
    line = ppo.interpolate_objectives(old, new, batch.observations, batch.actions, batch.advantages, ALPHAS, 0.2)
    between, returns = copy.deepcopy(old), []
    for alpha in ALPHAS:
        between.load_state_dict(ppo.interpolate_parameters(old.state_dict(), new.state_dict(), alpha))
        with torch.no_grad():
            returns.append(mean_return(between))
    learner.environments.close()
    return {
        "alpha": ALPHAS,
        "kl": line.kl,
        "surrogate": line.surrogate,
        "clipped": line.clipped,
        "minimum": line.objective,
        "return": returns,
    }
