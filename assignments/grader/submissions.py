"""Which notebooks were handed in, by whom, and whether they can be read at all.

A folder of submissions holds, for every student, one of these::

    student/assignment.ipynb
    student/assignment/any_name.ipynb     (as nbgrader collects them)
    student/any_name.ipynb                (if it is the only notebook there; the name is remarked on)
    student.ipynb

Nothing here runs or trusts what it finds. A link, a pipe, a device, a folder that is named like a notebook, or a file
that is too large is never opened: each would hang the grader or show it a file that is not the student's.
"""

from __future__ import annotations

import csv
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .notebooks import Notebook

MAX_BYTES = 5_000_000  # of a notebook
MAX_CELLS = 500
SUFFIX = ".ipynb"
ROSTER_COLUMNS = ("name", "email", "id", "sis_user_id", "sis_login_id", "section")  # next to "student", all optional

Roster = dict[str, dict[str, str]]


class Unreadable(ValueError):
    """A submission that is not a notebook; the text says why, for the student to read."""


@dataclass(frozen=True)
class Submission:
    """What one student handed in.

    ``path``: the notebook, or ``None``. ``problem``: why it cannot be read, or empty. ``remark``: what the student and
    the instructor should know. Neither path nor problem: nothing was handed in.
    """

    student: str
    path: Path | None = None
    problem: str = ""
    remark: str = ""


def find(folder: Path, assignment: str, roster: Mapping[str, object] | None = None) -> list[Submission]:
    """All submissions in a folder, one for each student, in the order of the names.

    Students of the roster who handed in nothing are among them. Raises ``ValueError`` if there is no such folder.
    """
    if not folder.is_dir():
        raise ValueError(f"submissions: {str(folder)!r} is not a folder")
    found: dict[str, Submission] = {}
    for entry in sorted(os.scandir(folder), key=lambda entry: (entry.name.endswith(SUFFIX), entry.name)):
        student = printable(entry.name.removesuffix(SUFFIX))
        if entry.name.startswith(".") or not student:
            continue
        if entry.is_symlink():
            submission = Submission(student, problem="This is a link, not a file of yours.")
        elif entry.is_dir(follow_symlinks=False) and not entry.name.endswith(SUFFIX):
            submission = in_folder(Path(entry.path), student, assignment)
        elif entry.name.endswith(SUFFIX):
            submission = Submission(student, Path(entry.path), problem_of(Path(entry.path)))
        else:
            continue  # a list of students, a log: not a submission
        before = found.get(student)
        if before is None or (before.path is None and not before.problem):
            found[student] = submission
    for student in roster or ():
        found.setdefault(student, Submission(student))
    return [found[student] for student in sorted(found)]


def printable(name: str) -> str:
    """A name that can be written to any file: what was not text in the file system shows as a question mark."""
    return name.encode("utf-8", "replace").decode("utf-8")


def in_folder(folder: Path, student: str, assignment: str) -> Submission:
    """What a student's folder holds."""
    candidate = folder / f"{assignment}{SUFFIX}"
    if os.path.lexists(candidate):
        return Submission(student, candidate, problem_of(candidate))
    inner = folder / assignment
    if inner.is_symlink():
        return Submission(student, problem="The folder is a link.")
    for place in (inner, folder):
        if not place.is_dir():
            continue
        notebooks = sorted(path for path in place.iterdir() if path.name.endswith(SUFFIX) and path.name[0] != ".")
        exact = [path for path in notebooks if path.name == candidate.name]
        if len(exact or notebooks) == 1:
            path = (exact or notebooks)[0]
            remark = "" if exact else f"The notebook should be named {candidate.name}."
            return Submission(student, path, problem_of(path), remark)
        if notebooks:
            return Submission(student, problem=f"There are several notebooks, and none is named {candidate.name}.")
    return Submission(student)


def problem_of(path: Path) -> str:
    """Why a file cannot be opened; empty if it can. The file is looked at, not opened."""
    try:
        status = path.lstat()
    except OSError:
        return "The file cannot be read."
    if stat.S_ISLNK(status.st_mode):
        return "This is a link, not a file of yours."
    if not stat.S_ISREG(status.st_mode):
        return "This is not a file."
    if status.st_size > MAX_BYTES:
        return f"The file is larger than {MAX_BYTES // 1_000_000} MB. Clear its outputs and save it again."
    return ""


def read_bytes(path: Path) -> bytes:
    """The content of a submission; raises :class:`Unreadable`. The type is checked again once it is open."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Unreadable("The file cannot be read.") from error
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise Unreadable("This is not a file.")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Unreadable("The file is too large.")
    return data


def parse(data: bytes) -> Notebook:
    """The notebook; raises :class:`Unreadable` for everything that is none."""
    if not data.strip():
        raise Unreadable("The file is empty.")
    if data.startswith(b"PK\x03\x04"):
        raise Unreadable("This is a zip archive. Hand in the notebook itself.")
    try:
        notebook = json.loads(data)
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unreadable("The file is not a notebook: it is damaged or of another kind.") from error
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        if isinstance(notebook, dict) and "worksheets" in notebook:
            raise Unreadable("The notebook has an old format. Open it in Jupyter and save it again.")
        raise Unreadable("The file is not a notebook: it has no cells.")
    if len(notebook["cells"]) > MAX_CELLS:
        raise Unreadable(f"The notebook has more than {MAX_CELLS} cells.")
    return notebook


def read_roster(path: Path) -> Roster:
    """The students of a course: a CSV file with a column ``student``, or plain text with a name on each line.

    ``student`` is the name of the folder that a student's work comes in. Further columns of :data:`ROSTER_COLUMNS`
    are handed on to the exports. Raises ``ValueError`` for a file without students or with a student twice.
    """
    text = path.read_text("utf-8-sig")
    lines = [line for line in text.splitlines() if line.strip()]
    columns = [word.strip().strip('"').lower() for word in lines[0].split(",")] if lines else []
    if "student" in columns:
        rows = [{str(key).strip().lower(): str(value or "").strip() for key, value in row.items()} for row in csv.DictReader(lines)]  # fmt: skip
    else:
        rows = [{"student": line.strip()} for line in lines]
    roster: Roster = {}
    for row in rows:
        student = row["student"]
        if not student or student in roster:
            raise ValueError(f"roster: {student!r} is empty or stands twice in {path.name}")
        roster[student] = {name: row[name] for name in ROSTER_COLUMNS if row.get(name)}
    if not roster:
        raise ValueError(f"roster: no students in {path.name}")
    return roster
