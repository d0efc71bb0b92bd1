import numpy as np
import torch

from rlbook_lib.divergences import kl_divergence
from rlbook_lib.rlhf import dpo_loss, rlhf_objective, rlhf_optimum, sequence_kl

PRICES = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0]


def _problem(seed, answers=6):
    rng = np.random.default_rng(seed)
    return rng.normal(0, 1, answers), rng.dirichlet(np.ones(answers))


def a_lower_price_never_lowers_the_judge(seed):
    """The judge's mean score can only rise."""
    judge, reference = _problem(seed)
    means = [rlhf_optimum(judge, reference, price) @ judge for price in PRICES]
    return np.all(np.diff(means) < 0)


def the_optimum_is_worth_the_logarithm_of_z(seed):
    """and its value is $\\beta_{\\text{ref}} \\log Z(q)$"""
    judge, reference = _problem(seed)
    best = rlhf_objective(rlhf_optimum(judge, reference, 0.3), judge, reference, 0.3)
    others = np.random.default_rng(seed).dirichlet(np.ones(6), 500)
    none_better = all(rlhf_objective(policy, judge, reference, 0.3) <= best for policy in others)
    return none_better and np.isclose(best, 0.3 * np.log(reference @ np.exp(judge / 0.3)))


def doubled_rewards_go_further(seed):
    """Double the rewards, and it goes further at the same price."""
    judge, reference = _problem(seed)
    near, far = (kl_divergence(rlhf_optimum(k * judge, reference, 0.5), reference) for k in (1, 2))
    return far > near


def a_plus_runs_into_a_corner(seed):
    """it runs into a corner, one answer with probability 1"""
    judge, reference = _problem(seed)

    def paid(policy):
        return policy @ judge + 0.5 * kl_divergence(policy, reference)

    inside = np.random.default_rng(seed).dirichlet(np.ones(6), 2000)
    return max(paid(corner) for corner in np.eye(6)) > max(paid(policy) for policy in inside)


def a_single_sample_may_be_below_zero(seed):
    """Its mean over samples of $\\pi_{\\text{old}}$ is the divergence; a single sample may be below 0"""
    rng = np.random.default_rng(seed)
    old, ref = (torch.from_numpy(rng.normal(0, 0.5, 5)).log_softmax(0) for _ in range(2))
    drawn = torch.from_numpy(rng.choice(5, 100_000, p=old.exp().numpy()))
    found = sequence_kl(old[drawn][:, None], ref[drawn][:, None], torch.ones(len(drawn), 1, dtype=torch.bool))
    true = kl_divergence(old.exp().numpy(), ref.exp().numpy())
    return found.min() < 0 and abs(found.mean() - true) < 4 * found.std() / len(found) ** 0.5


def dpo_ends_at_the_optimum(seed):
    """with all pairs its minimum *is* {eq}`eq-rlhf-optimum`"""
    judge, reference = _problem(seed, answers=4)
    score, ref = torch.tensor(judge), torch.tensor(reference).log()
    i, j = (~torch.eye(4, dtype=torch.bool)).nonzero().T
    logits = ref.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([logits], line_search_fn="strong_wolfe", max_iter=200, tolerance_change=1e-14)

    def closure():
        optimizer.zero_grad()
        p = logits.log_softmax(0)
        pairs = [dpo_loss(p[a, None], p[b, None], ref[a, None], ref[b, None], 0.5) for a, b in zip(i, j, strict=True)]
        loss = (torch.sigmoid(score[i] - score[j]) * torch.stack(pairs)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return np.allclose(logits.softmax(0).detach(), rlhf_optimum(judge, reference, 0.5), atol=1e-3)


def equal_prices_equal_probabilities(seed):
    """Equal weights, equal probabilities."""
    judge, reference = _problem(seed)
    a, b = judge.argmax(), (judge * (np.arange(6) != judge.argmax())).argmin()
    price = (judge[a] - judge[b]) / np.log(reference[b] / reference[a])
    if price <= 0:  # the better answer is the likelier one, too: no price makes them equal
        return True
    best = rlhf_optimum(judge, reference, price)
    left = [rlhf_objective(np.eye(6)[k], judge, reference, price) for k in (a, b)]
    return np.isclose(best[a], best[b]) and np.isclose(*left)
