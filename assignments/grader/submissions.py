"""Which notebooks were handed in, by whom, and whether they can be read at all.

A folder of submissions holds for every student ``student/assignment.ipynb``, ``student/assignment/any_name.ipynb`` (as
nbgrader collects them), ``student/.../any_name.ipynb`` (if it is the only notebook there; that is remarked on), or
``student.ipynb``. Every folder and every notebook at the top is exactly one student's; what else there is, is told.

Nothing here runs or trusts what it finds. A link, a pipe, a device, a folder that is named like a notebook, or a file
that is too large is never opened: each would hang the grader or show it a file that is not the student's.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .notebooks import Notebook
from .tables import read_rows

MAX_BYTES = 5_000_000  # of a notebook
MAX_CELLS = 500
MAX_FILES = 1_000  # of a student's folder
SUFFIX = ".ipynb"
LEFT_BY_SYSTEMS = ".DS_Store .ipynb_checkpoints .git .gitignore .gitkeep __MACOSX Thumbs.db desktop.ini".split()
MIXED = "The name mixes alphabets whose letters look alike: is it another student's name?"
JOINERS = "\u200c\u200d"  # between letters, in the scripts that need them
# next to "student", all optional
ROSTER_COLUMNS = ("name", "email", "id", "sis_user_id", "sis_login_id", "section", "group")

Roster = dict[str, dict[str, str]]


class Unreadable(ValueError):
    """A submission that is not a notebook; the text says why, for the student to read."""


@dataclass(frozen=True)
class Submission:
    """What one student handed in: neither ``path`` nor ``problem``, why it cannot be read, if nothing.

    ``folders``: how many of the folders that lead to the notebook are the student's.
    """

    student: str
    path: Path | None = None
    problem: str = ""
    remark: str = ""
    folders: int = 0

    def read(self) -> bytes:
        """The content; raises :class:`Unreadable`. What was no link in the survey may be one by now."""
        assert self.path is not None
        return read_bytes(self.path, self.folders)

    def notebook(self) -> Notebook:
        """What was handed in; raises :class:`Unreadable`."""
        if self.problem or self.path is None:
            raise Unreadable(self.problem or "Nothing was handed in.")
        return parse(self.read())


@dataclass
class Survey:
    """``submissions``: one for each student, by name. ``unmatched``: what else a person should look at, and why."""

    submissions: list[Submission]
    unmatched: list[tuple[str, str]]


def find(folder: Path, assignment: str, roster: Mapping[str, object] | None = None) -> list[Submission]:
    """All submissions in a folder, one for each student, in the order of the names; see :func:`survey`."""
    return survey(folder, assignment, roster).submissions


def survey(folder: Path, assignment: str, roster: Mapping[str, object] | None = None) -> Survey:
    """Everything in a folder of submissions, and the students of the roster who handed in nothing; raises ``ValueError``."""
    if not folder.is_dir():
        raise ValueError(f"submissions: {str(folder)!r} is not a folder")
    unmatched, folders, files = list[tuple[str, str]](), list[os.DirEntry[str]](), list[os.DirEntry[str]]()
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if of_the_system(entry.name):
            unmatched.append((student_name(entry.name), "Made by a system, not by a student: left out."))
        elif entry.name.lower().endswith(SUFFIX):
            files.append(entry)
        elif entry.is_symlink() or entry.is_dir(follow_symlinks=False):
            folders.append(entry)
        else:
            unmatched.append((student_name(entry.name), "Neither a folder nor a notebook: left out."))
    found: dict[str, Submission] = {}
    for student, entry in named(folders, found, unmatched):
        found[student] = in_folder(entry, student, assignment, unmatched)
    of_folders = dict(found)
    single = []
    for entry in files:  # a folder and a file of one name are one student's
        student = student_name(entry.name[: -len(SUFFIX)])
        kept = of_folders.pop(student, None)
        if kept is None:
            single.append(entry)
        elif kept.path is None and not kept.problem:
            found[student] = Submission(student, Path(entry.path), problem_of(Path(entry.path)))
        else:
            why = f"There is a folder and a file {student_name(entry.name)}: the folder was graded."
            unmatched.append((student, why))
    for student, entry in named(single, found, unmatched, SUFFIX):
        found[student] = Submission(student, Path(entry.path), problem_of(Path(entry.path)))
    unmatched += [(student, MIXED) for student in found if len(alphabets(student)) > 1]
    if roster is not None:
        known = {student_name(student) for student in roster}
        unmatched += [(student, "Not on the list of the course.") for student in found if student not in known]
        for student in known:
            found.setdefault(student, Submission(student))
    return Survey([found[student] for student in sorted(found)], sorted(unmatched))


def student_name(name: str) -> str:
    """A student's name as it stands in tables and on pages, written in one way only, whatever system it comes from.

    Bytes that are no text and characters that cannot be seen become escapes, so that two names that differ stay two.
    """
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    text = unicodedata.normalize("NFC", " ".join(text.split()))
    shown = (one if one.isprintable() or one in JOINERS else ascii(one)[1:-1] for one in text)
    return "".join(shown) or "(no name)"


def alphabets(name: str) -> set[str]:
    """Which of three alphabets, with letters that look alike, the letters of a name belong to."""
    words = {unicodedata.name(one, " ").split(" ")[0] for one in name}
    return words & {"LATIN", "CYRILLIC", "GREEK"}


def of_the_system(name: str) -> bool:
    """Whether a file or folder is one that systems and Jupyter leave everywhere."""
    return name in LEFT_BY_SYSTEMS or name.startswith("._")


def named(
    entries: list[os.DirEntry[str]], taken: Mapping[str, object], unmatched: list[tuple[str, str]], suffix: str = ""
) -> list[tuple[str, os.DirEntry[str]]]:
    """Each entry with a name of its own: one whose name is another's too gets a number, and both are told."""
    rows: dict[str, os.DirEntry[str]] = {}
    again = []
    for entry in sorted(entries, key=lambda entry: (student_name(entry.name) != entry.name, entry.name)):
        student = student_name(entry.name[: len(entry.name) - len(suffix)])
        if student in rows or student in taken:
            again.append((student, entry))
        else:
            rows[student] = entry
    for student, entry in again:
        number = 2
        while (other := f"{student} ({number})") in rows or other in taken:
            number += 1
        rows[other] = entry
        unmatched.append((student, f"Another one has the same name, written differently: it stands as {other}."))
    return list(rows.items())


def in_folder(entry: os.DirEntry[str], student: str, assignment: str, unmatched: list[tuple[str, str]]) -> Submission:
    folder, exact = Path(entry.path), f"{assignment}{SUFFIX}"
    if entry.is_symlink():
        return Submission(student, problem="This is a link, not a file of yours.")
    if (folder / assignment).is_symlink():
        return Submission(student, problem="The folder is a link.")
    try:
        notebooks, others, seen = listed(folder)
    except OSError:
        return Submission(student, problem="The folder cannot be read.")
    if seen > MAX_FILES:
        return Submission(student, problem=f"There are more than {MAX_FILES} files.")
    inner = [path for path in notebooks if path.parent == folder / assignment]
    top = [path for path in notebooks if path.parent == folder]
    level = [path for path in top if path.name == exact] or inner or top or notebooks
    rightly_named = [path for path in level if path.name == exact]
    chosen = rightly_named or level
    if len(chosen) > 1:
        which = "several are" if rightly_named else "none is"
        return Submission(student, problem=f"There are several notebooks, and {which} named {exact}.")
    if not chosen:
        if others:
            problem = f"Something was handed in, but no notebook: no file whose name ends in {SUFFIX}."
            return Submission(student, problem=problem)
        return Submission(student)
    (path,) = chosen
    if len(notebooks) > 1:
        unmatched.append((student, f"{len(notebooks)} notebooks were handed in: {student_name(path.name)} was graded."))
    remarks = [] if path.name == exact else [f"The notebook should be named {exact}."]
    if path.parent not in (folder, folder / assignment):
        remarks.append("The notebook was found in a folder of its own: it should not be in one.")
    return Submission(student, path, problem_of(path), " ".join(remarks), len(path.relative_to(folder).parts))


def listed(folder: Path) -> tuple[list[Path], int, int]:
    """The notebooks below a folder, how many other files there are, and how many things were looked at; follows no link."""
    notebooks: list[Path] = []
    others = seen = 0
    waiting = [folder]
    while waiting and seen <= MAX_FILES:
        with os.scandir(waiting.pop()) as entries:
            for entry in itertools.islice(entries, MAX_FILES + 1):
                seen += 1
                if of_the_system(entry.name):
                    continue
                if entry.name.lower().endswith(SUFFIX):
                    notebooks.append(Path(entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                else:
                    others += 1
    return sorted(notebooks), others, seen


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


def read_bytes(path: Path, folders: int = 0) -> bytes:
    """The content of a submission; raises :class:`Unreadable`. The type is checked again once it is open.

    ``folders``: how many folders before the name are the student's: they may be no links either.
    """
    try:
        number = open_below(Path(*path.parts[: -1 - folders]), path.parts[-1 - folders :])
    except OSError as error:
        raise Unreadable("The file cannot be read.") from error
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise Unreadable("This is not a file.")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Unreadable("The file is too large.")
    return data


def open_below(folder: Path, names: Sequence[str]) -> int:
    """A file in a folder, opened name by name so that no link is followed, whoever puts one there meanwhile; raises ``OSError``."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for place, name in enumerate(names, 1):
        kind = os.O_DIRECTORY if place < len(names) else os.O_NONBLOCK
        try:
            inner = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=number)
        finally:
            os.close(number)
        number = inner
    return number


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

    ``student`` is the name of the folder that a student's work comes in, :data:`ROSTER_COLUMNS` are for the exports.
    Raises ``ValueError`` for a file without students or with a student twice.
    """
    rows = [[cell.strip() for cell in row] for row in read_rows(path, "roster")]
    columns, first = ([cell.lower() for cell in rows[0]], rows[0][0]) if rows else ([], "")
    if "student" in columns:
        people = [dict(zip(columns, row, strict=False)) for row in rows[1:] if any(row)]
    elif len(columns) > 1 and set(columns) & set(ROSTER_COLUMNS):
        have = ", ".join(map(repr, columns))
        raise ValueError(f"roster: {path.name} has the columns {have}, but none named 'student'")
    elif "student" in re.split("[;\t]", first.lower()):
        raise ValueError(f"roster: {path.name} begins with {first!r}; expected commas between the columns")
    else:
        people = [{"student": line.strip()} for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
    roster: Roster = {}
    for person in people:
        student = student_name(person.get("student", "")) if person.get("student") else ""
        if not student or student in roster:
            raise ValueError(f"roster: {student!r} is empty or stands twice in {path.name}")
        roster[student] = {name: person[name] for name in ROSTER_COLUMNS if person.get(name)}
    if not roster:
        raise ValueError(f"roster: no students in {path.name}")
    return roster
