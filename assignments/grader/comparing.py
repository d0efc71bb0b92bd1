"""Whether a student's result is right, and if not, in which way: sentences without a hidden number.

A comparison takes the student's result and the reference's as they come over the wire, and returns ``None`` if it is
right, else a sentence. It sees data only, so nothing that a student's code patches can reach it. A driver, which runs
beside that code, decides nothing: it hands over both runs, say, and :func:`judged` makes of these what is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

Comparison = Callable[[Any, Any], "str | None"]

NOT_NUMBERS = "The result is not made of numbers."
NOTHING = "The function returns nothing."
WRONG_SHAPE = "The result does not have the shape that is asked for."
WRONG_COUNT = "The function does not return as many values as asked for."
NOT_FINITE = "The result contains NaN or infinity."
WRONG_VALUES = "The values are not right."
WRONG_WORDS = "The result is not what is asked for."


def close(rtol: float = 1e-5, atol: float = 1e-7) -> Comparison:
    """Numbers, arrays, and lists, tuples and dictionaries of them, each close to the reference.

    Shapes must agree: a number where an array of one number is asked for is wrong, and the other way round. Integers
    and floats count alike, truth values too. Where the reference is not finite, the result must be the same.
    """

    def compare(got: Any, want: Any) -> str | None:
        if isinstance(want, dict):
            if not isinstance(got, dict) or got.keys() != want.keys():
                return WRONG_WORDS
            return first(compare(got[key], want[key]) for key in want)
        if isinstance(want, (list, tuple)) and not is_numeric(want):
            if not isinstance(got, (list, tuple)) or len(got) != len(want):
                return NOTHING if got is None else WRONG_COUNT
            return first(map(compare, got, want))
        if want is None or isinstance(want, str):
            return None if type(got) is type(want) and got == want else WRONG_WORDS
        wrong = compare_numbers(got, want, rtol, atol)
        several = isinstance(want, (list, tuple)) and any(isinstance(one, np.ndarray) for one in want)
        another = several and (np.ndim(got) == 0 or len(got) != len(want))
        return WRONG_COUNT if wrong == WRONG_SHAPE and another else wrong

    compare.entries = partial(np.isclose, rtol=rtol, atol=atol, equal_nan=True)  # type: ignore[attr-defined]
    return compare


def judged(judge: Callable[[Any], Any], compare: Comparison) -> Comparison:
    """Compare what ``judge`` makes of the raw results, the student's and the reference's.

    Of a shape that only the judge's own data have, a student is not told: nothing of that shape was asked for.
    """

    def compare_judged(got: Any, want: Any) -> str | None:
        wrong = compare(judge(got), judge(want))
        return WRONG_VALUES if wrong == WRONG_SHAPE and shapes(got) == shapes(want) else wrong

    return compare_judged


def entries_right(compare: Comparison, got: Any, want: Any, arguments: Sequence[Any]) -> tuple[int, int, int]:
    """How many entries of an array are right, how many there are, and how many of them whoever knows nothing has right.

    The last are those of the best constant, together with all that stands in an argument of this shape.
    """
    wanted = np.asarray(want, dtype=np.float64)
    fits = is_numeric(got) and np.shape(got) == wanted.shape
    right: Callable[..., np.ndarray] = compare.entries  # type: ignore[attr-defined]
    given = np.zeros(wanted.shape, dtype=bool)
    for one in arguments:
        given |= right(one, wanted) if isinstance(one, np.ndarray) and one.shape == wanted.shape else False
    guessed = [int((given | right(value, wanted)).sum()) for value in np.unique(wanted)]
    return int(right(got, wanted).sum()) if fits else 0, wanted.size, max(guessed, default=0)


def shapes(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shapes(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [shapes(one) for one in value]
    return value.shape if isinstance(value, np.ndarray) else ()


def same(one: Any, other: Any) -> bool:
    """Whether two results are equal to the last bit: kinds, shapes and values; NaN is the same as NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return type(one) is type(other) and bool(one == other or (one != one and other != other))


def repeats(runs: Any) -> bool:
    return len(runs) > 1 and all(same(runs[0], run) for run in runs[1:])


def compare_numbers(got: Any, want: Any, rtol: float, atol: float) -> str | None:
    if got is None:
        return NOTHING
    if not is_numeric(got):
        return NOT_NUMBERS
    given, wanted = np.asarray(got, dtype=np.float64), np.asarray(want, dtype=np.float64)
    if given.shape != wanted.shape:
        return WRONG_SHAPE
    if np.isfinite(wanted).all() and not np.isfinite(given).all():
        return NOT_FINITE
    return None if np.allclose(given, wanted, rtol=rtol, atol=atol, equal_nan=True) else WRONG_VALUES


def is_numeric(value: Any) -> bool:
    """Whether the value is a number, an array of numbers, or a list that can be read as one."""
    if not all_numbers(
        value
    ):  # one by one first: one long text among numbers would make an array that fills the memory
        return False
    if isinstance(value, (list, tuple)):
        try:
            return np.asarray(value).dtype.kind in "biuf"
        except (ValueError, OverflowError):  # rows of unequal length, whole numbers without end
            return False
    return True


def all_numbers(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(all_numbers, value))
    return isinstance(value, (bool, int, float)) or (isinstance(value, np.ndarray) and value.dtype.kind in "biuf")


def first(messages: Any) -> str | None:
    return next((message for message in messages if message is not None), None)
