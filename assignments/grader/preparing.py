"""What is right, computed once for all: cases are drawn, and the reference and the known mistakes are called on them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import reading, wire
from .comparing import is_numeric
from .outcomes import RAISED, RETURNED, UNLIKE, Outcome, known_error
from .questions import Case, Question


def call_here(question: Question, solution: Callable[..., Any], case: Case) -> Outcome:
    """Call a trusted solution in this process, with everything that travels sent through the wire and back."""
    try:
        arguments = tuple(wire.decode(wire.encode(copy.deepcopy(case.arguments))))
        return Outcome(RETURNED, wire.decode(wire.encode(question.run(solution, arguments))))
    except Exception as error:
        return Outcome(RAISED, error=known_error(type(error).__name__))


@dataclass
class Prepared:
    question: Question
    cases: list[Case]
    wanted: list[Any]
    mistakes: list[list[Outcome]]


def prepare(question: Question, seed: int) -> Prepared:
    """Draw the cases and compute the reference's and the mistakes' results.

    Raises ``RuntimeError`` if the reference fails on a case: then no submission can be graded.
    """
    cases = question.cases(generator(question, seed))
    unknown = ({case.part for case in cases} ^ set(question.parts)) | (question.shares.keys() - question.parts.keys())
    if unknown:
        raise RuntimeError(f"question {question.name}: parts without cases, or cases without a part: {sorted(unknown)}")
    wanted = []
    for case in cases:
        outcome = call_here(question, question.reference, case)
        if outcome.kind != RETURNED:
            raise RuntimeError(f"question {question.name}: the reference raised {outcome.error}")
        wanted.append(outcome.value)
        if case.part in question.shares and not (is_numeric(outcome.value) and hasattr(question.compare, "entries")):
            what = f"{case.part!r} gives shares, but its results are no arrays to compare"
            raise RuntimeError(f"question {question.name}: {what}")
    mistakes = [
        [read(call_here(question, mistake.solution, case), want) for case, want in zip(cases, wanted, strict=True)]
        for mistake in question.mistakes
    ]
    return Prepared(question, cases, wanted, mistakes)


def generator(question: Question, seed: int) -> np.random.Generator:
    """The generator of a question's cases: it depends on the seed and the question's name alone."""
    return np.random.default_rng([seed, *question.name.encode("utf-8")])


def read(outcome: Outcome, want: Any) -> Outcome:
    """The outcome, without its value if that is not built like the right result."""
    why = reading.unlike(outcome.value, want) if outcome.kind == RETURNED else None
    return outcome if why is None else Outcome(UNLIKE, error=why)
