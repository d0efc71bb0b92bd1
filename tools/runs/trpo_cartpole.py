"""CartPole with one step a batch: the trust-region step, the same radius along the plain gradient, and plain steps (chapter 9)."""

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rlbook_lib import trpo
from rlbook_lib.environments import vectorize
from rlbook_lib.networks import CategoricalPolicy, ValueNetwork
from rlbook_lib.rollout import Collector
from rlbook_lib.training import evaluate_policy

SEEDS = range(20)
UPDATES = 24  # of 32 copies, 64 steps each
CASES = {
    "natural step, radius 0.05": {"rule": "natural", "size": 0.05},
    "plain direction, radius 0.05": {"rule": "plain, radius", "size": 0.05},
    "plain step, rate 1": {"rule": "plain, rate", "size": 1.0},
    "plain step, rate 3": {"rule": "plain, rate", "size": 3.0},
    "plain step, rate 10": {"rule": "plain, rate", "size": 10.0},
    "natural step, radius 0.005": {"rule": "natural", "size": 0.005},
    "plain direction, radius 0.005": {"rule": "plain, radius", "size": 0.005},
    "natural step, radius 0.5": {"rule": "natural", "size": 0.5},
}


def run(seed, rule, size):
    """The return (50 episodes that sample) after every second update; KL(old || new), backtracks of every update."""
    policy = CategoricalPolicy(4, 2, hidden=(64,), activation="relu", seed=seed + 100)
    critic = ValueNetwork(4, hidden=(64,), activation="relu", scale=100.0, seed=seed + 200)
    adam = torch.optim.Adam(critic.parameters(), lr=7e-3, eps=1e-5)
    collector = Collector(vectorize("CartPole-v1", 32, seed=seed), policy, 64, np.random.default_rng(seed))
    order = torch.Generator().manual_seed(seed)
    config = trpo.TRPOConfig(delta=size, delta_end=size) if rule != "plain, rate" else trpo.TRPOConfig()
    draws = np.random.default_rng(1000 + seed)  # of the episodes that judge: training keeps its own
    curves = {"return": [], "kl": [], "gain": [], "backtracks": []}
    for update in range(1, UPDATES + 1):
        rollout = collector.collect()
        batch, (advantages, targets) = rollout.batch(), trpo.trpo_targets(rollout, critic, config)
        if rule == "natural":
            found = trpo.trpo_step(policy, batch.observations, batch.actions, advantages, config)
        else:
            found = plain_step(policy, batch, advantages, rule, size)
        for name in ("kl", "gain", "backtracks"):
            curves[name].append(found[name])
        trpo.fit_values(critic, adam, batch.observations, targets, config, order)
        if update % 2 == 0:
            score = evaluate_policy(policy, "CartPole-v1", episodes=50, seed=1000 + seed, rng=draws).mean()
            curves["return"].append(score)
    return curves


def plain_step(policy, batch, advantages, rule, size):
    """A step along the gradient, in place: rate times gradient, or as long as its true KL is the radius."""
    theta = list(policy.parameters())
    start = parameters_to_vector(theta).detach().clone()
    old = policy(batch.observations)
    old_log = policy.log_prob_of(old, batch.actions)
    g = parameters_to_vector(torch.autograd.grad(-trpo.surrogate_loss(old_log, old_log, advantages), theta))
    old, old_log = old.detach(), old_log.detach()

    @torch.no_grad()
    def at(step):
        vector_to_parameters(start + step, theta)
        out = policy(batch.observations)
        gain = -trpo.surrogate_loss(policy.log_prob_of(out, batch.actions), old_log, advantages) - advantages.mean()
        return float(gain), float(policy.kl_of(old, out).mean())

    if rule == "plain, rate":
        gain, kl = at(size * g)
        return {"kl": kl, "gain": gain, "backtracks": 0}
    low, high, unit = 0.0, 20.0, g / g.norm()
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle * unit)[1] <= size else (low, middle)
    gain, kl = at(low * unit)
    return {"kl": kl, "gain": gain, "backtracks": 0}
