"""Tests of ``assignments.grader.submissions``: what is found, and what is never opened."""

import json
import os

import hostile
import pytest
from conftest import some

from assignments.grader import cells, notebooks, results, submissions
from assignments.grader.submissions import Unreadable

PAPER = json.dumps({"cells": []}).encode()


def found(folder, roster=None):
    return {one.student: one for one in submissions.find(folder, "small", roster)}


def test_all_layouts_are_found(tmp_path):
    for path in (
        "a/small.ipynb",
        "b/small/any.ipynb",
        "c/other.ipynb",
        "d.ipynb",
        "e/small.ipynb",
        "e/draft.ipynb",
        "f/small/small.ipynb",
        "f/small/x.ipynb",
    ):
        hostile.write(tmp_path / path, PAPER)
    (tmp_path / "g").mkdir()
    (tmp_path / "roster.csv").write_text("student\na\n")
    (tmp_path / ".hidden").mkdir()
    one = found(tmp_path)
    assert list(one) == [".hidden", "a", "b", "c", "d", "e", "f", "g"]
    assert [one[name].path.relative_to(tmp_path).as_posix() for name in "abcdef"] == [
        "a/small.ipynb",
        "b/small/any.ipynb",
        "c/other.ipynb",
        "d.ipynb",
        "e/small.ipynb",
        "f/small/small.ipynb",
    ]
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


@pytest.mark.parametrize("path", ["eve/small.ipynb", "eve/small/x.ipynb", "eve/own/x.ipynb", "eve/own/more/x.ipynb"])
def test_a_folder_that_becomes_a_link_after_the_survey_is_not_followed(tmp_path, path):
    names = path.split("/")
    for place in range(1, len(names)):
        home = tmp_path / str(place)
        hostile.write(home / "submissions" / path, PAPER)
        hostile.write(home / "other" / "/".join(names[place:]), b"of somebody else")
        one = found(home / "submissions")["eve"]
        assert one.read() == PAPER
        folder = home / "submissions" / "/".join(names[:place])
        folder.rename(home / "old")
        folder.symlink_to(home / "other")
        with pytest.raises(Unreadable):
            one.read()


def test_what_is_not_a_file_is_never_opened(tmp_path, shop, monkeypatch):
    bad = some(
        "link to another file",
        "linked student folder",
        "link loop",
        "link to an endless device",
        "pipe",
        "folder named like a notebook",
        "huge notebook",
    )
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


@pytest.mark.parametrize(
    "name",
    [
        "empty file",
        "not JSON",
        "JSON without cells",
        "JSON list",
        "old notebook format",
        "deep nesting",
        "numbers without end",
        "zip bomb",
    ],
)
def test_what_is_not_a_notebook_is_unreadable(name, shop):
    (bad,) = some(name)
    with pytest.raises(Unreadable):
        submissions.parse(bad.make(shop))


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="submissions: .*nothing' is not a folder"):
        submissions.find(tmp_path / "nothing", "small")


@pytest.mark.parametrize(
    "text, said", [("Student;Name\na;b\n", "expected commas"), ("Name,email\na,b\n", "none named 'student'")]
)
def test_a_table_without_the_column_student_is_no_list_of_names(text, said, tmp_path):
    (tmp_path / "roster.csv").write_text(text)
    with pytest.raises(ValueError, match=said):
        submissions.read_roster(tmp_path / "roster.csv")


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
    names = [
        "ann",
        "Ann",
        "ANN",
        "a b",
        "a_b",
        "../../etc/passwd",
        "=1+1",
        "x" * 300,
        "x" * 301,
        "学生",
        "",
        ".",
        "con",
        "<b>",
        "a\nb",
    ]
    made = [results.file_name(name) for name in names]
    assert made[0] == "ann" and len({name.lower() for name in made}) == len(names)
    assert all(len(name) < 70 and "/" not in name and not name.startswith(".") for name in made)
    assert results.file_name(made[3]) != made[3]  # nobody can be named like another one's file


def make(folder, *paths):
    for path in paths:
        place = os.fsencode(folder) + b"/" + path
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(PAPER)


def test_names_that_are_not_text_stay_two(tmp_path):
    try:
        make(tmp_path, b"caf\xe9/small.ipynb", b"caf\xe8/small.ipynb")
    except OSError:
        pytest.skip("this file system takes text only")
    make(tmp_path, b"a/small.ipynb", b"caf\\xe9/small.ipynb")
    assert list(found(tmp_path)) == ["a", "caf\\xe8", "caf\\xe9", "caf\\xe9 (2)"]


def test_accents_are_written_in_one_way(tmp_path):
    """As a name comes from macOS, and as it stands in the list of the course."""
    joined, apart = "Jos\u00e9", "Jose\u0301"
    make(tmp_path, f"{apart}/small.ipynb".encode())
    survey = submissions.survey(tmp_path, "small", {joined: {}})
    assert [one.student for one in survey.submissions] == [joined] and not survey.unmatched
    path = tmp_path / "roster.txt"
    path.write_text(apart + "\n", "utf-8")
    assert submissions.read_roster(path) == {joined: {}}
    make(tmp_path, f"{joined}/small.ipynb".encode())
    survey = submissions.survey(tmp_path, "small", {joined: {}})
    assert [(one.student, one.path.parent.name) for one in survey.submissions if one.path] == [
        (joined, joined),
        (f"{joined} (2)", apart),
    ]
    assert [name for name, _ in survey.unmatched] == [joined, f"{joined} (2)", "roster.txt"]


def test_nobody_vanishes(tmp_path):
    """Names that begin with a dot, a notebook in a subfolder, a second file, something that is no notebook."""
    make(
        tmp_path,
        b".ada/small.ipynb",
        b"ben/work/day 2/any.ipynb",
        b"cyn/small.ipynb",
        b"cyn.ipynb",
        b"dan/answer.pdf",
        b"eve.pdf",
        b".ipynb",
    )
    make(
        tmp_path,
        b"fay/small.ipynb",
        b"fay/small (1).ipynb",
        b"gus/a/small.ipynb",
        b"gus/b/small.ipynb",
        b"hal/SMALL.IPYNB",
        b"__MACOSX/x/small.ipynb",
    )
    survey = submissions.survey(tmp_path, "small")
    one = {submission.student: submission for submission in survey.submissions}
    assert list(one) == ["(no name)", ".ada", "ben", "cyn", "dan", "fay", "gus", "hal"]
    assert all(one[name].path and not one[name].problem for name in (".ada", "ben", "cyn", "fay", "hal", "(no name)"))
    assert (
        "in a folder of its own" in one["ben"].remark
        and one["cyn"].path.parent.name == "cyn"
        and one["fay"].path.name == "small.ipynb"
    )
    assert "no notebook" in one["dan"].problem and "several" in one["gus"].problem
    assert {name for name, _ in survey.unmatched} == {"cyn", "eve.pdf", "fay", "__MACOSX"}


def test_a_folder_without_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(submissions, "MAX_FILES", 20)
    for number in range(30):
        make(tmp_path, b"a/%d/x.txt" % number)
    assert "more than 20 files" in found(tmp_path)["a"].problem

    def refuse(path):
        raise PermissionError

    monkeypatch.setattr(submissions, "listed", refuse)
    assert "cannot be read" in found(tmp_path)["a"].problem


@pytest.mark.parametrize("name", ["a\tb", "a\u202eb", "a\x00b", "\udce9", "\u200c", "", " "])
def test_names_can_be_seen(name):
    made = submissions.student_name(name)
    assert made and made.encode("utf-8") and all(one.isprintable() or one in submissions.JOINERS for one in made)
    assert submissions.student_name(made) == made


def test_an_answer_that_was_written_into_a_cell_of_checks_counts(small):
    """The copy of the checks is never run; what a student has defined there in their place is an answer."""
    notebook = notebooks.read(small.notebook)
    release = cells.given(small, notebook)
    text = f"def {small.questions[0].function}(rewards, gamma):\n    return 7"
    for one in notebook["cells"]:
        if notebooks.role(one).get("grade_id") == "q1-checks":
            one["source"] = text
    assert text in cells.choose(notebook, release).first
    for one in notebook["cells"]:
        if notebooks.role(one).get("grade_id") == "q1-checks":
            one["source"] = "assert True  # another check"
    assert "assert True  # another check" not in cells.choose(notebook, release).first


def test_a_name_that_only_looks_like_another_is_told(tmp_path):
    """Ada with a Cyrillic A beside Ada; whole names in one alphabet are as good as others."""
    for name in ("Ada", "\u0410da", "\u0410\u0434\u0430", "\u0391\u03bd\u03bd\u03b1", "Jos\u00e9 1"):
        (tmp_path / name).mkdir()
    assert submissions.survey(tmp_path, "small").unmatched == [("\u0410da", submissions.MIXED)]
