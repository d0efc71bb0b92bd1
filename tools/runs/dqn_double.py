"""Chapter 5's program as it stands, with double DQN's target, with a judge trained apart, and with four gradient steps in place
of one: the larger action value at the start of an episode, ten seeds.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from claims import cells

SEEDS = range(10)
EDITS: dict[str, list[tuple[str, str]]] = {
    "maximum": [],
    "double": [("target(after_).amax(1)", "target(after_).gather(1, online(after_).argmax(1, keepdim=True))[:, 0]")],
    "judge apart": [  # two networks: each picks for itself, and the other one's copy judges
        (
            "online, target = q_network(), q_network()",
            "online, target, other, others = (q_network() for _ in range(4))",
        ),
        (
            "adam = torch.optim.Adam(",
            "adams = torch.optim.Adam(other.parameters(), lr=0.001)\n    adam = torch.optim.Adam(",
        ),
        (
            "target.load_state_dict(online.state_dict())",
            "target.load_state_dict(online.state_dict()); others.load_state_dict(other.state_dict())",
        ),
        ("target(after_).amax(1)", "others(after_).gather(1, target(after_).argmax(1, keepdim=True))[:, 0]"),
        (
            "        yield online",
            "        s_, a_, r_, after_, d_ = memory.draw(128)\n"
            "        with torch.no_grad():\n"
            "            picked = others(after_).argmax(1, keepdim=True)\n"
            "            y = r_ + 0.99 * (1 - d_) * target(after_).gather(1, picked)[:, 0]\n"
            "        gradient_step(adams, 0.5 * (y - other(s_).gather(1, a_)[:, 0]).square().mean())\n"
            "        yield online",
        ),
    ],
    "four steps": [
        (
            "        yield online",
            "        for _ in range(3):\n"
            "            s_, a_, r_, after_, d_ = memory.draw(128)\n"
            "            with torch.no_grad():\n"
            "                y = r_ + 0.99 * (1 - d_) * target(after_).amax(1)\n"
            "            gradient_step(adam, 0.5 * (y - online(s_).gather(1, a_)[:, 0]).square().mean())\n"
            "        yield online",
        )
    ],
}
CASES: dict[str, dict[str, Any]] = {case: {"target": case} for case in EDITS}


def program(target: str) -> dict[str, Any]:
    """``dqn`` as the page defines it, with the edits for a target."""
    return cells("05_dqn", "dqn-small", "dqn-memory", "dqn-program", edits=tuple(EDITS[target]))


def run(seed: int, target: str) -> dict[str, list[float]]:
    """The larger action value at the first state of an episode, after 600 and after 4000 updates."""
    start = torch.as_tensor(gymnasium.make("CartPole-v1").reset(seed=seed)[0])
    values = []
    for update, network in enumerate(program(target)["dqn"](seed), start=1):
        if update in (600, 4000):
            with torch.no_grad():
                values.append(round(float(network(start).max()), 2))
    return {"value": values}
