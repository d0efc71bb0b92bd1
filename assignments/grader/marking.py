"""From the results of a student's calls to points and feedback.

Nothing here runs a student's code: :func:`mark` is given a way to call it. Feedback is sentences of the assignment and of
the grader: what a student's code says (messages of exceptions, names, shapes) could carry the hidden inputs away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .comparing import entries_right
from .explaining import explain
from .outcomes import CRASHED, ENDINGS, MISSING, RAISED, RAISES, RETURNED, TIMEOUT, UNLIKE, UNWRITTEN
from .outcomes import Outcome, PartResult, QuestionResult
from .preparing import Prepared, read
from .questions import Case, Question

HINTS = {
    "NameError": " It uses a name that the notebook does not define when it starts anew: a misspelling, a missing import, or a cell that"
    " was deleted or stops with an error."
}


def mark(prepared: Prepared, call: Callable[[Question, Case], Outcome]) -> QuestionResult:
    """Points and feedback of one question. After a call that did not end by itself, no further one is made."""
    question = prepared.question
    outcomes: list[Outcome] = []
    for case, want in zip(prepared.cases, prepared.wanted, strict=True):
        stopped = outcomes and outcomes[-1].kind in (MISSING, TIMEOUT, CRASHED)
        outcomes.append(outcomes[-1] if stopped else read(call(question, case), want))
    verdicts = [verdict(question, outcome, want) for outcome, want in zip(outcomes, prepared.wanted, strict=True)]
    parts = [part_result(prepared, name, outcomes, verdicts) for name in question.parts]
    endings = [outcome.kind for outcome in outcomes]
    ending = next((kind for kind in (CRASHED, TIMEOUT, MISSING, RAISED) if kind in endings), RETURNED)
    points, said = sum(part.points for part in parts), explain(prepared, outcomes, verdicts) if any(verdicts) else []
    return QuestionResult(question.name, question.title, points, question.points, ending, parts, said)


def verdict(question: Question, outcome: Outcome, want: Any) -> str | None:
    """None if the outcome is right, else a sentence."""
    if outcome.kind in ENDINGS:
        return ENDINGS[outcome.kind].format(function=question.function)
    if outcome.kind == UNLIKE:
        return outcome.error
    if outcome.kind == RAISED:
        if outcome.error == "NotImplementedError":
            return UNWRITTEN
        return f"{RAISES}{outcome.error}.{HINTS.get(outcome.error, '')}"
    try:
        return question.compare(outcome.value, want)
    except Exception:  # whatever a student returned, a comparison that cannot read it means that it is wrong
        return "The result is not of the kind that is asked for."


def part_result(
    prepared: Prepared, name: str, outcomes: Sequence[Outcome], verdicts: Sequence[str | None]
) -> PartResult:
    """All points or none; where the part says so, a share in halves of a point, above what a guess would get."""
    numbers = [number for number, case in enumerate(prepared.cases) if case.part == name]
    right, points = sum(verdicts[number] is None for number in numbers), prepared.question.parts[name]
    if right == len(numbers) or name not in prepared.question.shares:
        return PartResult(name, points if right == len(numbers) else 0.0, points, right, len(numbers))
    compare, cases, wanted = prepared.question.compare, prepared.cases, prepared.wanted
    # a value is None unless the call returned
    counts = [entries_right(compare, outcomes[one].value, wanted[one], cases[one].arguments) for one in numbers]
    correct, entries, guessed = map(sum, zip(*counts, strict=True))
    earned = math.floor(2 * points * max(0, correct - guessed) / max(1, entries - guessed)) / 2
    said = f"{correct} of {entries} {prepared.question.shares[name]} right: {earned:g} of {points:g} points."
    return PartResult(name, earned, points, right, len(numbers), said * bool(correct))
