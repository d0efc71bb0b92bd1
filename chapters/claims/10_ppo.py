import numpy as np
import torch
from claims import cells

from rlbook_lib.evaluation import interquartile_mean


def _reused(epsilon, seed):
    j, gain, _ = cells("10_ppo", "ppo-reuse-tools")["reuse"](epsilon, seed=seed)
    return j, gain.mean(axis=1)


def a_batch_wears_out(seed):
    """**Without the clip, what the batch promises rises at every pass; what is true turns back: a batch wears out.**"""
    j, gain = _reused(None, seed)
    middle = interquartile_mean(j.T)
    return (np.diff(gain) > 0).all() and middle.max() > middle[0] + 1 and middle[-1] < middle[0]


def the_clip_is_insurance(seed):
    """It is insurance: its end is near the best pass without it (within 0.7 for other batches), and nobody tells you which pass that was; too many without it end below the start."""
    plain, clipped = (_reused(epsilon, seed)[0] for epsilon in (None, 0.2))
    middle, kept = interquartile_mean(plain.T), interquartile_mean(clipped.T)
    return abs(middle.max() - kept[-1]) < 0.7 and (clipped[-1] < clipped[0]).mean() < 0.1 and middle[-1] < middle[0]


def the_weight_of_the_critic_cancels(seed):
    """Two networks, and Adam: the factor nearly cancels."""
    page = cells("10_ppo", "ppo-clip-code", "ppo-collect", "ppo-loss", "ppo-train")
    ends = []
    for c1 in (0.5, 5.0):
        loss = page["ppo_loss"]
        page["train"].__globals__["ppo_loss"] = lambda *given, c1=c1: loss(*given, c1=c1)
        try:
            (*_, actor) = page["train"](3, seed=seed)
        finally:
            page["train"].__globals__["ppo_loss"] = loss
        ends.append(torch.cat([x.flatten() for x in actor.parameters()]).detach())
    start = page["mlp"]((4, 64, 2), activation="relu", output_gain=0.01, seed=seed).double()
    way = torch.cat([x.flatten() for x in start.parameters()]).detach()
    return torch.dist(*ends) < 0.1 * torch.dist(ends[0], way)
