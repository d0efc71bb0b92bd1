"""Notebooks in nbgrader's format: which cells are whose, and what students get.

A cell's ``metadata.nbgrader`` says what it is: ``solution`` cells are the student's, ``locked`` cells are not, a
``grade`` cell carries points. Text between ``### BEGIN SOLUTION`` and ``### END SOLUTION`` is never handed out.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
BEGIN_HIDDEN, END_HIDDEN = "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"
CODE_STUB = "# YOUR CODE HERE\nraise NotImplementedError()"
TEXT_STUB = "YOUR ANSWER HERE"

Notebook = dict[str, Any]


def read(path: Path) -> Notebook:
    """A notebook that is trusted: one of ours."""
    notebook: Notebook = json.loads(path.read_text("utf-8"))
    return notebook


def role(cell: Any) -> dict[str, Any]:
    """What nbgrader's metadata says about a cell; empty where they say nothing or are damaged.

    A ``grade_id`` is always text: what else may stand there in a student's notebook is left out.
    """
    metadata = cell.get("metadata") if isinstance(cell, dict) else None
    found = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if name != "grade_id" or isinstance(value, str)}


def text_of(cell: Any) -> str:
    source = cell.get("source", "") if isinstance(cell, dict) else ""
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""


def released(notebook: Notebook) -> Notebook:
    """What students get: stubs for solutions, no hidden tests, no outputs, locked cells that cannot be edited.

    Raises ``ValueError`` for a solution cell of code without marks, and for a mark that is not closed.
    """
    result = copy.deepcopy(notebook)
    for cell in result["cells"]:
        says, text = role(cell), text_of(cell)
        if says.get("solution"):
            if BEGIN in text:
                text = cleared(text, BEGIN, END, CODE_STUB if cell["cell_type"] == "code" else TEXT_STUB)
            elif cell["cell_type"] == "code":
                raise ValueError(f"solution cell {says.get('grade_id')!r}: found no {BEGIN!r}")
            else:
                text = TEXT_STUB
        text = cleared(text, BEGIN_HIDDEN, END_HIDDEN, "").rstrip("\n")
        cell["source"] = text.splitlines(keepends=True)
        if says.get("locked"):
            cell["metadata"] |= {"editable": False, "deletable": False}
        elif says:
            cell["metadata"]["deletable"] = False
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    left = [mark for mark in (BEGIN, END, BEGIN_HIDDEN, END_HIDDEN) if mark in json.dumps(result)]
    if left:
        raise ValueError(f"a mark is left in the release: {left[0]!r}")
    return result


def cleared(text: str, begin: str, end: str, stub: str) -> str:
    """The text with every marked region replaced by the stub, indented as the mark was."""
    lines, inside = [], False
    for line in text.splitlines():
        if begin in line:
            if inside:
                raise ValueError(f"{begin!r} inside a region that is not closed")
            inside = True
            indent = line[: len(line) - len(line.lstrip())]
            lines += [indent + part for part in stub.splitlines()]
        elif end in line:
            if not inside:
                raise ValueError(f"{end!r} without {begin!r}")
            inside = False
        elif not inside:
            lines.append(line)
    if inside:
        raise ValueError(f"{begin!r} is not closed by {end!r}")
    return "\n".join(lines)


def write(notebook: Notebook, path: Path) -> None:
    """Write a notebook as Jupyter does: one space of indent, a line break at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
