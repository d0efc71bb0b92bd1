"""The pages of feedback, packed so that a course system gives each student the right one.

Both systems find the student by the numbers that they put into the names of what they packed. These names stand in the
table that ``collect`` wrote; of each one, what the system put first is kept, and the file that the student named is
replaced by the page. A page is made of the grade of one student, and goes to one name.
"""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import collecting, results
from .exporting import listed
from .questions import Assignment
from .reports import Grade, feedback_page
from .tables import counted, read_table

SYSTEMS = collecting.SYSTEMS
OLDEST = (1980, 1, 1, 0, 0, 0)  # the time of every file in a zip: the same content makes the same archive


def pack(
    system: str, assignment: Assignment, everybody: Sequence[Grade], target: Path, collected: Path | None = None
) -> tuple[int, list[str]]:
    """Write the pages of all who have a grade, for their owner only; how many, and sentences about who got none.

    ``target``: a zip, or for ``folder`` a folder with one for each student, that must not be there yet. ``collected``: the
    table of ``collect``. Raises ``ValueError``, also if there is no page, or two pages would get one name.
    """
    graded = [grade for grade in everybody if grade.score is not None]
    said = without(everybody, [grade.result.student for grade in graded], "no grade")
    if system == "folder":
        check_new(target)
        names = {grade.result.student: collecting.folder_name(grade.result.student) for grade in graded}
    else:
        if target.suffix.lower() != ".zip":
            raise ValueError(f"target: got {str(target)!r}, expected a file whose name ends in .zip")
        check_new(target)
        if collected is None:
            why = f"{system} knows students by the names of what it packed"
            raise ValueError(f"collected: missing: {why}: give the table that `collect {system}` wrote")
        known = names_of(system, collected)
        names = {grade.result.student: known[grade.result.student] for grade in graded if grade.result.student in known}
        said += without(graded, list(names), f"no name of {system} in {collected.name}")
    twice = sorted(student for student, name in names.items() if list(names.values()).count(name) > 1)
    if twice:
        raise ValueError(f"collected: these students have the same name there: {', '.join(map(repr, twice[:5]))}")
    file = f"{assignment.name}_feedback.html"
    joint, pages = "/" if system == "folder" else "_", {grade.result.student: grade for grade in graded}
    files = {
        f"{name}{joint}{file}": feedback_page(assignment, pages[student]).encode("utf-8", "replace")
        for student, name in names.items()
    }
    if not files:
        raise ValueError(f"output: there is no page to hand back. {' '.join(said)}".strip())
    if system == "folder":
        results.private_folder(target)
        for name, page in files.items():
            results.write_whole(target / name, page)
    else:
        results.write_whole(target, zipped(files))
    return len(files), said


def check_new(target: Path) -> None:
    if target.exists() and (not target.is_dir() or target.suffix.lower() == ".zip" or any(target.iterdir())):
        raise ValueError(f"target: {str(target)!r} is already there")


def zipped(files: Mapping[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, OLDEST)
            entry.external_attr, entry.create_system = (stat.S_IFREG | 0o600) << 16, 3
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, content)
    return archive.getvalue()


def without(everybody: Sequence[Grade], students: Sequence[str], why: str) -> list[str]:
    missing = [grade for grade in everybody if grade.result.student not in students]
    names = listed(missing)
    return [f"Without a page ({why}): {counted(missing, 'student')}, {names}."] if missing else []


def names_of(system: str, collected: Path) -> dict[str, str]:
    """By student, what the system put before the name of the file. Raises ``ValueError`` if the table is another one."""
    rows = [row for _, row in read_table(collected, "collected", ("student", "file"))]
    found = {row["student"]: collecting.mark_of(system, row["file"]) for row in rows}
    known = {student: name for student, name in found.items() if name}
    if not known:
        what = f"nothing in {collected.name} has a name as {system} makes it"
        raise ValueError(f"collected: {what}: was it collected from another system?")
    return known
