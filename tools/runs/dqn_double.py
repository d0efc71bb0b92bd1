"""Chapter 5's program as it stands and with double DQN's target: the larger action value at the start of an episode, ten seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

PAGE = Path(__file__).resolve().parents[2] / "chapters" / "05_dqn.ipynb"
SEEDS = range(10)
CASES: dict[str, dict[str, Any]] = {"maximum": {"double": False}, "double": {"double": True}}
MAXIMUM = "target(after_).amax(1)"
DOUBLE = "target(after_).gather(1, online(after_).argmax(1, keepdim=True))[:, 0]"


def program(double: bool) -> dict[str, Any]:
    """``dqn`` as the page defines it; with double DQN's target, one expression is replaced."""
    cells = json.loads(PAGE.read_text("utf-8"))["cells"]
    names: dict[str, Any] = {"np": np, "torch": torch, "nn": nn, "gymnasium": gymnasium}
    for wanted in ("dqn-small", "dqn-memory", "dqn-program"):
        source = "".join(next(cell["source"] for cell in cells if cell["id"] == wanted))
        if wanted == "dqn-program" and source.count(MAXIMUM) != 1:
            raise ValueError(f"the program has {MAXIMUM!r} {source.count(MAXIMUM)} times; expected once")
        exec(source.replace(MAXIMUM, DOUBLE) if double else source, names)
    return names


def run(seed: int, double: bool) -> dict[str, list[float]]:
    """The larger action value at the first state of an episode, after 600 and after 4000 updates."""
    start = torch.as_tensor(gymnasium.make("CartPole-v1").reset(seed=seed)[0])
    values = []
    for update, network in enumerate(program(double)["dqn"](seed), start=1):
        if update in (600, 4000):
            with torch.no_grad():
                values.append(round(float(network(start).max()), 2))
    return {"value": values}
