"""Attacks on the sandbox that once worked, each as a student would write it: none may see, keep or reach anything."""

from __future__ import annotations

import functools
import json
import platform
import struct
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import hostile
import numpy as np
import pytest
from conftest import ROOT, some

from assignments.grader import (
    batch,
    inside,
    marking,
    outcomes,
    preparing,
    questions,
    reading,
    sandbox,
    seccomp,
    submissions,
    wire,
)
from assignments.grader.marking import mark
from assignments.grader.outcomes import CRASHED, Outcome
from assignments.grader.questions import Case, Question
from assignments.grader.sandbox import InfrastructureError, Limits, Student

# --- what all processes of a machine share: keys, debugging, sockets of a virtual machine

KEYS = """
def f(leave):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    add_key, keyctl, request_key = NUMBERS
    text = ctypes.create_string_buffer(64)
    found = [line for line in open("/proc/keys") if "rlbook" in line]
    for ring in (-1, -2, -3, -4, -5):
        for name in (b"rlbook-teacher", b"rlbook-friend"):
            key = libc.syscall(keyctl, 10, ring, b"user", name, 0)
            if key != -1 and libc.syscall(keyctl, 11, key, text, 64) > 0:
                found.append(text.value.decode())
            if leave and libc.syscall(add_key, b"user", name, b"57 of 90", 8, ring) != -1:
                found.append("left")
    for name in (b"rlbook-teacher", b"rlbook-friend"):
        if libc.syscall(request_key, b"user", name, None, -3) != -1:
            found.append("requested")
    return found
"""

# in a process of its own: it makes a session keyring with a key in it, as a login does, and starts sandboxes
TEACHER = """
import ctypes, json, sys
sys.path[:0] = [ROOT]
from assignments.grader import inside
from assignments.grader.sandbox import Sandbox
libc = ctypes.CDLL(None, use_errno=True)
add_key, keyctl, request_key = NUMBERS
if libc.syscall(keyctl, 1, None) == -1 or libc.syscall(add_key, b"user", b"rlbook-teacher", b"secret", 6, -3) == -1:
    sys.exit(77)
with Sandbox() as box:
    print(json.dumps([inside.ask(box, TEXT, "f", leave) for leave in (1, 0)]))
"""


def filled(text: str, **more: str) -> str:
    column = seccomp.MACHINES[platform.machine()][0]
    numbers = [(248, 217)[column], seccomp.KEYCTL[column], (249, 218)[column]]
    for name, value in (more | {"NUMBERS": str(numbers)}).items():
        text = text.replace(name, value)
    return text


@pytest.mark.skipif(not seccomp.supported(), reason="no filter for this machine")
def test_keys_of_the_teacher_and_of_a_friend_are_out_of_reach(box):
    program = filled(TEACHER, ROOT=repr(str(ROOT)), TEXT=repr(filled(KEYS)))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    if done.returncode == 77:
        pytest.skip("there are no keys on this machine")
    assert done.stdout.strip() == "[[], []]", done.stdout + done.stderr


@pytest.mark.skipif(not seccomp.supported(), reason="no filter for this machine")
def test_every_call_that_is_not_on_the_list_is_refused(box):
    assert len(seccomp.refused_numbers()) > 200 and inside.allowed(box) == []


def test_a_crash_starts_no_program_of_the_machine(box):
    """With a limit of 0 the kernel starts what /proc/sys/kernel/core_pattern names, as root, at each of 100 crashes a second."""
    text = """
def f():
    import resource
    before = [line.split()[4] for line in open("/proc/self/limits") if line.startswith("Max core")]
    for limit in ((0, 0), (1 << 40, 1 << 40)):
        for setting in (resource.setrlimit, lambda *said: resource.prlimit(0, *said)):
            try:
                setting(resource.RLIMIT_CORE, limit)
                before.append("set")
            except (OSError, ValueError):
                pass
    return before
"""
    assert inside.ask(box, text, "f") == ["1"]


SETTINGS = """
def f():
    import os
    done = os.listdir("/proc/sys")
    for path in ("/proc/sys/x", "/proc/self/oom_score_adj", "/proc/sysrq-trigger", "/proc/self/uid_map"):
        try:
            with open(path, "w") as file:
                file.write("-1000")
            done.append(path)
        except OSError:
            pass
    return done
"""


def test_settings_of_the_kernel_are_not_there(box):
    """Where the grader's user owns the files of /proc/sys, as a root in a namespace of root does, a cell changed them."""
    assert inside.ask(box, SETTINGS, "f") == []


FIRST_PROCESS = """
def f():
    import os
    done = os.listdir("/proc/1")
    for path in ("/proc/1/mem", "/proc/1/fd/2", "/proc/1/task/1/mem"):
        try:
            os.close(os.open(path, os.O_RDWR))
            done.append(path)
        except OSError:
            pass
    return done
"""


def test_nothing_of_the_first_process_of_a_sandbox_is_there(box):
    """It is bubblewrap's own and has no limits: an ordinary user's student could write into its memory, and so run there."""
    assert inside.ask(box, FIRST_PROCESS, "f") == []


# what is shared by all who read the same files: locks, leases, notices, and which of their pages are in memory
SHARED = """
def f(path):
    import ctypes, fcntl, os
    libc, done = ctypes.CDLL(None, use_errno=True), []

    def attempt(name, work):
        try:
            if work() != -1:
                done.append(name)
        except (OSError, AttributeError):
            pass

    number = os.open(path, os.O_RDONLY)
    place, seen = libc.mmap, (ctypes.c_ubyte * 1)()
    place.restype = ctypes.c_void_p
    start = ctypes.c_void_p(place(None, 4096, 1, 1, number, 0))
    attempt("lease", lambda: fcntl.fcntl(number, fcntl.F_SETLEASE, fcntl.F_WRLCK))
    attempt("read lease", lambda: fcntl.fcntl(number, fcntl.F_SETLEASE, fcntl.F_RDLCK))
    attempt("notice", lambda: fcntl.fcntl(os.open("/library", os.O_RDONLY), fcntl.F_NOTIFY, 1))
    attempt("flock", lambda: fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB))
    attempt("lock", lambda: fcntl.lockf(number, fcntl.LOCK_SH | fcntl.LOCK_NB))
    attempt("owner", lambda: fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid()))
    attempt("advice", lambda: os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED))
    attempt("in memory", lambda: libc.mincore(start, 4096, seen))
    attempt("only from memory", lambda: os.preadv(number, [bytearray(1)], 0, os.RWF_NOWAIT))
    attempt("read ahead", lambda: libc.readahead(number, ctypes.c_long(0), 4096))
    attempt("cachestat", lambda: libc.syscall(451, number, (ctypes.c_ulong * 2)(0, 4096), (ctypes.c_ulong * 5)(), 0))
    attempt("inotify", lambda: libc.inotify_init1(0))
    attempt("page out", lambda: libc.madvise(start, 4096, 21))
    attempt("merge", lambda: libc.madvise(start, 4096, 12))
    attempt("sync", lambda: libc.syncfs(number))
    attempt("shared memory", lambda: libc.shmget(0, 4096, 0o1600))
    attempt("memory without a name", lambda: os.memfd_create("x"))
    attempt("queue", lambda: libc.mq_open(b"/x", 0o102, 0o600, None))
    return done
"""


@pytest.mark.skipif(not seccomp.supported(), reason="no filter for this machine")
def test_nothing_can_be_told_or_held_by_a_shared_file(box):
    """A lease on a file of torch stopped every other start; which files are in memory told 667 bits to a later sandbox."""
    assert inside.ask(box, SHARED, "f", "/library/rlbook_lib/__init__.py") == []


NAMESPACES = """
def f(flags):
    import ctypes, errno
    libc = ctypes.CDLL(None, use_errno=True)
    made = []
    for flag in flags:
        child = libc.syscall(CLONE, flag | 17, 0, 0, 0, 0)
        if child == 0:
            libc._exit(0)
        if child > 0:
            made.append(flag)
    if libc.syscall(435, 0, 0) != -1 or ctypes.get_errno() != errno.ENOSYS:
        made.append("clone3")
    return made
"""


@pytest.mark.skipif(not seccomp.supported(), reason="no filter for this machine")
def test_no_namespace_can_be_made_and_ordinary_processes_can(box):
    text = NAMESPACES.replace("CLONE", str(seccomp.CLONE[seccomp.MACHINES[platform.machine()][0]]))
    flags = [0x10000000, 0x20000, 0x40000000, 0x20000000, 0x8000000, 0x4000000, 0x2000000, 0x10020000]
    assert inside.ask(box, text, "f", [*flags, 0]) == [0]


def meaning(program: bytes, machine: str, number: int, *arguments: int) -> int:
    """What a filter says of a call: its instructions, run here one by one."""
    lines = list(struct.iter_unpack("=HBBI", program))
    data = struct.pack("=iIQ6Q", number, seccomp.MACHINES[machine][1], 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    place = register = 0
    while True:
        code, yes, no, value = lines[place]
        place += 1
        if code == seccomp.RETURN:
            return value
        if code == seccomp.LOAD:
            (register,) = struct.unpack_from("=I", data, value)
        elif code == seccomp.AND:
            register &= value
        else:
            tests = {
                seccomp.EQUAL: register == value,
                seccomp.AT_LEAST: register >= value,
                seccomp.GREATER: register > value,
                seccomp.ANY_BIT: register & value,
            }
            place += yes if tests[code] else no


FCNTL, IOCTL, PRCTL, MADVISE, LIMIT, LIMIT_OF = (one[0] for one in seccomp.BY_ARGUMENT.values())


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_the_filter_says_what_it_should_for_every_number(machine):
    column, _ = seccomp.MACHINES[machine]
    program = seccomp.program(machine)
    on_the_list = {numbers[column] for numbers in seccomp.CALLS.values()}
    by_argument = (FCNTL, IOCTL, PRCTL, MADVISE, LIMIT, LIMIT_OF)
    asked = {one[column] for one in (seccomp.KEYCTL, seccomp.CLONE, seccomp.SOCKET, *by_argument)}
    for number in set(range(600)) - asked:
        wanted = seccomp.ALLOW if number in on_the_list else seccomp.UNKNOWN_CALL
        assert meaning(program, machine, number, 2, 3) == wanted, number
    for number, arguments, wanted in (
        (seccomp.KEYCTL, (1, 0), True),
        (seccomp.KEYCTL, (1, 1 << 32), False),
        (seccomp.KEYCTL, (1, 5), False),
        (seccomp.KEYCTL, (11, 0), False),
        (seccomp.CLONE, (17,), True),
        *((seccomp.CLONE, (17 | 1 << bit,), False) for bit in (17, 25, 26, 27, 28, 29, 30)),  # all namespaces
        (seccomp.CLONE, (0x3D0F00,), True),
        (seccomp.SOCKET, (1, 1, 0), True),
        (seccomp.SOCKET, (2, 0x80001, 6), True),
        (seccomp.SOCKET, (10, 0x80802, 17), True),
        (seccomp.SOCKET, (16, 3, 0), True),
        (seccomp.SOCKET, (16, 3, 6), False),
        (seccomp.SOCKET, (16, 3, 17), False),
        (seccomp.SOCKET, (2, 1, 132), False),
        (seccomp.SOCKET, (2, 5, 0), False),
        (seccomp.SOCKET, (2, 6, 0), False),
        (seccomp.SOCKET, (40, 1, 0), False),
        (seccomp.SOCKET, (17, 3, 0), False),
        (seccomp.SOCKET, (0, 1, 0), False),
        (seccomp.SOCKET, (38, 5, 0), False),
        (FCNTL, (3, 0), True),
        (FCNTL, (3, 4), True),
        (FCNTL, (3, 1030), True),
        *((FCNTL, (3, command), False) for command in (5, 6, 7, 8, 9, 10, 36, 37, 38, 1024, 1025, 1026, 1031, 1033)),
        (IOCTL, (0, 0x5401), True),
        (IOCTL, (0, 0x5412), False),
        (IOCTL, (0, 0xC0189436), False),
        (PRCTL, (15, 0), True),
        (PRCTL, (53, 0), False),
        (MADVISE, (0, 4096, 4), True),
        (MADVISE, (0, 4096, 21), False),
        (MADVISE, (0, 4096, 12), False),
        *((LIMIT, (number,), number != 4) for number in range(16)),
        *((LIMIT_OF, (0, number), number != 4) for number in range(16)),
    ):
        assert (meaning(program, machine, number[column], *arguments) == seccomp.ALLOW) is wanted, (number, arguments)
    other = dict(x86_64="aarch64", aarch64="x86_64")[machine]
    assert meaning(program, other, 0) == seccomp.KILL
    if machine == "x86_64":
        assert meaning(program, machine, 0x40000000 + 101) == seccomp.REFUSE


def header_numbers(path):
    """Names and numbers in a header of the C library; skips the test where it is not installed."""
    if not Path(path).is_file():
        pytest.skip("no headers here")
    words = [line.split() for line in Path(path).read_text().splitlines() if line.startswith("#define __NR")]
    return {
        line[1].split("_NR", 1)[1].removeprefix("3264").removeprefix("_"): line[2] for line in words if len(line) > 2
    }


@pytest.mark.parametrize(
    ("path", "column"), [("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", 0), ("/usr/include/asm-generic/unistd.h", 1)]
)
def test_numbers_are_those_of_the_headers(path, column):
    known = header_numbers(path)
    named = seccomp.CALLS | {name: one[0] for name, one in seccomp.BY_ARGUMENT.items()}
    named |= {"keyctl": seccomp.KEYCTL, "clone": seccomp.CLONE, "clone3": seccomp.CLONE3, "socket": seccomp.SOCKET}
    checked = 0
    for name, numbers in named.items():
        says = known.get({"newfstatat": "fstatat"}.get(name, name) if column else name)
        if numbers[column] is None:
            assert column == 1, name
        elif says is not None and says.isdigit():
            checked += 1
            assert int(says) == numbers[column], name
    assert checked > 140


def test_what_is_missing_is_said(box, monkeypatch):
    assert "MISSING" not in box.describe()
    monkeypatch.setattr(seccomp.platform, "machine", lambda: "riscv64")
    assert "MISSING: there is no filter for riscv64" in box.describe()
    assert inside.allowed(box) == ["all system calls"]


OTHERS = """
def f(count):
    import os, time
    made = 0
    for place in ("/dev/ptmx", "/dev/pts/ptmx"):
        try:
            os.open(place, os.O_RDWR | os.O_NOCTTY)
            made += 1
        except OSError:
            pass
    for number in range(count):
        if os.fork() == 0:
            try:
                os.setsid()
                os.mkdir("/tmp/session")
            except OSError:
                pass
            while True:
                pass
    time.sleep(2.0)
    return [made, os.path.exists("/tmp/session")]
"""


@pytest.mark.skipif(not seccomp.supported(), reason="no filter for this machine")
def test_terminals_and_sessions_of_the_machine_are_not_used_up(box):
    """All machines have 4,096 terminals together; each session has its share of the processors."""
    assert inside.ask(box, OTHERS, "f", 3) == [0, False]
    assert sandbox.PROCESSES <= 32


# --- what is mounted


def test_a_project_below_what_is_mounted_is_refused(box):
    for path in ("/usr/lib/book/assignments", "/usr/lib", sandbox.base_python(), "/usr/share/fonts/results"):
        with pytest.raises(InfrastructureError, match="student code could read"):
            inside.keep_out(box, [Path(path)])
    for folder in sandbox.package_folders():
        assert sandbox.is_shown(folder / "book" / "hidden_tests.py").endswith("/book/hidden_tests.py")


def test_the_rest_of_usr_and_this_project_cannot_be_seen(box, small):
    inside.keep_out(
        box,
        [
            ROOT,
            small.folder,
            small.notebook,
            Path("/usr/src"),
            Path("/usr/local/share"),
            Path("/usr/bin"),
            Path("/home"),
        ],
    )


def test_nothing_is_graded_where_submissions_or_results_are_mounted(box, shop, tmp_path, monkeypatch):
    """As in a container whose course lies below a folder of libraries."""
    hostile.build(tmp_path / "submissions", shop, some("correct"))
    known = sandbox.system_paths()
    for folder in ("submissions", "output"):
        monkeypatch.setattr(sandbox, "system_paths", lambda folder=folder: [*known, tmp_path / folder])
        with pytest.raises(InfrastructureError, match="student code could read.*move the project"):
            batch.grade(tmp_path / "submissions", shop.assignment, tmp_path / "output", progress=False)
        with pytest.raises(InfrastructureError, match="student code could read"):
            batch.grade(tmp_path / "submissions", shop.assignment, tmp_path / "output", only="correct")
    assert not (tmp_path / "output").exists()


def test_what_python_needs_is_there(box):
    text = (
        "def f():\n"
        "    import ctypes, decimal, json, lzma, os, sqlite3, ssl, subprocess, sys, threading, zoneinfo\n"
        "    import gymnasium, matplotlib.pyplot as plt, numpy, scipy.linalg, scipy.optimize, torch\n"
        "    plt.plot([1, 2]); plt.title('$x^2$'); plt.savefig('/tmp/a.png')\n"
        "    thread = threading.Thread(target=len, args=('',)); thread.start(); thread.join()\n"
        "    said = subprocess.run([sys.executable, '-c', 'print(3)'], capture_output=True).stdout.decode()\n"
        "    return [float(torch.linalg.inv(torch.eye(2)).sum()), gymnasium.make('CartPole-v1').reset(seed=0)[0].size, said.strip(),"
        " os.path.getsize('/tmp/a.png') > 1000]"
    )
    assert inside.ask(box, text, "f") == [2.0, 4, "3", True]


def test_a_root_of_a_user_namespace_gets_a_sandbox_too():
    done = subprocess.run(["unshare", "-r", "true"], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("user namespaces are forbidden here")
    command = ["unshare", "-r", sys.executable, "-m", "assignments.grader", "sandbox"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in done.stderr and (
        "was started this way" in done.stdout or "the sandbox did not start" in done.stderr
    )
    done = subprocess.run(
        [*command, "--unsafe"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PATH": "/nowhere:/usr/bin:/bin"},
    )
    assert done.returncode == 0 and "No sandbox" in done.stdout
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from assignments.grader import sandbox; sandbox.shutil.which = lambda name: None\n"
    program += "from assignments.grader.__main__ import main; sys.exit(main(['sandbox']))"
    done = subprocess.run(
        ["unshare", "-r", sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 2 and done.stderr.startswith("InfrastructureError: bubblewrap is not installed")


# --- time and memory of the grader itself


def test_starts_are_counted(box):
    """Each cell that ends the process costs a start, whose time nobody counted."""
    limits = Limits(seconds=60, cell_seconds=5, memory_mb=300, starts=4)
    question = Question("q", "", "f", {"part": 1.0}, lambda: 0, lambda rng: [], (), seconds=2.0)
    with Student(box, [], ["def f(): return 1", *["import os; os._exit(0)"] * 600], limits) as student:
        assert [student.call(question, Case((), "part")).kind for _ in range(3)] == [CRASHED] * 3
        assert student.starts == 4
    with Student(box, [], ["def f(): return 1", *["import os; os._exit(0)"] * 3], limits) as student:
        assert student.call(question, Case((), "part")).value == 1


def test_a_notebook_with_too_many_cells_is_not_run(small):
    cell = {"cell_type": "code", "source": "import os; os._exit(0)", "metadata": {}}
    assert submissions.parse(json.dumps({"cells": [cell] * submissions.MAX_CELLS}).encode())
    with pytest.raises(submissions.Unreadable, match="more than 500 cells"):
        submissions.parse(json.dumps({"cells": [cell] * (submissions.MAX_CELLS + 1)}).encode())


# short texts that become large lists, and arrays, as many as the student is asked for
LARGE = {
    "lists": "[[] for _ in range(900_000)]",
    "dictionaries": "[{} for _ in range(900_000)]",
    "numbers": "[0] * 1_300_000",
    "array": "__import__('numpy').zeros(2_000_000, dtype='uint8')",
    "lists, just below": "[[] for _ in range(49_000)]",
    "texts": "['x' * 1_000_000] * 3",
}


@pytest.mark.parametrize("name", LARGE)
def test_the_memory_of_the_grader_stays_flat(box, name):
    question = Question("q", "", "f", {"part": 1.0}, lambda: 0, lambda rng: [], (), seconds=10.0)
    with Student(box, [], [f"def f(): return {LARGE[name]}"], Limits(memory_mb=600)) as student:
        tracemalloc.start()
        kept = [student.call(question, Case((), "part")) for _ in range(8)]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert kept[-1].kind == CRASHED and peak < 80e6, peak


# --- what the grader's own process does with answers: no sandbox holds it

ASSIGNMENTS = questions.names()
ROWS = np.empty((2**40, 0))  # a million million rows without columns: not one byte
ANSWERS = {
    "rows without columns": lambda: ROWS,
    "a long list": lambda: [0.5] * 90_000,
    "a deep list": lambda: [[[0.5] * 300] * 10] * 30,
    "one long row": lambda: np.zeros((1, 3_000_000), dtype="uint8"),
    "a number without end": lambda: 10**4000,
}


@functools.cache
def without_mistakes(name):
    """The questions of an assignment, prepared but for their known mistakes."""
    return [preparing.prepare(replace(one, mistakes=()), 7) for one in questions.load(name).questions]


def filled_with(value, new):
    """A result of the same kind with something else in all places."""
    if isinstance(value, dict):
        return {key: filled_with(inner, new) for key, inner in value.items()}
    return [filled_with(inner, new) for inner in value] if isinstance(value, list) else new


def through_the_wire(value):
    return sandbox.outcome({"kind": outcomes.RETURNED, "value": wire.encode(value)})


def answers(wanted, came, whole):
    """What comes back for each case: one thing as the result, or in all places of it, unless the wire refuses so much."""
    if came.kind != outcomes.RETURNED:
        return [came for _ in wanted]
    values = [came.value if whole else filled_with(want, came.value) for want in wanted]
    places = [1 if whole else leaves(want) for want in wanted]
    much = reading.size(came.value) if isinstance(came.value, list) else 1
    return [
        Outcome(CRASHED) if many * much > wire.MAX_ITEMS else Outcome(came.kind, value)
        for many, value in zip(places, values, strict=True)
    ]


def leaves(value):
    """In how many places :func:`filled_with` puts something."""
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(leaves, value)) if isinstance(value, list) else 1


@pytest.mark.parametrize("shape", [(2**40, 0), (0, 2**40), (4_000_001, 0)])
def test_rows_without_columns_are_no_array(shape):
    """Who goes through the rows would not come back."""
    for value in (np.empty(shape), [np.empty(shape)], {"one": np.empty(shape)}):
        assert through_the_wire(value) == Outcome(outcomes.RAISED, error="an exception")
    assert through_the_wire(np.empty((5, 0))).value.shape == (5, 0)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        *(("01_mdps", answer) for answer in ANSWERS),
        *(pytest.param(name, "a long list", marks=pytest.mark.slow) for name in ASSIGNMENTS[1:]),
    ],
)
def test_large_answers_take_no_time_from_others(name, answer):
    """All comparisons and relations together: other students' time limits run meanwhile."""
    came = through_the_wire(ANSWERS[answer]())
    for prepared in without_mistakes(name):
        for whole in (False, True):
            plain, _ = seconds(prepared, answers(prepared.wanted, Outcome(outcomes.RETURNED, 0.5), whole))
            large, result = seconds(prepared, answers(prepared.wanted, came, whole))
            assert result.points < result.max_points and large < 1 + 3 * plain, (prepared.question.name, whole, plain)


def seconds(prepared, outcomes):
    """What it takes this thread to mark these, and the result."""
    given, began = iter(outcomes), time.thread_time()
    result = mark(prepared, lambda question, case: next(given))
    return time.thread_time() - began, result


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (("02_td", 4), [300_000_000]),  # a place for each action that could be meant
        (("02_td", 6), {"actions": [0] * 200 + [10_000_000] * 1200}),
        (("03_dqn", 6), {"received": [10_000_000] * 250}),
        (("01_mdps", 2), [np.ones((9_000, 1, 1), dtype="uint8"), np.ones((1, 1, 9_000), dtype="uint8"), [True]]),
    ],
    ids=["a large action", "large actions of an agent", "large actions of a network", "a column and a row"],
)
def test_small_answers_do_not_become_large(question, answer):
    asked = questions.load(question[0]).questions[question[1] - 1]
    prepared = preparing.prepare(replace(asked, mistakes=()), 7)
    for want in prepared.wanted:
        tracemalloc.start()
        wrong = marking.verdict(prepared.question, Outcome(outcomes.RETURNED, answer), want)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert wrong is not None and peak < 50e6, peak


def test_one_answer_has_a_limit_of_its_own(box):
    """Below the limit of all answers together, and above that of one: nothing of it is kept."""
    question = Question("q", "", "f", {"part": 1.0}, lambda: 0, lambda rng: [], (), seconds=10.0)
    for size, kind in ((wire.MAX_ITEMS - 50, outcomes.RETURNED), (wire.MAX_ITEMS + 1, CRASHED)):
        with Student(box, [], [f"def f(): return [0] * {size}"], Limits(memory_mb=600)) as student:
            assert student.call(question, Case((), "part")).kind == kind


def test_an_answer_that_is_too_large_is_not_kept():
    prepared = without_mistakes("01_mdps")[0]
    outcome = preparing.read(Outcome(outcomes.RETURNED, [0.0] * 90_000), prepared.wanted[0])
    assert outcome == Outcome(outcomes.UNLIKE, error=reading.TOO_LARGE)
    for one in without_mistakes("01_mdps"):
        assert all(preparing.read(Outcome(outcomes.RETURNED, want), want).value is want for want in one.wanted)
