import numpy as np
import torch

from rlbook_lib.divergences import kl_divergence, kl_estimate
from rlbook_lib.grpo import group_advantages, token_kl, token_objective


def _scores(seed, groups=200, size=8):
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 1, (groups, size)))


def points_do_not_matter_if_divided(seed):
    """With the division, 1 and 10 points give the same advantages"""
    scores = (_scores(seed) > 0).double()
    return torch.allclose(group_advantages(scores), group_advantages(10 * scores), atol=1e-4)


def two_lose_all_but_the_sign(seed):
    """In a group of two the division leaves nothing but the sign, however large or small the difference"""
    scores = _scores(seed, size=2) * torch.from_numpy(np.geomspace(0.01, 100, 200))[:, None]
    return torch.allclose(group_advantages(scores, epsilon=0.0).abs(), torch.ones(200, 2).double())


def equal_scores_teach_nothing(seed):
    """And all right or all wrong: exactly zero."""
    equal = _scores(seed, size=1).float().expand(-1, 11)
    return all(not group_advantages(equal, kind).any() for kind in ("std", "none", "leave_one_out"))


def the_price_of_a_token_is_never_negative(seed):
    """its mean over samples of $\\pi_\\theta$ is the divergence"""
    p, ref = np.random.default_rng(seed).dirichlet(np.ones(7), 2)
    each = np.asarray(kl_estimate(np.log(p), np.log(ref), "k3"))
    return each.min() > 0 and np.isclose(p @ each, kl_divergence(p, ref))


def one_against_seven_alike(seed):
    """the division gives the eighth $\\pm\\sqrt 7 = \\pm 2.65$, however little it is ahead or behind"""
    gaps = _scores(seed, size=1) * torch.from_numpy(np.geomspace(0.01, 100, 200))[:, None]
    groups = torch.cat([gaps, torch.zeros(200, 7).double()], 1)
    first = group_advantages(groups, epsilon=0.0)[:, 0]
    return torch.allclose(first, gaps[:, 0].sign() * 7**0.5)


def the_price_pulls_by_the_distance(seed):
    """The slope at 1 is $\\hat A - \\beta_{\\text{ref}} (1 - u)$"""
    u, a, price = torch.from_numpy(np.random.default_rng(seed).uniform(0.01, 3, (3, 200)))
    ratio = torch.ones(200, dtype=torch.float64, requires_grad=True)
    bracket = token_objective(ratio.log(), 0 * u, a, (0.2, 0.2)) - price * token_kl(ratio.log(), u.log())
    (slope,) = torch.autograd.grad(bracket.sum(), ratio)
    return torch.allclose(slope, a - price * (1 - u))
