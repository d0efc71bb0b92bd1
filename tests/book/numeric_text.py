"""Compare two texts word by word and number by number.

A line is cut into numbers and the words between them: ``[-0.30 0.7]`` is the word ``[``, the numbers -0.30 and 0.7, and the word
``]``. How much white space stands between them does not count: a number that gets one digit longer moves its column. Digits that
follow a letter belong to the word (``k3``).

Words must be equal. Numbers may differ

- by one unit of the last printed digit, if at least one of the two shows decimals. On another processor the sixteenth digit
  differs, and then rounding to the printed digits may go the other way; that moves the last one by one, never more. If one of the
  two shows more digits (``:g`` and numpy drop zeros at the end), its last digit counts;
- not at all, if both are whole (``12``, ``1,000``, and numpy's ``3.``);
- by what the tag of the cell allows: ``tolerance-5%`` of the stored number, or ``tolerance-abs-0.02``, whole numbers included.

The sign of a zero does not count. NaN equals only NaN, and an infinity only the same infinity.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import zip_longest

NUMBER = re.compile(
    r"""
    (                                 # one group around all: split() then keeps the numbers
      (?: (?<! [\w)\]] ) [-+\u2212] )?  # a sign, unless it stands behind a word, a number or a bracket, as in 3-5
      (?<! [\w.] )
      (?:
        (?: [0-9]{1,3} (?: ,[0-9]{3} )+ (?![0-9]) | [0-9]+ ) (?: \.[0-9]* )? (?: [eE][-+]?[0-9]+ )?
        | \.[0-9]+ (?: [eE][-+]?[0-9]+ )?
        | (?i: nan | inf ) (?!\w)
      )
    )
    """,
    re.VERBOSE,
)
TAG = re.compile(r"tolerance-(?:abs-(?P<absolute>[0-9]*\.?[0-9]+(?:e-?[0-9]+)?)|(?P<percent>[0-9]*\.?[0-9]+)%)")


@dataclass(frozen=True)
class Tolerance:
    """How far a number may lie from the stored one, beyond one unit of its last digit."""

    absolute: Decimal = Decimal(0)
    percent: Decimal = Decimal(0)

    def __str__(self) -> str:
        if self.absolute:
            return f"{self.absolute}"
        if self.percent:
            return f"{self.percent}%"
        return "one unit of the last printed digit, none for whole numbers"

    def allows(self, stored: str, fresh: str) -> bool:
        old, new = value(stored), value(fresh)
        if not (old.is_finite() and new.is_finite()):
            return str(old) == str(new)
        distance = abs(old - new)
        if distance <= max(self.absolute, self.percent / 100 * abs(old)):
            return True
        return not (is_whole(stored) and is_whole(fresh)) and distance <= min(last_digit(old), last_digit(new))


def tolerance_of(tags: Iterable[str]) -> Tolerance:
    """The tolerance that a cell's tags ask for; a tag that only looks like one is an error."""
    found = [tag for tag in tags if tag.lower().startswith("tol")]
    if not found:
        return Tolerance()
    match = TAG.fullmatch(found[0])
    if len(found) > 1 or match is None:
        raise ValueError(f"expected one tag like tolerance-5% or tolerance-abs-0.02, got {', '.join(found)}")
    tolerance = Tolerance(Decimal(match["absolute"] or 0), Decimal(match["percent"] or 0))
    if not (tolerance.absolute > 0 or 0 < tolerance.percent < 100):
        raise ValueError(f"expected a tolerance above 0, and below 100%, got {found[0]}")
    return tolerance


def value(number: str) -> Decimal:
    return Decimal(number.replace(",", "").replace("\u2212", "-"))


def is_whole(number: str) -> bool:
    return re.search(r"\.[0-9]|[eE]", number) is None


def last_digit(number: Decimal) -> Decimal:
    return Decimal(1).scaleb(int(number.as_tuple().exponent))


def tokens(line: str) -> list[tuple[bool, str]]:
    """The numbers and words of a line in order; True marks a number."""
    found = []
    for index, part in enumerate(NUMBER.split(line)):  # texts and numbers take turns
        found += [(True, part)] if index % 2 else [(False, word) for word in part.split()]
    return found


def line_difference(stored: str, fresh: str, tolerance: Tolerance) -> str:
    """The first thing in which two lines differ, in words; empty if they agree."""
    for old, new in zip_longest(tokens(stored), tokens(fresh)):
        if old is None:
            return f"{new[1]!r} is new"
        if new is None:
            return f"{old[1]!r} is missing"
        if old[0] and new[0]:
            if not tolerance.allows(old[1], new[1]):
                return f"stored {old[1]}, fresh {new[1]}, tolerance {tolerance}"
        elif old != new:
            return f"stored {old[1]!r}, fresh {new[1]!r}"
    return ""


def differences(stored: str, fresh: str, tolerance: Tolerance) -> list[str]:
    """Every line in which two texts differ, with its number and both lines."""
    pairs = zip_longest(stored.rstrip().splitlines(), fresh.rstrip().splitlines(), fillvalue="")
    found = []
    for number, (old, new) in enumerate(pairs, start=1):
        if reason := line_difference(old, new, tolerance):
            found.append(f"line {number}: {reason}\n    stored: {old}\n    fresh:  {new}")
    return found
