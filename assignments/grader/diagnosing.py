"""What one simple relation says about a wrong answer that is no known mistake.

All of this happens in the grader's process, on the data that came back. A relation is named only if it explains every
failing case of a part and at least two of them in a way that is no accident. What is said is one of our own
:data:`SENTENCES`, never a number of a case: the student's code, which knows the hidden inputs, could choose the relation
but nothing else, and of a part it can choose one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
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
    "joined": "The numbers are right, but they come in several pieces: one array of one dimension is asked for.",
    "results in another order": "The results are right, but they are returned in another order than asked for.",
    "first alone": "Only the first entry of what is asked for is returned.",
    "last alone": "Only the last entry of what is asked for is returned.",
    "mean missing": "One number is asked for. The mean of what is returned is right: is a mean missing at the end?",
    "sum missing": "One number is asked for. The sum of what is returned is right: is a sum missing at the end?",
    "a mean too many": "The result is the mean of the right one: more than one number is asked for.",
    "a sum too many": "The result is the sum of the right one: more than one number is asked for.",
    "a maximum too many": "The result is the largest entry of the right one, along an axis: all of them are asked for.",
    "square": "A square table is returned where one row is asked for; the row is its diagonal. Did a column meet a row, and"
    " broadcasting make a table of them?",
    "zero": "The result is zero everywhere.",
    "truth turned around": "All truth values are the wrong way round.",
    "opposite": "The result has the opposite sign, everywhere.",
    "running sum": "The result is the running sum of the right one: each entry still contains those before it.",
    "reversed": "The numbers are right, but along the first axis they stand in the opposite order.",
    "too early": "The result is shifted by one step along the first axis: each entry belongs one place later.",
    "too late": "The result is shifted by one step along the first axis: each entry belongs one place earlier.",
    "permuted": "The numbers are right, but along one axis they stand in another order than asked for.",
    "twice": "The result is twice as large as it should be, everywhere.",
    "half": "The result is half as large as it should be, everywhere.",
    "divided by the length": "The result is the right one divided by the length: is it a mean where a sum is asked for?",
    "times the length": "The result is the right one times the length: is it a sum where a mean is asked for?",
    "whole multiples": "Each entry is the right one times a whole number, not always the same: is it a sum where a mean is asked"
    " for, or is something counted several times?",
    "whole fractions": "Each entry is the right one divided by a whole number, not always the same: is it a mean where a sum is"
    " asked for?",
    "one too large": "The result is too large by one.",
    "one too small": "The result is too small by one.",
    "whole numbers": "The result is right except that its decimals are lost: whole numbers come back.",
    "rounded": "The result is right except that it is rounded to a few decimals.",
    "all but the first": "Only the first entry along the first axis is wrong; all others are right.",
    "all but the last": "Only the last entry along the first axis is wrong; all others are right.",
    "constant added": "The result is right except for a constant: within a call, the same number is added everywhere.",
    "factor": "The result is right except for a constant factor: within a call, it is the same everywhere.",
    "constant in each row": "The result is right except that to each row, along the last axis, a number is added, not always the"
    " same: is something else subtracted than asked for?",
    "factor in each row": "The result is right except that each row, along the last axis, is multiplied by a number, not always the same.",
    "only the first": "Only the first entry along the first axis is right; all others are wrong.",
    "only the last": "Only the last entry along the first axis is right; all others are wrong.",
}

# Said only where nothing that explains more fits: these leave open what is wrong, or say where and not what.
WEAK = {
    "all but the first",
    "all but the last",
    "constant added",
    "factor",
    "constant in each row",
    "factor in each row",
    "only the first",
    "only the last",
}

# Before a sentence about the whole result, where some of several results are right.
PARTLY = "Some of the results are right. Of the others: "

LARGE = 1e4  # a number so much larger than the right result fits anything, but for rounding
Pair = tuple[np.ndarray, np.ndarray]  # what came back and what is right
Judgement = bool | None  # whether a pair fits a relation; None if it fits but would fit anything, or nearly
Relation = Callable[[np.ndarray, np.ndarray], Judgement]


def relation(
    pairs: Sequence[tuple[Any, Any]],
    lengths: Sequence[set[int]] | None = None,
    names: Collection[str] = SENTENCES.keys(),
    least: int = 2,
) -> str | None:
    """The name of the first relation in :data:`SENTENCES` that explains all failing cases of a part, or None.

    ``pairs``: the results of these cases, the student's and the right one. ``lengths``: of each case, the numbers that
    count as "the length" where the right result is a single number. ``names``: of the relations to look at.
    ``least``: so many cases must show it in a way that is no accident.
    """
    cases = [readable_pairs(got, want) for got, want in pairs]
    with np.errstate(all="ignore"):
        for name, fits in WHOLE.items():
            if name in names and len(pairs) >= least and all(fits(got, want) for got, want in pairs):
                return name
        return found(cases, lengths or [set() for _ in pairs], names, least)


def readable_pairs(got: Any, want: Any) -> list[Pair] | None:
    """The arrays in which a result is wrong; None also if it cannot be read: a student may have returned anything."""
    try:
        return wrong_pairs(got, want)
    except Exception:
        return None


def found(
    cases: list[list[Pair] | None], lengths: Sequence[set[int]], names: Collection[str], least: int
) -> str | None:
    """The name, given the arrays in which each case is wrong."""
    wrong = [pairs for pairs in cases if pairs]
    if len(wrong) < max(least, len(cases)):
        return None
    for name in SENTENCES:
        if name not in names or name in WHOLE:
            continue
        if name in RELATIONS:
            judgements = [together(RELATIONS[name], pairs) for pairs in wrong]
        else:
            judgements = SCALES[name](wrong, lengths)
        if False not in judgements and judgements.count(True) >= least:
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


def several_results(value: Any) -> bool:
    """Whether a list holds several results, and is not one array written as a list."""
    if not isinstance(value, (list, tuple)):
        return False
    return not is_numeric(value) or any(isinstance(one, np.ndarray) and one.ndim for one in value)


def partly_right(got: Any, want: Any, given: Callable[[Any], bool]) -> bool:
    """Whether of several results one is wrong and another right; an argument that is handed back (``given``) is none."""
    if isinstance(want, dict):
        pairs = [(got[key], want[key]) for key in want]
    elif several_results(want):
        pairs = list(zip(got, want, strict=True))
    else:
        return False
    right = [readable_pairs(one, other) == [] for one, other in pairs if not given(other)]
    return any(right) and not all(right)


def sentences() -> set[str]:
    """All that this module may say."""
    return set(SENTENCES.values()) | {PARTLY + sentence for sentence in SENTENCES.values()}


def leaves(got: Any, want: Any) -> Iterator[tuple[Any, Any]]:
    """The numbers, arrays and words of two results, side by side; raises ``ValueError`` where they are built differently."""
    if isinstance(want, dict):
        if not isinstance(got, dict) or got.keys() != want.keys():
            raise ValueError("other keys")
        for key in want:
            yield from leaves(got[key], want[key])
    elif several_results(want):
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


# --- relations of a whole result to the right one


def joined(got: Any, want: Any) -> bool:
    """Several arrays whose numbers, one after the other, are those of one array."""
    if not isinstance(want, np.ndarray) or want.ndim != 1 or not isinstance(got, (list, tuple)) or is_numeric(got):
        return False
    if not all(is_numeric(piece) for piece in got):
        return False
    flat = [number for piece in got for number in np.ravel(piece).tolist()]
    return several(want) and len(flat) == len(want) and readable_pairs(flat, want) == []


def in_another_order(got: Any, want: Any) -> bool:
    """Two or three results, each of them right in another place."""
    if isinstance(want, dict) and isinstance(got, dict) and got.keys() == want.keys():
        got, want = list(got.values()), list(want.values())
    if not several_results(want) or not isinstance(got, (list, tuple)) or not 2 <= len(want) == len(got) <= 5:
        return False

    fits = np.array([[readable_pairs(one, other) == [] for other in want] for one in got])
    orders = [
        order
        for order in permutations(range(len(want)))
        if all(fits[place, number] for place, number in enumerate(order))
    ]
    return bool(orders) and tuple(range(len(want))) not in orders


WHOLE: dict[str, Callable[[Any, Any], bool]] = {"joined": joined, "results in another order": in_another_order}


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


def gathered(how: Callable[[np.ndarray, int | None], np.ndarray]) -> Relation:
    """The right result, gathered along one axis or all of them."""

    def fits(got: np.ndarray, want: np.ndarray) -> Judgement:
        if got.ndim >= want.ndim or want.size < 2:
            return False
        axes = [None, *range(want.ndim)]
        if not any(equal(got, np.asarray(how(want, axis))) for axis in axes):
            return False
        return True if several(want) else None

    return fits


def to_gather(how: Callable[[np.ndarray], float]) -> Relation:
    """Something of more dimensions comes back whose mean, say, is the number that is asked for."""
    return lambda got, want: want.ndim == 0 and got.ndim > 0 and got.size > 1 and equal(np.asarray(how(got)), want)


def entry(place: int) -> Relation:
    """One entry of the right result along its first axis."""

    def fits(got: np.ndarray, want: np.ndarray) -> Judgement:
        if got.ndim >= want.ndim or len(want) < 2 or not equal(got, np.asarray(want[place])):
            return False
        return True if several(want) else None

    return fits


def square(got: np.ndarray, want: np.ndarray) -> Judgement:
    if want.ndim != 1 or got.shape != (len(want), len(want)) or not equal(np.diagonal(got), want):
        return False
    return True if several(want) else None


def truth_turned(got: np.ndarray, want: np.ndarray) -> Judgement:
    if got.shape != want.shape or not np.isin(want, (0, 1)).all() or not np.array_equal(got, 1 - want):
        return False
    return True if several(want) and want.size > 2 else None


def running_sum(got: np.ndarray, want: np.ndarray) -> Judgement:
    return want.ndim > 0 and len(want) > 2 and mapped(lambda right: right.cumsum(axis=0), 3)(got, want)


def permuted(got: np.ndarray, want: np.ndarray) -> Judgement:
    """Along one axis the entries are the right ones in another order."""
    if got.shape != want.shape:
        return False
    for axis in range(want.ndim):
        rows, given = np.moveaxis(want, axis, 0), np.moveaxis(got, axis, 0)
        if 2 < len(rows) < 100 and several(rows, 3):
            places = [next((n for n, row in enumerate(rows) if equal(one, row)), -1) for one in given]
            if sorted(places) == list(range(len(rows))):
                return True
    return False


def whole_multiples(power: int) -> Relation:
    def fits(got: np.ndarray, want: np.ndarray) -> Judgement:
        if got.shape != want.shape or not np.array_equal(got == 0, want == 0) or not np.isfinite(got).all():
            return False
        ratios = (got[want != 0] / want[want != 0]) ** power
        if not np.allclose(ratios, ratios.round(), rtol=1e-5) or (ratios < 0.5).any() or (ratios > 50).any():
            return False
        whole = (np.abs(got - got.round()) < 1e-9).all() and (np.abs(want - want.round()) < 1e-9).all()
        return True if several(ratios.round()) and several(want, 3) and not whole else None

    return fits


def of_each_row(
    measure: Callable[[np.ndarray, np.ndarray], np.ndarray], build: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Relation:
    """A number for each row, along the last axis, makes the result of the right one."""

    def fits(got: np.ndarray, want: np.ndarray) -> Judgement:
        if got.shape != want.shape or want.ndim < 2 or want.shape[-1] < 2 or not np.isfinite(got).all():
            return False
        numbers = measure(got, want)
        if not np.isfinite(numbers).all() or not equal(got, build(want, numbers)):
            return False
        if np.abs(numbers).max() > LARGE * max(1.0, np.abs(want).max()):
            return None
        return True if want.shape[-1] > 2 and len(want) > 1 and several(want, 3) else None

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
    if got.shape != want.shape or not any(
        np.array_equal(got, cut(want)) for cut in (np.trunc, np.rint, np.floor, np.ceil)
    ):
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
    "mean missing": to_gather(np.mean),
    "sum missing": to_gather(np.sum),
    "a mean too many": gathered(lambda want, axis: want.mean(axis=axis)),
    "a sum too many": gathered(lambda want, axis: want.sum(axis=axis)),
    "a maximum too many": gathered(lambda want, axis: want.max(axis=axis)),
    "first alone": entry(0),
    "last alone": entry(-1),
    "square": square,
    "truth turned around": truth_turned,
    "running sum": running_sum,
    "permuted": permuted,
    "whole multiples": whole_multiples(1),
    "whole fractions": whole_multiples(-1),
    "constant in each row": of_each_row(lambda got, want: (got - want).mean(axis=-1, keepdims=True), np.add),
    "factor in each row": of_each_row(
        lambda got, want: (got * want).sum(axis=-1, keepdims=True) / (want * want).sum(axis=-1, keepdims=True),
        np.multiply,
    ),
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
            factors = [float(size) ** power for size in sizes if size > 1]
            judgements = [mapped(partial(np.multiply, factor))(got, want) for factor in factors]
            return True if True in judgements else None if None in judgements else False

        return fits

    return judge


def of_a_number(
    measure: Callable[[Pair], float], build: Callable[[np.ndarray, float], np.ndarray]
) -> Callable[..., list[Judgement]]:
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
            if (
                not np.isfinite(number)
                or abs(number) > LARGE * max(1.0, np.abs(want).max())
                or not equal(got, build(want, number))
            ):
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
