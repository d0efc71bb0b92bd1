"""The result of one submission, and its file: written whole or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .outcomes import PartResult, QuestionResult

GRADED, TIMEOUT, CRASHED = "graded", "timeout", "crashed"
UNREADABLE, NOT_SUBMITTED, INFRASTRUCTURE_ERROR = "unreadable", "not submitted", "infrastructure error"
WITH_GRADE = (GRADED, TIMEOUT, CRASHED)
STATUSES = (*WITH_GRADE, UNREADABLE, NOT_SUBMITTED, INFRASTRUCTURE_ERROR)


@dataclass
class Result:
    """What came out for one student: points where ``status`` is in WITH_GRADE, else no grade, which is not a zero.

    ``key``: what the result depends on, as a hash; empty if it must be made again. ``note``: a sentence for the student.
    ``written``: whether the written question has an answer. ``handed``: a hash of the notebook.
    """

    student: str
    status: str
    key: str = ""
    questions: list[QuestionResult] = field(default_factory=list)
    note: str = ""
    written: bool = False
    seconds: float = 0.0
    handed: str = ""
    kept: bool = False  # not stored: whether the result is from an earlier run

    @property
    def points(self) -> float | None:
        return sum(question.points for question in self.questions) if self.status in WITH_GRADE else None


def file_name(student: str) -> str:
    """A name for a student's files that is safe on every system, and another one for every student."""
    plain = re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,59}", student) and not re.search(r"-[0-9a-f]{10}$", student)
    if plain and student not in ("con", "prn", "aux", "nul"):
        return student
    slug = re.sub(r"[^A-Za-z0-9]+", "_", student)[:40].strip("_") or "student"
    return f"{slug}-{hashlib.sha256(student.encode('utf-8', 'replace')).hexdigest()[:10]}"


def private_folder(folder: Path) -> None:
    """Make a folder for its owner only; one that is there keeps what its group may do, and all others may do nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & 0o007:
            folder.chmod(mode & ~0o007)


def write_whole(path: Path, data: str | bytes) -> None:
    """Write a file, for its owner only, so that it is either the old or the new one, whatever happens in between.

    Raises ``OSError``; the file is then the old one, and nothing else is left.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data.encode("utf-8") if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


@contextmanager
def alone(folder: Path, error: Exception) -> Iterator[None]:
    """The only process that has this lock on a folder; raises the error if another one has it. It ends with the process."""
    number = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as taken:
            raise error from taken
        yield
    finally:
        os.close(number)


def path_of(output: Path, student: str) -> Path:
    return output / "results" / f"{file_name(student)}.json"


def store(output: Path, result: Result) -> None:
    content = {name: value for name, value in asdict(result).items() if name != "kept"}
    write_whole(path_of(output, result.student), json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def load(path: Path) -> Result | None:
    """The result in a file; ``None`` if there is none that can be read."""
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        questions = [
            QuestionResult(**(question | {"parts": [PartResult(**part) for part in question["parts"]]}))
            for question in content.pop("questions")
        ]
        return Result(**content, questions=questions)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def load_all(output: Path) -> list[Result]:
    results = [load(path) for path in (output / "results").glob("*.json")]
    return sorted((result for result in results if result is not None), key=lambda result: result.student)
