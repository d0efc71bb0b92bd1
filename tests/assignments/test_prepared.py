"""Tests of ``assignments.grader.prepared``: what a course computes once, and jobs that all want it at the same time."""

import os
import shutil
import subprocess
import sys
import threading
import time

import hostile
import pytest
from conftest import ROOT

from assignments.grader import batch, comparing, inside, prepared, questions, results
from assignments.grader.sandbox import Sandbox

KEY = "f" * 64


@pytest.fixture
def made(small):
    return [batch.prepare(question, hostile.SEED) for question in small.questions]


@pytest.fixture
def kept(made, tmp_path):
    """The folder, and the file in it."""
    prepared.store(tmp_path, KEY, made)
    return tmp_path, prepared.path_of(tmp_path, KEY)


def read(folder, small, key=KEY):
    return prepared.load(folder, key, small, hostile.SEED)


def is_same(one, other):
    return all(
        comparing.same(a.wanted, b.wanted)
        and [[x.kind, x.error] for row in a.mistakes for x in row]
        == [[x.kind, x.error] for row in b.mistakes for x in row]
        for a, b in zip(one, other, strict=True)
    )


def test_what_is_kept_comes_back_and_belongs_to_its_owner_only(kept, made, small):
    folder, path = kept
    assert is_same(read(folder, small), made)
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert read(folder, small, "e" * 64) is None


def test_student_code_cannot_see_it(kept, box):
    folder, path = kept
    assert inside.ask(box, inside.LOOK, "look", ["/usr/lib", str(folder), str(path)]) == ["/usr/lib"]


DAMAGES = {
    "half of it": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "nothing": lambda path: path.write_bytes(b""),
    "one digit": lambda path: path.write_bytes(path.read_bytes().replace(b"1", b"2", 200)),
    "text": lambda path: path.write_text("{"),
    "for others to read": lambda path: path.chmod(0o644),
    "a link": lambda path: (path.rename(path.parent / "other"), path.symlink_to(path.parent / "other")),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path, 0o600)),  # would be waited for without end
}


@pytest.mark.parametrize("how", DAMAGES)
def test_what_is_damaged_is_said_and_computed_again(kept, made, small, how, capsys):
    folder, path = kept
    DAMAGES[how](path)
    with pytest.raises(prepared.Damaged):
        read(folder, small)
    calls = []
    again = prepared.known_or_made(folder, KEY, small, hostile.SEED, lambda: calls.append(1) or made)
    assert calls == [1] and again is made
    said = capsys.readouterr().err
    assert said.startswith("The kept right results in ") and said.endswith("They are computed again.\n")


def test_a_hash_that_fits_does_not_save_another_course(kept, small):
    folder, path = kept
    prepared.store(folder, "a" * 64, [])
    path.write_bytes(prepared.path_of(folder, "a" * 64).read_bytes())
    with pytest.raises(prepared.Damaged, match="another course"):
        read(folder, small)
    with pytest.raises(prepared.Damaged, match="something else"):
        read(folder, small, "a" * 64)  # no questions


def test_older_files_are_forgotten_and_jobs_on_two_kinds_of_machine_keep_theirs(tmp_path, made, small):
    for number in range(prepared.KEPT + 2):
        prepared.store(tmp_path, f"{number:064x}"[::-1], made)
        time.sleep(0.002)
    there = [read(tmp_path, small, f"{number:064x}"[::-1]) is not None for number in range(prepared.KEPT + 2)]
    assert there == [False] * 2 + [True] * prepared.KEPT


def test_the_key_holds_all_that_a_result_depends_on(small, tmp_path, monkeypatch):
    home, unsafe = tmp_path / "course", Sandbox(unsafe=True)
    shutil.copytree(small.folder, home / "small")
    copied = questions.load("small", home)
    keys = [batch.key_of(copied, unsafe, 1)]
    assert batch.key_of(copied, unsafe, 1) == keys[0]

    def now(seed=1):
        keys.append(batch.key_of(copied, unsafe, seed))

    now(seed=2)
    for name in ("small.ipynb", "hidden_tests.py"):
        with (home / "small" / name).open("a") as file:
            file.write("\n")
        now()
    (home / "small" / "tables.py").write_text("")
    now()
    for module, name in ((batch.platform, "python_version"), (batch.platform, "machine"), (batch, "version_of")):
        monkeypatch.setattr(module, name, lambda *arguments: "another")
        now()
    library = tmp_path / "rlbook_lib"
    library.mkdir()
    (library / "__init__.py").write_text("")
    monkeypatch.setattr(
        batch.importlib.util, "find_spec", lambda name: type("Spec", (), {"origin": str(library / "__init__.py")})
    )
    now()
    assert len(set(keys)) == len(keys) == 9


# --- jobs that start at once


JOB = """
import sys
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
import hostile
from assignments.grader import batch, questions
prepare, canary = batch.prepare, batch.canary
def note(what):
    with open({log!r}, "a") as file:
        file.write(what + "\\n")
batch.prepare = lambda question, seed: note(question.name) or prepare(question, seed)
batch.canary = lambda course: note("canary") or canary(course)
print(batch.grade_one({folder!r}, questions.load("small", hostile.HOME), sys.argv[1], {output!r}).points)
"""


def test_jobs_that_start_at_once_prepare_and_test_once(small, box, tmp_path):
    """Four processes, a new folder: one computes and tests itself, all agree on the inputs, and each grades its student."""
    for student in "abcd":
        (tmp_path / "submissions" / student).mkdir(parents=True)
        shutil.copy(small.notebook, tmp_path / "submissions" / student)
    output, log = tmp_path / "output", tmp_path / "log"
    names = {
        "root": str(ROOT),
        "tests": str(ROOT / "tests" / "assignments"),
        "log": str(log),
        "folder": str(tmp_path / "submissions"),
        "output": str(output),
    }
    jobs = [
        subprocess.Popen([sys.executable, "-c", JOB.format(**names), student], stdout=subprocess.PIPE, text=True)
        for student in "abcd"
    ]
    assert [job.communicate(timeout=240)[0] for job in jobs] == ["80\n"] * 4
    assert log.read_text().split() == ["q1", "q2", "q3", "canary"]
    assert (
        len(list((output / "prepared").iterdir())) == 1
        and len({result.key for result in results.load_all(output)}) == 4
    )
    assert not [path for path in [output, *output.rglob("*")] if path.stat().st_mode & 0o77]


def test_the_second_waits_and_goes_on_if_the_first_fails_and_takes_the_folder_along(tmp_path):
    folder, seen = tmp_path / "output", []

    def second():
        with prepared.alone(folder):
            seen.append(sorted(path.name for path in folder.iterdir()))

    waiting = threading.Thread(target=second)
    with pytest.raises(RuntimeError, match="no sandbox"), prepared.alone(folder):
        waiting.start()
        time.sleep(0.2)
        assert seen == []
        raise RuntimeError("no sandbox")
    waiting.join(10)
    assert seen == [[prepared.LOCK]]


def test_nothing_is_left_of_a_failure_and_nothing_of_others_is_taken(tmp_path):
    for folder in (tmp_path / "new", tmp_path / "there"):
        (tmp_path / "there").mkdir(exist_ok=True)
        with pytest.raises(RuntimeError), prepared.alone(folder):
            raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    (tmp_path / "there" / "settings.json").write_text("{}")
    with pytest.raises(RuntimeError), prepared.alone(tmp_path / "there"):
        raise RuntimeError
    assert (tmp_path / "there" / "settings.json").exists()
