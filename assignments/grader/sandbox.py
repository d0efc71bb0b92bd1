"""Where a student's code runs: a bubblewrap sandbox that gets arguments and gives back data.

Nothing of the student's runs in the grader's process, and nothing of the grader's that is secret enters the sandbox:
no hidden test, no solution, no path to them. Inside there is no network, no other process to see, nothing that can
be written but three small folders in memory, an unprivileged user, and a limit on everything that can be used up.
"""

from __future__ import annotations

import atexit
import compileall
import functools
import importlib.util
import itertools
import os
import platform
import py_compile
import resource
import secrets
import select
import shutil
import signal
import site
import stat
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import cgroups, seccomp, wire
from .cgroups import PREFIX
from .outcomes import CRASHED, MISSING, RAISED, RETURNED, TIMEOUT, Outcome, known_error
from .questions import Case, Question, source_of

HERE = Path(__file__).resolve().parent
START_SECONDS = 60.0  # until the program in the sandbox must have answered for the first time
MB = 2**20
FOLDERS = ("/tmp", "/dev/shm", "/home/student")  # the only ones that can be written: in memory
FOLDER_MB = 32  # of each of the three folders that can be written, and of one file
PROCESSES = 32  # threads count too
FIRST_USER, USERS = 0x30000000, 2**28  # where the grader is root, a sandbox runs as one of these users
OPEN_FILES = 128
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/home/student", "USER": "student", "LOGNAME": "student"}
ENVIRONMENT |= {"LANG": "C.UTF-8", "TMPDIR": "/tmp", "MPLBACKEND": "Agg", "MPLCONFIGDIR": "/tmp/matplotlib"}
ENVIRONMENT |= {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
ENVIRONMENT |= {"PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": ""}
# enters the control groups whose files it is given, then becomes the command
LAUNCH = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo 0 > "$1" || exit 97; shift; n=$((n - 1)); done; exec "$@"'


class InfrastructureError(RuntimeError):
    """The grader could not do its work; it says nothing about the submission."""


class Stopped(Exception):
    """The program in the sandbox did not answer: ``kind`` is ``timeout`` or ``crashed``."""

    def __init__(self, kind: str):
        super().__init__(kind)
        self.kind = kind


@dataclass(frozen=True)
class Limits:
    """Of one submission. ``seconds``: of all its calls and cells together, ``cell_seconds``: of one cell.

    ``starts``: of sandboxes, whose time is ours and not counted. ``answer_bytes``, ``answer_items``: of all answers together.
    """

    seconds: float = 120.0
    cell_seconds: float = 10.0
    memory_mb: int = 1024
    starts: int = 24
    answer_bytes: int = 4 * wire.MAX_BYTES
    answer_items: int = 5 * wire.MAX_ITEMS


@dataclass
class Received:
    bytes: int = 0
    items: int = 0

    def too_much(self, limits: Limits) -> bool:
        return self.bytes > limits.answer_bytes or self.items > limits.answer_items


class Sandbox(AbstractContextManager["Sandbox"]):
    """A way to start sandboxes, shared by the threads of a batch; ``unsafe``: ordinary processes instead.

    Raises ``InfrastructureError`` if bubblewrap is not installed.
    """

    def __init__(self, unsafe: bool = False):
        self.unsafe = unsafe
        self.bwrap = shutil.which("bwrap")
        if self.bwrap is None and not unsafe:
            raise InfrastructureError(
                "bubblewrap is not installed, and without it student code could read the hidden tests and change grades:"
                " install it (Debian, Ubuntu: apt install bubblewrap), or say --unsafe for code that you trust"
            )
        # 1, not 0: only so the kernel does not start a program of the machine for each crash, outside, as root
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (min(1, hard) if hard != resource.RLIM_INFINITY else 1, hard))
        self.place = cgroups.find_place()
        if self.place:
            cgroups.sweep(self.place)
        self.counter = itertools.count()
        self.live: set[Session] = set()
        self.lock = threading.Lock()
        self.closed = False

    def start(self, limits: Limits) -> Session:
        """A running sandbox; raises ``InfrastructureError`` if it does not start."""
        if self.closed:
            raise InfrastructureError("the grader is closing down")
        session = Session(self, limits)
        with self.lock:
            self.live.add(session)
        try:
            session.begin()
        except BaseException:
            session.close()
            raise
        return session

    def close(self) -> None:
        """Kill what is still running."""
        self.closed = True
        with self.lock:
            live = list(self.live)
        for session in live:
            session.kill()

    def __exit__(self, *error: object) -> None:
        self.close()

    def describe(self) -> str:
        """What is in force on this machine, in sentences."""
        if self.unsafe:
            return "No sandbox: student code runs as this user, with resource limits only, for code that you trust."
        user = "a user namespace, where student code has no privileges; outside it is you"
        ring = "MISSING: the session keyring is shared with you and with other students"
        calls = f"MISSING: there is no filter for {platform.machine()}"
        once, here = " only: this bubblewrap has no --disable-userns", "" if limits_count_here() else " of this user"
        memory = "resource limits only, because no control group can be made here: the memory limit counts for each of"
        memory += f" at most {PROCESSES} processes{here}"
        if is_root():
            user = "one without privileges, another one for every start"
        if is_root() or can_disable_namespaces(str(self.bwrap)):
            once = ""
        if seccomp.supported():
            ring = "a new and empty session keyring for every start"
            calls = (
                "what Python, numpy and torch need, by a list; all others are refused, locks and leases on files too"
            )
        if self.place:
            memory = f"control group (version {self.place.version}), all processes together"
        return f"""bubblewrap: {self.bwrap}
network: none; processes, messages, host name: namespaces of their own
user: {user}
files, read-only: {", ".join(map(str, system_paths()))}; installed packages; a copy of rlbook_lib
writable: {", ".join(FOLDERS)}, in memory, {FOLDER_MB} MB each
keys of the kernel: {ring}
system calls: {calls}
further user namespaces: refused by the filter{once}
memory and processes: {memory}
CPU time, file size, open files, core dumps, answers: resource limits and the grader's own"""


class Session:
    """One sandbox with one program in it. Not for use by two threads at once, except :meth:`kill`."""

    def __init__(self, sandbox: Sandbox, limits: Limits):
        self.sandbox, self.limits = sandbox, limits
        self.process: subprocess.Popen[bytes] | None = None
        self.group: cgroups.Group | None = None
        self.folder: str | None = None
        self.buffer = bytearray()
        self.received = Received()

    def begin(self) -> None:
        """Start the program, tell it its limits, wait until it is ready for code."""
        number = f"{os.getpid()}-{next(self.sandbox.counter)}"
        uid = FIRST_USER + secrets.randbelow(USERS) if is_root() and not self.sandbox.unsafe else None
        try:
            if self.sandbox.place and not self.sandbox.unsafe:
                self.group = cgroups.Group(self.sandbox.place, number, self.limits.memory_mb * MB, PROCESSES)
            with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as filter_file:
                if seccomp.supported():
                    filter_file.write(seccomp.program())
                    filter_file.seek(0)
                self.process = subprocess.Popen(
                    self.command(filter_file.fileno()),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    bufsize=0,
                    env=dict(ENVIRONMENT) if self.sandbox.unsafe else {},
                    cwd="/",
                    start_new_session=True,
                    pass_fds=[] if self.sandbox.unsafe else [filter_file.fileno()],
                )
                assert self.process.stdin is not None and self.process.stdout is not None
                for pipe in (self.process.stdin, self.process.stdout):
                    os.set_blocking(pipe.fileno(), False)
                try:
                    reply = self.ask(self.settings(uid), START_SECONDS)
                except Stopped as stopped:
                    errors.seek(0)
                    lines = errors.read(5000).decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
                    raise InfrastructureError(
                        f"the sandbox did not start ({stopped.kind}): {lines[-1][:300]}"
                    ) from None
        except OSError as error:
            raise InfrastructureError(f"the sandbox did not start: {error}") from error
        if reply.get("kind") != "ready":
            raise InfrastructureError("the sandbox did not start: it gave a wrong answer")

    def command(self, filter_number: int) -> list[str]:
        """The whole command line; ``filter_number``: of the open file with the filter of system calls."""
        python = [base_python(), "-s", "-S", "-P", "-B"]
        if self.sandbox.unsafe:
            self.folder = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")
            return [*python, str(HERE / "worker.py")]
        entrances = [str(path) for path in self.group.entrances] if self.group else []
        options = ["--seccomp", str(filter_number)] if seccomp.supported() else []
        inside = [*bubblewrap(str(self.sandbox.bwrap), is_root(), options), *python, "/grader/worker.py"]
        return ["/bin/sh", "-c", LAUNCH, "sh", str(len(entrances)), *entrances, *inside]

    def settings(self, uid: int | None) -> dict[str, Any]:
        """The first message to the program: limits that only it can set for itself, and where things are."""
        data = (self.limits.memory_mb + 512) * MB  # the control group counts what is used, this what is asked for
        limits = {
            "RLIMIT_CPU": int(self.limits.seconds) + 5,
            "RLIMIT_FSIZE": FOLDER_MB * MB,
            "RLIMIT_NOFILE": OPEN_FILES,
            "RLIMIT_DATA": data,
            "RLIMIT_AS": data + 16_384 * MB,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_MSGQUEUE": 0,
        }
        if not seccomp.supported():
            limits["RLIMIT_CORE"] = 0
        if limits_count_here() and not self.sandbox.unsafe:
            limits["RLIMIT_NPROC"] = PROCESSES
        folder, home, paths, fonts = self.folder, dict[str, str | None](), list(mounted_packages()), "/fonts"
        if self.sandbox.unsafe:
            home = {"HOME": folder, "TMPDIR": folder, "MPLCONFIGDIR": f"{folder}/matplotlib"}
            paths, fonts = list(map(str, mounted_packages().values())), str(prepared() / "fonts")
        keyctl = seccomp.keyctl() if seccomp.supported() else None
        places = {"folder": folder or "/home/student", "environment": home, "paths": paths, "fonts": fonts}
        return {"limits": limits, "uid": uid, "keyctl": keyctl, **places}

    def ask(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send a message and wait for its answer; raises :class:`Stopped` and kills the program if none comes.

        The id cannot be guessed, so that an answer written in advance is found out.
        """
        identity = secrets.token_hex(8)
        until = time.monotonic() + seconds
        try:
            self.send(wire.to_line({"id": identity, **message}), until)
            line = self.receive(until)
            items = wire.items(line)
            self.received.bytes, self.received.items = self.received.bytes + len(line), self.received.items + items
            if items > wire.MAX_ITEMS or self.received.too_much(self.limits):
                raise Stopped(CRASHED)
            reply = wire.from_line(line)
            if reply.get("id") != identity:
                raise Stopped(CRASHED)
        except wire.WireError:
            self.close()
            raise Stopped(CRASHED) from None
        except Stopped:
            self.close()
            if self.sandbox.closed:
                raise InfrastructureError("the grader was interrupted") from None
            raise
        return reply

    def send(self, data: bytes, until: float) -> None:
        """Write all of it, unless the program ends or does not read in time."""
        assert self.process is not None and self.process.stdin is not None
        view, number = memoryview(data), self.process.stdin.fileno()
        while view:
            if not select.select([], [number], [], max(0.0, until - time.monotonic()))[1]:
                raise Stopped(TIMEOUT)
            try:
                view = view[os.write(number, view) :]
            except BlockingIOError:
                continue
            except OSError:
                raise Stopped(CRASHED) from None

    def receive(self, until: float) -> bytes:
        """The next line, at most ``wire.MAX_BYTES`` long."""
        assert self.process is not None and self.process.stdout is not None
        number, searched = self.process.stdout.fileno(), 0
        while True:
            end = self.buffer.find(b"\n", searched)
            if end >= 0:
                line = bytes(self.buffer[:end])
                del self.buffer[: end + 1]
                return line
            searched = len(self.buffer)
            if searched > wire.MAX_BYTES:
                raise Stopped(CRASHED)
            if not select.select([number], [], [], max(0.0, until - time.monotonic()))[0]:
                raise Stopped(TIMEOUT)
            data = os.read(number, 1 << 16)
            if not data:
                raise Stopped(CRASHED)
            self.buffer += data

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()

    def close(self) -> None:
        """Kill everything in the sandbox and remove what it left: its control group, its folder."""
        self.kill()
        if self.process is not None:
            for pipe in filter(None, (self.process.stdin, self.process.stdout)):
                pipe.close()
            self.process.wait()
        if self.group is not None:
            self.group.remove()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.process = self.group = self.folder = None
        with self.sandbox.lock:
            self.sandbox.live.discard(self)

    @property
    def disturbed(self) -> bool:
        """Whether the program has written something that nobody asked for."""
        out = self.process and self.process.stdout
        return bool(out and (self.buffer or select.select([out.fileno()], [], [], 0)[0]))


class Student(AbstractContextManager["Student"]):
    """The cells of one submission, run in as many sandboxes one after the other as it takes; ``setup``: our own cells.

    A cell that hangs or ends the process is left out from then on; after a call that does so the next one starts afresh.
    """

    def __init__(self, sandbox: Sandbox, setup: list[str], cells: list[str], limits: Limits):
        self.sandbox, self.setup, self.cells, self.limits = sandbox, setup, cells, limits
        self.stretch = stretch()
        self.left_out: dict[int, str] = {}  # number of the cell, and how it ended
        self.session: Session | None = None
        self.asked: Question | None = None
        self.disturbed = False  # whether anything was written that nobody asked for
        self.until: float | None = None
        self.starts = 0
        self.received = Received()

    def left(self) -> float:
        if self.until is None:
            self.until = time.monotonic() + self.limits.seconds * self.stretch
        return self.until - time.monotonic()

    def begin(self) -> Session:
        """A sandbox in which the setup cells have run: ours, so that a failure is ours and the time is not counted."""
        if self.starts >= self.limits.starts or self.received.too_much(self.limits):
            raise Stopped(CRASHED)
        self.starts += 1
        began = time.monotonic()
        self.session = session = self.sandbox.start(self.limits)
        session.received = self.received
        for cell in self.setup:
            try:
                session.ask({"cell": cell, "ours": True}, START_SECONDS)
            except Stopped as stopped:
                raise InfrastructureError(f"a setup cell of the assignment did not end well: {stopped.kind}") from None
        if self.until is not None:
            self.until += time.monotonic() - began
        return session

    def load(self) -> Session:
        """A sandbox in which every cell that can be run has run; raises :class:`Stopped` if the time is over."""
        while True:
            session = self.begin()
            for number, cell in enumerate(self.cells):
                if number in self.left_out:
                    continue
                seconds = min(self.limits.cell_seconds * self.stretch, self.left())
                if seconds <= 0:
                    session.close()
                    raise Stopped(TIMEOUT)
                try:
                    session.ask({"cell": cell}, seconds)
                except Stopped as stopped:
                    self.left_out[number] = stopped.kind
                    break
            else:
                return session

    def call(self, question: Question, case: Case) -> Outcome:
        try:
            if self.left() <= 0:
                return Outcome(TIMEOUT)
            if self.session is not None and self.session.disturbed:
                self.session.close()
                self.disturbed = True
                if self.asked is question:  # its own doing; another question starts afresh
                    return Outcome(CRASHED)
            self.asked = question
            session = self.session if self.session is not None and self.session.process else self.load()
            driver = None
            if question.driver is not None:
                driver = {"source": driver_source(question.driver), "name": question.driver.__name__}
            message = {"function": question.function, "driver": driver, "arguments": wire.encode(case.arguments)}
            said = outcome(session.ask(message, min(question.seconds * self.stretch, self.left())))
            if said.kind == CRASHED:  # an answer that an honest program does not give
                session.close()
            return said
        except Stopped as stopped:
            return Outcome(stopped.kind)

    def forget(self) -> None:
        """Let the next call start afresh: what the student's code has seen until now is gone."""
        if self.session is not None:
            self.session.close()

    def __exit__(self, *error: object) -> None:
        self.forget()


def stretch() -> float:
    """How much longer everything may take now: the limits are for a machine that is not overloaded."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(4.0, max(1.0, os.getloadavg()[0] / cores))


def outcome(reply: dict[str, Any]) -> Outcome:
    """What an answer says, if it says anything that an honest program could have said."""
    kind = reply.get("kind")
    if kind == RETURNED:
        try:
            return Outcome(RETURNED, wire.decode(reply.get("value")))
        except (wire.WireError, RecursionError):
            return Outcome(RAISED, error="an exception")
    if kind == RAISED:
        return Outcome(RAISED, error=known_error(str(reply.get("error"))))
    return Outcome(MISSING if kind == MISSING else CRASHED)


driver_source = functools.cache(source_of)


def bubblewrap(program: str, root: bool, options: Sequence[str] = ()) -> list[str]:
    """bubblewrap and its arguments, up to the command inside; ``options``: further ones."""
    command = [program, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    # as root the program gives up its user itself, for one that owns nothing; others need a user namespace
    own = ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if root else own
    if not root and can_disable_namespaces(program):
        command += ["--disable-userns"]
    command += [*options, "--new-session", "--die-with-parent", "--hostname", "sandbox", "--clearenv"]
    command += [word for name, value in ENVIRONMENT.items() for word in ("--setenv", name, value)]
    for name in ("lib", "lib32", "lib64", "libx32"):
        if os.path.islink(f"/{name}"):
            command += ["--symlink", os.readlink(f"/{name}").lstrip("/"), f"/{name}"]
    shown = mounts()
    for folder in sorted({str(parent) for target in shown for parent in Path(target).parents if str(parent) != "/"}):
        command += ["--perms", "0755", "--dir", folder]
    for target, source in shown.items():
        command += ["--ro-bind", str(source), target]
    # no terminals: all of a machine share one number; no settings of the kernel: who owns its files may write them; nothing
    # of bubblewrap's process, which has no limits: of the same user, it could be written to and would run a student's code
    command += ["--proc", "/proc", "--tmpfs", "/proc/sys", "--tmpfs", "/proc/1", "--dev", "/dev", "--tmpfs", "/dev/pts"]
    for folder in FOLDERS:
        command += ["--perms", "1777", "--size", str(FOLDER_MB * MB), "--tmpfs", folder]
    command += [word for at in ("/proc/sys", "/proc/1", "/dev/pts", "/dev", "/") for word in ("--remount-ro", at)]
    return [*command, "--chdir", "/", "--"]


@functools.cache
def base_python() -> str:
    return os.path.realpath(sys.executable)


def mounts() -> dict[str, Path]:
    """What can be read inside: each path there, and where it is here. Outer folders come before what lies in them."""
    ours = {f"/grader/{name}": HERE / name for name in ("worker.py", "wire.py")} | {"/fonts": prepared() / "fonts"}
    return {str(path): path for path in system_paths()} | mounted_packages() | ours


def mounted_packages() -> dict[str, Path]:
    """Where installed packages and our library can be read inside."""
    return {f"/site-packages-{at}": one for at, one in enumerate(package_folders())} | {
        "/library": prepared() / "library"
    }


@functools.cache
def system_paths() -> list[Path]:
    """The interpreter, its standard library, and the libraries of the system: nothing else of the machine's files."""
    found = [Path(base_python()), Path(os.path.realpath(sysconfig.get_path("stdlib")))]
    own = {Path(os.path.realpath(path)) for path in (sys.base_prefix, sys.base_exec_prefix)}
    prefixes = own | {Path(base_python()).parents[1], Path("/usr"), Path("/usr/local"), Path("/")}
    found += [prefix / name for prefix in sorted(prefixes) for name in ("lib", "lib32", "lib64", "libx32")]
    found += map(Path, ("/etc/ld.so.cache", "/etc/alternatives", "/usr/share/fonts", "/usr/share/zoneinfo"))
    there = sorted({path for path in found if path.exists() and not (path.is_symlink() and path.parent == Path("/"))})
    return [path for path in there if not any(other in path.parents for other in there)]


def is_shown(path: Path) -> str | None:
    """Where a file or folder of this machine can be seen in the sandbox, if it can."""
    real = Path(os.path.realpath(path))
    for target, source in mounts().items():
        shown = Path(os.path.realpath(source))
        if shown == real or shown in real.parents:
            return str(Path(target) / real.relative_to(shown))
    return None


@functools.cache
def package_folders() -> list[Path]:
    known = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    folders = dict.fromkeys(Path(os.path.realpath(path)) for path in known if path in sys.path)
    return [folder for folder in folders if folder.is_dir()]


@functools.cache
def prepared() -> Path:
    """A folder with what the sandbox shows of this project, made once for each run of the grader.

    ``library``: a copy of ``rlbook_lib``, compiled: an installed one may point into the repository, where the hidden tests
    are. ``fonts``: matplotlib's list of fonts, which it would make anew in every sandbox.
    """
    forget_dead_graders()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    found = importlib.util.find_spec("rlbook_lib")
    if found is None or found.origin is None:
        raise InfrastructureError("rlbook_lib is not installed here: run `make setup`")
    library = folder / "library" / "rlbook_lib"
    shutil.copytree(Path(found.origin).parent, library, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(library, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    (folder / "fonts").mkdir()
    if importlib.util.find_spec("matplotlib") is not None:
        import matplotlib.font_manager

        for path in Path(matplotlib.get_cachedir()).glob("fontlist-*.json"):
            shutil.copyfile(path, folder / "fonts" / path.name)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def forget_dead_graders() -> None:
    """Remove the folders of graders that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            ours = stat.S_ISDIR(folder.lstat().st_mode) and folder.lstat().st_uid == os.getuid()
            if ours and cgroups.owner_is_gone(folder):
                shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def is_root() -> bool:
    """Whether this process may become any user: not so for a root that is one inside a user namespace only."""
    if os.getuid() != 0:
        return False
    try:
        rows = [[int(word) for word in line.split()] for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except OSError:
        return True
    return any(first <= FIRST_USER and FIRST_USER + USERS <= first + count for first, _, count in rows)


@functools.cache
def can_disable_namespaces(program: str) -> bool:
    """Whether this bubblewrap can forbid further user namespaces inside (since version 0.8.0)."""
    said = subprocess.run([program, "--help"], capture_output=True, check=False).stdout
    return b"--disable-userns" in said


@functools.cache
def limits_count_here() -> bool:
    """Whether the limit on processes counts those of the sandbox only: as root, or since Linux 5.14."""
    version = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())
    return is_root() or version >= (5, 14)
