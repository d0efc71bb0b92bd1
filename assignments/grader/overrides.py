"""What a person decided: points of the written question, and grades that replace the grader's.

They stand in ``overrides.csv`` in the output folder, with the columns ``student``, ``question`` (its name, the written
question's, or ``total``), ``points`` and ``note``. The file may be edited by hand or with the command ``override``;
grading again never touches it. A total may be above the maximum, as a bonus, if its note says why.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from .questions import Assignment
from .results import write_whole
from .tables import plain_cell, read_table, table

TOTAL = "total"
MAX_BONUS = 2  # times the points of the assignment: more is a slip of the keyboard
COLUMNS = ("student", "question", "points", "note")


@dataclass(frozen=True)
class Override:
    student: str
    question: str
    points: float
    note: str = ""


Overrides = dict[tuple[str, str], Override]


def path_of(output: Path) -> Path:
    return output / "overrides.csv"


def read(output: Path, assignment: Assignment, students: Collection[str]) -> Overrides:
    """The decisions of an output folder, by student and question; a later line replaces an earlier one.

    Raises ``ValueError`` that names the line and the column of what is impossible.
    """
    path = path_of(output)
    if not path.exists():
        return {}
    known = {plain_cell(student): student for student in students} | {student: student for student in students}
    found: Overrides = {}
    for line, row in read_table(path, path.name, COLUMNS[:3]):
        student, question, text, note = (row.get(name, "") for name in COLUMNS)
        try:
            checked = check(assignment, known, student, question, text, note)
        except ValueError as error:
            raise ValueError(f"overrides.csv, line {line}: {error}") from error
        found[checked.student, question] = checked
    return found


def check(
    assignment: Assignment, known: dict[str, str], student: str, question: str, points: str, note: str
) -> Override:
    if student not in known:
        raise ValueError(f"student: got {student!r}, who has no result and is not in the roster")
    limits = {one.name: one.points for one in assignment.questions}
    limits |= {assignment.written.name: assignment.written.points, TOTAL: assignment.points}
    if question not in limits:
        raise ValueError(f"question: got {question!r}, expected one of {', '.join(limits)}")
    try:
        number = float(points)
    except ValueError:
        number = math.nan
    most = MAX_BONUS * assignment.points if question == TOTAL else limits[question]
    if not 0 <= number <= most:
        raise ValueError(f"points: got {points!r}, expected a number from 0 to {most:g}")
    if number > limits[question] and not note.strip():
        more = f"{points} points are more than the {limits[question]:g} of the assignment"
        raise ValueError(f"note: missing; {more}, so say why")
    return Override(known[student], question, number, note.strip())


def write(output: Path, overrides: Overrides) -> None:
    rows = [(one.student, one.question, f"{one.points:g}", one.note) for _, one in sorted(overrides.items())]
    write_whole(path_of(output), table([COLUMNS, *rows]))


def add(
    output: Path,
    assignment: Assignment,
    students: Collection[str],
    student: str,
    question: str,
    points: float | str,
    note: str = "",
) -> Override:
    """Add one decision or replace it; raises ``ValueError``, see :func:`read`."""
    known = {name: name for name in students}
    one = check(assignment, known, student, question, str(points), note)
    write(output, read(output, assignment, students) | {(student, question): one})
    return one


def remove(output: Path, assignment: Assignment, students: Collection[str], student: str, question: str) -> None:
    overrides = read(output, assignment, students)
    if (student, question) not in overrides:
        raise ValueError(f"question: there is no override of {question!r} for {student!r}")
    del overrides[student, question]
    write(output, overrides)
