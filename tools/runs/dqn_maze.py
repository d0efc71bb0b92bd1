"""Networks on a maze of 25 cells, all transitions at once: copies of the target network every C updates, two learning rates."""

from __future__ import annotations

import numpy as np
import torch

from rlbook_lib.dynamic_programming import value_iteration
from rlbook_lib.maze import Maze

SEEDS = range(12)
CASES = {f"C = {c}, rate {rate}": {"copy_every": c, "rate": rate} for rate in (0.005, 0.001) for c in (1, 10, 50)}
UPDATES, EVERY, HIDDEN, GAMMA = 4000, 50, 64, 0.95


def run(seed: int, copy_every: int, rate: float) -> dict[str, list[float]]:
    """RMS error of the action values after every fifty updates; it starts with the untrained network's."""
    world = Maze(("S....", ".T.T.", ".....", ".T.#.", "...TG")).to_mdp(GAMMA)
    inside = np.flatnonzero(~world.terminal)
    exact = torch.tensor(value_iteration(world).q_values[inside], dtype=torch.float32)
    s, a = (torch.tensor(x) for x in zip(*[(s, a) for s in inside for a in range(4)]))  # (P,)
    after = torch.tensor(np.asarray(world.transitions).argmax(-1))[s, a]
    r = torch.tensor(world.rewards, dtype=torch.float32)[s, a]
    d = torch.tensor(world.terminal).float()[after]

    generator = torch.Generator().manual_seed(seed)
    shapes, scales = ((25, HIDDEN), (1, HIDDEN), (HIDDEN, 4), (1, 4)), (1.0, 0.5, HIDDEN**-0.5, 0.0)
    online = [(c * torch.randn(*shape, generator=generator)).requires_grad_() for shape, c in zip(shapes, scales)]

    def values(w: list[torch.Tensor]) -> torch.Tensor:  # (25, 4); the input is one-hot, so the first layer is its rows
        return 10 * (torch.relu(w[0] + w[1]) @ w[2] + w[3])

    target = [w.detach().clone() for w in online]
    adam = torch.optim.Adam(online, lr=rate)
    errors = []
    for k in range(UPDATES + 1):
        if k % EVERY == 0:
            errors.append(float((values(online)[inside].detach() - exact).square().mean().sqrt()))
        with torch.no_grad():
            y = r + GAMMA * (1 - d) * values(target).amax(-1)[after]
        loss = (0.5 * ((y - values(online)[s, a]) / 10) ** 2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        if (k + 1) % copy_every == 0:
            for ours, theirs in zip(target, online):
                ours.copy_(theirs.detach())
    return {"error": errors}
