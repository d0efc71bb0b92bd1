"""What one simple relation says about a wrong answer that is no known mistake.

All happens in the grader's process, on the data that came back. A relation is named only if it explains every failing
case of a part, and at least two in a way that is no accident. Said is one of :data:`SENTENCES`, never a number of a case:
the student's code, which knows the hidden inputs, can choose one relation for a part and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from .comparing import is_numeric

SENTENCES = {
    "results in another order": "The results are right, but they are returned in another order than asked for.",
    "not finite": "The result is right except where it is NaN or infinite: look for a division by zero, a logarithm of zero or an"
    " exponential of a large number.",
    "axis of length 1": "The numbers are right, but the shape has an axis of length 1 too many or too few.",
    "axes": "The numbers are right, but the axes stand in another order than asked for: a table is transposed, for example.",
    "one more at the start": "The result is right but for one additional entry at the start.",
    "one more at the end": "The result is right but for one additional entry at the end.",
    "first missing": "The result is right, but its first entry is missing.",
    "last missing": "The result is right, but its last entry is missing.",
    "mean missing": "One number is asked for. The mean of what is returned is right: is a mean missing at the end?",
    "sum missing": "One number is asked for. The sum of what is returned is right: is a sum missing at the end?",
    "a mean too many": "The result is the mean of the right one: more than one number is asked for.",
    "a sum too many": "The result is the sum of the right one: more than one number is asked for.",
    "square": "A square table is returned where one row is asked for; the row is its diagonal. Did a column meet a row, and"
    " broadcasting make a table of them?",
    "zero": "The result is zero everywhere.",
    "truth turned around": "All truth values are the wrong way round.",
    "opposite": "The result has the opposite sign, everywhere.",
    "running sum": "The result is the running sum of the right one: each entry still contains those before it.",
    "too early": "The result is shifted by one step along the first axis: each entry belongs one place later.",
    "too late": "The result is shifted by one step along the first axis: each entry belongs one place earlier.",
    "permuted": "The numbers are right, but along one axis they stand in another order than asked for.",
    "twice": "The result is twice as large as it should be, everywhere.",
    "half": "The result is half as large as it should be, everywhere.",
    "divided by the length": "The result is the right one divided by the length: is it a mean where a sum is asked for?",
    "times the length": "The result is the right one times the length: is it a sum where a mean is asked for?",
    "one too large": "The result is too large by one.",
    "one too small": "The result is too small by one.",
    "rounded": "The result is right except that decimals are lost: it is rounded, or whole numbers come back.",
    "constant added": "The result is right except for a constant: within a call, the same number is added everywhere.",
    "factor": "The result is right except for a constant factor: within a call, it is the same everywhere.",
}

# Before a sentence about the whole result, where some of several results are right.
PARTLY = "Some of the results are right. Of the others: "

LARGE = 1e4  # a number so much larger than the right result fits anything, but for rounding
Pair = tuple[np.ndarray, np.ndarray]  # what came back and what is right
Judgement = bool | None  # whether a pair fits a relation; None if it fits but would fit anything, or nearly
Relation = Callable[[np.ndarray, np.ndarray, set[int]], Judgement]  # with the numbers that count as "the length"


def relation(
    pairs: Sequence[tuple[Any, Any]],
    lengths: Sequence[set[int]] | None = None,
    names: Collection[str] = SENTENCES.keys(),
    least: int = 2,
) -> str | None:
    """The name of the first relation in :data:`SENTENCES` that explains all failing cases of a part, or None.

    ``pairs``: the student's results and the right ones. ``lengths``: of each case, what counts as "the length" where one
    number is asked for. ``names``: of the relations to look at. ``least``: so many cases must show it by no accident.
    """
    cases = [readable_pairs(got, want) for got, want in pairs]
    sizes = lengths or [set() for _ in pairs]
    with np.errstate(all="ignore"):
        for name in SENTENCES:
            if name not in names or len(pairs) < least:
                continue
            judgements: list[Judgement]
            if name == SWAPPED:
                judgements = [in_another_order(got, want) for got, want in pairs]
            elif all(cases):
                judgements = [
                    together(RELATIONS[name], case or [], known) for case, known in zip(cases, sizes, strict=True)
                ]
            else:
                continue
            if False not in judgements and judgements.count(True) >= least:
                return name
    return None


def together(fits: Relation, pairs: list[Pair], sizes: set[int]) -> Judgement:
    """The judgement about all arrays of a case."""
    judgements = [fits(got, want, sizes) for got, want in pairs]
    return False if False in judgements else True if True in judgements else None


def readable_pairs(got: Any, want: Any) -> list[Pair] | None:
    """The arrays in which a result is wrong; None if it cannot be read so: a student may have returned anything."""
    try:
        return wrong_pairs(got, want)
    except Exception:
        return None


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


def results_of(got: Any, want: Any) -> list[tuple[Any, Any]]:
    """Several results side by side; raises ``ValueError`` where they are built differently, empty if there is one only."""
    if isinstance(want, dict):
        if not isinstance(got, dict) or got.keys() != want.keys():
            raise ValueError("other keys")
        return [(got[key], want[key]) for key in want]
    if several_results(want):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            raise ValueError("another number of values")
        return list(zip(got, want, strict=True))
    return []


def leaves(got: Any, want: Any) -> Iterator[tuple[Any, Any]]:
    """The numbers, arrays and words of two results, side by side."""
    for one, other in (pairs := results_of(got, want)):
        yield from leaves(one, other)
    if not pairs:
        yield got, want


def partly_right(got: Any, want: Any, arguments: Sequence[np.ndarray]) -> bool:
    """Whether of several results one is wrong and another right; an argument that is handed back is none."""
    given = [one for one in arguments if one.size > 1]
    right = [
        readable_pairs(one, other) == []
        for one, other in results_of(got, want)
        if not any(np.shape(other) == one.shape and np.array_equal(other, one) for one in given)
    ]
    return any(right) and not all(right)


def sentences() -> set[str]:
    """All that this module may say."""
    return set(SENTENCES.values()) | {PARTLY + sentence for sentence in SENTENCES.values()}


def equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays agree, but for the errors of float32."""
    if one.shape != other.shape or not np.isfinite(one).all():
        return False
    return bool(np.allclose(one, other, rtol=1e-4, atol=1e-6 * max(1.0, np.abs(other).max(initial=0.0))))


def several(values: np.ndarray, number: int = 2) -> bool:
    """Whether there are this many different values: fewer prove little."""
    return len(np.unique(values.round(9))) >= number


# --- the relation of a whole result to the right one

SWAPPED = "results in another order"


def in_another_order(got: Any, want: Any) -> bool:
    """Two to five results, each of them right in another place."""
    try:
        pairs = results_of(got, want)
    except ValueError:
        return False
    if not 2 <= len(pairs) <= 5:
        return False
    fits = np.array([[readable_pairs(one, other) == [] for _, other in pairs] for one, _ in pairs])
    orders = [
        order for order in permutations(range(len(pairs))) if all(fits[place, one] for place, one in enumerate(order))
    ]
    return bool(orders) and tuple(range(len(pairs))) not in orders


# --- relations of one array to another


def not_finite(got: np.ndarray, want: np.ndarray, _: set[int]) -> Judgement:
    if got.shape != want.shape:
        return False
    finite = np.isfinite(got)
    if finite.all() or not equal(got[finite], want[finite]):
        return False
    return True if finite.any() else None


def axes(got: np.ndarray, want: np.ndarray, _: set[int]) -> Judgement:
    if not 2 <= want.ndim <= 4 or sorted(got.shape) != sorted(want.shape):
        return False
    if not any(equal(got.transpose(order), want) for order in permutations(range(want.ndim))):
        return False
    return True if several(want) else None


def one_more(long: np.ndarray, short: np.ndarray, start: int) -> bool:
    """Whether one is the other with one additional entry, the first (1) or the last (0)."""
    if long.ndim != short.ndim or short.ndim == 0 or len(long) != len(short) + 1 or not len(short):
        return False
    return equal(long[start:][: len(short)], short)


def mapped(change: Callable[[np.ndarray], np.ndarray], number: int = 1) -> Relation:
    """The result is what ``change`` makes of the right one, which has some different values."""

    def fits(got: np.ndarray, want: np.ndarray, _: set[int]) -> Judgement:
        if got.shape != want.shape or not equal(got, change(want)):
            return False
        return True if several(want, number) and want.any() else None

    return fits


def gathered(how: Callable[..., np.ndarray]) -> Relation:
    """The right result, gathered along one axis or all of them."""

    def fits(got: np.ndarray, want: np.ndarray, _: set[int]) -> Judgement:
        if got.ndim >= want.ndim or want.size < 2:
            return False
        if not any(equal(got, np.asarray(how(want, axis=axis))) for axis in (None, *range(want.ndim))):
            return False
        return True if several(want) else None

    return fits


def to_gather(how: Callable[[np.ndarray], float]) -> Relation:
    """Something of more dimensions comes back whose mean, say, is the number that is asked for."""
    return lambda got, want, _: want.ndim == 0 and got.ndim > 0 and got.size > 1 and equal(np.asarray(how(got)), want)


def square(got: np.ndarray, want: np.ndarray, _: set[int]) -> Judgement:
    if want.ndim != 1 or got.shape != (len(want), len(want)) or not equal(np.diagonal(got), want):
        return False
    return True if several(want) else None


def truth_turned(got: np.ndarray, want: np.ndarray, _: set[int]) -> Judgement:
    if got.shape != want.shape or not np.isin(want, (0, 1)).all() or not np.array_equal(got, 1 - want):
        return False
    return True if several(want) and want.size > 2 else None


def running_sum(got: np.ndarray, want: np.ndarray, sizes: set[int]) -> Judgement:
    return want.ndim > 0 and len(want) > 2 and mapped(lambda right: right.cumsum(axis=0), 3)(got, want, sizes)


def permuted(got: np.ndarray, want: np.ndarray, _: set[int]) -> Judgement:
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


def shifted(step: int) -> Relation:
    """Entry t holds what belongs to t + step."""

    def fits(got: np.ndarray, want: np.ndarray, _: set[int]) -> Judgement:
        if got.shape != want.shape or want.ndim == 0:
            return False
        here, there = (got[:-1], want[1:]) if step == 1 else (got[1:], want[:-1])
        if not equal(here, there):
            return False
        return True if len(want) > 2 and several(there) else None

    return fits


def rounded(got: np.ndarray, want: np.ndarray, _: set[int]) -> Judgement:
    ways = [np.trunc(want), np.floor(want), np.ceil(want), *(want.round(number) for number in range(5))]
    if got.shape != want.shape or not any(np.allclose(got, cut, rtol=0, atol=1e-9) for cut in ways):
        return False
    return True if got.any() and several(want) else None


def by_length(power: int) -> Relation:
    """The right result times the length to this power."""

    def fits(got: np.ndarray, want: np.ndarray, sizes: set[int]) -> Judgement:
        found = sizes if want.ndim == 0 else {len(want), want.size}
        factors = [float(size) ** power for size in found if size > 1]
        judgements = [mapped(partial(np.multiply, factor))(got, want, sizes) for factor in factors]
        return True if True in judgements else None if None in judgements else False

    return fits


def of_a_number(
    measure: Callable[[np.ndarray, np.ndarray], float], build: Callable[[np.ndarray, float], np.ndarray]
) -> Relation:
    """The right result and a number that ``measure`` finds make the result; three values or more prove it."""

    def fits(got: np.ndarray, want: np.ndarray, _: set[int]) -> Judgement:
        if got.shape != want.shape or want.size == 0 or not np.isfinite(got).all():
            return False
        number = measure(got, want)
        if not np.isfinite(number) or abs(number) > LARGE * max(1.0, np.abs(want).max()):
            return False
        return (True if several(want, 3) else None) if equal(got, build(want, number)) else False

    return fits


RELATIONS: dict[str, Relation] = {
    "not finite": not_finite,
    "axis of length 1": lambda got, want, _: got.shape != want.shape and equal(got.squeeze(), want.squeeze()),
    "axes": axes,
    "one more at the start": lambda got, want, _: one_more(got, want, 1),
    "one more at the end": lambda got, want, _: one_more(got, want, 0),
    "first missing": lambda got, want, _: one_more(want, got, 1),
    "last missing": lambda got, want, _: one_more(want, got, 0),
    "mean missing": to_gather(np.mean),
    "sum missing": to_gather(np.sum),
    "a mean too many": gathered(np.mean),
    "a sum too many": gathered(np.sum),
    "square": square,
    "zero": mapped(np.zeros_like),
    "truth turned around": truth_turned,
    "opposite": mapped(np.negative),
    "running sum": running_sum,
    "too early": shifted(1),
    "too late": shifted(-1),
    "permuted": permuted,
    "twice": mapped(lambda want: 2 * want),
    "half": mapped(lambda want: want / 2),
    "divided by the length": by_length(-1),
    "times the length": by_length(1),
    "one too large": mapped(lambda want: want + 1),
    "one too small": mapped(lambda want: want - 1),
    "rounded": rounded,
    "constant added": of_a_number(lambda got, want: float((got - want).mean()), np.add),
    "factor": of_a_number(lambda got, want: float((got * want).sum() / (want * want).sum()), np.multiply),
}
