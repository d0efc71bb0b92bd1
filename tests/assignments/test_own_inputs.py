"""Tests of ``assignments.grader.own_inputs`` and of batches whose students each get their own hidden inputs."""

import dataclasses
import json
import os
import shutil

import hostile
import numpy as np
import pytest
from conftest import some

from assignments.grader import batch, checking, comparing, own_inputs, questions, results, submissions
from assignments.grader.__main__ import main
from assignments.grader.questions import HOME

SECRET = "sixteen letters and more"
WRONG = hostile.student_of(*some("known mistakes"))  # a difficult name
STUDENTS = [f"student{number}" for number in range(20)]


def seed(student, secret=SECRET, assignment="small"):
    return own_inputs.seed_of(secret, assignment, student)


def test_a_seed_is_decided_by_secret_assignment_and_name():
    assert seed("ada") == seed("ada") == 1906965502227562952
    others = [seed("ada", "another secret of 16"), seed("ada", assignment="other"), seed("Ada"), seed("ben")]
    assert len({seed("ada"), *others}) == 5 and all(0 <= one < 2**62 for one in others)


def test_a_secret_file_is_made_once_for_its_owner_only(tmp_path):
    path = tmp_path / "secret"
    first = own_inputs.read_secret(path)
    assert len(first) == 32 and own_inputs.read_secret(path) == first and path.stat().st_mode & 0o777 == 0o600
    path.write_text("short\n")
    with pytest.raises(ValueError, match="inputs-per-student: the secret in .* has 5 characters, expected at least 16"):
        own_inputs.read_secret(path)


@pytest.mark.parametrize(
    "name", ["small", "01_mdps", *(pytest.param(name, marks=pytest.mark.slow) for name in questions.names()[1:])]
)
def test_the_reference_is_right_on_the_inputs_of_twenty_students(name, small):
    """And so are the instructor's answers, which were made in another way; no two students have the same inputs."""
    assignment = small if name == "small" else questions.load(name, HOME)
    solved = checking.solutions(assignment, batch.notebooks.read(assignment.notebook))
    seen = []
    for student in STUDENTS:
        for question in assignment.questions:
            prepared = batch.prepare(dataclasses.replace(question, mistakes=()), seed(student, assignment=name))
            for result in (
                checking.mark_solution(prepared, question.reference),
                checking.mark_namespace(prepared, solved),
            ):
                assert result.points == result.max_points, (student, question.name, result.messages)
            if question is assignment.questions[0]:
                seen.append([case.arguments for case in prepared.cases])
    assert not any(comparing.same(one, other) for number, one in enumerate(seen) for other in seen[:number])


@pytest.fixture(scope="module")
def graded(small, box, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    hostile.build(folder / "submissions", hostile.Workshop(small, folder), some("correct", "known mistakes", "stub"))
    shutil.copytree(folder / "submissions" / "correct", folder / "submissions" / "again")
    drawn, prepare = [], batch.prepare
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "prepare", lambda question, seed: drawn.append(seed) or prepare(question, seed))
        found = batch.grade(
            folder / "submissions", small, folder / "output", seed=hostile.SEED, progress=False, secret=SECRET
        )
    return folder / "submissions", folder / "output", {result.student: result for result in found}, drawn


def test_everybody_is_graded_with_inputs_of_their_own(graded, small):
    _, output, found, drawn = graded
    wrong = hostile.deserved_points(small)[hostile.DESERVED]
    assert {student: result.points for student, result in found.items()} == {
        "again": 80,
        "correct": 80,
        WRONG: wrong,
        "stub": 0,
    }
    assert set(drawn) == {hostile.SEED, *map(seed, found)} and len(drawn) == 3 * 5
    path = output / "settings.json"
    assert json.loads(path.read_text())["secret"] == SECRET and path.stat().st_mode & 0o77 == 0
    mistakes = {question.name: [mistake.says for mistake in question.mistakes] for question in small.questions}
    for question in found[WRONG].questions:
        assert any(message.endswith(mistakes[question.name][0]) for message in question.messages)


def one(submissions, small, student, output, **options):
    """The result of one student, graded alone."""
    (result,) = batch.grade(submissions, small, output, only=student, progress=False, **options)
    return result


def test_the_same_inputs_again_without_saying_the_secret(graded, small, tmp_path, monkeypatch):
    submissions, output, found, _ = graded
    shutil.copytree(output, tmp_path / "output")
    kept = batch.grade(submissions, small, tmp_path / "output", progress=False)
    assert all(result.kept for result in kept)
    drawn, prepare = [], batch.prepare
    monkeypatch.setattr(batch, "prepare", lambda question, seed: drawn.append(seed) or prepare(question, seed))
    again = one(submissions, small, WRONG, tmp_path / "output", regrade=True)
    assert again.questions == found[WRONG].questions and set(drawn) == {hostile.SEED, seed(WRONG)}
    elsewhere = one(submissions, small, "stub", tmp_path / "another", secret=SECRET)
    assert elsewhere.questions == found["stub"].questions and set(drawn) >= {seed("stub")}


def test_results_of_two_kinds_do_not_share_a_folder(graded, small, tmp_path):
    with pytest.raises(ValueError, match="inputs-per-student: .* with another secret; choose another output folder"):
        batch.grade(graded[0], small, graded[1], progress=False, secret="another secret of 16")
    output = tmp_path / "output"
    results.private_folder(output)
    batch.write_settings(output, {"assignment": "small", "seed": 1})
    with pytest.raises(ValueError, match="inputs-per-student: .* with the same inputs for everybody"):
        batch.grade(graded[0], small, output, progress=False, secret=SECRET)


def test_a_reference_that_fails_on_one_students_inputs_is_no_zero(graded, small, tmp_path, monkeypatch):
    prepare = batch.prepare

    def failing(question, number):
        if number == seed("correct"):
            raise RuntimeError("question q1: the reference raised ValueError")
        return prepare(question, number)

    monkeypatch.setattr(batch, "prepare", failing)
    result = one(graded[0], small, "correct", tmp_path / "output", secret=SECRET)
    assert result.status == "infrastructure error" and result.points is None and "the reference raised" in result.note


def test_the_option_is_off_unless_said(graded, tmp_path, capsys):
    folder, output = str(graded[0]), str(tmp_path / "output")
    assert main(["grade", folder, "small", "--only", "correct", "--output", output], hostile.HOME) == 0
    assert "secret" not in json.loads((tmp_path / "output" / "settings.json").read_text())
    secret = tmp_path / "secret"
    assert main(["grade", folder, "small", "--output", output, "--inputs-per-student", str(secret)], hostile.HOME) == 2
    assert "with the same inputs for everybody" in capsys.readouterr().err and secret.exists()


def test_seeds_of_a_class_do_not_collide():
    seeds = [seed(f"student {number}") for number in range(2000)]
    assert len(set(seeds)) == len(seeds)
    assert 0.4 < np.mean([one >> 61 for one in seeds]) < 0.6


def test_a_secret_that_others_know_is_refused(tmp_path):
    """Who else is on the machine could read it, or have put it there."""
    path = tmp_path / "secret"
    path.write_text(SECRET)
    for mode in (0o644, 0o640, 0o604, 0o622):
        path.chmod(mode)
        with pytest.raises(ValueError, match="other users can read the secret in .* mode 600"):
            own_inputs.read_secret(path)
    path.chmod(0o400)
    assert own_inputs.read_secret(path) == SECRET
    path.unlink()
    os.mkfifo(path, 0o600)  # would be waited for without end
    with pytest.raises(ValueError, match="other users"):
        own_inputs.read_secret(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_secret_of_somebody_else_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    os.chown(path, 12345, 12345)
    with pytest.raises(ValueError, match="could have written it"):
        own_inputs.read_secret(path)


def test_no_name_of_a_student_gives_anothers_inputs():
    """What separates the two names cannot stand in one: a name has it written out."""
    assert submissions.student_name("b\0ada") == r"b\x00ada"
    assert seed("b ada", assignment="a") != seed("ada", assignment="a b") and seed(r"b\x00ada", assignment="a") != seed(
        "ada", assignment="a\0b"
    )
