"""A small model learns to write its work (chapter 13): GRPO on check digits, with five seeds, and what changes it.

The supervised starts are trained once for each seed and kept in a temporary folder while the cases are run. ``run`` can
also charge for nats in the reward (``leash``) and train with PPO (``ppo`` epochs).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlbook_lib.fine_tuning import SFTConfig, train_sft
from rlbook_lib.grpo import GRPOConfig, iterate_grpo
from rlbook_lib.language_model import (
    CharTokenizer,
    Completions,
    LanguageModel,
    Transformer,
    completion_log_probs,
    generate,
    left_pad,
)
from rlbook_lib.rlhf import RLHFConfig, iterate_rlhf
from rlbook_lib.text_tasks import CheckDigit, score_completions
from rlbook_lib.training import Update, frozen_copy

SEEDS = range(5)
TAUGHT, SHOWN = 0.5, 0.03  # share of demonstrators who write their work, in the first stage and in the second
GRPO = {"learning_rate": 1e-4, "prompts": 32}
GROUPS = [0, 8, 10, 12, 14, 20, 40]  # updates of which eight answers to one prompt are kept
FRAMES = [0, 2, 5, 8, 10, 12, 14, 16, 18, 20, 25, 30, 40, 60, 80]  # updates of which answers are kept
ROOM = CheckDigit().max_new_tokens

CASES: dict[str, dict[str, Any]] = {
    "grpo": {"updates": 80, "all_of_it": True},
    "learning rate 5e-4": {"updates": 40, "learning_rate": 5e-4},
    "never shown": {"updates": 60, "taught": 0.0, "shown": 0.0},
    "taught, then hidden": {"updates": 60, "shown": 0.0},
    "price 0.08": {"updates": 60, "price": 0.08},
    "price 0.08, no division": {"updates": 60, "price": 0.08, "scale": "none"},
    "price 0.06": {"updates": 60, "price": 0.06},
    "price 0.06, no division": {"updates": 60, "price": 0.06, "scale": "none"},
    "by sequence": {"updates": 30, "normalize": "sequence"},
    "Dr. GRPO": {"updates": 30, "normalize": "constant", "scale": "none"},
    "30 updates": {"updates": 30},
    "30 updates, two passes": {"updates": 30, "epochs": 2},
    "PPO": {"updates": 30, "ppo": 1},
    "PPO, two passes": {"updates": 30, "ppo": 2},
    "KL in the loss": {"updates": 30, "beta": 0.1},
    "KL in the reward": {"updates": 30, "leash": 0.1},
    "KL in the loss, no division": {"updates": 30, "beta": 0.1, "scale": "none"},
    "KL in the reward, no division": {"updates": 30, "leash": 0.1, "scale": "none"},
    "never taught, 3 % shown": {"updates": 60, "taught": 0.0},
    # one healthy run, and what breaks it
    "healthy": {"updates": 40, "groups": True},
    "learning rate 1e-2": {"updates": 40, "learning_rate": 1e-2},
    "another form asked for": {"updates": 40, "rule": "another form"},
    "KL price 3": {"updates": 40, "beta": 3.0},
    "room for 10 tokens": {"updates": 40, "room": 10},
    "a point a token": {"updates": 80, "price": -1.0, "texts": True},
    "a point a token, five more seeds": {"updates": 80, "price": -1.0, "later": 5},
    "the neighbor's reward": {"updates": 40, "rule": "the neighbor's"},
    "samples 4 updates old": {"updates": 40, "behind": 4},
}

TASK = CheckDigit(written=SHOWN)
WATCHED = ["978026203924:", *TASK.prompts(5, np.random.default_rng(3), "eval")]
UNSEEN = TASK.prompts(256, np.random.default_rng(1_000_000), "eval")


class Cramped(CheckDigit):
    """The same prompts, and no room for all sums."""

    @property
    def max_new_tokens(self) -> int:
        return 10


def start(seed: int, taught: float, shown: float) -> Transformer:
    """The supervised start: a model that was taught, and then got a habit; or as it was kept by an earlier case."""
    model = Transformer(CharTokenizer(TASK.alphabet), seed=seed)
    folder = Path(tempfile.gettempdir()) / "rlbook_check_digit"
    folder.mkdir(exist_ok=True)
    for stage, (written, settings) in enumerate(
        [
            (taught, SFTConfig(updates=1000, batch_size=64)),
            (shown, SFTConfig(updates=150, batch_size=64, learning_rate=5e-4, warmup=10)),
        ]
    ):
        kept = folder / f"{seed}_{taught}{f'_{shown}' if stage else ''}.pt"
        if kept.exists():
            model.load_state_dict(torch.load(kept))
            continue
        train_sft(model, CheckDigit(written=written), settings, seed=seed + 1000 * stage)
        part = kept.with_suffix(f".{os.getpid()}")
        torch.save(model.state_dict(), part)
        os.replace(part, kept)
    return model


def run(
    seed: int,
    updates: int,
    taught: float = TAUGHT,
    shown: float = SHOWN,
    price: float = 0.0,
    leash: float = 0.0,
    ppo: int = 0,
    rule: str = "the last digit",
    room: int = ROOM,
    behind: int = 0,
    groups: bool = False,
    texts: bool = False,
    all_of_it: bool = False,
    later: int = 0,
    **settings: Any,
) -> dict[str, list[float]]:
    """Train from a supervised start; a curve has one number an update, or is named for what it holds. ``later`` moves the seed."""
    seed += later
    model = start(seed, taught, shown)
    before, answers, once = frozen_copy(model), [tokens_of_answers(model)], [answers_at_once(model)]
    eight = [group_of_eight(model)]
    rows: list[dict[str, float]] = []
    kept = deque([before], maxlen=behind + 1)  # the weights of the last updates
    tokens, seconds = [], 0.0
    began = time.process_time()
    for update in iterate(model, seed, updates, price, leash, ppo, rule, room, before, settings):
        seconds += time.process_time() - began
        rows.append(update.metrics)
        tokens.append(update.env_steps)
        once.append(answers_at_once(model))
        if behind:
            kept.append(frozen_copy(model))
            write_with(model, kept[0])
        if update.update in FRAMES:
            answers.append(tokens_of_answers(model))
        if update.update in GROUPS:
            eight.append(group_of_eight(model))
        began = time.process_time()
    if behind:
        write_with(model, model)
    names = ("right", "length", "worked", "worked_right", "length_wrong", "entropy", "zero_variance", "paid", "kl")
    names += ("cut_off", "from_start", "clipped", "gradient_norm")
    curves = {name: [row[name] for row in rows] for name in names if all(name in row for row in rows)}
    curves |= {"tokens": tokens, "train_seconds": [seconds], "once": np.mean(once, 1).tolist()}
    curves |= {"end": [*accuracy(model), sequence_kl(model, before)]}  # right, right and greedy, length; nats an answer
    if groups:
        curves |= {"group_tokens": [], "group_chances": []}
        for tokens, chances in eight:
            curves["group_tokens"] += tokens
            curves["group_chances"] += chances
    if texts or all_of_it:
        curves |= {"answers": np.concatenate(answers).ravel().tolist()}
    if all_of_it:
        curves |= {"once_watched": np.array(once)[:, :6].ravel().tolist()}
        half = Transformer(CharTokenizer(TASK.alphabet), seed=seed)
        half.load_state_dict(torch.load(Path(tempfile.gettempdir()) / "rlbook_check_digit" / f"{seed}_{taught}.pt"))
        for name, which in (("half_taught", half), ("before", before), ("after", model)):
            curves |= {f"{name}_{key}": values for key, values in examine(which).items()}
    return curves


def write_with(model: LanguageModel, old: LanguageModel) -> None:
    """From now on a model's answers are written with the weights of an old one; what is trained are its own."""
    for part in ("prefill", "decode"):
        setattr(model, part, partial(getattr(type(model), part), old))


def iterate(
    model: Transformer,
    seed: int,
    updates: int,
    price: float,
    leash: float,
    ppo: int,
    rule: str,
    room: int,
    before: Any,
    settings: dict[str, Any],
) -> Iterator[Update]:
    """GRPO or PPO with the reward that the case pays."""

    class Paid:  # the rule, minus a price for each token and for each nat by which the answer left the reference
        def scores(self, batch: Completions) -> torch.Tensor:
            self.right = score_completions(TASK.reward, batch)
            paid = {"another form": torch.zeros_like, "the neighbor's": lambda x: x.roll(1)}.get(rule, torch.clone)(
                self.right
            )
            paid = paid - price * batch.lengths
            if leash:
                paid -= leash * (batch.log_probs - completion_log_probs(before, batch)[0]).sum(1)
            return paid

    reward = Paid()

    def watch(batch: Completions, paid: torch.Tensor) -> dict[str, float]:
        wrong = batch.lengths[reward.right == 0].float()
        worked = torch.tensor([not text.startswith("=") for text in batch.texts])
        return {
            "right": float(reward.right.mean()),
            "paid": float(paid.mean()),
            "length": float(batch.lengths.float().mean()),
            "worked": float(worked.float().mean()),
            "worked_right": float((reward.right * worked).mean()),
            "length_wrong": float(wrong.mean()) if len(wrong) else float("nan"),
            "cut_off": float(1 - batch.finished.float().mean()),
            "from_start": nats_from(before, batch),
        }

    if ppo:
        options = RLHFConfig(updates=updates, batch_size=256, epochs=ppo, learning_rate=1e-4, beta=0.0)
        return iterate_rlhf(model, TASK, options, seed=seed, reference=before, reward=reward, watch=watch)
    return iterate_grpo(
        model,
        TASK if room == ROOM else Cramped(written=SHOWN),
        GRPOConfig(updates=updates, **(GRPO | settings)),
        seed=seed,
        reference=before,
        reward=reward,
        watch=watch,
    )


@torch.no_grad()
def answers_at_once(model: LanguageModel) -> list[float]:
    """The exact probability of "=" as the first token, for the watched prompts and 64 others."""
    tokens, mask = left_pad([model.tokenizer.encode(prompt) for prompt in WATCHED + UNSEEN[:64]], model.tokenizer.pad)
    return model(tokens, mask)[:, -1].softmax(-1)[:, model.tokenizer.encode("=")[0]].tolist()


def tokens_of_answers(model: LanguageModel) -> np.ndarray:
    """(watched, room) token numbers of sampled answers, the same random numbers each time; filled up with padding."""
    written = generate(model, WATCHED, max_new_tokens=ROOM, seed=0).tokens.numpy()
    return np.pad(written, ((0, 0), (0, ROOM - written.shape[1])), constant_values=model.tokenizer.pad)


def group_of_eight(model: LanguageModel) -> tuple[list[float], list[float]]:
    """Eight sampled answers to the first watched prompt: token numbers, and the probability of each (0 where there is none)."""
    written = generate(model, WATCHED[:1] * 8, max_new_tokens=ROOM, seed=0)
    room = ((0, 0), (0, ROOM - written.tokens.shape[1]))
    tokens = np.pad(written.tokens.numpy(), room, constant_values=model.tokenizer.pad)
    chances = np.pad(np.where(written.mask, written.log_probs.exp(), 0.0), room)
    return tokens.ravel().tolist(), chances.ravel().round(4).tolist()


def accuracy(model: LanguageModel) -> list[float]:
    """Share of unseen prompts that are answered right, sampled and greedily; mean length of the sampled."""
    sampled, greedy = (generate(model, UNSEEN, max_new_tokens=ROOM, seed=11, greedy=g) for g in (False, True))
    rights = [float(score_completions(TASK.reward, written).mean()) for written in (sampled, greedy)]
    return [*rights, float(sampled.lengths.float().mean())]


@torch.no_grad()
def sequence_kl(model: LanguageModel, before: LanguageModel) -> float:
    """KL(model || before) in nats an answer, from samples of the model."""
    return nats_from(before, generate(model, UNSEEN, max_new_tokens=ROOM, seed=12))


@torch.no_grad()
def nats_from(before: LanguageModel, written: Completions) -> float:
    """How far the policy that wrote these answers is from an earlier one, in nats an answer."""
    return float((written.log_probs - completion_log_probs(before, written)[0]).sum(1).mean())


def after_prefix(model: LanguageModel, prefix: Callable[[str], str]) -> float:
    """Share right if the answer is made to begin with a prefix, and goes on greedily."""
    written = generate(model, [q + prefix(q) for q in UNSEEN], max_new_tokens=ROOM, greedy=True)
    rights = [
        TASK.reward(q, prefix(q) + text, bool(end)) for q, text, end in zip(UNSEEN, written.texts, written.finished)
    ]
    return float(np.mean(rights))


def examine(model: LanguageModel, votes: int = 64) -> dict[str, list[float]]:
    """What the model knows: accuracy, after k right sums, made to begin its work, many samples, other lengths."""
    prompts = UNSEEN[:128]
    written = generate(model, [q for q in prompts for _ in range(votes)], max_new_tokens=ROOM, seed=21)
    right = score_completions(TASK.reward, written).numpy().reshape(-1, votes)
    digits = np.array([text.rpartition("=")[2] or "?" for text in written.texts]).reshape(-1, votes)
    sizes = [1, 2, 4, 8, 16, 32, 64]
    passes = [float(np.mean([1 - comb(votes - int(c), k) / comb(votes, k) for c in right.sum(1)])) for k in sizes]
    majority = [
        float(
            np.mean(
                [
                    majority_right(row[i : i + k], TASK.answer(q))
                    for q, row in zip(prompts, digits)
                    for i in range(0, votes, k)
                ]
            )
        )
        for k in sizes
    ]
    lengths, others = [], []
    for count in (8, 10, 11, 12, 13, 14, 16):
        task = CheckDigit(digits=count)
        asked = task.prompts(128, np.random.default_rng(5), "eval")
        found = generate(model, asked, max_new_tokens=task.max_new_tokens, greedy=True)
        others.append(float(score_completions(task.reward, found).mean()))
        lengths.append(float(found.lengths.float().mean()))
    return {
        "accuracy": accuracy(model),
        "sums": [after_prefix(model, lambda q, k=k: TASK.work(q)[:k] + "=") for k in range(13)],
        "first_sum": [after_prefix(model, lambda q: TASK.work(q)[0])],
        "pass": passes,
        "majority": majority,
        "other_right": others,
        "other_length": lengths,
    }


def majority_right(digits: np.ndarray, answer: str) -> float:
    """1 if most of the answers are right, a share if several are equally frequent."""
    values, counts = np.unique(digits, return_counts=True)
    best = values[counts == counts.max()]
    return float(answer in best) / len(best)
