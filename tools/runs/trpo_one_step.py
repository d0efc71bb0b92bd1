"""One batch of CartPole, several steps from it: along the gradient as far as one likes, and the trust-region step (chapter 9)."""

from copy import deepcopy

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rlbook_lib import trpo
from rlbook_lib.environments import vectorize
from rlbook_lib.networks import CategoricalPolicy, ValueNetwork
from rlbook_lib.rollout import Collector
from rlbook_lib.training import evaluate_policy

SEEDS = range(20)
CASES = {f"after {n} updates": {"updates": n} for n in (1, 2, 5, 12)}
LENGTHS = np.round(np.geomspace(0.025, 3.2, 15), 4)  # of a step along the gradient, in parameters
CONFIG = trpo.TRPOConfig(delta=0.05, delta_end=0.05)


def prepared(seed, updates):
    """A policy after so many updates, its next batch, and the batch's advantages."""
    policy = CategoricalPolicy(4, 2, hidden=(64,), activation="relu", seed=seed + 100)
    critic = ValueNetwork(4, hidden=(64,), activation="relu", scale=100.0, seed=seed + 200)
    adam = torch.optim.Adam(critic.parameters(), lr=7e-3, eps=1e-5)
    collector = Collector(vectorize("CartPole-v1", 32, seed=seed), policy, 64, np.random.default_rng(seed))
    order = torch.Generator().manual_seed(seed)
    for update in range(updates + 1):
        rollout = collector.collect()
        batch, (advantages, targets) = rollout.batch(), trpo.trpo_targets(rollout, critic, CONFIG)
        if update < updates:
            trpo.trpo_step(policy, batch.observations, batch.actions, advantages, CONFIG)
            trpo.fit_values(critic, adam, batch.observations, targets, CONFIG, order)
    return policy, batch, advantages


def run(seed, updates):
    """Gain of the batch's surrogate, KL(old || new) and true return (200 episodes that sample) of each step."""
    policy, batch, advantages = prepared(seed, updates)
    theta = list(policy.parameters())
    start = parameters_to_vector(theta).detach().clone()
    old = policy(batch.observations)
    old_log = policy.log_prob_of(old, batch.actions)
    g = parameters_to_vector(torch.autograd.grad(-trpo.surrogate_loss(old_log, old_log, advantages), theta))
    old, old_log, unit = old.detach(), old_log.detach(), g / g.norm()

    @torch.no_grad()
    def gain_and_kl(length):
        vector_to_parameters(start + length * unit, theta)
        out = policy(batch.observations)
        loss = trpo.surrogate_loss(policy.log_prob_of(out, batch.actions), old_log, advantages)
        return float(-loss - advantages.mean()), float(policy.kl_of(old, out).mean())

    def length_of(kl):
        low, high = 0.0, 20.0
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if gain_and_kl(middle)[1] <= kl else (low, middle)
        return low

    def score(actor):
        rng = np.random.default_rng(seed)  # the surrogate speaks of the policy that samples
        return evaluate_policy(actor, "CartPole-v1", episodes=200, seed=1000 + seed, rng=rng).mean()

    curves = {"old return": [score(policy)], "length": list(LENGTHS), "gain": [], "kl": [], "return": []}
    for length in LENGTHS:
        gain, kl = gain_and_kl(length)
        for name, value in (("gain", gain), ("kl", kl), ("return", score(policy))):
            curves[name].append(value)
    vector_to_parameters(start, theta)
    natural = deepcopy(policy)
    found = trpo.trpo_step(natural, batch.observations, batch.actions, advantages, CONFIG)
    curves["natural"] = [found["gain"], found["kl"], score(natural)]
    same = length_of(found["kl"])
    curves["plain, same kl"] = [*gain_and_kl(same), score(policy), same]
    curves["length of kl 0.01"] = [length_of(0.01)]
    return curves
