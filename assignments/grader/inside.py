"""What can be seen and done from inside a sandbox, tried there before any code of a student runs.

The sandbox shows what Python needs and nothing else. Where the project lies below such a folder (a container's
``/usr/lib``, say) this shows the hidden tests too: then nothing is graded.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import seccomp
from .outcomes import RETURNED
from .questions import Case, Question
from .sandbox import FOLDERS, InfrastructureError, Limits, Sandbox, Student, is_shown

SAMPLE = 100  # of the files in a folder

LOOK = """
def look(paths):
    import os
    return [path for path in paths if os.path.lexists(path)]
"""

# a call that is not refused fails here too, because its arguments make no sense, but with another error
ATTEMPT = """
def attempt(numbers, asked, sockets):
    import ctypes, errno, socket
    libc = ctypes.CDLL(None, use_errno=True)
    allowed = []
    for name, *numbers_of in [[f"system call {number}", number, -1, -1, -1, -1, -1] for number in numbers] + asked:
        ctypes.set_errno(0)
        if libc.syscall(*numbers_of) != -1 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
            allowed.append(name)
    for name, kind in sockets.items():
        try:
            socket.socket(*kind).close()
            allowed.append(name)
        except PermissionError:
            pass
    return allowed
"""
SOCKETS = {
    "sockets to the host of a virtual machine": (40, 1, 0),
    "sockets to the kernel's ciphers": (38, 5, 0),
    "sockets of a rare protocol": (2, 1, 132),
    "sockets of a rare kind": (2, 6, 0),
    "sockets to the kernel's firewall": (16, 3, 12),
}
ASKED = {
    "fcntl": {"locks": 6, "locks of a file": 37, "leases": 1024, "notices": 1026, "owners": 8, "sizes of pipes": 1031},
    "ioctl": {"input of a terminal": 0x5412},
    "prctl": {"speculation": 53},
    "madvise": {"page out": 21, "merge": 12},
    "setrlimit": {"core dumps": 4},
    "prlimit64": {"core dumps of another process": 4},
}


def ask(sandbox: Sandbox, text: str, function: str, *arguments: Any) -> Any:
    """What a function of ours returns in a sandbox of its own."""
    question = Question(function, "", function, {}, lambda: None, lambda rng: [], (), seconds=60.0)
    with Student(sandbox, [], [text], Limits()) as student:
        outcome = student.call(question, Case(arguments, ""))
    if outcome.kind != RETURNED:
        how = f"{outcome.kind} {outcome.error}".rstrip()
        raise InfrastructureError(f"the sandbox could not be looked at from inside: {how}")
    return outcome.value


def keep_out(sandbox: Sandbox, paths: Iterable[Path]) -> None:
    """Raise ``InfrastructureError`` if any of these files and folders can be seen from inside."""
    if sandbox.unsafe:
        return
    paths = [Path(os.path.realpath(path)) for path in paths]
    for path in paths:
        where = is_shown(path)
        if where is not None:
            refuse(str(path), where)
    # a folder may be there for what else lies in it, as /home is: what counts is its content
    inner = [path for folder in paths for path in (sorted(folder.iterdir())[:SAMPLE] if folder.is_dir() else [folder])]
    memory = tuple(map(Path, FOLDERS))
    looked_for = [str(path) for path in inner if path not in memory and not any(one in path.parents for one in memory)]
    seen = ask(sandbox, LOOK, "look", looked_for)
    if seen:
        refuse(str(seen[0]), str(seen[0]))


def refuse(path: str, where: str) -> None:
    raise InfrastructureError(
        f"student code could read {path!r}, because the sandbox shows it as {where!r} together with what Python needs:"
        " move the project, the submissions and the results elsewhere, to a home folder say"
    )


def allowed(sandbox: Sandbox) -> list[str]:
    """The calls to the system that should be refused inside and are not."""
    if not seccomp.supported():
        return ["all system calls"]
    column = seccomp.MACHINES[platform.machine()][0]
    asked = []
    for call, questions in ASKED.items():
        numbers, place, _ = seccomp.BY_ARGUMENT[call]
        for name, value in questions.items():
            arguments = [-1, -1, -1]
            arguments[place] = value
            asked.append([f"{call}: {name}", numbers[column], *arguments])
    return list(ask(sandbox, ATTEMPT, "attempt", seccomp.refused_numbers(), asked, SOCKETS))
