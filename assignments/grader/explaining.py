"""What is said about a question that lost points: what is wrong, and which known mistake it looks like.

Only sentences of the assignment and of the grader, in an order of our own: what a student's code says stays out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .comparing import WRONG_VALUES, close, is_numeric
from .outcomes import ENDINGS, MISSING, RAISED, RAISES, RETURNED, UNLIKE, UNWRITTEN, Outcome, QuestionResult
from .preparing import Prepared, read
from .questions import Question
from .visible_checks import PASS, STOP

DIAGNOSIS = "This looks like the following mistake: "
PARTLY_KNOWN = (
    "In the tests that fail, but not in all others, the answer does the same as an answer with the following mistake would."
    " Is it this one, or one near it? "
)
ORDINALS = ("first", "second", "third", "fourth")

# what is added of a function that is not there
RENAMED = " No cell of the notebook defines it. Was it renamed, or its cell deleted?"
STOPPED = (
    " A cell with it is there, but does not run when the notebook starts anew: a syntax error, or a name that only a cell below or"
    " a deleted cell defines. Restart the kernel, run all cells, and look for the first error."
)


def explain(prepared: Prepared, outcomes: Sequence[Outcome], verdicts: Sequence[str | None]) -> list[str]:
    """What is wrong, and which known mistake it looks like.

    Each sentence once, in an order that the student's code does not choose, and at most one that names an exception.
    """
    said = [wrong for wrong in verdicts if wrong is not None]
    raised = [wrong for wrong in said if wrong.startswith((RAISES, UNWRITTEN))]
    messages = [*sorted(set(said) - set(raised)), *raised[:1]]
    found = diagnose(prepared, outcomes, verdicts)
    if found is not None:
        messages = [message for message in messages if message != WRONG_VALUES]  # the next sentence says more
        number, everywhere = found
        return [*messages, (DIAGNOSIS if everywhere else PARTLY_KNOWN) + prepared.question.mistakes[number].says]
    if WRONG_VALUES in messages and (apart := results_apart(prepared, outcomes)):
        messages = [apart if message == WRONG_VALUES else message for message in messages]
    return messages


def results_apart(prepared: Prepared, outcomes: Sequence[Outcome]) -> str | None:
    """Which of several results are right in every test; None if there is one only, or all of them are wrong.

    What a driver hands over has a form of its own, which nobody asked a student for.
    """
    pairs = [(one.value, want) for one, want in zip(outcomes, prepared.wanted, strict=True)]
    several = all(isinstance(want, list) and not is_numeric(want) and len(want) <= len(ORDINALS) for _, want in pairs)
    if prepared.question.driver or not several:
        return None
    if any(not isinstance(got, list) or len(got) != len(want) for got, want in pairs):
        return None
    compare = close(1e-4, 1e-6)
    rows = [[compare(one, other) is None for one, other in zip(got, want, strict=True)] for got, want in pairs]
    right = [all(column) for column in zip(*rows, strict=False)]
    if all(right) or not any(right):
        return None
    fine, wrong = ([word for word, one in zip(ORDINALS, right, strict=False) if one == kind] for kind in (True, False))
    return f"Right in every test: the {' and the '.join(fine)} result. Not right: the {' and the '.join(wrong)}."


def note_spoiled(results: Sequence[QuestionResult], functions: Sequence[str], called: Sequence[set[str]]) -> None:
    """Say where an answer calls the function of another question that lost points: first, and no diagnosis, which may then be wrong.

    ``functions`` and ``called``: what each question asks for, and which functions of others its answer calls.
    """
    lost = {name for name, result in zip(functions, results, strict=True) if result.points < result.max_points}
    for result, names in zip(results, called, strict=True):
        spoiling = [f"`{name}`" for name in functions if name in names & lost]
        if result.points < result.max_points and spoiling:
            calls = f"This answer calls {' and '.join(spoiling)}, which lost points as well: mend that first."
            # neither a known mistake nor a visible check may blame this answer for the other one
            blamed = (DIAGNOSIS, PARTLY_KNOWN, PASS, STOP)
            kept = [message for message in result.messages if not message.startswith(blamed)]
            result.messages = [calls + " What follows may come from there." * bool(kept), *kept]


def note_missing(results: Sequence[QuestionResult], functions: Sequence[str], there: Collection[str]) -> None:
    """Say of a function that was not defined whether its name stands in a cell. ``there``: those that do, by the text alone."""
    for result, function in zip(results, functions, strict=True):
        says = ENDINGS[MISSING].format(function=function)
        more = STOPPED if function in there else RENAMED
        result.messages = [message + more if message == says else message for message in result.messages]


def diagnose(
    prepared: Prepared, outcomes: Sequence[Outcome], verdicts: Sequence[str | None]
) -> tuple[int, bool] | None:
    """The first mistake that gives the same result on every case, and True; else one that does on every wrong case, and False.

    For the second a result must have come back: the same kind of exception has many reasons.
    """
    if outcomes[-1].kind in ENDINGS:
        return None
    wrong = [index for index, message in enumerate(verdicts) if message is not None]
    if (number := first_alike(prepared, outcomes, range(len(outcomes)))) is not None:
        return number, True
    returned = any(outcomes[index].kind == RETURNED for index in wrong)
    number = first_alike(prepared, outcomes, wrong) if returned else None
    return None if number is None else (number, False)


def first_alike(prepared: Prepared, outcomes: Sequence[Outcome], indices: Sequence[int]) -> int | None:
    for number, expected in enumerate(prepared.mistakes):
        if all(alike(prepared.question, outcomes[index], expected[index]) for index in indices):
            return number
    return None


def alike(question: Question, outcome: Outcome, expected: Outcome) -> bool:
    if outcome.kind != expected.kind:
        return False
    if outcome.kind in (RAISED, UNLIKE):
        return outcome.error == expected.error
    try:
        return question.compare(outcome.value, expected.value) is None
    except Exception:
        return False
