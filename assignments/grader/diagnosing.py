"""What one simple relation says about a wrong answer that is no known mistake.

All of this happens in the grader's process, on the data that came back. A relation is named only if it explains every
failing case of a part and at least two of them in a way that is no accident. What is said is one of our own
:data:`SENTENCES`, never a number of a case: the student's code, which knows the hidden inputs, could choose the relation
but nothing else, and of a part it can choose one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from .comparing import is_numeric

SENTENCES = {
    "not finite": "The result is right except where it is NaN or infinite: look for a division by zero, a logarithm of zero or an"
    " exponential of a large number.",
    "axis of length 1": "The numbers are right, but the shape has an axis of length 1 too many or too few.",
    "axes": "The numbers are right, but the axes stand in another order than asked for: a table is transposed, for example.",
    "one more at the start": "The result is right but for one additional entry at the start.",
    "one more at the end": "The result is right but for one additional entry at the end.",
    "first missing": "The result is right, but its first entry is missing.",
    "last missing": "The result is right, but its last entry is missing.",
    "zero": "The result is zero everywhere.",
    "opposite": "The result has the opposite sign, everywhere.",
    "reversed": "The numbers are right, but along the first axis they stand in the opposite order.",
    "too early": "The result is shifted by one step along the first axis: each entry belongs one place later.",
    "too late": "The result is shifted by one step along the first axis: each entry belongs one place earlier.",
    "twice": "The result is twice as large as it should be, everywhere.",
    "half": "The result is half as large as it should be, everywhere.",
    "divided by the length": "The result is the right one divided by the length: is it a mean where a sum is asked for?",
    "times the length": "The result is the right one times the length: is it a sum where a mean is asked for?",
    "one too large": "The result is too large by one.",
    "one too small": "The result is too small by one.",
    "whole numbers": "The result is right except that its decimals are lost: whole numbers come back.",
    "rounded": "The result is right except that it is rounded to a few decimals.",
    "all but the first": "Only the first entry along the first axis is wrong; all others are right.",
    "all but the last": "Only the last entry along the first axis is wrong; all others are right.",
    "constant added": "The result is right except for a constant: within a call, the same number is added everywhere.",
    "factor": "The result is right except for a constant factor: within a call, it is the same everywhere.",
    "only the first": "Only the first entry along the first axis is right; all others are wrong.",
    "only the last": "Only the last entry along the first axis is right; all others are wrong.",
}

Pair = tuple[np.ndarray, np.ndarray]  # what came back and what is right
Judgement = bool | None  # whether a pair fits a relation; None if it fits but would fit anything, or nearly
Relation = Callable[[np.ndarray, np.ndarray], Judgement]


def relation(pairs: Sequence[tuple[Any, Any]], lengths: Sequence[set[int]] | None = None) -> str | None:
    """The name of the first relation in :data:`SENTENCES` that explains all failing cases of a part, or None.

    ``pairs``: the results of these cases, the student's and the right one. ``lengths``: of each case, the numbers that
    count as "the length" where the right result is a single number.
    """
    try:
        with np.errstate(all="ignore"):
            return found([wrong_pairs(got, want) for got, want in pairs], lengths or [set() for _ in pairs])
    except Exception:  # whatever a student returned, data that cannot be read has no relation to the right result
        return None


def found(cases: list[list[Pair] | None], lengths: Sequence[set[int]]) -> str | None:
    """The name, given the arrays in which each case is wrong."""
    wrong = [pairs for pairs in cases if pairs]
    if len(wrong) < max(2, len(cases)):
        return None
    for name in SENTENCES:
        if name in RELATIONS:
            judgements = [together(RELATIONS[name], pairs) for pairs in wrong]
        else:
            judgements = SCALES[name](wrong, lengths)
        if False not in judgements and judgements.count(True) >= 2:
            return name
    return None


def together(fits: Relation, pairs: list[Pair]) -> Judgement:
    """The judgement about all arrays of a case."""
    judgements = [fits(got, want) for got, want in pairs]
    return False if False in judgements else True if True in judgements else None


def wrong_pairs(got: Any, want: Any) -> list[Pair] | None:
    """The arrays of a result that are not right; None if something is wrong that is no array of numbers."""
    wrong = []
    for given, wanted in leaves(got, want):
        if wanted is None or isinstance(wanted, str):
            if given != wanted:
                return None
        elif not is_numeric(given):
            return None
        else:
            one, other = np.asarray(given, dtype=np.float64), np.asarray(wanted, dtype=np.float64)
            if not np.isfinite(other).all():
                return None
            if not equal(one, other):
                wrong.append((one, other))
    return wrong


def leaves(got: Any, want: Any) -> Iterator[tuple[Any, Any]]:
    """The numbers, arrays and words of two results, side by side; raises ``ValueError`` where they are built differently."""
    if isinstance(want, dict):
        if not isinstance(got, dict) or got.keys() != want.keys():
            raise ValueError("other keys")
        for key in want:
            yield from leaves(got[key], want[key])
    elif isinstance(want, (list, tuple)) and not is_numeric(want):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            raise ValueError("another number of values")
        for one, other in zip(got, want, strict=True):
            yield from leaves(one, other)
    else:
        yield got, want


def equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays agree, but for the errors of float32."""
    if one.shape != other.shape or not np.isfinite(one).all():
        return False
    return bool(np.allclose(one, other, rtol=1e-4, atol=1e-6 * max(1.0, np.abs(other).max(initial=0.0))))


def several(values: np.ndarray, number: int = 2) -> bool:
    """Whether there are this many different values: fewer prove little."""
    return len(np.unique(values.round(9))) >= number


# --- relations of one array to another


def not_finite(got: np.ndarray, want: np.ndarray) -> Judgement:
    if got.shape != want.shape:
        return False
    finite = np.isfinite(got)
    if finite.all() or not equal(got[finite], want[finite]):
        return False
    return True if finite.any() else None


def axis_of_one(got: np.ndarray, want: np.ndarray) -> Judgement:
    return got.shape != want.shape and equal(got.squeeze(), want.squeeze())


def axes(got: np.ndarray, want: np.ndarray) -> Judgement:
    if not 2 <= want.ndim <= 4 or sorted(got.shape) != sorted(want.shape):
        return False
    if not any(equal(got.transpose(order), want) for order in permutations(range(want.ndim))):
        return False
    return True if several(want) else None


def longer(start: int) -> Relation:
    """One additional entry: the result without its first (1) or last (0) entry is right."""

    def fits(got: np.ndarray, want: np.ndarray) -> Judgement:
        if got.ndim != want.ndim or want.ndim == 0 or len(got) != len(want) + 1:
            return False
        return bool(len(want)) and equal(got[start:][: len(want)], want)

    return fits


def shorter(start: int) -> Relation:
    """One entry is missing, the first (1) or the last (0)."""
    swapped = longer(start)
    return lambda got, want: swapped(want, got)


def mapped(change: Callable[[np.ndarray], np.ndarray], number: int = 1) -> Relation:
    """The result is what ``change`` makes of the right one, which has some different values."""

    def fits(got: np.ndarray, want: np.ndarray) -> Judgement:
        if got.shape != want.shape or not equal(got, change(want)):
            return False
        return True if several(want, number) and want.any() else None

    return fits


def backwards(got: np.ndarray, want: np.ndarray) -> Judgement:
    return want.ndim > 0 and mapped(lambda right: right[::-1], 3)(got, want)


def shifted(step: int) -> Relation:
    """Entry t holds what belongs to t + step."""

    def fits(got: np.ndarray, want: np.ndarray) -> Judgement:
        if got.shape != want.shape or want.ndim == 0:
            return False
        here, there = (got[:-1], want[1:]) if step == 1 else (got[1:], want[:-1])
        if not equal(here, there):
            return False
        return True if len(want) > 2 and several(there) else None

    return fits


def whole_numbers(got: np.ndarray, want: np.ndarray) -> Judgement:
    if got.shape != want.shape or not any(np.array_equal(got, cut(want)) for cut in (np.trunc, np.rint, np.floor, np.ceil)):
        return False
    return True if several(got) else None


def rounded(got: np.ndarray, want: np.ndarray) -> Judgement:
    if got.shape != want.shape or not any(np.allclose(got, want.round(n), rtol=0, atol=1e-9) for n in range(1, 5)):
        return False
    return True if got.any() else None


def wrong_entries(got: np.ndarray, want: np.ndarray) -> list[bool] | None:
    """Which entries along the first axis are wrong; None if that cannot be said."""
    if got.shape != want.shape or want.ndim == 0 or not np.isfinite(got).all():
        return None
    return [not equal(one, other) for one, other in zip(got, want, strict=True)]


def wrong_at(first: bool, last: bool, between: bool) -> Relation:
    """The first, the last and all the other entries are wrong, or right."""

    def fits(got: np.ndarray, want: np.ndarray) -> Judgement:
        wrong = wrong_entries(got, want)
        if wrong is None or len(wrong) < 2:
            return None if wrong else False
        if wrong != [first, *[between] * (len(wrong) - 2), last]:
            return False
        return True if len(wrong) > 3 else None

    return fits


RELATIONS: dict[str, Relation] = {
    "not finite": not_finite,
    "axis of length 1": axis_of_one,
    "axes": axes,
    "one more at the start": longer(1),
    "one more at the end": longer(0),
    "first missing": shorter(1),
    "last missing": shorter(0),
    "zero": mapped(np.zeros_like),
    "opposite": mapped(np.negative),
    "reversed": backwards,
    "too early": shifted(1),
    "too late": shifted(-1),
    "twice": mapped(lambda want: 2 * want),
    "half": mapped(lambda want: want / 2),
    "one too large": mapped(lambda want: want + 1),
    "one too small": mapped(lambda want: want - 1),
    "whole numbers": whole_numbers,
    "rounded": rounded,
    "all but the first": wrong_at(True, False, False),
    "all but the last": wrong_at(False, True, False),
    "only the first": wrong_at(False, True, True),
    "only the last": wrong_at(True, False, True),
}


# --- relations with a number that differs from case to case


def by_length(power: int) -> Callable[[list[list[Pair]], Sequence[set[int]]], list[Judgement]]:
    """The right result times the length to this power."""

    def judge(cases: list[list[Pair]], lengths: Sequence[set[int]]) -> list[Judgement]:
        return [together(scaled(known), pairs) for pairs, known in zip(cases, lengths, strict=True)]

    def scaled(known: set[int]) -> Relation:
        def fits(got: np.ndarray, want: np.ndarray) -> Judgement:
            sizes = known if want.ndim == 0 else {len(want), want.size}
            judgements = [mapped(lambda right, size=size: right * float(size) ** power)(got, want) for size in sizes if size > 1]  # type: ignore[misc]
            return True if True in judgements else None if None in judgements else False

        return fits

    return judge


def of_a_number(measure: Callable[[Pair], float], build: Callable[[np.ndarray, float], np.ndarray]) -> Callable[..., list[Judgement]]:
    """The right result and a number that ``measure`` finds make the result.

    The number may differ from case to case where an array has three values or more; single numbers need the same one in
    three cases.
    """

    def judge(cases: list[list[Pair]], lengths: Sequence[set[int]]) -> list[Judgement]:
        pairs = [pair for case in cases for pair in case]
        if any(got.shape != want.shape or want.size == 0 or not np.isfinite(got).all() for got, want in pairs):
            return [False]
        numbers = np.array([measure(pair) for pair in pairs])
        common = len(cases) > 2 and np.allclose(numbers, numbers[0], rtol=1e-4)

        def fits(got: np.ndarray, want: np.ndarray) -> Judgement:
            number = measure((got, want))
            if not np.isfinite(number) or not equal(got, build(want, number)):
                return False
            return True if common or several(want, 3) else None

        return [together(fits, case) for case in cases]

    return judge


def difference(pair: Pair) -> float:
    return float((pair[0] - pair[1]).mean())


def quotient(pair: Pair) -> float:
    got, want = pair
    return float((got * want).sum() / (want * want).sum())


SCALES: dict[str, Callable[[list[list[Pair]], Sequence[set[int]]], list[Judgement]]] = {
    "divided by the length": by_length(-1),
    "times the length": by_length(1),
    "constant added": of_a_number(difference, lambda want, number: want + number),
    "factor": of_a_number(quotient, lambda want, number: want * number),
}
