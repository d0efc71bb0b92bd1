"""Tasks for a small language model whose answers a rule can check (chapter 11).

A task makes prompts, biased demonstrations of how people answer them, and a reward for an answer. Two tasks:

- ``Sorting``: ``5283=`` asks for the digits in order, ``2358``. The demonstrators have a habit: they often
  drop repeated digits, and sometimes swap two neighbors. A model that imitates them well is therefore wrong
  where it matters, and a reward can teach it better.
- ``Arithmetic``: ``47+85=`` asks for the sum, ``132``. The demonstrators often forget to carry.

Prompts belong to one of two splits by a hash of their text: what is evaluated has never been trained on.
"""

from __future__ import annotations

import math
import numbers
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import expit
from torch import Tensor

from rlbook_lib.experience import check_count
from rlbook_lib.language_model import Completions, LanguageModel, generate
from rlbook_lib.mdp import check_seed, check_unit_interval

__all__ = [
    "TextTask",
    "Sorting",
    "Arithmetic",
    "split_of",
    "correctness_reward",
    "format_reward",
    "RewardError",
    "score_completions",
    "evaluate_accuracy",
    "hidden_score",
    "PreferencePairs",
    "preference_pairs",
]

Reward: TypeAlias = Callable[[str, str, bool], float]  # prompt, completion, whether it ended by itself

EVALUATION_SHARE = 5  # one prompt in five belongs to the evaluation split


class TextTask(Protocol):
    """What training asks of a task."""

    alphabet: str
    max_new_tokens: int  # the longest completion, end of sequence included

    def prompts(self, count: int, rng: np.random.Generator, split: str = "train") -> list[str]:
        """Some prompts of one split, drawn independently."""

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """What a demonstrator answers."""

    def answer(self, prompt: str) -> str:
        """The right answer."""

    def reward(self, prompt: str, text: str, finished: bool) -> float:
        """How good a completion is."""


def split_of(prompt: str) -> str:
    """The split that a prompt belongs to, by a hash of its text: the same on every machine.

    Args:
        prompt: any text.

    Returns:
        "eval" for about one prompt in five, else "train".
    """
    return "eval" if zlib.crc32(prompt.encode()) % EVALUATION_SHARE == 0 else "train"


def _draw_prompts(draw: Callable[[], str], count: int, split: str) -> list[str]:
    """Draw until enough prompts of the split have come."""
    check_count("count", count)
    if split not in ("train", "eval"):
        raise ValueError(f"split is {split!r}; expected 'train' or 'eval'")
    prompts: list[str] = []
    while len(prompts) < count:
        prompt = draw()
        if split_of(prompt) == split:
            prompts.append(prompt)
    return prompts


@dataclass(frozen=True)
class Sorting:
    """Sort the digits of a prompt: ``5283=`` asks for ``2358``.

    Args:
        shortest: fewest digits of a prompt, 1 or more.
        longest: most digits.
        drop: chance that a demonstrator drops repeated digits, in [0, 1]. Above one half, the most common
            demonstration of a prompt with a repeated digit is wrong.
        swap: chance that a demonstrator then swaps two neighbors, in [0, 1].
    """

    shortest: int = 4
    longest: int = 7
    drop: float = 0.6
    swap: float = 0.2
    alphabet: str = "0123456789="

    def __post_init__(self) -> None:
        check_count("shortest", self.shortest)
        check_count("longest", self.longest)
        if self.longest < self.shortest:
            raise ValueError(f"longest is {self.longest}; expected at least shortest, {self.shortest}")
        check_unit_interval("drop", self.drop)
        check_unit_interval("swap", self.swap)

    @property
    def max_new_tokens(self) -> int:
        """Room for the answer, two digits too many, and the end of sequence."""
        return self.longest + 3

    def prompts(self, count: int, rng: np.random.Generator, split: str = "train") -> list[str]:
        """Some prompts of one split, drawn independently."""

        def draw() -> str:
            digits = rng.integers(10, size=rng.integers(self.shortest, self.longest + 1))
            return "".join(map(str, digits)) + "="

        return _draw_prompts(draw, count, split)

    def answer(self, prompt: str) -> str:
        """The digits in order."""
        return "".join(sorted(prompt[:-1]))

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """The digits in order, as the demonstrators write them."""
        drops = rng.random() < self.drop
        digits = sorted(set(prompt[:-1])) if drops else sorted(prompt[:-1])
        if len(digits) > 1 and rng.random() < self.swap:
            k = int(rng.integers(len(digits) - 1))
            digits[k], digits[k + 1] = digits[k + 1], digits[k]
        return "".join(digits)

    def reward(self, prompt: str, text: str, finished: bool) -> float:
        """1 for the right answer that ends by itself, else 0."""
        return correctness_reward(self.answer(prompt), text, finished)


@dataclass(frozen=True)
class Arithmetic:
    """Add two numbers: ``47+85=`` asks for ``132``.

    Args:
        digits: most digits of each number, 1 or more.
        no_carry: chance that a demonstrator adds each column without carrying, in [0, 1].
    """

    digits: int = 2
    no_carry: float = 0.6
    alphabet: str = "0123456789+="

    def __post_init__(self) -> None:
        check_count("digits", self.digits)
        check_unit_interval("no_carry", self.no_carry)

    @property
    def max_new_tokens(self) -> int:
        """Room for the sum, one digit too many, and the end of sequence."""
        return self.digits + 3

    def prompts(self, count: int, rng: np.random.Generator, split: str = "train") -> list[str]:
        """Some prompts of one split, drawn independently."""

        def draw() -> str:
            a, b = rng.integers(10**self.digits, size=2)
            return f"{a}+{b}="

        return _draw_prompts(draw, count, split)

    def answer(self, prompt: str) -> str:
        """The sum."""
        a, b = prompt[:-1].split("+")
        return str(int(a) + int(b))

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """The sum, as the demonstrators write it."""
        if rng.random() >= self.no_carry:
            return self.answer(prompt)
        a, b = prompt[:-1].split("+")
        columns = [(int(x) + int(y)) % 10 for x, y in zip(a.zfill(self.digits), b.zfill(self.digits))]
        return str(int("".join(map(str, columns))))

    def reward(self, prompt: str, text: str, finished: bool) -> float:
        """1 for the right answer that ends by itself, else a tenth for anything of the right form."""
        right = correctness_reward(self.answer(prompt), text, finished)
        return right if right == 1.0 else 0.1 * format_reward(text, finished, self.alphabet[:10])


# -------------------------------------------------------------------------------------------- rewards by rule


def correctness_reward(answer: str, text: str, finished: bool) -> float:
    """1 if the completion is the answer and ended by itself, else 0: a cut-off completion has not answered.

    Args:
        answer: the right answer.
        text: the completion.
        finished: the end-of-sequence token was written.
    """
    return float(finished and text == answer)


def format_reward(text: str, finished: bool, allowed: str) -> float:
    """1 if the completion is not empty, holds allowed characters only and ended by itself, else 0.

    Args:
        text: the completion.
        finished: the end-of-sequence token was written.
        allowed: the characters an answer may hold.
    """
    return float(finished and bool(text) and set(text) <= set(allowed))


class RewardError(ValueError):
    """A reward function raised, or returned something that is not a finite number; the message shows the sample."""


def score_completions(reward: Reward, completions: Completions) -> Tensor:
    """The reward of each completion.

    Args:
        reward: called with the prompt, the completion and whether it ended by itself; returns a finite
            number.
        completions: B of them.

    Returns:
        (B,) float32, on the completions' device.

    Raises:
        RewardError: the reward raised or returned NaN or something else than a number; the sample is named.
    """
    scores: list[float] = []
    rows = zip(completions.prompts, completions.texts, completions.finished.tolist(), strict=True)
    for row, (prompt, text, finished) in enumerate(rows):
        sample = f"sample {row}: prompt {prompt!r}, completion {text!r}"
        try:
            score = reward(prompt, text, finished)
        except Exception as error:
            raise RewardError(
                f"the reward function raised {type(error).__name__}: {error} ({sample})"
            ) from error
        if not isinstance(score, numbers.Real) or not math.isfinite(score):
            raise RewardError(f"the reward function returned {score!r}; expected a finite number ({sample})")
        scores.append(float(score))
    return torch.tensor(scores, device=completions.tokens.device)


def evaluate_accuracy(
    model: LanguageModel, task: TextTask, *, count: int = 512, seed: int = 1_000_000
) -> float:
    """Share of evaluation prompts that the model answers exactly right, greedily.

    Args:
        model: the language model.
        task: makes the prompts and knows the answers.
        count: prompts of the evaluation split; at 512 the standard error is about two points at worst.
        seed: of the prompts.

    Returns:
        A share in [0, 1]; an answer that does not end counts as wrong.
    """
    prompts = task.prompts(count, np.random.default_rng(check_seed(seed)), "eval")
    written = generate(model, prompts, max_new_tokens=task.max_new_tokens, greedy=True)
    rows = zip(prompts, written.texts, written.finished.tolist(), strict=True)
    return sum(correctness_reward(task.answer(p), text, done) for p, text, done in rows) / count


# ------------------------------------------------------------------------------ preferences by a hidden score


def hidden_score(prompt: str, text: str, finished: bool) -> float:
    """How well a completion sorts, graded: what the synthetic judges of chapter 11 look at and the model never sees.

    Twice the share of places that hold the right digit, minus 1; minus 0.3 for each digit too many or too
    few; minus 0.5 for a completion that does not end.

    Args:
        prompt: of ``Sorting``, digits and "=".
        text: the completion.
        finished: the end-of-sequence token was written.

    Returns:
        1 for a perfect answer; -1 for one of the right length with no digit in its place; less for worse.
    """
    right = "".join(sorted(prompt[:-1]))
    share = sum(a == b for a, b in zip(text, right)) / len(right)
    return 2 * share - 1 - 0.3 * abs(len(text) - len(right)) - (0.0 if finished else 0.5)


@dataclass(frozen=True)
class PreferencePairs:
    """Pairs of completions of the same prompts, with the one that a judge preferred.

    Args:
        chosen: the preferred completions, B of them.
        rejected: the others, in the same order.
        margins: (B,) hidden score of the chosen minus that of the rejected; negative where the judge erred, 0
            at a tie.
    """

    chosen: Completions
    rejected: Completions
    margins: Tensor

    def __len__(self) -> int:
        return len(self.chosen)

    def take(self, rows: Tensor) -> PreferencePairs:
        """Some of the pairs."""
        return PreferencePairs(self.chosen.take(rows), self.rejected.take(rows), self.margins[rows])


def preference_pairs(
    model: LanguageModel,
    task: TextTask,
    count: int,
    *,
    seed: int,
    score: Reward = hidden_score,
    sharpness: float = 3.0,
    split: str = "train",
) -> PreferencePairs:
    """Sample two completions for each prompt and let a judge choose: P(first wins) = sigmoid(sharpness * margin).

    Args:
        model: samples both completions, at temperature 1.
        task: makes the prompts.
        count: number of pairs.
        seed: of prompts, completions and choices.
        score: what the judge looks at.
        sharpness: 0 chooses at random, large values always choose the better one.
        split: "train" or "eval".

    Returns:
        The pairs.

    Raises:
        ValueError: sharpness negative, count or seed out of range, an unknown split.
    """
    if not sharpness >= 0:
        raise ValueError(f"sharpness is {sharpness!r}; expected 0 or more")
    rng = np.random.default_rng(check_seed(seed))
    prompts = task.prompts(count, rng, split)
    seeds = [int(s) for s in rng.integers(2**31, size=2)]
    one, two = (generate(model, prompts, max_new_tokens=task.max_new_tokens, seed=s) for s in seeds)
    margin = (score_completions(score, one) - score_completions(score, two)).double().cpu().numpy()
    first_wins = rng.random(count) < expit(sharpness * margin)
    margins = torch.tensor(np.where(first_wins, margin, -margin), dtype=torch.float32)
    wins = torch.from_numpy(first_wins).to(one.tokens.device)
    return PreferencePairs(_pick(one, two, wins), _pick(two, one, wins), margins)


def _pick(one: Completions, two: Completions, wins: Tensor) -> Completions:
    """Row by row the completion of ``one`` where it wins, else that of ``two``; both answer the same prompts."""
    width = max(one.tokens.shape[1], two.tokens.shape[1])

    def rows(name: str) -> Tensor:
        a, b = (F.pad(getattr(x, name), (0, width - x.tokens.shape[1])) for x in (one, two))
        return torch.where(wins[:, None], a, b)  # (B, N)

    return replace(
        one,
        tokens=rows("tokens"),
        mask=rows("mask"),
        log_probs=rows("log_probs"),
        texts=[a if first else b for a, b, first in zip(one.texts, two.texts, wins.tolist())],
        finished=torch.where(wins, one.finished, two.finished),
    )
