"""One batch of CartPole and three steps from it, with the places of the poles that fall (chapter 9); steps as in ``trpo_one_step``."""

from copy import deepcopy

import numpy as np
import torch
from torch.autograd import grad
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from record_runs import load
from rlbook_lib import trpo
from rlbook_lib.environments import vectorize

one_step = load("trpo_one_step")
SEEDS, CASES, LENGTHS, CONFIG = one_step.SEEDS, one_step.CASES, one_step.LENGTHS, one_step.CONFIG


def run(seed, updates):
    """Of the old policy and the three new ones: how many poles of 100 end on the same side; and two directions' price."""
    policy, batch, advantages = one_step.prepared(seed, updates)
    theta, out = list(policy.parameters()), policy(batch.observations)
    start, old = parameters_to_vector(theta).detach().clone(), out.detach()
    flat = lambda number, **keep: parameters_to_vector(grad(number, theta, retain_graph=True, **keep))
    g = flat((policy.log_prob_of(out, batch.actions) * advantages).mean())

    @torch.no_grad()
    def stepped(length):
        new = deepcopy(policy)
        vector_to_parameters(start + length * g / g.norm(), new.parameters())
        after = new(batch.observations)
        ratio = (after - old).gather(1, batch.actions[:, None])[:, 0].exp()
        return new, float(((ratio - 1) * advantages).mean()), float(policy.kl_of(old, after).mean())

    near, low, high = deepcopy(policy), 0.0, 20.0
    kl = trpo.trpo_step(near, batch.observations, batch.actions, advantages, CONFIG)["kl"]
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if stepped(middle)[2] <= kl else (low, middle)
    peak = max((stepped(length) for length in LENGTHS), key=lambda row: row[1])[0]

    def one_side(actor):
        world, rng = vectorize("CartPole-v1", 100, seed=1000 + seed), np.random.default_rng(seed)
        world.reset()
        left, going = np.zeros(100, bool), np.ones(100, bool)
        for _ in range(500):
            step = world.step(actor.act(world.observations, greedy=False, rng=rng))
            left[going] = step.next_observations[going, 2] < 0
            going &= ~np.asarray(step.terminated)
            if not going.any():
                break
        return max(left.mean(), 1 - left.mean())

    def one_push(actor):
        with torch.no_grad():
            right = float((actor(batch.observations) > old)[:, 1].float().mean())
        return max(right, 1 - right)  # of the states: those in which the same push is likelier now

    # the push raised in all states at once, and what is left of the gradient: gain and curvature of a unit of each
    push = flat((out[:, 1] - out[:, 0]).mean())
    push = push / push.norm() * torch.sign(push @ g)
    rest = g - (g @ push) * push
    both = torch.stack([push, rest / rest.norm()])
    slope = flat(policy.kl_of(old, out).mean(), create_graph=True)
    fisher, gain = torch.stack([flat(slope @ v) for v in both]) @ both.T, both @ g
    best = torch.linalg.solve(fisher, gain)
    return {
        "one side": [one_side(actor) for actor in (policy, peak, stepped(low)[0], near)],
        "one push": [one_push(stepped(low)[0]), one_push(near)],
        "gain of a unit": gain.tolist(),
        "curvature": fisher.diag().tolist(),
        "plain share": [float(gain @ gain / (gain @ fisher @ gain * (gain @ best)).sqrt())],
    }
