"""A calculator in two turns (the page "What is next"): GRPO with the loss masked where the tool wrote, and without the mask.

``47*83?`` asks for a product. Some demonstrators round in their heads, ``4000``; the others call the calculator, now and then with a slip, and
copy what it writes between "=" and ";": ``47*83=3901;3901``. The fine-tuned models are kept in a temporary folder while the cases are run.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlbook_lib.fine_tuning import sft_loss
from rlbook_lib.grpo import group_advantages, grpo_loss
from rlbook_lib.language_model import (
    CharTokenizer,
    Completions,
    LanguageModel,
    Transformer,
    completion_log_probs,
    encode_completions,
    generate,
)
from rlbook_lib.text_tasks import correctness_reward, split_of
from rlbook_lib.training import Adam, gradient_step, learning_rate_share

SEEDS = range(5)
TOKENS = CharTokenizer("0123456789*=;?")
ROOM = 8  # tokens that the policy may write in a turn
SFT_UPDATES, UPDATES, PROMPTS, GROUP, MINIBATCHES = 1000, 24, 32, 8, 4

CASES: dict[str, dict[str, Any]] = {"mask": {"masked": True}, "no mask": {"masked": False}}


class Talk(NamedTuple):
    """Prompts with all that followed, and who wrote it."""

    batch: Completions  #: both turns as one completion, the tool's text in it
    own: Tensor  #: (B, N) True where the policy wrote
    right: Tensor  #: (B,) 1 for the right product behind the last ";", else 0
    called: Tensor  #: (B,) whether the tool was asked


def prompts(count: int, rng: np.random.Generator, split: str = "train") -> list[str]:
    found: list[str] = []
    while len(found) < count:
        a, b = rng.integers(11, 100, size=2)
        found += [f"{a}*{b}?"] if split_of(f"{a}*{b}?") == split else []
    return found


def calculator(call: str) -> str:
    """What the tool writes: the product, or a question mark for what is no call."""
    numbers = re.fullmatch(r"(\d\d?)\*(\d\d?)", call)
    return str(int(numbers[1]) * int(numbers[2])) if numbers else "?"


def demonstration(prompt: str, rng: np.random.Generator) -> tuple[str, str, str]:
    """First turn, the tool, second turn."""
    a, b = prompt[:-1].split("*")
    if rng.random() < 0.5:
        return str(round(int(a), -1) * round(int(b), -1)), "", ""
    if rng.random() < 0.3:
        a = a[::-1]  # a slip
    result = calculator(f"{a}*{b}")
    return f"{a}*{b}=", f"{result};", result


def talk(model: LanguageModel, asked: list[str], turns: list[tuple[str, str, str]], ended: list[bool]) -> Talk:
    batch = encode_completions(model, asked, ["".join(turn) for turn in turns])
    own, columns = batch.mask.clone(), torch.arange(batch.mask.shape[1])
    for row, ((first, tool, _), end) in enumerate(zip(turns, ended)):
        own[row] &= (columns < len(first)) | (columns >= len(first) + len(tool))
        own[row, batch.lengths[row] - 1] &= end  # nobody wrote an end where there was none
    truth = [calculator(q[:-1]) for q in asked]
    said = ["".join(turn).rpartition(";")[2] for turn in turns]
    right = [correctness_reward(*one) for one in zip(truth, said, ended)]
    return Talk(batch, own, torch.tensor(right), torch.tensor([bool(turn[1]) for turn in turns]))


def two_turns(model: LanguageModel, asked: list[str], **how: Any) -> Talk:
    """The policy writes up to "="; the tool answers; the policy goes on."""
    first = generate(model, asked, max_new_tokens=ROOM, **how)
    turns, ended = [(text, "", "") for text in first.texts], first.finished.tolist()
    calling = [row for row, text in enumerate(first.texts) if "=" in text]
    for row in calling:
        call = first.texts[row].partition("=")[0]
        turns[row] = (f"{call}=", f"{calculator(call)};", "")
    if calling:
        second = generate(model, [asked[row] + "".join(turns[row]) for row in calling], max_new_tokens=ROOM, **how)
        for row, text, end in zip(calling, second.texts, second.finished.tolist()):
            turns[row], ended[row] = (*turns[row][:2], text), end
    return talk(model, asked, turns, ended)


def trained(seed: int) -> Transformer:
    """The model that imitates the demonstrators, or as it was kept by an earlier case."""
    model = Transformer(TOKENS, seed=seed)
    kept = Path(tempfile.gettempdir()) / "rlbook_two_turns" / f"{seed}.pt"
    if kept.exists():
        model.load_state_dict(torch.load(kept))
        return model
    rng, optimizer = np.random.default_rng(seed), Adam(model.parameters(), 2e-3, decay=0.01, betas=(0.9, 0.98))
    for update in range(SFT_UPDATES):
        asked = prompts(128, rng)
        seen = talk(model, asked, [demonstration(q, rng) for q in asked], [True] * 128)
        loss = sft_loss(completion_log_probs(model, seen.batch)[0], seen.own)
        gradient_step(optimizer, loss, 2e-3 * learning_rate_share(update, SFT_UPDATES, 50, 0.1), 1.0)
    kept.parent.mkdir(exist_ok=True)
    part = kept.with_suffix(f".{os.getpid()}")
    torch.save(model.state_dict(), part)
    os.replace(part, kept)
    return model


@torch.no_grad()
def measure(model: LanguageModel, watched: list[str]) -> dict[str, float]:
    """Greedy accuracy, share of calls among samples, and how unlikely the tool's text is to the model, in nats a token."""
    sampled = two_turns(model, watched, seed=5)
    tool = sampled.batch.mask & ~sampled.own & sampled.called[:, None]
    surprise = -completion_log_probs(model, sampled.batch)[0][tool]
    return {
        "accuracy": float(two_turns(model, watched, greedy=True).right.mean()),
        "called": float(sampled.called.float().mean()),
        "surprise": float(surprise.mean()) if len(surprise) else float("nan"),
    }


def run(seed: int, masked: bool, rate: float = 3e-4) -> dict[str, list[float]]:
    """GRPO from the imitator; the curves begin before the first update."""
    model = trained(seed)
    optimizer = Adam(model.parameters(), rate, decay=0.0)
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    watched = prompts(256, np.random.default_rng(77), "eval")
    rows = [measure(model, watched)]
    for update in range(UPDATES):
        asked = [q for q in prompts(PROMPTS, rng) for _ in range(GROUP)]
        seen = two_turns(model, asked, generator=generator)
        advantages = group_advantages(seen.right.view(-1, GROUP)).view(-1)
        counts = seen.own if masked else seen.batch.mask
        with torch.no_grad():
            old = completion_log_probs(model, seen.batch)[0]
        for index in torch.from_numpy(rng.permutation(len(asked))).chunk(MINIBATCHES):
            part = seen.batch.take(index)
            width = part.mask.shape[1]
            log_prob = completion_log_probs(model, part)[0]
            loss = grpo_loss(log_prob, old[index, :width], advantages[index], counts[index, :width], normalize="token")
            gradient_step(optimizer, loss, rate * min(1.0, (update + 1) / 5), 1.0)
        if update % 2 == 1:
            rows.append(measure(model, watched))
    return {name: [row[name] for row in rows] for name in rows[0]}
