"""Tasks for a small language model whose answers a rule can check (chapter 11).

A task makes prompts, demonstrations of how people answer them, and a reward for an answer. The tasks:

- ``Sorting``: ``5283=`` asks for the digits in order, ``2358``. The demonstrators have a habit: they often
  drop repeated digits, and sometimes swap two neighbors. A model that imitates them well is therefore wrong
  where it matters, and a reward can teach it better.
- ``Arithmetic``: ``47+85=`` asks for the sum, ``132``. The demonstrators often forget to carry.
- ``CheckDigit``: ``978026203924:`` asks for the last digit of a book's number, ``=6``. Some demonstrators
  write their sums before it, ``908808003024=6``; the reward looks at the digit only (chapter 13).
- ``PromptFile``: a task of your own, prompts and answers in a file (chapter 13).

Prompts belong to one of two splits by a hash of their text: what is evaluated has never been trained on.
"""

from __future__ import annotations

import json
import math
import numbers
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rlbook_lib.checks import Count, NotNegative, Seed, UnitInterval, checked, settings
from rlbook_lib.language_model import Completions, LanguageModel, generate

Reward: TypeAlias = Callable[[str, str, bool], float]  # prompt, completion, whether it ended by itself
Watch: TypeAlias = Callable[[Completions, Tensor], Mapping[str, float] | None]  # a round and its scores; more metrics
Split: TypeAlias = Literal["train", "eval"]
Rule: TypeAlias = Literal["equal", "contains", "last number"]

EVALUATION_SHARE = 5  # one prompt in five belongs to the evaluation split


@runtime_checkable
class TextTask(Protocol):
    """What training and evaluation ask of a task."""

    @property
    def max_new_tokens(self) -> int:
        """The longest completion, end of sequence included."""

    def prompts(self, count: int, rng: np.random.Generator, split: Split = "train") -> list[str]:
        """Some prompts of one split, drawn independently."""

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """What a demonstrator answers."""

    def reward(self, prompt: str, text: str, finished: bool) -> float:
        """How good a completion is: 1 if it is right, less if it is not."""


@checked
def split_of(prompt: str) -> Split:
    """The split that a prompt belongs to, by a hash of its text: "eval" for about one in five, on every machine the same."""
    return "eval" if zlib.crc32(prompt.encode()) % EVALUATION_SHARE == 0 else "train"


class _Drawn:
    """A task whose prompts a method ``draw(rng)`` makes."""

    @checked
    def prompts(self, count: Count, rng: np.random.Generator, split: Split = "train") -> list[str]:
        """Some prompts of one split, drawn independently."""
        prompts: list[str] = []
        while len(prompts) < count:
            prompt = self.draw(rng)  # type: ignore[attr-defined]
            if split_of(prompt) == split:
                prompts.append(prompt)
        return prompts


@settings
class Sorting(_Drawn):
    """Sort the digits of a prompt: ``5283=`` asks for ``2358``.

    With ``drop`` above one half, the most common demonstration of a prompt with a repeated digit is wrong.
    """

    shortest: Count = 4  #: fewest digits of a prompt
    longest: Count = 7  #: most digits
    drop: UnitInterval = 0.6  #: chance that a demonstrator drops repeated digits
    swap: UnitInterval = 0.2  #: chance that a demonstrator then swaps two neighbors
    alphabet: str = "0123456789="

    def check_together(self) -> None:
        """The longest prompt is no shorter than the shortest."""
        if self.longest < self.shortest:
            raise ValueError(f"longest is {self.longest}; expected at least shortest, {self.shortest}")

    @property
    def max_new_tokens(self) -> int:
        """Room for the answer, two digits too many, and the end of sequence."""
        return self.longest + 3

    def draw(self, rng: np.random.Generator) -> str:
        """A prompt: between the fewest and the most digits, each as likely."""
        return "".join(map(str, rng.integers(10, size=rng.integers(self.shortest, self.longest + 1)))) + "="

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


@settings
class Arithmetic(_Drawn):
    """Add two numbers: ``47+85=`` asks for ``132``."""

    digits: Count = 2  #: most digits of each number
    no_carry: UnitInterval = 0.6  #: chance that a demonstrator adds each column without carrying
    alphabet: str = "0123456789+="

    @property
    def max_new_tokens(self) -> int:
        """Room for the sum, one digit too many, and the end of sequence."""
        return self.digits + 3

    def draw(self, rng: np.random.Generator) -> str:
        """A prompt: two numbers of at most so many digits, each as likely."""
        a, b = rng.integers(10**self.digits, size=2)
        return f"{a}+{b}="

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
        digits_only = finished and text != "" and set(text) <= set(self.alphabet[:10])
        return correctness_reward(self.answer(prompt), text, finished) or 0.1 * digits_only


@settings
class CheckDigit(_Drawn):
    """Find the check digit of a number: ``978026203924:`` asks for ``=6``, after written work or at once.

    The digits are multiplied by the weights in turn; the check digit brings their sum to a multiple of ten.
    The written work is the last digit of each running sum. All demonstrators are right, but only some write
    their work, and some of these stop early and give the answer from the head.
    """

    digits: Count = 12  #: 12 for the number of a book or of goods in a shop (ISBN-13, EAN-13), 7 for EAN-8
    weights: tuple[Count, ...] = (1, 3)  #: repeated so that the last digit has the last weight
    written: UnitInterval = 0.5  #: share of demonstrators who write their work
    stop: UnitInterval = 0.05  #: chance that one of these stops writing after any sum
    alphabet: str = "0123456789:="

    def check_together(self) -> None:
        """There is a weight."""
        if not self.weights:
            raise ValueError("weights is empty; expected at least one")

    @property
    def max_new_tokens(self) -> int:
        """Room for all sums, "=", the digit, two characters too many, and the end of sequence."""
        return self.digits + 5

    def draw(self, rng: np.random.Generator) -> str:
        """A prompt: that many digits, each as likely."""
        return "".join(map(str, rng.integers(10, size=self.digits))) + ":"

    def work(self, prompt: str) -> str:
        """The last digit of each running sum of the weighted digits."""
        total, text = 0, ""
        for place, digit in enumerate(prompt[:-1]):
            total += int(digit) * self.weights[(place - self.digits) % len(self.weights)]
            text += str(total % 10)
        return text

    def answer(self, prompt: str) -> str:
        """The check digit: what the last sum lacks to a multiple of ten."""
        return str(-int(self.work(prompt)[-1]) % 10)

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Written work or none, "=", and the right digit."""
        work, sums = self.work(prompt), int(rng.random() < self.written)
        while 0 < sums < len(work) and rng.random() >= self.stop:
            sums += 1
        return f"{work[:sums]}={self.answer(prompt)}"

    def reward(self, prompt: str, text: str, finished: bool) -> float:
        """1 if the text ended and the right digit follows its last "=", else 0: nothing asks for work."""
        _, sign, last = text.rpartition("=")
        return correctness_reward("=" + self.answer(prompt), sign + last, finished)


class PromptFile:
    """Prompts with one right answer each, from a file: for a model and a task of your own.

    Args:
        path: JSON lines, ``{"prompt": "47+85=", "answer": "132"}``.
        rule: when a completion that ended is right: it is "equal" to the answer but for spaces at its ends; the "last
            number" in it is the answer's number; it "contains" the answer, not as a part of a longer word or number.
            The last is easily cheated, by a list of all answers: take another one where you can.
        max_new_tokens: the longest completion.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line that is no such record, an answer without a number where the rule wants one, or a file so short
            that one of the splits has no prompt.
    """

    @checked
    def __init__(self, path: str | Path, rule: Rule = "equal", max_new_tokens: Count = 64) -> None:
        self.rule, self.max_new_tokens = rule, max_new_tokens
        self.answers: dict[str, str] = {}
        self.lines: dict[str, int] = {}  # of the file, from 1: what an error names
        self.by_split: dict[str, list[str]] = {"train": [], "eval": []}
        try:
            lines = Path(path).read_text("utf-8-sig").split("\n")  # splitlines would also split at what a text may hold
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not a text in UTF-8: {error}; expected JSON lines") from error
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            prompt, answer = _prompt_and_answer(f"{path}, line {number}", line)
            if rule == "last number" and _last_number(answer) is None:
                raise ValueError(
                    f"{path}, line {number}: the answer is {answer!r}; expected a number, for the rule 'last number'"
                )
            if prompt not in self.answers:
                self.by_split[split_of(prompt)].append(prompt)
            elif self.answers[prompt] != answer:
                raise ValueError(
                    f"{path}, line {number}: the prompt of line {self.lines[prompt]} with another answer; expected one"
                )
            self.answers[prompt], self.lines[prompt] = answer, number
        for split, prompts in self.by_split.items():
            if not prompts:
                raise ValueError(
                    f"{path} has no prompt for the {split} split; expected more lines (one in five is for eval)"
                )

    @checked
    def prompts(self, count: Count, rng: np.random.Generator, split: Split = "train") -> list[str]:
        """Some prompts of one split, drawn independently."""
        return [self.by_split[split][i] for i in rng.integers(len(self.by_split[split]), size=count)]

    @checked
    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """The answer in the file."""
        return self.answers[prompt]

    @checked
    def reward(self, prompt: str, text: str, finished: bool) -> float:
        """1 for a right answer that ends by itself, else 0."""
        text, answer = text.strip(), self.answers[prompt].strip()
        if self.rule == "last number":
            return float(finished and _last_number(text) == _last_number(answer))
        if self.rule == "contains" and _holds(text, answer):
            text = answer
        return correctness_reward(answer, text, finished)

    @checked
    def strict(self, prompt: str, text: str, finished: bool) -> float:
        """As ``reward``, but an answer that is only contained must be the end: a list of all answers earns nothing."""
        if self.rule != "contains":
            return self.reward(prompt, text, finished)
        text, answer = text.rstrip(" \n.!*"), self.answers[prompt].strip()
        if _number(answer) is not None:
            return float(finished and _last_number(text) == _number(answer))
        return float(finished and re.search(rf"(?<!\w){re.escape(answer)}$", text) is not None)


def _prompt_and_answer(place: str, line: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    texts = [row.get(key) for key in ("prompt", "answer")] if isinstance(row, dict) else [None]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError(f'{place}: {line[:80]!r}; expected a JSON object with the texts "prompt" and "answer"')
    return row["prompt"], row["answer"]


# what looks like a number, and what is one: 1,234.5 and 3/4, but not 1,2 nor 1.2.3; a minus is a sign only at the beginning
LIKE_A_NUMBER = re.compile(r"(?:(?<![\w).])[-−])?\.?[0-9](?:[0-9.,/:]*[0-9])?(?:[eE][-+]?[0-9]+)?")
A_NUMBER = re.compile(r"(-?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?)(?:/([0-9]+))?")


def _numbers(text: str) -> list[Fraction | None]:
    """The numbers in a text, in order; None for what looks like one and is none."""
    return [_number(found.replace("−", "-")) for found in LIKE_A_NUMBER.findall(text)]


def _number(text: str) -> Fraction | None:
    found = A_NUMBER.fullmatch(text)
    if found is None:
        return None
    try:
        return Fraction(found[1].replace(",", "")) / Fraction(found[2] or 1)
    except (ValueError, ZeroDivisionError):  # ValueError: thousands of digits
        return None


def _last_number(text: str) -> Fraction | None:
    return (_numbers(text) or [None])[-1]


def _holds(text: str, answer: str) -> bool:
    """Whether an answer stands in a text, not inside a longer word or number."""
    number = _number(answer)
    if number is not None:
        return number in _numbers(text)
    return re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text) is not None


# -------------------------------------------------------------------------------------------- rewards by rule


@checked
def correctness_reward(answer: str, text: str, finished: bool) -> float:
    """1 if the completion is the answer and ended by itself, else 0: a cut-off completion has not answered."""
    return float(finished and text == answer)


class RewardError(ValueError):
    """A reward function raised, or returned something that is not a finite number; the message shows the sample."""


@checked
def score_completions(reward: Reward, completions: Completions) -> Tensor:
    """The reward of each completion, (B,) float32.

    Args:
        reward: called with the prompt, the completion and whether it ended by itself; returns a finite number.

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
            raise RewardError(f"the reward function raised {type(error).__name__}: {error} ({sample})") from error
        if not isinstance(score, numbers.Real) or not math.isfinite(score):
            raise RewardError(f"the reward function returned {score!r}; expected a finite number ({sample})")
        scores.append(float(score))
    return torch.tensor(scores, device=completions.tokens.device)


@runtime_checkable
class Scorer(Protocol):
    """What scores completions many at a time, as a reward model does."""

    def scores(self, completions: Completions) -> Tensor:
        """(B,) scores."""


@checked
@torch.no_grad()
def score_with(reward: Reward | Scorer, completions: Completions) -> Tensor:
    """(B,) scores of completions, from a rule as ``score_completions`` calls it, or from a reward model.

    Raises:
        RewardError: a rule raised, or a score is not a finite number; the sample is named.
    """
    if not isinstance(reward, Scorer):
        return score_completions(reward, completions)
    scores = reward.scores(completions)
    if not scores.isfinite().all():
        row = int((~scores.isfinite()).nonzero()[0])
        raise RewardError(
            f"the reward model gave {float(scores[row])}; expected a finite number "
            f"(sample {row}: prompt {completions.prompts[row]!r}, completion {completions.texts[row]!r})"
        )
    return scores


@checked
def evaluate_accuracy(model: LanguageModel, task: TextTask, *, count: Count = 512) -> float:
    """Share of ``count`` evaluation prompts that the model answers right (a reward of 1), greedily.

    At 512 the standard error is about two points at worst.
    """
    prompts = task.prompts(count, np.random.default_rng(1_000_000), "eval")
    written = generate(model, prompts, max_new_tokens=task.max_new_tokens, greedy=True)
    return int((score_completions(task.reward, written) >= 1).sum()) / count


# ------------------------------------------------------------------------------ preferences by a hidden score


@checked
def hidden_score(prompt: str, text: str, finished: bool) -> float:
    """How well a completion sorts, graded: what the synthetic judges of chapter 11 look at and the model never sees.

    Twice the share of places that hold the right digit, minus 1; minus 0.3 for each digit too many or too
    few; minus 0.5 for a completion that does not end. The prompt is one of ``Sorting``.
    """
    right = "".join(sorted(prompt[:-1]))
    share = sum(a == b for a, b in zip(text, right)) / len(right)
    return 2 * share - 1 - 0.3 * abs(len(text) - len(right)) - (0.0 if finished else 0.5)


@dataclass(frozen=True)
class PreferencePairs:
    """Pairs of completions of the same prompts, with the one that a judge preferred."""

    chosen: Completions  #: the preferred completions, B of them
    rejected: Completions  #: the others, in the same order
    margins: Tensor  #: (B,) hidden score of chosen minus rejected; negative where the judge erred, 0 at a tie

    def __len__(self) -> int:
        return len(self.chosen)

    def take(self, rows: Tensor) -> PreferencePairs:
        """Some of the pairs."""
        return PreferencePairs(self.chosen.take(rows), self.rejected.take(rows), self.margins[rows])


@checked
def preference_pairs(
    model: LanguageModel,
    task: TextTask,
    count: Count,
    *,
    seed: Seed,
    score: Reward = hidden_score,
    sharpness: NotNegative = 3.0,
    split: Split = "train",
) -> PreferencePairs:
    """Sample two completions for each prompt and let a judge choose: P(first wins) = sigmoid(sharpness * margin).

    The model samples both, at temperature 1; the judge looks at their ``score``. A sharpness of 0 chooses at random, large
    values always choose the better one.
    """
    rng = np.random.default_rng(seed)
    prompts = task.prompts(count, rng, split)
    seeds = [int(s) for s in rng.integers(2**31, size=2)]
    one, two = (generate(model, prompts, max_new_tokens=task.max_new_tokens, seed=s) for s in seeds)
    score_one, score_two = (score_completions(score, written) for written in (one, two))
    margin = (score_one - score_two).double().cpu()
    wins = torch.from_numpy(rng.random(count)) < torch.sigmoid(sharpness * margin)
    margins = torch.where(wins, margin, -margin).float()
    wins = wins.to(one.tokens.device)
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
