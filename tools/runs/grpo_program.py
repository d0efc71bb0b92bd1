"""GRPO on check digits: the very program that chapter 13 shows, with eight seeds; seed 0 is the run that the page prints.

The program is read from the page, so that what is recorded is what the reader sees.
"""

from __future__ import annotations

from typing import Any

from claims import cells

SEEDS = range(8)
CASES: dict[str, dict[str, Any]] = {"thirty lines": {"updates": 40}}

# the page's own run is left out
ONLY_DEFINED = (
    ("model = start(seed=0)", "model = Transformer(CharTokenizer(task.alphabet), seed=0)"),
    ("seed=0, updates=30", "seed=0, updates=0"),
)


def run(seed: int, updates: int) -> dict[str, list[float]]:
    """Share right and mean length of the samples of each update."""
    names = cells("13_grpo", "grpo-task", "grpo-start", "grpo-program", "grpo-train", edits=ONLY_DEFINED)
    model = names["start"](seed)
    rows = [(right, float(o.lengths.float().mean())) for _, right, o in names["train"](model, seed, updates)]
    return {"right": [round(right, 4) for right, _ in rows], "length": [round(length, 3) for _, length in rows]}
