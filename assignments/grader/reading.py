"""The one reader of raw answers: each is held against the right result before a judge, numpy or a diagnosis sees it.

What passes is built like the right result, or is made of numbers alone, a few levels deeper at most. So nothing that a
student sends costs the grader's own process, which no limit holds, more than a few times what the right answer costs. A
text among numbers, for instance, would become an array in which every entry is as wide as this text.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .comparing import NOT_NUMBERS, NOTHING, WRONG_SHAPE, WRONG_WORDS, is_numeric

ROOM = 1_000  # numbers and characters that a result may have beside ten times those of the right one
DEEPER = 2  # levels of lists or axes that it may have more than the right one
LARGEST = 2**64  # whole numbers beyond are not those of any array
TOO_LARGE = "The result is far larger than what is asked for."


def size(value: Any) -> int:
    """How many numbers, characters and containers a result has."""
    if isinstance(value, np.ndarray):
        return value.size + sum(value.shape)
    if isinstance(value, str):
        return 1 + len(value)
    if isinstance(value, dict):
        return 1 + sum(len(key) + size(one) for key, one in value.items())
    return 1 + sum(map(size, value)) if isinstance(value, (list, tuple)) else 1


def unlike(got: Any, want: Any) -> str | None:
    """Why a result is not to be looked at: it is not of the kind of the right one, or far larger. None if it may be."""
    return TOO_LARGE if size(got) > ROOM + 10 * size(want) else built_unlike(got, want)


def built_unlike(got: Any, want: Any) -> str | None:
    """Why a result is built in another way than the right one."""
    if isinstance(want, dict):
        if not isinstance(got, dict) or got.keys() != want.keys():
            return NOTHING if got is None else WRONG_WORDS
        return next(filter(None, (built_unlike(got[key], want[key]) for key in want)), None)
    if want is None or isinstance(want, str):
        return WRONG_WORDS if isinstance(got, (dict, list, tuple, np.ndarray)) else None
    if isinstance(want, (list, tuple)) and not is_numeric(want) and isinstance(got, (list, tuple)):
        if len(got) == len(want):
            return next(filter(None, map(built_unlike, got, want)), None)
    return NOTHING if got is None else not_numbers(got, levels(want) + DEEPER, holds_none(want))


def levels(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return 1 + max(map(levels, value), default=0)
    return value.ndim if isinstance(value, np.ndarray) else 0


def holds_none(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(one is None or holds_none(one) for one in value)


def not_numbers(value: Any, deepest: int, none: bool) -> str | None:
    """Why a result is not made of numbers (and of None where the right one has some), of so many levels at most."""
    if isinstance(value, (list, tuple)):
        inner = (not_numbers(one, deepest - 1, none) for one in value)
        return WRONG_SHAPE if deepest < 1 else next(filter(None, inner), None)
    if isinstance(value, np.ndarray):
        return WRONG_SHAPE if value.ndim > deepest else None
    number = isinstance(value, (bool, int, float)) and not (isinstance(value, int) and abs(value) >= LARGEST)
    return None if number or (value is None and none) else NOT_NUMBERS
