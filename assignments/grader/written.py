"""The answers to the written question, of a whole class in one file, for whoever grades them.

A student's text can pretend to be anything: a heading with another name, the beginning of a comment that hides those
who follow. So every line of it is indented by four spaces, as code is in Markdown; nothing else of the file is.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

from . import submissions
from .notebooks import TEXT_STUB, Notebook, role, text_of
from .questions import Assignment
from .submissions import JOINERS, Submission, Unreadable

INDENT = "    "


def answers(assignment: Assignment, found: Iterable[Submission]) -> str:
    """One section a student, in the order of the submissions."""
    parts = [f"# {assignment.title}: {assignment.written.title} ({assignment.written.points:g} points)"]
    for submission in found:
        parts += [f"## {heading(submission.student)}", section(assignment, submission)]
    return "\n\n".join(parts) + "\n"


def heading(student: str) -> str:
    """A name that Markdown and HTML leave as it is."""
    return "".join(f"\\{one}" if one in "\\`*_{}[]()<>#+-.!|~&$" else one for one in student)


def section(assignment: Assignment, submission: Submission) -> str:
    """What one student wrote, or why there is nothing."""
    if submission.problem:
        return f"(Cannot be read: {submission.problem})"
    if submission.path is None:
        return "(Nothing was handed in.)"
    try:
        texts = answer(assignment, submissions.parse(submission.read()))
    except Unreadable as problem:
        return f"(Cannot be read: {problem})"
    return "\n\n(another cell)\n\n".join(map(indented, texts)) or "(No answer was found.)"


def answer(assignment: Assignment, notebook: Notebook) -> list[str]:
    """The texts of the cells of the written question, without the stub."""
    texts = [text_of(cell).strip() for cell in cells_of(assignment, notebook)]
    return [text for text in texts if text not in ("", TEXT_STUB)]


def pictures(assignment: Assignment, notebook: Notebook) -> int:
    """How many pictures are attached to the cells of the written question."""
    attached = [cell.get("attachments") for cell in cells_of(assignment, notebook)]
    return sum(len(one) for one in attached if isinstance(one, dict))


def cells_of(assignment: Assignment, notebook: Notebook) -> list[dict[str, Any]]:
    """The cells of the written question."""
    name = assignment.written.name
    return [
        cell
        for cell in notebook["cells"]
        if isinstance(cell, dict) and name in (role(cell).get("grade_id"), cell.get("id"))
    ]


def indented(text: str) -> str:
    """Every line as code."""
    return "\n".join(f"{INDENT}{line}".rstrip() for line in visible(text).split("\n"))


def visible(text: str) -> str:
    """The text with escapes for characters that cannot be seen or that turn others around."""
    lines = [
        "".join(one if is_visible(one) else ascii(one)[1:-1] for one in line.replace("\t", INDENT))
        for line in text.splitlines()
    ]
    return "\n".join(lines)


def is_visible(one: str) -> bool:
    return one.isprintable() or unicodedata.category(one) == "Zs" or one in JOINERS
