"""What the visible checks say of an answer that lost points: for feedback only, never for points.

The checks are those of the instructor's notebook, whatever a student made of the copies. They run beside the student's
code, which can make them end as it likes. So all that comes back is the number of a line, and what the page quotes is
the text of the assertion that stands on this line in our own cell. They run in a sandbox of their own that has seen no
hidden input, so that the choice of a line cannot carry one away: what is left between the two is the time of day.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
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
# the student's own numbers, which a page does not show, with the words around them
OWN = re.compile(
    r"[,;:] got \.\.\.(?: and \.\.\.)?(?:, \.\.\.)?"
    r"|[;,.]?(?: its share of the draws,| both,)? [Yy]ours(?::| differ)[^:]*\.\.\..*$"
    r"|: \.\.\.(?: and \.\.\.)?$"
)


# in quotes: the sandbox has not this name
def stopped_at(function: "Callable[..., Any]", helpers: str, text: str, file: str) -> int:
    """Runs in the sandbox: the line of the check whose assertion failed, the negative line after another exception, 0 after none."""
    import sys

    names = dict(vars(sys.modules["__main__"]))
    try:
        exec(helpers, names)
        exec(compile(text, file, "exec"), names)
    except BaseException as error:
        line, innermost, trace = 0, False, error.__traceback__
        while trace is not None:
            innermost = trace.tb_frame.f_code.co_filename == file
            line, trace = trace.tb_lineno if innermost else line, trace.tb_next
        return line if innermost and isinstance(error, AssertionError) else -line or 2**62  # a line that no cell has
    return 0


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
        says = sentences(text).get(outcome.value) if type(outcome.value) is int else None
        if says is not None:
            result.messages = [*result.messages, says]


def sentences(text: str) -> dict[int, str]:
    """What may be quoted of a cell of checks, by the lines of its assertions, and of what raised otherwise, by negative lines.

    0 is the line where nothing failed.
    """
    found = {0: PASS}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assert | ast.Assign | ast.Expr):
            shown = node.test if isinstance(node, ast.Assert) else node
            condition = " ".join((ast.get_source_segment(text, shown) or "").split())
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            found |= dict.fromkeys((-line for line in lines), RAISED_AT.format(shortened(condition)))
        if isinstance(node, ast.Assert):
            message, said = literal(node.msg), f" at `{shortened(condition)}`."
            if len(message.replace("...", "")) >= TELLING:
                said = f": “{shortened(message)}”"
            found |= dict.fromkeys(lines, STOP + said)
    return found


def literal(message: ast.expr | None) -> str:
    """The words of a message, in one line; what it fills in becomes three dots, and the student's own number is left out."""
    if isinstance(message, ast.JoinedStr):
        pieces = [str(part.value) if isinstance(part, ast.Constant) else "..." for part in message.values]
    else:
        pieces = [str(message.value)] if isinstance(message, ast.Constant) else []
    return OWN.sub("", " ".join("".join(pieces).split()))


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
