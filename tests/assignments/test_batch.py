"""Tests of ``assignments.grader.batch``: whole runs, kept results, failures of our own, and interruptions."""

import dataclasses
import errno
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import hostile
import pytest
from conftest import ROOT, some

from assignments.grader import batch, notebooks, questions, results
from assignments.grader.__main__ import main
from assignments.grader.sandbox import InfrastructureError, Sandbox

MIXED = ("correct", "known mistakes", "stub", "os._exit(0)", "empty file", "empty folder", "wrong file name")


def grade(folder, small, output, **options):
    return batch.grade(folder, small, output, seed=hostile.SEED, progress=False, **options)


def csv_of(output):
    return (output / "grades.csv").read_text("utf-8")


@pytest.fixture(scope="module")
def graded(small, box, tmp_path_factory):
    """One batch with some of everything: the submissions, the output, the results."""
    folder = tmp_path_factory.mktemp("batch")
    hostile.build(folder / "submissions", hostile.Workshop(small, folder), some(*MIXED))
    found = grade(folder / "submissions", small, folder / "output", roster={"zoe": {"email": "z@x.org"}, "correct": {}})
    return folder / "submissions", folder / "output", found


def test_every_submission_gets_its_status_and_points(graded, small):
    by_student = {result.student: result for result in graded[2]}
    points = hostile.deserved_points(small)
    for bad in some(*MIXED):
        assert hostile.is_right(bad, by_student[hostile.student_of(bad)], points), bad.name
    assert by_student["zoe"].status == "not submitted" and by_student["zoe"].points is None


def test_no_grade_is_not_a_zero_in_the_table(graded):
    lines = {line.split(",")[0]: line.split(",") for line in csv_of(graded[1]).splitlines()}
    assert lines["student"] == [
        "student",
        "name",
        "status",
        "q1",
        "q2",
        "q3",
        "written",
        "score",
        "max",
        "before",
        "late",
        "overridden",
        "note",
    ]
    assert lines["stub"][2:9] == ["graded", "0", "0", "0", "", "0", "100"]
    assert lines["zoe"][2:9] == ["not submitted", "", "", "", "", "", "100"]
    assert lines["empty file"][2:9] == ["unreadable", "", "", "", "", "", "100"]


def test_the_seed_is_kept_for_its_owner_only(graded):
    path = graded[1] / "settings.json"
    assert json.loads(path.read_text())["seed"] == hostile.SEED and path.stat().st_mode & 0o77 == 0
    assert not [path for path in [graded[1], *graded[1].rglob("*")] if path.stat().st_mode & 0o77]


def test_what_could_not_be_matched_is_in_a_table(graded):
    text = (graded[1] / "unmatched.csv").read_text("utf-8")
    assert (
        text.startswith("name,what\n") and "stub,Not on the list of the course.\n" in text and "correct,Not" not in text
    )


@pytest.mark.slow
def test_what_did_not_change_is_kept_and_what_changed_is_graded_again(graded, small, tmp_path):
    folder, output = tmp_path / "submissions", tmp_path / "output"
    shutil.copytree(graded[0], folder, symlinks=True)
    shutil.copytree(graded[1], output)
    before = csv_of(output)
    found = {result.student: result for result in grade(folder, small, output, roster={"zoe": {}})}
    assert found["correct"].kept and found["os._exit(0)"].kept and csv_of(output) == before
    shutil.copy(folder / "correct" / "small.ipynb", folder / "stub" / "small.ipynb")
    found = {result.student: result for result in grade(folder, small, output)}
    assert not found["stub"].kept and found["stub"].points == 80 and found["correct"].kept
    shutil.copy(graded[0] / "stub" / "small.ipynb", folder / "stub" / "small.ipynb")
    found = {result.student: result for result in grade(folder, small, output, regrade=True)}
    assert not any(result.kept for result in found.values()) and csv_of(output) == before


def test_another_seed_or_assignment_needs_another_folder(graded, small):
    with pytest.raises(ValueError, match="seed: .* another seed"):
        batch.grade(graded[0], small, graded[1], seed=1, progress=False)
    with pytest.raises(ValueError, match="output: .* results of small"):
        batch.grade(graded[0], dataclasses.replace(small, name="other"), graded[1], progress=False)


@pytest.mark.parametrize(
    ("change", "word"), [({"workers": 0}, "workers"), ({"workers": True}, "workers"), ({"roster": {}}, "submissions")]
)
def test_wrong_arguments_are_named(change, word, small, tmp_path):
    with pytest.raises(ValueError, match=word):
        batch.grade(tmp_path, small, tmp_path / "output", **change)
    assert not (tmp_path / "output").exists()


def test_without_a_sandbox_nothing_is_graded(graded, small, tmp_path, monkeypatch):
    monkeypatch.setattr("assignments.grader.sandbox.shutil.which", lambda name: None)
    with pytest.raises(InfrastructureError, match="bubblewrap"):
        grade(graded[0], small, tmp_path / "output")
    assert not (tmp_path / "output").exists()


def test_a_reference_that_fails_stops_everything(graded, small, box, tmp_path):
    """The instructor's notebook with a wrong answer, as if the sandbox had made it wrong."""
    home = tmp_path / "course"
    shutil.copytree(small.folder, home / "small")
    notebook = notebooks.read(small.notebook)
    notebook["cells"] = hostile.Workshop(small, tmp_path).wrong()["cells"]
    for one in notebook["cells"]:
        if notebooks.role(one).get("solution") and one["cell_type"] == "code":
            one["source"] = f"### BEGIN SOLUTION\n{notebooks.text_of(one)}\n### END SOLUTION"
    notebooks.write(notebook, home / "small" / "small.ipynb")
    with pytest.raises(batch.CanaryError, match="instructor's notebook gets 0 of 30 points for q1"):
        grade(graded[0], questions.load("small", home), tmp_path / "output")
    assert not (tmp_path / "output").exists()


@pytest.mark.slow
def test_a_stub_with_points_stops_everything(graded, small, box, tmp_path):
    home = tmp_path / "course"
    shutil.copytree(small.folder, home / "small")
    notebook = notebooks.read(small.notebook)
    for one in notebook["cells"]:
        if notebooks.role(one).get("grade_id") == "q1":
            one["source"] = (
                notebooks.text_of(one)
                .replace("### BEGIN SOLUTION", "")
                .replace("### END SOLUTION", "### BEGIN SOLUTION\n    ### END SOLUTION")
            )
    notebooks.write(notebook, home / "small" / "small.ipynb")
    with pytest.raises(batch.CanaryError, match="the stub gets 30 of 30 points"):
        grade(graded[0], questions.load("small", home), tmp_path / "output")


# --- failures of our own


def failing_start(monkeypatch, fails):
    """Sandboxes do not start while ``fails`` says so."""
    start = Sandbox.start

    def maybe(self, limits):
        if fails():
            raise InfrastructureError("no more control groups")
        return start(self, limits)

    monkeypatch.setattr(Sandbox, "start", maybe)


@pytest.mark.slow
def test_a_sandbox_that_does_not_start_is_no_grade_and_is_tried_again(graded, small, tmp_path, monkeypatch):
    folder, output = tmp_path / "submissions", tmp_path / "output"
    for name in ("correct", "wrong file name"):
        shutil.copytree(graded[0] / name, folder / name)
    broken = [False]
    canary = batch.canary
    monkeypatch.setattr(batch, "canary", lambda course: (canary(course), broken.__setitem__(0, True)))
    failing_start(monkeypatch, lambda: broken[0])
    found = grade(folder, small, output)
    assert [result.status for result in found] == ["infrastructure error"] * 2
    assert [result.points for result in found] == [None, None] and ",80," not in csv_of(output)
    monkeypatch.setattr(batch, "canary", canary)
    broken[0] = False
    assert [result.points for result in grade(folder, small, output)] == [80, 80]
    # and a result that is still right outlives a later failure
    before = csv_of(output)
    monkeypatch.setattr(batch, "canary", lambda course: (canary(course), broken.__setitem__(0, True)))
    found = grade(folder, small, output, regrade=True)
    assert [result.status for result in found] == ["infrastructure error"] * 2 and csv_of(output) == before


def test_one_failure_at_the_start_is_tried_once_more(graded, small, tmp_path, monkeypatch):
    shutil.copytree(graded[0] / "correct", tmp_path / "submissions" / "correct")
    monkeypatch.setattr(batch, "canary", lambda course: None)
    monkeypatch.setattr(batch.inside, "keep_out", lambda box, paths: None)
    failures = [True]
    failing_start(monkeypatch, lambda: bool(failures and failures.pop()))
    (result,) = grade(tmp_path / "submissions", small, tmp_path / "output")
    assert result.status == "graded" and result.points == 80


def test_a_full_disk_is_no_grade_and_damages_nothing(graded, small, tmp_path, monkeypatch):
    folder, output = tmp_path / "submissions", tmp_path / "output"
    shutil.copytree(graded[0], folder, symlinks=True)
    shutil.copytree(graded[1], output)
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    shutil.copy(folder / "correct" / "small.ipynb", folder / "stub" / "small.ipynb")

    def full(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(results.os, "fsync", full)
    monkeypatch.setattr(batch.reports, "write_all", lambda *arguments: None)
    found = {result.student: result for result in grade(folder, small, output)}
    assert found["stub"].status == "infrastructure error" and "No space" in found["stub"].note
    assert found["correct"].kept and found["correct"].points == 80
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == before


DISK_FULL = """
import resource, sys
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
import hostile
from assignments.grader import batch, questions
small = questions.load("small", hostile.HOME)
canary = batch.canary
def then_full(course):
    canary(course)
    Path({output!r}).mkdir(exist_ok=True)
    batch.write_settings(Path({output!r}), {{"assignment": "small", "seed": 20}})
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
batch.canary = then_full
try:
    found = batch.grade({folder!r}, small, {output!r}, seed=20, progress=False)
except OSError as error:
    print("tables:", type(error).__name__)
"""


@pytest.mark.slow
def test_a_file_system_that_takes_no_more_bytes(graded, small, tmp_path):
    """In a process of its own, where no file may get longer than 300 bytes."""
    names = {
        "root": str(ROOT),
        "tests": str(Path(hostile.__file__).parent),
        "folder": str(graded[0]),
        "output": str(tmp_path / "output"),
    }
    done = subprocess.run(
        [sys.executable, "-c", DISK_FULL.format(**names)], capture_output=True, text=True, check=True, timeout=300
    )
    assert "tables: OSError" in done.stdout
    left = [path for path in (tmp_path / "output").rglob("*") if path.is_file()]
    for path in left:
        whole = path.suffix != ".json" or path.name == "settings.json" or results.load(path) is not None
        assert whole and path.suffix != ".part", path
    assert not any(result.status in results.WITH_GRADE for result in results.load_all(tmp_path / "output"))
    found = {result.student: result for result in grade(graded[0], small, tmp_path / "output", roster={"zoe": {}})}
    assert found["correct"].points == 80 and csv_of(tmp_path / "output") == csv_of(graded[1])


def test_two_graders_do_not_share_a_folder(graded, small, monkeypatch):
    def second(course):
        with pytest.raises(InfrastructureError, match="another grader is at work"):
            with batch.lock(graded[1]):
                pass
        return real(*arguments)

    real, arguments = batch.run_batch, []

    def first(*given):
        arguments[:] = given
        return second(given[0])

    monkeypatch.setattr(batch, "run_batch", first)
    assert grade(graded[0], small, graded[1])


def test_one_student_is_graded_and_all_others_stay(graded, small, tmp_path):
    output = tmp_path / "output"
    for name in ("correct", "stub"):
        (result,) = grade(graded[0], small, output, only=name)
        assert (output / "feedback" / f"{name}.html").is_file() and result.student == name
    other = {result.student: result for result in graded[2]}
    assert result.questions == other["stub"].questions and result.key == other["stub"].key
    assert [line.split(",")[:3:2] for line in csv_of(output).splitlines()[1:]] == [
        ["correct", "graded"],
        ["stub", "graded"],
    ]
    with pytest.raises(ValueError, match="student: got 'nobody'"):
        grade(graded[0], small, output, only="nobody")


DEADLY = """
import os, signal, sys
sys.path[:0] = [ROOT, ROOT + "/tests/assignments"]
import hostile
from assignments.grader import batch, questions
real = batch.result_of

def result_of(course, submission, data):
    if submission.student == "stub":
        os.kill(os.getpid(), signal.SIGKILL)
    return real(course, submission, data)

batch.result_of = result_of
small = questions.load("small", hostile.HOME)
for result in batch.grade(FOLDER, small, OUTPUT, workers=1, seed=20, progress=False):
    print(result.student, result.status, result.kept, sep=",")
"""


def test_what_killed_the_grader_is_set_aside(small, box, tmp_path):
    """A batch that a submission can kill dies once; then the others are graded, again and again."""
    folder, output = tmp_path / "submissions", tmp_path / "output"
    hostile.build(folder, hostile.Workshop(small, tmp_path), some("correct", "stub", "wrong file name"))
    program = DEADLY
    for name, value in (("ROOT", ROOT), ("FOLDER", folder), ("OUTPUT", output)):
        program = program.replace(name, repr(str(value)))

    def run():
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)

    assert run().returncode == -signal.SIGKILL and [path.name for path in (output / "begun").iterdir()] == ["stub"]
    for kept in (False, True):
        done = run()
        rows = [line.split(",") for line in done.stdout.splitlines()]
        assert done.returncode == 0 and rows[0] == ["correct", "graded", "True"], done.stderr
        assert rows[1] == ["stub", "infrastructure error", "False"] and rows[2] == [
            "wrong file name",
            "graded",
            str(kept),
        ]
    assert "stub" not in csv_of(output)  # nothing is kept of it, and it is no zero
    found = {result.student: result for result in grade(folder, small, output)}  # without the murder
    assert found["stub"].status == "graded" and not list((output / "begun").iterdir())


def test_jobs_that_start_together_agree_on_a_seed(tmp_path):
    seeds = [batch.write_settings(tmp_path, {"assignment": "small", "seed": number})["seed"] for number in range(5)]
    assert seeds == [0] * 5 and [path.name for path in tmp_path.iterdir()] == ["settings.json"]


def test_damaged_settings_are_an_error(tmp_path):
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(ValueError, match="output: .* is damaged"):
        batch.read_settings(tmp_path)


def test_the_commands(graded, tmp_path, capsys):
    folder, output = str(graded[0]), str(graded[1])
    assert main(["grade", folder, "small", "--output", output, "--workers", "1"], hostile.HOME) == 0
    said = capsys.readouterr()
    assert "graded" in said.out and "kept" in said.out and "grades.csv" in said.out
    assert main(["grade", folder, "nothing"], hostile.HOME) == 2
    assert "assignment: got 'nothing'" in capsys.readouterr().err
    assert main(["report", "small", "--output", str(tmp_path)], hostile.HOME) == 2
    said = capsys.readouterr().err
    assert "nothing was graded yet" in said and "make grade SUBMISSIONS=folder ASSIGNMENT=small" in said
    assert main(["check", "small", "--seeds", "1"], hostile.HOME) == 0


def test_the_sandbox_command_starts_one(box, tmp_path, monkeypatch, capsys):
    assert main(["sandbox"], hostile.HOME) == 0
    assert "was started this way, and answered" in capsys.readouterr().out
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert main(["sandbox"], hostile.HOME) == 2
    said = capsys.readouterr()
    assert "the sandbox did not start" in said.err and "uid map: Permission denied" in said.err and not said.out


# --- interruptions


def start_grader(folder, output):
    # a job in the background of a shell starts with Ctrl-C ignored: the one here must hear it
    code = f"import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.path[:0] = [{str(ROOT)!r}]; from pathlib import Path; from assignments.grader.__main__ import main;"
    code += f"sys.exit(main(['grade', {str(folder)!r}, 'small', '--output', {str(output)!r}, '--seed', '20'], Path({str(hostile.HOME)!r})))"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_killed_at_ten_random_points_the_table_is_the_same(small, box, tmp_path):
    folder = tmp_path / "submissions"
    chosen = some(
        "correct",
        "correct in another form",
        "known mistakes",
        "stub",
        "os._exit(0)",
        "empty file",
        "wrong file name",
        "deleted cell",
        "NaN",
        "pipe",
        "edited checks",
        "text",
    )
    hostile.build(folder, hostile.Workshop(small, tmp_path), chosen)
    began = time.monotonic()
    grade(folder, small, tmp_path / "undisturbed")
    whole = time.monotonic() - began
    output, rng = tmp_path / "disturbed", random.Random(0)
    for _ in range(10):
        process = start_grader(folder, output)
        try:
            process.communicate(timeout=rng.uniform(0.1, 0.9) * whole)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        for path in (output / "results").glob("*.json"):
            assert results.load(path) is not None, path
    grade(folder, small, output)
    assert csv_of(output) == csv_of(tmp_path / "undisturbed")
    assert not list(output.rglob("*.part")) or all(path.name.startswith(".") for path in output.rglob("*.part"))


@pytest.mark.slow
def test_an_interrupt_keeps_what_is_done_and_grades_nobody_wrongly(small, box, tmp_path):
    folder, output = tmp_path / "submissions", tmp_path / "output"
    hostile.build(
        folder,
        hostile.Workshop(small, tmp_path),
        some(
            "correct",
            "correct in another form",
            "wrong file name",
            "deleted setup",
            "all metadata lost",
            "every cell twice",
        ),
    )
    process = start_grader(folder, output)
    until = time.monotonic() + 120
    while not list((output / "results").glob("*.json")) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and b"Interrupted" in said
    assert all(result.points == 80 for result in results.load_all(output)) and results.load_all(output)
    assert [result.points for result in grade(folder, small, output)] == [80] * 6
