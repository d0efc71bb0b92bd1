"""What is computed once for a course, kept for single jobs: right results, the results of known mistakes, and on which
machines the grader has tested itself.

It lies beside the results, which no sandbox shows, for its owner only. A file holds for one key, the one that the results
hold for: another version of the assignment, the grader, the library or a package has another file. Jobs that start at
once wait for the first of them, which computes for all (:func:`alone`). A file that is damaged, or that others could have
written, is not used but made again, and that is said.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import wire
from .marking import Outcome, Prepared, generator
from .questions import Assignment
from .results import private_folder, write_whole
from .sandbox import Sandbox

FOLDER, TESTED, LOCK = "prepared", "tested", ".preparing"
KEPT = 4  # files: jobs on two kinds of machine share a folder, and older ones are of use to nobody


class Damaged(ValueError):
    """A file that must not be used; the text says why."""


def path_of(folder: Path, key: str) -> Path:
    """Where it is kept for this key."""
    return folder / FOLDER / f"{key[:20]}.json"


def store(folder: Path, key: str, prepared: list[Prepared]) -> None:
    """Keep it, and forget what is older than the last few; raises ``OSError``.

    The first line is a hash of the second: one wrong digit would otherwise be a wrong grade for everybody.
    """
    questions = [
        {
            "wanted": [wire.encode(value) for value in one.wanted],
            "mistakes": [
                [[outcome.kind, wire.encode(outcome.value), outcome.error] for outcome in row] for row in one.mistakes
            ],
        }
        for one in prepared
    ]
    body = json.dumps({"key": key, "questions": questions}).encode()
    private_folder(folder / FOLDER)
    write_whole(path_of(folder, key), hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    oldest_first = sorted((folder / FOLDER).glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    for path in oldest_first[:-KEPT]:
        path.unlink()


def load(folder: Path, key: str, assignment: Assignment, seed: int) -> list[Prepared] | None:
    """What was kept for this key; ``None`` if nothing was. The cases are drawn again, which takes no time.

    Raises :class:`Damaged`.
    """
    path = path_of(folder, key)
    try:
        data = read_private(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Damaged(f"it cannot be read: {error.strerror}") from error
    digest, _, body = data.partition(b"\n")
    if digest != hashlib.sha256(body).hexdigest().encode():
        raise Damaged("it is not what was written")
    try:
        content = json.loads(body)
        if content["key"] != key:
            raise Damaged("it is of another course")
        found = []
        for question, kept in zip(assignment.questions, content["questions"], strict=True):
            cases = question.cases(generator(question, seed))
            wanted = [wire.decode(value) for value in kept["wanted"]]
            mistakes = [
                [Outcome(kind, wire.decode(value), error) for kind, value, error in row] for row in kept["mistakes"]
            ]
            if {len(cases)} != {len(row) for row in (wanted, *mistakes)} or len(mistakes) != len(question.mistakes):
                raise Damaged("it has another number of cases or mistakes")
            found.append(Prepared(question, cases, wanted, mistakes))
        return found
    except (TypeError, KeyError) as error:
        raise Damaged(f"it holds something else: {type(error).__name__}") from error
    except ValueError as error:  # what json, zip and wire raise
        raise error if isinstance(error, Damaged) else Damaged("it holds something else") from error


def read_private(path: Path) -> bytes:
    """A file that only its owner, who is this user, can read and write; raises :class:`Damaged` for another one."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise Damaged("others than this user could have read or written it")
        return file.read()


def known_or_made(
    folder: Path, key: str, assignment: Assignment, seed: int, make: Callable[[], list[Prepared]]
) -> list[Prepared]:
    """What was kept for this key, or what ``make`` computes now, which is not stored here."""
    try:
        known = load(folder, key, assignment, seed)
    except Damaged as problem:
        path = path_of(folder, key)
        print(
            f"The kept right results in {str(path)!r} are not used, because {problem}. They are computed again.",
            file=sys.stderr,
        )
        with suppress(OSError):
            path.unlink()
        known = None
    return make() if known is None else known


@contextmanager
def alone(folder: Path, what: str = LOCK) -> Iterator[None]:
    """No other job is between these lines for this folder: a second one waits, and finds what the first has made.

    The folder is made if it is not there. If this fails before anything was stored, it is as if nothing had been begun.
    The lock ends with the process, however that ends.
    """
    path = folder / what
    while True:
        was_there = folder.exists()
        if not was_there:
            private_folder(folder)
        try:
            number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # the first job has failed and removed the folder in between
            continue
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.stat(path).st_ino == os.fstat(number).st_ino:
                    break
        except BaseException:
            os.close(number)
            raise
        os.close(number)  # the file was removed while this job waited
    try:
        yield
    except BaseException:
        if not (folder / "settings.json").exists():
            forget(folder, itself=not was_there)
        raise
    finally:
        os.close(number)


def forget(folder: Path, itself: bool) -> None:
    """Remove what was made for nothing: the files for locking and, with ``itself``, the folder, if nothing else is in it."""
    for name in (LOCK, ".lock"):
        with suppress(FileNotFoundError):
            (folder / name).unlink()
    with suppress(OSError):  # somebody's files are in it
        if itself:
            folder.rmdir()


def mark_of(folder: Path, key: str, sandbox: Sandbox) -> Path:
    """The file that says that the grader has tested itself on this machine, as it is now, with this key."""
    said = "\n".join([key, platform.node(), platform.release(), sandbox.describe()])
    return folder / TESTED / hashlib.sha256(said.encode()).hexdigest()[:20]
