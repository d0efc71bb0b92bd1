"""The program of chapter 10 with one line changed: the page's own cells are run, as they stand or with a line replaced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

SEEDS = range(10)
PAGE = Path(__file__).resolve().parents[2] / "chapters" / "10_ppo.ipynb"
CELLS = ("ppo-imports", "ppo-collect", "ppo-loss", "ppo-train")
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


def run(seed: int, old: str, new: str) -> dict[str, list[float]]:
    """After every other update: the pushes that the pole stands."""
    cells = {cell["id"]: "".join(cell["source"]) for cell in json.loads(PAGE.read_text("utf-8"))["cells"]}
    text = "\n".join(cells[name] for name in CELLS)
    if text.count(old) != 1:
        raise ValueError(f"the page has {text.count(old)} times {old!r}; expected it once")
    names: dict[str, Any] = {}
    exec(text.replace(old, new), names)
    torch.set_num_threads(1)
    actors = enumerate(names["train"](UPDATES, seed=seed), start=1)
    return {"pushes": [pushes(actor, names["vectorize"]) for number, actor in actors if number % EVERY == 0]}
