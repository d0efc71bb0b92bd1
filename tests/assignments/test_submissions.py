"""Tests of ``assignments.grader.submissions``: what is found, and what is never opened."""

import json
import os

import hostile
import pytest
from conftest import some

from assignments.grader import results, submissions
from assignments.grader.submissions import Unreadable

PAPER = json.dumps({"cells": []}).encode()


def found(folder, roster=None):
    return {one.student: one for one in submissions.find(folder, "small", roster)}


def test_all_layouts_are_found(tmp_path):
    for path in ("a/small.ipynb", "b/small/any.ipynb", "c/other.ipynb", "d.ipynb", "e/small.ipynb", "e/draft.ipynb", "f/small/small.ipynb", "f/small/x.ipynb"):
        hostile.write(tmp_path / path, PAPER)
    (tmp_path / "g").mkdir()
    (tmp_path / "roster.csv").write_text("student\na\n")
    (tmp_path / ".hidden").mkdir()
    one = found(tmp_path)
    assert list(one) == ["a", "b", "c", "d", "e", "f", "g"]
    assert [one[name].path.relative_to(tmp_path).as_posix() for name in "abcdef"] == [
        "a/small.ipynb", "b/small/any.ipynb", "c/other.ipynb", "d.ipynb", "e/small.ipynb", "f/small/small.ipynb"
    ]  # fmt: skip
    assert not any(one[name].problem for name in "abcdefg") and one["g"].path is None
    assert [bool(one[name].remark) for name in "abcdef"] == [False, True, True, False, False, False]


def test_checkpoints_of_jupyter_are_not_submissions(tmp_path):
    hostile.write(tmp_path / "a" / "work.ipynb", PAPER)
    hostile.write(tmp_path / "a" / ".ipynb_checkpoints" / "small.ipynb", PAPER)
    assert found(tmp_path)["a"].path.name == "work.ipynb"


def test_students_of_the_roster_are_there_without_a_submission(tmp_path):
    hostile.write(tmp_path / "a" / "small.ipynb", PAPER)
    one = found(tmp_path, {"a": {}, "z": {}})
    assert one["z"].path is None and not one["z"].problem and one["a"].path is not None


def test_a_folder_and_a_file_of_the_same_student_are_one_student(tmp_path):
    hostile.write(tmp_path / "a.ipynb", PAPER)
    (tmp_path / "a").mkdir()
    assert found(tmp_path)["a"].path == tmp_path / "a.ipynb"
    hostile.write(tmp_path / "a" / "small.ipynb", PAPER)
    assert found(tmp_path)["a"].path == tmp_path / "a" / "small.ipynb"


def test_what_is_not_a_file_is_never_opened(tmp_path, shop, monkeypatch):
    bad = some("link to another file", "linked student folder", "link loop", "link to an endless device", "pipe", "folder named like a notebook", "huge notebook")
    hostile.build(tmp_path / "submissions", shop, bad)
    monkeypatch.setattr(os, "open", None)
    one = found(tmp_path / "submissions")
    assert len(one) == len(bad) and all(submission.problem for submission in one.values())


def test_a_file_that_became_something_else_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.ipynb")
    (tmp_path / "link.ipynb").symlink_to("/dev/zero")
    for name in ("pipe.ipynb", "link.ipynb", "missing.ipynb"):
        with pytest.raises(Unreadable):
            submissions.read_bytes(tmp_path / name)


@pytest.mark.parametrize("name", ["empty file", "not JSON", "JSON without cells", "JSON list", "old notebook format", "deep nesting", "numbers without end", "zip bomb"])
def test_what_is_not_a_notebook_is_unreadable(name, shop):
    (bad,) = some(name)
    with pytest.raises(Unreadable):
        submissions.parse(bad.make(shop))


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="submissions: .*nothing' is not a folder"):
        submissions.find(tmp_path / "nothing", "small")


def test_rosters(tmp_path):
    path = tmp_path / "roster.csv"
    path.write_text("\ufeffStudent,Name,email,age\nann,Ann A.,a@x.org,20\nbob,,,\n", "utf-8")
    assert submissions.read_roster(path) == {"ann": {"name": "Ann A.", "email": "a@x.org"}, "bob": {}}
    path.write_text("ann\n\nJosé O'Neil\n", "utf-8")
    assert list(submissions.read_roster(path)) == ["ann", "José O'Neil"]
    for text in ("", "ann\nann\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match="roster"):
            submissions.read_roster(path)


def test_file_names_are_safe_and_differ():
    names = ["ann", "Ann", "ANN", "a b", "a_b", "../../etc/passwd", "=1+1", "x" * 300, "x" * 301, "学生", "", ".", "con", "<b>", "a\nb"]
    made = [results.file_name(name) for name in names]
    assert made[0] == "ann" and len({name.lower() for name in made}) == len(names)
    assert all(len(name) < 70 and "/" not in name and not name.startswith(".") for name in made)
    assert results.file_name(made[3]) != made[3]  # nobody can be named like another one's file


def test_a_name_that_is_not_text_is_survived(tmp_path):
    try:
        os.mkdir(os.path.join(os.fsencode(tmp_path), b"caf\xe9"))
    except OSError:
        pytest.skip("this file system takes text only")
    hostile.write(tmp_path / "a" / "small.ipynb", PAPER)
    assert list(found(tmp_path)) == ["a", "caf?"]
