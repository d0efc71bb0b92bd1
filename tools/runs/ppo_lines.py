"""The program of chapter 10 with one line changed: the page's own cells are run, as they stand or with a line replaced."""

from __future__ import annotations

from typing import Any

import torch
from claims import cells

SEEDS = range(10)
UPDATES, EVERY, STARTS = 24, 2, 5

CASES: dict[str, dict[str, Any]] = {  # a line as it stands, and in its place
    "none": {"old": "log_old).exp()", "new": "log_old).exp()"},
    "log_old": {"old": "- log_old).exp()", "new": "- log_pi.gather(1, a[:, None])[:, 0].detach()).exp()"},
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
            step = env.step(actor(torch.tensor(env.observations).double()).argmax(-1).numpy())
        stood += standing
        standing &= ~torch.tensor(step.terminated)
        if not standing.any():
            break
    return float(stood.mean())


def program(old: str, new: str) -> dict[str, Any]:
    """``train`` as the page defines it, with one line changed."""
    return cells("10_ppo", "ppo-collect", "ppo-loss", "ppo-train", edits=((old, new),))


def run(seed: int, old: str, new: str) -> dict[str, list[float]]:
    """After every other update: the pushes that the pole stands."""
    names = program(old, new)
    actors = enumerate(names["train"](UPDATES, seed=seed), start=1)
    return {"pushes": [pushes(actor, names["vectorize"]) for number, actor in actors if number % EVERY == 0]}
