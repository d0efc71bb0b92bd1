"""What is said about a question that lost points: which mistake it looks like, or how results differ from the right ones.

Only sentences of the assignment and of the grader, in an order of our own: what a student's code says stays out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from . import diagnosing
from .comparing import NOT_FINITE, WRONG_SHAPE, WRONG_VALUES, seen_by
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

# what the text of the notebook adds to the first of these
RENAMED = " No cell of the notebook defines it. Was it renamed, or its cell deleted?"

STOPPED = (
    " A cell with it is there, but does not run when the notebook starts anew: a syntax error, or a name that only a cell below or"
    " a deleted cell defines. Restart the kernel, run all cells, and look for the first error."
)


def explain(prepared: Prepared, outcomes: Sequence[Outcome], verdicts: Sequence[str | None]) -> list[str]:
    """What is wrong, and which known mistake it looks like; else, for each part, how the result differs from the right one.

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
    if WRONG_VALUES in messages and (apart := results_apart(prepared, outcomes, verdicts)):
        messages = [apart if message == WRONG_VALUES else message for message in messages]
    related = relations(prepared, outcomes, verdicts)
    sentences = set(related.values())
    if None not in sentences:
        messages = [message for message in messages if message not in (WRONG_VALUES, WRONG_SHAPE, NOT_FINITE)]
    if len(sentences) == 1:
        return messages + [sentence for sentence in sentences if sentence is not None]
    return messages + [f"Tests of “{part}”: {sentence}" for part, sentence in related.items() if sentence is not None]


def results_apart(prepared: Prepared, outcomes: Sequence[Outcome], verdicts: Sequence[str | None]) -> str | None:
    """Which of several results are right in every test; None if there is one only, or all of them are wrong.

    What a driver hands over has a form of its own, which nobody asked a student for.
    """
    everywhere = None if prepared.question.driver else result_pairs(prepared, outcomes, range(len(outcomes)))
    if not everywhere or not all(isinstance(want, (list, tuple)) for _, want in everywhere):
        return None
    try:
        rows = [[diagnosing.readable_pairs(*pair) == [] for pair in diagnosing.results_of(*one)] for one in everywhere]
    except ValueError:
        return None
    if not 2 <= len(rows[0]) <= len(ORDINALS) or {len(row) for row in rows} != {len(rows[0])}:
        return None
    right = [all(column) for column in zip(*rows, strict=True)]
    if all(right) or not any(right):
        return None
    fine, wrong = ([word for word, one in zip(ORDINALS, right) if one == kind] for kind in (True, False))
    return f"Right in every test: the {' and the '.join(fine)} result. Not right: the {' and the '.join(wrong)}."


def relations(prepared: Prepared, outcomes: Sequence[Outcome], verdicts: Sequence[str | None]) -> dict[str, str | None]:
    """For each part that lost points, what :mod:`diagnosing` says about it, or None.

    Of what another part shows, one case is enough.
    """
    wrong = {part: numbers for part in prepared.question.parts if (numbers := wrong_cases(prepared, verdicts, part))}
    said = {part: part_relation(prepared, outcomes, numbers) for part, numbers in wrong.items()}
    shown = tuple(filter(None, said.values()))
    names = {name for name, sentence in diagnosing.SENTENCES.items() if any(one.endswith(sentence) for one in shown)}
    return {part: one or part_relation(prepared, outcomes, wrong[part], names, least=1) for part, one in said.items()}


def wrong_cases(prepared: Prepared, verdicts: Sequence[str | None], part: str) -> list[int]:
    """The numbers of the cases of a part that are wrong."""
    return [number for number, case in enumerate(prepared.cases) if case.part == part and verdicts[number] is not None]


def result_pairs(
    prepared: Prepared, outcomes: Sequence[Outcome], numbers: Sequence[int]
) -> list[tuple[Any, Any]] | None:
    """The results of these cases as they are compared, the student's and the right one; None if there is none to compare."""
    compare = prepared.question.compare
    if any(outcomes[number].kind != RETURNED for number in numbers):
        return None
    try:
        pairs = [(outcomes[number].value, prepared.wanted[number]) for number in numbers]
        return [(seen_by(compare, got), seen_by(compare, want)) for got, want in pairs]
    except Exception:  # the judge cannot read what a student returned
        return None


def part_relation(
    prepared: Prepared,
    outcomes: Sequence[Outcome],
    numbers: Sequence[int],
    names: Collection[str] = diagnosing.SENTENCES.keys(),
    least: int = 2,
) -> str | None:
    """The sentence about the relation between the wrong results, of these cases, and the right ones."""
    pairs = result_pairs(prepared, outcomes, numbers)
    if pairs is None:
        return None
    given = [prepared.cases[number].arguments for number in numbers]
    arrays = [[one for one in arguments if isinstance(one, np.ndarray)] for arguments in given]
    lengths = [{size for one in ones for size in one.shape} for ones in arrays]
    name = diagnosing.relation(pairs, lengths, names, least)
    if name is None:
        return None
    rights = (diagnosing.partly_right(*pair, ones) for pair, ones in zip(pairs, arrays, strict=True))
    partly = name != diagnosing.SWAPPED and any(rights)
    return diagnosing.PARTLY * partly + diagnosing.SENTENCES[name]


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
    """The first mistake that gives the same results on these cases."""
    for number, expected in enumerate(prepared.mistakes):
        if all(alike(prepared.question, outcomes[index], expected[index]) for index in indices):
            return number
    return None


def alike(question: Question, outcome: Outcome, expected: Outcome) -> bool:
    """Whether two calls ended alike."""
    if outcome.kind != expected.kind:
        return False
    if outcome.kind in (RAISED, UNLIKE):
        return outcome.error == expected.error
    try:
        return question.compare(outcome.value, expected.value) is None
    except Exception:
        return False
