from itertools import product

import numpy as np
import torch

from rlbook_lib.grpo import group_advantages, zero_variance_probability


def _mean_gradient(seed, kind, size):
    """The expected gradient with this baseline over all groups, and the gradient of the mean score."""
    rng = np.random.default_rng(seed)
    p, score = torch.from_numpy(rng.normal(0, 1, 3)).softmax(0), torch.from_numpy(rng.normal(0, 1, 3))
    mean = torch.zeros(3, dtype=torch.float64)
    for drawn in map(torch.tensor, product(range(3), repeat=size)):
        a = group_advantages(score[drawn][None], kind)[0]
        mean += p[drawn].prod() * (a @ (torch.eye(3)[drawn] - p)) / size
    return mean, p * (score - p @ score)


def a_shift_of_a_prompt_does_not_show(seed):
    """Add to all scores of a prompt any number $c(q)$, as if one prompt were easy and another hard: the advantages do not move."""
    rng = np.random.default_rng(seed)
    scores, shift = (torch.from_numpy(rng.normal(0, 3, shape)) for shape in ((20, 8), (20, 1)))
    kinds = ("std", "none", "leave_one_out")
    return all(torch.allclose(group_advantages(scores, k), group_advantages(scores + shift, k)) for k in kinds)


def by_prompts_two_win(seed):
    """By prompts, $G = 2$ wins: from each size to the next"""
    sizes = [2, 4, 8, 16, 32, 64]
    chances = np.random.default_rng(seed).uniform(0, 1, 200)
    useful = np.array([[(1 - zero_variance_probability(p, size)) / size for size in sizes] for p in chances])
    return np.all(np.diff(useful, axis=1) < 0)


def the_full_weight_repairs_the_mean(seed):
    """The full weight repairs the mean"""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1, 3)
    pi, mu = (np.exp(x) / np.exp(x).sum() for x in (logits, logits + rng.normal(0, 0.7, 3)))
    pulls = rng.normal(0, 1, 3)[:, None] * (np.eye(3) - pi)
    return np.allclose(mu @ ((pi / mu)[:, None] * pulls), pi @ pulls)


def the_second_moment_may_shrink(seed):
    """On other numbers the second moment may shrink: where the sampler draws too often just the answers whose advantages are large."""
    rng = np.random.default_rng(seed)
    advantages = rng.normal(0, 1, (500, 3))
    pi, mu = rng.dirichlet(np.ones(3), 500), rng.dirichlet(np.ones(3), 500)
    shrinks = (mu * (pi / mu * advantages) ** 2).sum(1) < (mu * advantages**2).sum(1)
    # where it shrinks, the answer of the largest advantage is mostly one that the sampler draws too often
    largest = np.abs(advantages).argmax(1)[:, None]
    often = np.take_along_axis(mu > pi, largest, 1)[:, 0]
    return 0 < shrinks.sum() < 500 and often[shrinks].mean() > 0.8 > often[~shrinks].mean()


def the_mean_shortens_the_gradient(seed):
    """Its expected gradient is $1 - 1/G$ times the right one"""
    pairs = [(size, *_mean_gradient(seed, "none", size)) for size in (2, 3, 5)]
    return all(torch.allclose(mean, (1 - 1 / size) * exact) for size, mean, exact in pairs)


def leaving_one_out_is_unbiased(seed):
    """Leaving one out is unbiased."""
    return all(torch.allclose(*_mean_gradient(seed, "leave_one_out", size)) for size in (2, 3, 5))
