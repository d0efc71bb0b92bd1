"""The program of chapter 10 with one line changed: the page's own cells are run, as they stand or with a line replaced."""

from __future__ import annotations

from typing import Any

import torch
from claims import cells

SEEDS = range(5)
UPDATES, EVERY, STARTS = 16, 2, 5

CASES: dict[str, dict[str, Any]] = {  # a line as it stands, and in its place
    "none": {"old": "(log_new - log_old)", "new": "(log_new - log_old)"},
    "log_old": {"old": "(log_new - log_old)", "new": "(log_new - log_new.detach())"},
    "clip only": {"old": "torch.min(rho * adv, clipped * adv).mean()", "new": "(clipped * adv).mean()"},
    "no scale": {"old": "(adv - adv.mean()) / adv.std()", "new": "adv"},
    "end": {"old": "v2 * ~end - v", "new": "v2 - v"},
    "leak": {"old": "adv[t + 1] * ~(end | cut)[t]", "new": "adv[t + 1]"},
}


def pushes(actor: Any, vectorize: Any) -> float:
    """How long the pole stands, at most 500 pushes, the likelier push each time: the mean of some starts."""
    env = vectorize("CartPole-v1", STARTS, seed=1000)
    env.reset()
    stood, standing = torch.zeros(STARTS), torch.ones(STARTS, dtype=torch.bool)
    for _ in range(500):
        with torch.no_grad():
            step = env.step(actor(torch.tensor(env.observations).float()).argmax(-1).numpy())
        stood += standing
        standing &= ~torch.tensor(step.terminated)
        if not standing.any():
            break
    return float(stood.mean())


def program(old: str, new: str) -> dict[str, Any]:
    """``train`` as the page defines it, with one line changed."""
    return cells("10_ppo", "ppo-collect", "ppo-loss", "ppo-train", edits=((old, new),))


def run(seed: int, old: str, new: str) -> dict[str, list[float]]:
    """After every other update: the pushes that the pole stands, and what that update did to its batch.

    Ratios are taken as the program takes them, in its last pass: against the stored log-probabilities, or against itself.
    """
    names, seen = program(old, new), []
    collect = names["collect"]

    def watched(env: Any, actor: Any, *others: Any) -> Any:
        batch = collect(env, actor, *others)
        with torch.no_grad():
            seen[:] = batch, actor(batch[0]).log_softmax(-1)
        return batch

    curves: dict[str, list[float]] = {"pushes": []}
    names["collect"] = watched
    try:
        for number, actor in enumerate(names["train"](UPDATES, seed=seed), start=1):
            if number % EVERY:
                continue
            curves["pushes"].append(pushes(actor, names["vectorize"]))
            (s, a, log_old, adv, target), before = seen
            with torch.no_grad():
                now = actor(s).log_softmax(-1)
            log_new = now.gather(1, a[:, None])[:, 0]
            rho = (log_new - (log_new if "detach" in new else log_old)).exp()
            found = {
                "kl": (before.exp() * (before - now)).sum(-1).mean(),
                "entropy": -(now.exp() * now).sum(-1).mean(),
                "clip_fraction": ((rho - 1).abs() > 0.2).float().mean(),
                "explained_variance": 1 - adv.var() / target.var(),
            }
            for name, value in found.items():
                curves.setdefault(name, []).append(float(value))
    finally:
        names["collect"] = collect
    return curves
