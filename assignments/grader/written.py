"""The answers to the written question, as text in which every character can be seen."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

from . import submissions
from .notebooks import TEXT_STUB, Notebook, role, text_of
from .questions import Assignment
from .submissions import JOINERS, Submission, Unreadable

INDENT = "    "


def answer(assignment: Assignment, notebook: Notebook) -> list[str]:
    """The texts of the cells of the written question, without the stub."""
    texts = [text_of(cell).strip() for cell in cells_of(assignment, notebook)]
    return [text for text in texts if text not in ("", TEXT_STUB)]


def pictures(assignment: Assignment, notebook: Notebook) -> int:
    attached = [cell.get("attachments") for cell in cells_of(assignment, notebook)]
    return sum(len(one) for one in attached if isinstance(one, dict))


def cells_of(assignment: Assignment, notebook: Notebook) -> list[dict[str, Any]]:
    name = assignment.written.name
    cells = [cell for cell in notebook["cells"] if isinstance(cell, dict)]
    return [cell for cell in cells if name in (role(cell).get("grade_id"), cell.get("id"))]


def visible(text: str) -> str:
    """The text with escapes for characters that cannot be seen or that turn others around."""
    lines = text.replace("\t", INDENT).splitlines()
    return "\n".join("".join(one if is_visible(one) else ascii(one)[1:-1] for one in line) for line in lines)


def is_visible(one: str) -> bool:
    return one.isprintable() or unicodedata.category(one) == "Zs" or one in JOINERS
