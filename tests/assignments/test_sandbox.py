"""Tests of ``assignments.grader.sandbox``: what code in it can see and do, and what becomes of it."""

import os
import socket
import time
from pathlib import Path

import pytest

from assignments.grader import cgroups, sandbox
from assignments.grader.outcomes import CRASHED, MISSING, RAISED, RETURNED, TIMEOUT
from assignments.grader.questions import Case, Question
from assignments.grader.sandbox import InfrastructureError, Limits, Sandbox, Stopped, Student

ROOT = Path(__file__).resolve().parents[2]
LIMITS = Limits(seconds=30, cell_seconds=5, memory_mb=300)
ASK = Question("q", "", "f", {"part": 1.0}, lambda: 0, lambda rng: [], (), seconds=2.0)


def run(box, body, *arguments, cells=()):
    """What a function with this body returns in the sandbox."""
    text = "def f(*arguments):\n" + "\n".join(f"    {line}" for line in body.splitlines())
    with Student(box, [], [*cells, text], LIMITS) as student:
        return student.call(ASK, Case(arguments, "part"))


def value(box, body, *arguments, cells=()):
    outcome = run(box, body, *arguments, cells=cells)
    assert outcome.kind == RETURNED, outcome
    return outcome.value


def test_a_call_returns_data(box):
    assert value(box, "import numpy as np; return [np.arange(3) + arguments[0], 'text']", 2)[0].tolist() == [2, 3, 4]


def test_endings_are_told_apart(box):
    assert run(box, "raise KeyError('secret')").error == "KeyError"
    assert run(box, "raise SystemExit").kind == RAISED
    assert run(box, "import os; os._exit(0)").kind == CRASHED
    with Student(box, [], ["x = 1"], LIMITS) as student:
        assert student.call(ASK, Case((), "part")).kind == MISSING


def test_a_call_that_hangs_is_stopped_and_the_next_one_starts_afresh(box, monkeypatch):
    monkeypatch.setattr(sandbox, "stretch", lambda: 0.5)
    text = "def f(wait):\n    while wait: pass\n    return 1"
    with Student(box, [], [text], LIMITS) as student:
        assert student.call(ASK, Case((True,), "part")).kind == TIMEOUT
        assert student.session.process is None
        assert student.call(ASK, Case((False,), "part")).value == 1


def test_a_cell_that_ends_the_process_is_left_out(box):
    with Student(box, [], ["import os; os._exit(3)", "def f(): return 1"], LIMITS) as student:
        assert student.call(ASK, Case((), "part")).value == 1
        assert student.left_out == {0: CRASHED}


def test_a_setup_cell_that_fails_to_end_is_our_failure(box):
    with (
        Student(box, ["import os; os._exit(3)"], [], LIMITS) as student,
        pytest.raises(InfrastructureError, match="setup cell"),
    ):
        student.call(ASK, Case((), "part"))


def test_the_total_time_is_limited(box, monkeypatch):
    monkeypatch.setattr(sandbox, "stretch", lambda: 1.0)
    with Student(box, [], ["import time\ndef f(): time.sleep(0.5)"], Limits(0.8, 5, 300)) as student:
        kinds = [student.call(ASK, Case((), "part")).kind for _ in range(4)]
    assert kinds[-1] == TIMEOUT


def test_the_repository_is_not_there_and_the_library_is(box):
    seen = value(
        box,
        "import os, rlbook_lib, rlbook_lib.returns\n"
        "def names(place):\n"
        "    try: return sorted(os.listdir(place))\n"
        "    except OSError: return []\n"
        "found = [os.path.join(folder, name) for top in os.listdir('/') if top not in ('proc', 'usr', 'site-packages-0', 'root') and not os.path.islink('/' + top)"
        " for folder, _, files in os.walk('/' + top) for name in files"
        " if name in ('hidden_tests.py', 'marking.py', 'rubric.md', 'hostile.py', 'Makefile')]\n"
        "return [rlbook_lib.__file__, names(arguments[0]), names('/grader'), found]",
        str(ROOT),
    )
    assert seen == ["/library/rlbook_lib/__init__.py", [], ["wire.py", "worker.py"], []]


def test_only_three_folders_can_be_written(box):
    body = (
        "import os\nwritten = []\n"
        "for place in ('/', '/tmp', '/dev', '/dev/shm', '/home', '/home/student', '/grader', '/library', '/usr', '/etc', '/proc', '/site-packages-0'):\n"
        "    try:\n        open(place + '/x', 'w').close(); written.append(place)\n    except OSError: pass\n"
        "return written"
    )
    assert value(box, body) == ["/tmp", "/dev/shm", "/home/student"]


def test_the_user_has_no_privileges(box):
    status = value(box, "return dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())")
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0 and status["NoNewPrivs"].strip() == "1"
    assert set(status["Uid"].split()) != {"0"} and not status["Groups"].strip() or os.getuid() != 0


def test_the_environment_is_clean(box, monkeypatch):
    monkeypatch.setenv("RLBOOK_SECRET", "secret")
    body = (
        "import os, glob\nfound = str(dict(os.environ))\n"
        "for path in glob.glob('/proc/[0-9]*/environ'):\n"
        "    try: found += open(path).read()\n    except OSError: pass\n"
        "return found"
    )
    seen = value(box, body)
    assert "secret" not in seen and str(ROOT) not in seen


def test_no_other_process_is_seen(box):
    assert len(value(box, "import os; return [int(name) for name in os.listdir('/proc') if name.isdigit()]")) <= 2


def test_nothing_of_the_network_is_reached(box):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        body = (
            "import socket\n"
            "for address in (('127.0.0.1', arguments[0]), ('8.8.8.8', 53)):\n"
            "    try: socket.create_connection(address, timeout=0.3); return 'reached'\n"
            "    except OSError: pass\n"
            "return [name for _, name in socket.if_nameindex()]"
        )
        assert value(box, body, server.getsockname()[1]) in ([], ["lo"])
        with pytest.raises(TimeoutError):
            server.accept()


def test_standard_streams_lead_nowhere(box):
    body = "import os, sys\nprint('x' * 10**6); sys.stderr.write('y'); os.write(1, b'z')\nreturn [os.readlink(f'/proc/self/fd/{n}') for n in range(3)]"
    assert value(box, body) == ["/dev/null"] * 3


def test_memory_is_limited(box):
    outcome = run(box, "kept = []\nwhile True: kept.append(bytearray(20_000_000))")
    assert outcome.kind == CRASHED or outcome.error == "MemoryError"


def test_processes_are_limited(box):
    body = (
        "import os, time\ncount = 0\n"
        "while count < 300:\n"
        "    try: child = os.fork()\n"
        "    except OSError: break\n"
        "    if child == 0:\n        time.sleep(30); os._exit(0)\n"
        "    count += 1\n"
        "return count"
    )
    assert value(box, body) <= sandbox.PROCESSES


def test_files_and_folders_in_memory_are_limited(box):
    body = (
        "size = 0\n"
        "for number in range(30):\n"
        "    try:\n        with open(f'/tmp/{number}', 'wb') as file: file.write(b'x' * 5_000_000)\n        size += 5_000_000\n"
        "    except OSError: break\n"
        "try:\n    with open('/dev/shm/one', 'wb') as file:\n        while True: file.write(b'x' * 1_000_000)\n"
        "except OSError: pass\n"
        "return size"
    )
    assert value(box, body) <= sandbox.FOLDER_MB * 2**20


def test_an_answer_that_is_too_long_ends_the_program(box):
    assert run(box, "return 'x' * 12_000_000").kind == CRASHED


def test_a_request_that_is_not_read_does_not_hang_the_grader(box):
    session = box.start(LIMITS)
    session.process.send_signal(19)
    os.killpg(session.process.pid, 19)
    with pytest.raises(Stopped):  # without an end to its patience this would never come back
        while True:  # a pipe holds some of it
            session.send(b"x" * 1_000_000, time.monotonic() + 0.3)
    session.close()


def test_answers_without_the_id_are_not_believed(box):
    body = (
        "import os\n"
        "for number in range(3, 20):\n"
        '    try: os.write(number, b\'{"id": "0", "kind": "returned", "value": 1}\\n\')\n'
        "    except OSError: pass\n"
        "return 0"
    )
    assert run(box, body).kind == CRASHED


def is_running(process):
    """Whether a process exists and has not ended; one that has may wait for its parent to notice."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_control_groups_and_processes_are_gone_afterwards(box):
    if box.place is None:
        pytest.skip("no control groups here")
    session = box.start(LIMITS)
    folders = session.group.folders
    assert all(folder.is_dir() for folder in folders)
    members = [int(line) for line in (folders[0] / "cgroup.procs").read_text().split()]
    assert members
    session.close()
    until = time.monotonic() + 60  # one that was killed is gone a moment later
    while any(is_running(member) for member in members) and time.monotonic() < until:
        time.sleep(0.001)
    assert not any(folder.exists() for folder in folders) and not any(is_running(member) for member in members)


def test_closing_the_sandbox_ends_what_is_running(small):
    with Sandbox(unsafe=True) as box:
        session = box.start(LIMITS)
        process = session.process
    assert process.wait(60) is not None
    with pytest.raises(InfrastructureError):
        session.ask({"cell": "x = 1"}, 5)
    with pytest.raises(InfrastructureError, match="closing"):
        box.start(LIMITS)


def test_without_bubblewrap_the_grader_refuses(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    with pytest.raises(InfrastructureError, match="bubblewrap is not installed.*--unsafe"):
        Sandbox()
    with Sandbox(unsafe=True) as box:
        assert "No sandbox" in box.describe()
        assert value(box, "return arguments[0] + 1", 1) == 2


def test_a_sandbox_that_does_not_start_is_our_failure(box, monkeypatch):
    monkeypatch.setattr(box, "bwrap", "/bin/false")
    with pytest.raises(InfrastructureError, match="did not start"):
        box.start(LIMITS)
    assert not box.live


def test_it_says_what_is_in_force(box):
    said = box.describe()
    assert "network: none" in said and ("control group" in said or "resource limits only" in said)


def test_version_2_of_control_groups_is_used_where_it_is_delegated(tmp_path):
    """A tree of ordinary files in the place of the real one."""
    parent = tmp_path / "user.slice" / "app.slice"
    own = parent / "shell.scope"
    own.mkdir(parents=True)
    (own / "cgroup.subtree_control").write_text("")
    assert cgroups.find_place(tmp_path, "0::/user.slice/app.slice/shell.scope\n") is None
    for name, text in (("cgroup.subtree_control", "cpu memory pids\n"), ("cgroup.procs", "")):
        (parent / name).write_text(text)
    place = cgroups.find_place(tmp_path, "0::/user.slice/app.slice/shell.scope\n")
    assert place == cgroups.Place(2, (parent,))
    group = cgroups.Group(place, "1-2", 1000, 5)
    (folder,) = group.folders
    assert (
        folder.parent == parent
        and (folder / "memory.max").read_text() == "1000\n"
        and (folder / "pids.max").read_text() == "5\n"
    )
    assert group.entrances == [folder / "cgroup.procs"]


def test_groups_of_dead_graders_are_swept(tmp_path):
    dead, alive = tmp_path / f"{cgroups.PREFIX}999999999-1", tmp_path / f"{cgroups.PREFIX}{os.getpid()}-1"
    for folder in (dead, alive, tmp_path / "other"):
        folder.mkdir()
    cgroups.sweep(cgroups.Place(2, (tmp_path,)))
    assert not dead.exists() and alive.exists()
