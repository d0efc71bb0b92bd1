"""The files of a zip or a folder that somebody else made: looked at within limits, never followed, never unpacked."""

from __future__ import annotations

import lzma
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO

from .submissions import of_the_system, open_below

MAX_FILES = 20_000  # of a source
MAX_ARCHIVE = 4_000_000_000  # bytes of a zip
NO_FILE = "A link, or something else that is no file: left out."
# what reading may raise
DAMAGED = (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error)


@dataclass(frozen=True)
class Piece:
    """A file: its path in the source, its time there, and how it is opened. ``problem``: why it never should be."""

    path: str
    when: datetime | None
    open: Callable[[], IO[bytes]]
    problem: str = ""


@contextmanager
def pieces(source: Path) -> Iterator[Iterator[Piece]]:
    """The files of a source while it is open; raises ``ValueError`` if it is missing, no zip and no folder, or too large."""
    if source.is_dir():
        yield in_folder(source)
        return
    if not source.exists():
        raise ValueError(f"source: there is no {str(source)!r}; expected a zip or a folder")
    if not source.is_file():
        raise ValueError(f"source: {str(source)!r} is neither a zip nor a folder")
    if source.stat().st_size > MAX_ARCHIVE:
        raise ValueError(f"source: larger than {MAX_ARCHIVE // 1_000_000} MB: unzip it and give the folder")
    try:
        archive = zipfile.ZipFile(source)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise ValueError(f"source: {str(source)!r} is not a zip: {error}") from error
    with archive:
        yield in_zip(archive)


def in_zip(archive: zipfile.ZipFile) -> Iterator[Piece]:
    """What an archive holds; nothing is unpacked."""
    for number, info in enumerate(archive.infolist(), 1):
        check_count(number)
        path = info.filename
        # is_dir() of Python 3.11.2 fails on an empty name
        if path.endswith("/") or any(map(of_the_system, path.split("/"))):
            continue
        problem = ""
        if not path:  # what stands after a byte of zero is cut off
            problem = "An entry without a name: left out."
        elif stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            problem = NO_FILE
        elif re.match(r"[/\\]|[A-Za-z]:", path) or ".." in re.split(r"[/\\]", path):
            problem = "The name points out of the archive: left out."
        elif info.flag_bits & 1:
            problem = "Encrypted: left out."
        elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # others may want gigabytes before the first byte
            problem = "Packed in a way that no course system uses: left out."
        try:
            when = datetime(*info.date_time)
        except ValueError:
            when = None
        yield Piece(path, when, partial(archive.open, info), problem)


def in_folder(folder: Path) -> Iterator[Piece]:
    """What a folder holds, without following a link."""
    number, waiting = 0, [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        for entry in listed:
            number += 1
            check_count(number)
            if of_the_system(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
                continue
            when = datetime.fromtimestamp(int(entry.stat(follow_symlinks=False).st_mtime))
            path = os.path.relpath(entry.path, folder)
            problem = "" if entry.is_file(follow_symlinks=False) else NO_FILE
            yield Piece(path, when, partial(open_file, folder, path), problem)


def open_file(folder: Path, path: str) -> IO[bytes]:
    """A file of a folder, unless it, or a folder on the way to it, has become a link or a pipe since."""
    number = open_below(folder, path.split("/"))
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError("this is not a file")
    return os.fdopen(number, "rb")


def check_count(number: int) -> None:
    if number > MAX_FILES:
        raise ValueError(f"source: more than {MAX_FILES} files: this is not what students handed in")
