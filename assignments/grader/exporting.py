"""Grades for Canvas and Moodle: the gradebook or the worksheet that the system gave is filled in, with its own columns and names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import results
from .collecting import TEST_STUDENTS
from .questions import Assignment
from .reports import UNKNOWN_DAYS, Grade, late_line, read_roster
from .tables import counted, number, read_rows, table

CANVAS_COLUMNS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")


def listed(some: Sequence[Grade]) -> str:
    return ", ".join(grade.who for grade in some[:5]) + (", ..." if len(some) > 5 else "")


def check_written(assignment: Assignment, everybody: list[Grade], partial: bool) -> tuple[list[Grade], str]:
    """The grades to export, and a sentence about the written question, empty if there is nothing to say.

    An answer that nobody has graded yet is no zero. Raises ``ValueError`` that names such students, unless ``partial``
    is true: then they are exported without a grade.
    """
    open_question = [grade for grade in everybody if grade.points_are_missing]
    waiting = [grade for grade in open_question if grade.result.written]
    names = listed(waiting)
    if waiting and not partial:
        what = f"{assignment.written.name}: without points yet: {counted(waiting, 'written answer')} ({names})"
        raise ValueError(f"{what}. Enter them, or say --partial to export these students without a grade")
    said = [f"{counted(waiting, 'student')} without a grade, because the written answer has no points yet: {names}."]
    said *= bool(waiting)
    empty = [grade for grade in open_question if grade not in waiting]
    said += [f"Without an answer to {assignment.written.name}, which counts as 0: {listed(empty)}."] if empty else []
    unknown = sum(late_line(grade) == UNKNOWN_DAYS for grade in everybody)
    said += [f"{unknown} late students lose nothing, because late.csv does not say how many days."] if unknown else []
    left = [dataclasses.replace(grade, score=None) if grade in waiting else grade for grade in everybody]
    return left, " ".join(said)


def canvas_filled(
    gradebook: Path, assignment: Assignment, output: Path, everybody: list[Grade], column: str | None = None
) -> tuple[str, str]:
    """The export of Canvas's gradebook that was given, with the assignment's column filled in; and what is to be said.

    ``column``: its heading there; without it the one that names the assignment, or the only one with a number in brackets.
    """
    header, *rows = read_rows(gradebook, "worksheet", ("Student", "ID"))
    own = [one for one in header if re.search(r"\(\d+\)$", one)]
    named = [one for one in own if assignment.title in one or assignment.name in one]
    fits = [column] if column in header else named if len(named) == 1 else own
    if len(fits) != 1 or (column and column not in header):
        raise ValueError(f"column: say which of these is the assignment, by --column: {', '.join(map(repr, own))}")
    place = header.index(fits[0])
    kept = [header.index(name) for name in CANVAS_COLUMNS if name in header] + [place]
    made, left, said = [[header[one] for one in kept]], known_by(output, everybody), []
    for row in rows:
        person = dict(zip(header, row, strict=False))
        if "points possible" in person["Student"].strip().lower():
            if (most := row[place].strip()) not in ("", number(assignment.points), f"{assignment.points:.2f}"):
                theirs = f"Canvas has {most} points possible for {fits[0]!r}"
                said.append(f"{theirs}, the grades {number(assignment.points)}.")
        elif person["Student"] in TEST_STUDENTS:
            continue
        elif grade := taken(left, [person["ID"], person.get("SIS Login ID", ""), person.get("SIS User ID", "")]):
            row[place] = number(grade.score) or row[place]
        made.append([row[one] for one in kept])
    return table(made), " ".join([*said, not_there(everybody, left, gradebook)]).strip()


def moodle_filled(worksheet: Path, assignment: Assignment, output: Path, everybody: list[Grade]) -> tuple[str, str]:
    """Moodle's grading worksheet that was given, with grades and comments filled in; and what is to be said."""
    header, *rows = read_rows(worksheet, "worksheet", ("Identifier", "Grade"))
    made, left, said = [header], known_by(output, everybody), set()
    for row in rows:
        person = dict(zip(header, row, strict=False))
        number_there = re.sub(r"\D", "", person["Identifier"])
        grade = taken(left, [number_there, person.get("Email address", ""), person.get("Full name", "")])
        if grade is not None and grade.score is not None:
            row[header.index("Grade")] = number(grade.score)
            if "Feedback comments" in header:
                row[header.index("Feedback comments")] = comment(assignment, grade)
        most = person.get("Maximum Grade", "").strip()
        if most and most not in (number(assignment.points), f"{assignment.points:.2f}"):
            said.add(f"Moodle's maximum is {most}, that of the grades {number(assignment.points)}.")
        made.append(row)
    return table(made), " ".join([*sorted(said), not_there(everybody, left, worksheet)]).strip()


def known_by(output: Path, everybody: list[Grade]) -> dict[str, Grade]:
    """The grades by all that a system may call a student; what would be two students' is nobody's."""
    roster, found, twice = read_roster(output), dict[str, Grade](), set()
    for grade in everybody:
        for word in {grade.result.student, *roster.get(grade.result.student, {}).values()}:
            twice |= {word} if word in found else set()
            found[word] = grade
    return {word: grade for word, grade in found.items() if word and word not in twice}


def taken(left: dict[str, Grade], words: Sequence[str]) -> Grade | None:
    """The grade of the first of these words that is known; it is then nobody else's."""
    grade = next((left[word.strip()] for word in words if word.strip() in left), None)
    for word in [word for word, one in left.items() if one is grade]:
        del left[word]
    return grade


def not_there(everybody: list[Grade], left: Mapping[str, Grade], path: Path) -> str:
    lost = [grade for grade in everybody if grade.score is not None and any(one is grade for one in left.values())]
    return f"{len(lost)} students with a grade are not in {path.name}: {listed(lost)}." if lost else ""


def comment(assignment: Assignment, grade: Grade) -> str:
    said = f"{grade.result.status}: {number(grade.score)} of {number(assignment.points)} points"
    return said + (f" ({late_line(grade)})" if grade.late and grade.late.taken else "")
