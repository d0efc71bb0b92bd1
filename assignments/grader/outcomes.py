"""The words for how calls end, and what is kept of a question that was marked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

RETURNED, RAISED, MISSING, TIMEOUT, CRASHED = "returned", "raised", "missing", "timeout", "crashed"

UNLIKE = "unlike"  # returned, and not built like the right result: nothing looks at it, see :mod:`reading`

# The only names of exceptions that a student is told, one for a question. The list is short because a name is chosen by
# the student's code, which knows the hidden inputs: with all of Python's 62 and one a case, 12 of 13 numbers got out.
KNOWN_ERRORS = frozenset(
    "NotImplementedError TypeError ValueError IndexError KeyError AttributeError NameError RuntimeError"
    " ZeroDivisionError".split()
)

RAISES = "The call raises "
UNWRITTEN = "The answer is not written yet: the call raises NotImplementedError."

ENDINGS = {
    MISSING: "`{function}` is not defined.",
    TIMEOUT: "A call took too long and was stopped.",
    CRASHED: "The process that ran the code ended or was stopped (too much memory or output, too many files or processes, or an exit).",
}


@dataclass(frozen=True)
class Outcome:
    """How one call ended: ``kind`` is one of the seven words above; ``value`` if it returned, ``error`` if it raised.

    For an ``unlike`` value, which is not kept, ``error`` is the sentence that says why.
    """

    kind: str
    value: Any = None
    error: str = ""


@dataclass
class PartResult:
    """Points of one part, and how many of its cases were right; ``said``: of a share of the points, what it is for."""

    name: str
    points: float
    max_points: float
    right: int
    cases: int
    said: str = ""


@dataclass
class QuestionResult:
    """Points and feedback of one question; ``ending`` is the worst way in which a call ended."""

    name: str
    title: str
    points: float
    max_points: float
    ending: str
    parts: list[PartResult] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


def known_error(name: str) -> str:
    """The name of an exception if it is one of the short list, else a word that tells nothing."""
    return name if name in KNOWN_ERRORS else "an exception"
