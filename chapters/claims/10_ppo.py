import numpy as np
import torch
from claims import cells
from record_runs import load


def _reused(epsilon, seed):
    j, gain, _ = cells("10_ppo", "ppo-reuse-tools")["reuse"](epsilon, seed=seed)
    return j, gain.mean(axis=1)


def a_batch_wears_out(seed):
    """**Without the clip, what the batch promises rises at every pass; what is true turns back: a batch wears out.**"""
    j, gain = _reused(None, seed)
    mean = j.mean(axis=1)
    return (np.diff(gain) > 0).all() and mean.max() > mean[0] + 1 and mean[-1] < mean[0]


def exact_advantages_do_not_wear_out(seed):
    """With the exact $A$ in the place of $\\hat A_t$ (last row) the same passes end far above it."""
    j, *_ = cells("10_ppo", "ppo-reuse-tools")["reuse"](None, seed=seed, exact=True)
    return j[-1].mean() > j[0].mean() + 2


def the_clip_is_insurance(seed):
    """With the clip hardly a run falls below its start, and forty passes end not far below the best pass without it"""
    plain, clipped = (_reused(epsilon, seed)[0] for epsilon in (None, 0.2))
    best, kept = plain.mean(axis=1).max(), clipped[-1].mean()
    return (clipped[-1] < clipped[0]).mean() < 0.1 and best - kept < 0.4


def the_weight_of_the_critic_cancels(seed):
    """Two networks, and Adam: the factor nearly cancels."""
    page = cells("10_ppo", "ppo-clip-code", "ppo-collect", "ppo-loss", "ppo-train")
    loss, apart = page["ppo_loss"], []
    for start in range(5 * seed, 5 * seed + 5):  # single starts differ
        made = page["mlp"]((4, 64, 2), activation="relu", output_gain=0.01, seed=start)
        points = [torch.cat([x.flatten() for x in made.parameters()]).detach()]
        for c1 in (0.5, 5.0):
            page["train"].__globals__["ppo_loss"] = lambda *given, c1=c1: loss(*given, c1=c1)
            try:
                (*_, actor) = page["train"](3, seed=start)
            finally:
                page["train"].__globals__["ppo_loss"] = loss
            points.append(torch.cat([x.flatten() for x in actor.parameters()]).detach())
        apart.append(torch.dist(points[1], points[2]) / torch.dist(points[0], points[1]))
    return np.median(apart) < 0.12


def log_old_of_now_ruins_the_policy(seed):
    """With `log_old` from the network of now every ratio is 1, the clip never speaks, and thirty free steps on each batch ruin the policy."""
    runs = load("ppo_lines")
    good, bad = (np.mean(runs.run(seed, **runs.CASES[case])["pushes"][-4:]) for case in ("none", "log_old"))
    return good > 250 and bad < 150
