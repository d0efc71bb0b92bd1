"""The loop of chapter 12 with one line changed: the page's own cells are run, as they stand or with a line replaced.

Each seed has a fine-tuned model of its own; seed 0 as on the page. Case "rounding" is the page's run again and again: every
weight of its start is off by some 1e-7 of itself, as another processor's rounding would have it, and all else is seed 0.
"""

from __future__ import annotations

from typing import Any

import torch
from claims import cells

SEEDS = range(5)
CELLS = ("rlhf-film", "rlhf-sft", "rlhf-phase2", "rlhf-phase3", "rlhf-phase4", "rlhf-loop")
STARTS = ("alphabet), seed=0", "updates=300), seed=0", "tokenizer, seed=0", "default_rng(0", "manual_seed(0")
NEARLY = """near = torch.Generator().manual_seed({})
def nearly(weights):
    return {{name: x * (1 + 1e-7 * torch.randn(x.shape, generator=near)) for name, x in weights.items()}}
"""

CASES: dict[str, dict[str, Any]] = {  # a line as it stands, and in its place
    "none": {"old": "256, 0.02, 0.95, 0.2", "new": "256, 0.02, 0.95, 0.2"},
    "BETA = 0": {"old": "256, 0.02, 0.95, 0.2", "new": "256, 0.0, 0.95, 0.2"},
    "LAM = 0": {"old": "256, 0.02, 0.95, 0.2", "new": "256, 0.02, 0.0, 0.2"},
    "values = 0": {"old": "value_model.values(batch)", "new": "0 * value_model.values(batch)"},
    "no whiten": {"old": "whiten(advantages, batch.mask)", "new": "advantages"},
    "rounding": {"old": "(sft_model.state_dict())", "new": "(nearly(sft_model.state_dict()))", "page_seed": True},
}


def run(seed: int, old: str, new: str, page_seed: bool = False) -> dict[str, list[float]]:
    """Before each of twenty updates: the share of samples that are right, and the divergence from the reference."""
    torch.set_num_threads(1)
    starts = [(start, f"{start[:-1]}{0 if page_seed else seed}") for start in STARTS]
    names = cells("12_rlhf", *CELLS, edits=(*starts, (old, new), ("# Set-up, once\n", NEARLY.format(seed))))
    share, kl, _ = zip(*names["log"])
    return {"right": list(share), "kl": list(kl)}
