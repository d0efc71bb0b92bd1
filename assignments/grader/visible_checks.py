"""What the visible checks say of an answer that lost points: for feedback only, never for points.

The checks are those of the instructor's notebook, whatever a student made of the copies. They run beside the student's
code, which can make them end as it likes. So what comes back is the number of a line and numbers: what the page quotes is
the text of the assertion on this line in our own cell, filled in as in the notebook. The checks run in a sandbox of their
own that has seen no hidden input, so that nothing of it can come along: what is left between the two is the time of day.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .outcomes import RAISED, RETURNED, UNWRITTEN, Outcome, QuestionResult
from .questions import Case, Question

PASS = "The visible checks of this question pass with this answer."
STOP = "The visible checks of this question stop with this answer"
RAISED_AT = (
    "The visible checks of this question end with an exception at `{}`. Run their cell in the notebook: it says which."
)
LONGEST = 400  # characters of a quotation
TELLING = 20  # characters that a message must have besides what it fills in, or the condition is quoted instead
FILE = "<visible checks>"
OWN_LONGEST = 200  # characters of what a message fills in
# what a message may fill in: numbers, and the words that stand beside them where arrays are printed
OWN = re.compile(
    r"(?:[-+0-9.,:=()\[\]{} ]|(?<=[0-9.])e(?=[-+0-9])"
    r"|\b(?:nan|inf|True|False|None|tensor|array|torch|Size|dtype|bool|int64|float32|float64)\b)+"
)


# in quotes: the sandbox has not this name
def stopped_at(function: "Callable[..., Any]", helpers: str, text: str, file: str) -> "tuple[int, list[str]]":
    """Runs in the sandbox: the line of the check whose assertion failed, and what its message fills in.

    After another exception it is the negative line, 0 after none.
    """
    import ast
    import sys

    names = dict(vars(sys.modules["__main__"]))
    checks = ast.parse(text)
    for node in ast.walk(checks):
        if isinstance(node, ast.Assert) and isinstance(node.msg, ast.JoinedStr):
            filled = [part for part in node.msg.values if isinstance(part, ast.FormattedValue)]
            node.msg = ast.Tuple([ast.JoinedStr([part]) for part in filled], ast.Load())
    try:
        exec(helpers, names)
        exec(compile(ast.fix_missing_locations(checks), file, "exec"), names)
    except BaseException as error:
        line, innermost, trace = 0, False, error.__traceback__
        while trace is not None:
            innermost = trace.tb_frame.f_code.co_filename == file
            line, trace = trace.tb_lineno if innermost else line, trace.tb_next
        if innermost and isinstance(error, AssertionError):
            own = error.args[0] if error.args and isinstance(error.args[0], tuple) else ()
            return line, [str(one) for one in own]
        return -line or 2**62, []  # a line that no cell has
    return 0, []


def add(
    graded: Sequence[QuestionResult],
    asked: Sequence[Question],
    checks: Mapping[str, tuple[str, str]],
    call: Callable[[Question, Case], Outcome],
) -> None:
    """Quote what the checks say, for each question that lost points and has an answer whose calls end.

    ``checks``: by the question's name, our cells that its check needs, and the check. ``call`` runs in a sandbox that has
    seen no hidden input. After a call that does not come back, no further one is made: it took its time already.
    """
    for result, question in zip(graded, asked, strict=True):
        ends = result.ending in (RETURNED, RAISED) and UNWRITTEN not in result.messages
        if result.points == result.max_points or not ends or question.name not in checks:
            continue
        helpers, text = checks[question.name]
        outcome = call(replace(question, driver=stopped_at), Case((helpers, text, FILE), ""))
        if outcome.kind != RETURNED:
            return
        match outcome.value:
            case [int(line), [*own]] if type(line) is int and line in (says := sentences(text, own)):
                result.messages = [*result.messages, says[line]]


def sentences(text: str, own: Sequence[Any] = ()) -> dict[int, str]:
    """What may be quoted of a cell of checks, by the lines of its assertions, and of what raised otherwise, by negative lines.

    0 is the line where nothing failed. ``own``: what the message fills in.
    """
    found, nodes = {0: PASS}, list(ast.walk(ast.parse(text)))
    known = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    for node in nodes:
        if isinstance(node, ast.Assert | ast.Assign | ast.Expr):
            shown = node.test if isinstance(node, ast.Assert) else node
            condition = " ".join((ast.get_source_segment(text, shown) or "").split())
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            found |= dict.fromkeys((-line for line in lines), RAISED_AT.format(shortened(condition)))
        if isinstance(node, ast.Assert):
            said = f" at `{shortened(condition)}`."
            if len(words(node.msg, (), known).replace("...", "")) >= TELLING:
                said = f": “{shortened(words(node.msg, own, known))}”"
            found |= dict.fromkeys(lines, STOP + said)
    return found


def words(message: ast.expr | None, own: Sequence[Any], known: Collection[str]) -> str:
    """A message in one line with what it fills in, if that is numbers or a word of ours; else three dots."""
    parts = message.values if isinstance(message, ast.JoinedStr) else [message]
    filled, pieces = iter(own), []
    for part in parts:
        if isinstance(part, ast.FormattedValue):
            number = " ".join(one[:LONGEST].split()) if isinstance(one := next(filled, ""), str) else ""
            fits = number.strip("'") in known or (len(number) <= OWN_LONGEST and OWN.fullmatch(number))
            pieces.append(number if number and fits else "...")
        elif isinstance(part, ast.Constant):
            pieces.append(str(part.value))
    return " ".join("".join(pieces).split())


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
