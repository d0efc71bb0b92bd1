"""What a course system packed, sorted into the folder that is graded: ``OUTPUT/STUDENT/ASSIGNMENT.ipynb``.

Of a name in the source only the student is read, and where a notebook goes is made from that: no path of the source
becomes a path of ours. Bytes are copied as they are. What belongs to nobody is told, in a table next to the folder.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from . import results
from .archives import DAMAGED, Piece, pieces
from .late import days_late
from .submissions import ROSTER_COLUMNS, SUFFIX, Roster, of_the_system, student_name
from .tables import read_table, table

MAX_BYTES = 50_000_000  # of a notebook; the grader itself reads less, and tells the student
MAX_TOTAL = 2_000_000_000  # bytes of all notebooks
NO_NOTEBOOK = "no_notebook.txt"  # stands where somebody handed in something else
UNKNOWN_TIME = "Whether it was late is not known."
SYSTEMS = ("canvas", "moodle", "folder")
TEST_STUDENTS = ("Student, Test", "Test Student")  # Canvas's own, for the teacher's view
# name[_LATE]_user_attachment_file, and anon_code[_LATE]_attachment_file where names are hidden
CANVAS = re.compile(r"(?P<name>.+?)(?P<late>_LATE)?_(?P<id>\d{1,30})_(?P<order>\d{1,30})_(?P<file>.+)", re.DOTALL)
CANVAS_HIDDEN = re.compile(
    r"(?P<name>anon)_(?P<id>(?!LATE_)[0-9A-Za-z]+)(?P<late>_LATE)?_(?P<order>\d{1,30})_(?P<file>.+)", re.DOTALL
)
# name_number_assignsubmission_file, as a folder or, where no folders were asked for, before the name of the file. The first
# number counts: what comes after it is the name of a file, which a student chose
MOODLE = re.compile(r"(?P<name>.*?)_(?P<id>\d{1,30})_assignsubmission_[a-z]+(?:_(?P<file>.*))?", re.DOTALL)
DAY = "%A, %d %B %Y"
TIMES = (f"{DAY}, %I:%M %p", f"{DAY}, %H:%M", "%A, %B %d, %Y, %I:%M %p", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M")
CANVAS_COLUMNS = {"name": "Student", "id": "ID", "section": "Section"}
CANVAS_COLUMNS |= {"sis_user_id": "SIS User ID", "sis_login_id": "SIS Login ID"}
MOODLE_COLUMNS = {"name": "Full name", "email": "Email address"}
CHANGED = "Last modified (submission)"
# columns of the roster to look up: Canvas's number is the id; Moodle's is of one assignment, but its names are written out
SURE = {("canvas", "id"), ("moodle", "name"), ("moodle", "student"), ("folder", "id"), ("folder", "name")}


@dataclass(frozen=True)
class Handed:
    """A piece, and what its name says: whose (``key``, a number or a folder), the person's ``name``, the ``file``."""

    piece: Piece
    key: str
    name: str
    file: str
    late: bool = False
    order: int = 0


@dataclass(frozen=True)
class Person:
    """What a table of the system says of a key: columns of the roster, and the time of the submission as it is written."""

    columns: dict[str, str]
    time: str = ""


@dataclass
class Collected:
    """``rows``: student, file, when, late, remark. ``late``: days, or ``None`` if not known. ``said``: what changed."""

    rows: list[tuple[str, ...]] = field(default_factory=list)
    unmatched: list[tuple[str, str]] = field(default_factory=list)
    late: dict[str, int | None] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    unchanged: int = 0
    bytes_read: int = 0


def collect(
    system: str,
    source: Path,
    assignment: str,
    output: Path,
    roster: Roster | None = None,
    worksheet: Path | None = None,
    due: datetime | None = None,
) -> Collected:
    """Sort everything in a source, a zip or a folder, into the folder of submissions ``output``, with tables next to it.

    ``roster``: the students, whose names replace the system's numbers. ``worksheet``: Canvas's gradebook or Moodle's
    grading worksheet; Moodle's times stand there, Canvas only marks late files. Raises ``ValueError``.
    """
    if system == "folder" and worksheet:
        raise ValueError("worksheet: only canvas and moodle have one")
    if system == "moodle" and due and not worksheet:
        raise ValueError("due: give --worksheet too, because the times in the archive are those of the download")
    one, other = source.resolve(), output.resolve()
    if one == other or one in other.parents or other in one.parents:
        raise ValueError(f"output: {str(output)!r} and the source {str(source)!r} lie one in the other")
    people = read_worksheet(system, worksheet) if worksheet else {}
    done, by_key = Collected(), defaultdict(list)
    with pieces(source) as found:
        for piece in found:
            handed = None if piece.problem else understood(system, piece)
            if handed is None:
                done.unmatched.append((piece.path, piece.problem or f"Not a name as {system} makes it: left out."))
            else:
                by_key[handed.key].append(handed)
        results.private_folder(output)
        for student, key in sorted((student, key) for key, student in names_of(system, by_key, people, roster).items()):
            collect_one(done, student, by_key[key], assignment, output / student, people.get(key), system, due)
            if roster is not None and student not in roster:
                done.unmatched.append((student, "Not on the list of the course."))
    beside(output, "collected", [("student", "file", "when", "late", "remark"), *done.rows])
    beside(output, "unmatched", [("name", "what"), *sorted(done.unmatched)])
    if people and roster is None:
        known = [(key, person.columns) for key, person in sorted(people.items())]
        listed = [(key, *(columns.get(name, "") for name in ROSTER_COLUMNS)) for key, columns in known]
        beside(output, "course", [("student", *ROSTER_COLUMNS), *listed])
    return done


def beside(output: Path, name: str, rows: Iterable[Iterable[str]]) -> None:
    text = table([student_name(cell) if cell else "" for cell in row] for row in rows)
    results.write_whole(output.with_name(f"{output.name}.{name}.csv"), text)


def understood(system: str, piece: Piece) -> Handed | None:
    """Whose file it is, by its name; ``None`` if that cannot be said."""
    parts = piece.path.split("/")
    if system == "canvas":
        if found := canvas_name(parts):
            return Handed(piece, found["id"], found["name"], found["file"], bool(found["late"]), int(found["order"]))
        return None
    if system == "moodle":
        place, found = moodle_name(parts)
        file = parts[-1] if place + 1 < len(parts) else found and found["file"]
        return Handed(piece, found["id"], found["name"], file or "") if found else None
    if len(parts) > 1:
        return Handed(piece, parts[0], parts[0], parts[-1])
    stem = parts[0].lower().endswith(SUFFIX) and parts[0][: -len(SUFFIX)]
    return Handed(piece, stem, stem, parts[0]) if stem else None


def canvas_name(parts: list[str]) -> re.Match[str] | None:
    return CANVAS_HIDDEN.fullmatch(parts[-1]) or CANVAS.fullmatch(parts[-1])


def moodle_name(parts: list[str]) -> tuple[int, re.Match[str] | None]:
    """The first part of a path that Moodle named, and its place."""
    return next(((place, found) for place, part in enumerate(parts) if (found := MOODLE.fullmatch(part))), (0, None))


def mark_of(system: str, path: str) -> str:
    """What the system put before the name of a file, by which it finds the student again, without an underscore at its end."""
    parts = path.split("/")
    found = canvas_name(parts) if system == "canvas" else moodle_name(parts)[1]
    if found is None:
        return ""
    return found.string[: found.start("file")].removesuffix("_") if found["file"] is not None else found.string


def read_worksheet(system: str, path: Path) -> dict[str, Person]:
    """The people in Canvas's gradebook or Moodle's worksheet, by number; raises ``ValueError`` if it is another table."""
    columns, key = (CANVAS_COLUMNS, "ID") if system == "canvas" else (MOODLE_COLUMNS, "Identifier")
    found = {}
    for _, row in read_table(path, "worksheet", [key]):
        number = re.search(r"\d+$", row[key])  # "Participant 12345" in Moodle
        if number and row.get("Student", "") not in TEST_STUDENTS:
            known = {name: row.get(column, "") for name, column in columns.items()}
            known = {name: text for name, text in known.items() if text}
            found[number[0]] = Person(known, row.get(CHANGED, ""))
    return found


def names_of(
    system: str, by_key: Mapping[str, list[Handed]], people: Mapping[str, Person], roster: Roster | None
) -> dict[str, str]:
    """The student of each key. All that fits must fit the same person, and no two keys one person: nobody is guessed."""
    fits = defaultdict(set)
    for student, columns in (roster or {}).items():
        for column, value in (("student", student), *columns.items()):
            fits[column, student_name(value).casefold()].add(student)
    chosen: dict[str, str] = {}
    for key, handed in by_key.items():
        known = people[key].columns if key in people else {}
        tried = [("student", key), *known.items(), ("student", known.get("sis_login_id", ""))]
        ours = (("id", key), ("name", handed[0].name), ("student", handed[0].name))
        tried += [(column, value) for column, value in ours if (system, column) in SURE]
        found_in = [fits[column, student_name(value).casefold()] for column, value in tried if value]
        sure = {student for students in found_in if len(students) == 1 for student in students}
        chosen[key] = sure.pop() if len(sure) == 1 else ""
    counts = Counter(chosen.values())
    found: dict[str, str] = {}
    for key in sorted(by_key, key=lambda key: (not chosen[key], student_name(key) != key, key)):
        student = wanted = folder_name(chosen[key] if chosen[key] and counts[chosen[key]] == 1 else key)
        number = 1
        while student in found.values():
            number += 1
            student = f"{wanted} ({number})"
        found[key] = student
    return found


def folder_name(name: str) -> str:
    """A student's name as the name of one folder, which is in the folder that it is made in."""
    name = student_name(name).replace("/", "_")
    while len(name.encode()) > 200:
        name = name[:-1]
    name = name.strip()
    # a name that ends like a notebook would pass for one
    odd = name in ("", ".", "..") or of_the_system(name) or name.lower().endswith(SUFFIX)
    return f"_{name}_" if odd else name


def collect_one(
    done: Collected,
    student: str,
    handed: list[Handed],
    assignment: str,
    folder: Path,
    person: Person | None,
    system: str,
    due: datetime | None,
) -> None:
    """Write what one student handed in, and its row: the newest notebook of the right name, or else the newest."""
    # a second one is called -1 by Canvas
    exact = re.compile(re.escape(assignment) + r"(?:[-_ ]?\(?\d+\)?)?\.ipynb", re.IGNORECASE)

    def rank(one: Handed) -> tuple[Any, ...]:
        return bool(exact.fullmatch(one.file)), one.order, one.piece.when or datetime.min, one.piece.path

    ranked = sorted(handed, key=rank)
    notebooks = [one for one in ranked if one.file.lower().endswith(SUFFIX)]
    newest = (notebooks or ranked)[-1]
    remarks = [f"{newest.name}."] if newest.name not in (student, newest.key) else []
    done.names[student] = student_name((person.columns.get("name") if person else "") or newest.name)
    if len(notebooks) > 1:
        remarks.append(f"{len(notebooks)} notebooks: this one was taken.")
    done.unmatched += [(one.piece.path, left_out(one, newest)) for one in ranked if one is not newest]
    data = None
    if notebooks:
        if not exact.fullmatch(newest.file):
            remarks.append(f"The notebook should be named {assignment}{SUFFIX}.")
        try:
            with newest.piece.open() as file:
                data = file.read(MAX_BYTES + 1)
        except DAMAGED as error:
            remarks.append(f"Cannot be read ({type(error).__name__}).")
        done.bytes_read += len(data or b"")
        if done.bytes_read > MAX_TOTAL:
            most = f"more than {MAX_TOTAL // 1_000_000} MB of notebooks"
            raise ValueError(f"source: {most}: this is not what students handed in")
        if data is not None and len(data) > MAX_BYTES:
            data = None
            remarks.append(f"Larger than {MAX_BYTES // 1_000_000} MB: not copied.")
    when, problem = time_of(newest, person, system)
    late = days_late(when, due) if when and due else None
    if system == "canvas" or late is not None:
        done.late[student] = (None if newest.late else 0) if system == "canvas" else late
    if system == "moodle" and due and not when:
        remarks.append(UNKNOWN_TIME)
    row = (f"{when:%Y-%m-%d %H:%M:%S}" if when else "", "yes" if newest.late else str(late or ""))
    names = [one.file for one in handed]
    remarks += [*problem, *write_one(done, student, folder, f"{assignment}{SUFFIX}", data, names)]
    done.rows.append((student, newest.piece.path, *row, " ".join(remarks)))


def left_out(one: Handed, newest: Handed) -> str:
    whose = newest.name if newest.name == newest.key else f"{newest.name} ({newest.key})"
    kind = "another notebook" if one.file.lower().endswith(SUFFIX) else "no notebook"
    return f"Of {whose}, {kind}: left out; taken was {newest.file}."


def time_of(newest: Handed, person: Person | None, system: str) -> tuple[datetime | None, list[str]]:
    """When something was handed in, if that is known, and a remark. In archives of Canvas and Moodle it is not."""
    if system == "folder":
        return newest.piece.when, []
    text = " ".join(person.time.split()) if person else ""
    for layout in TIMES:
        try:
            return datetime.strptime(text, layout), []
        except ValueError:
            continue
    return None, [f"The worksheet's time cannot be read: {text}."] if text not in ("", "-") else []


def write_one(
    done: Collected, student: str, folder: Path, name: str, data: bytes | None, names: list[str]
) -> list[str]:
    """Write a notebook, or a list of what came instead, unless it is there already; remarks."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        why = "The output has a link or a file where the student's folder should be: nothing was written."
        done.unmatched.append((student, why))
        return ["Not written."]
    target, remarks = folder / name, []
    if data is None:
        target, remarks = folder / NO_NOTEBOOK, ["No notebook."]
        data = "".join(f"{student_name(name)}\n" for name in sorted(names)).encode()
        if (folder / name).exists():
            remarks.append("The one that was collected earlier is still there.")
    is_file = target.is_file() and not target.is_symlink()
    if is_file and target.read_bytes() == data:
        done.unchanged += 1
        return remarks
    done.said.append(f"{student}: {'replaced' if is_file else 'new'}, {target.name}")
    results.private_folder(folder)
    results.write_whole(target, data)
    return remarks
