"""Tests of late work: the policy, the tables, and where the deduction shows; and of a total above the maximum."""

import csv
import io
import json
from datetime import datetime

import hostile
import pytest

from assignments.grader import batch, checking, late, overrides, reports, results
from assignments.grader.__main__ import main
from assignments.grader.preparing import prepare
from assignments.grader.results import Result


@pytest.fixture
def output(small, tmp_path):
    """Two with 80 points and one without a grade."""
    full = [checking.mark_solution(prepare(question, 1), question.reference) for question in small.questions]
    for student in ("ann", "bob", "cyn"):
        results.store(tmp_path, Result(student, results.GRADED, "key", full))
    results.store(tmp_path, Result("kim", results.UNREADABLE, "key"))
    (tmp_path / "settings.json").write_text('{"assignment": "small", "seed": 1}')
    return tmp_path


def run(*arguments):
    return main([str(argument) for argument in arguments], hostile.HOME)


def rows(output):
    return {row["student"]: row for row in csv.DictReader(io.StringIO((output / "grades.csv").read_text("utf-8")))}


def page(output, student):
    return (output / "feedback" / f"{student}.html").read_text("utf-8")


def days(output, text, name=late.LATE):
    (output / name).write_text("student,days\n" + text)


@pytest.mark.parametrize(
    ("text", "day", "points", "cost"),
    [
        ("10% a day, at most 50%", 2, 100, 20),
        ("10% a day, at most 50%", 9, 100, 50),
        ("10% a day", 3, 50, 15),
        ("10% a day", 30, 50, 50),
        ("2 points a day", 3, 50, 6),
        ("2 points a day", 60, 200, 120),  # the most is the assignment, not 100 points
        ("2 points a day", 200, 200, 200),
        ("10% a day", 30, 50, 50),
        ("2.5 Points  per day, at most 5 points", 3, 100, 5),
        ("1 point a day at most 10%", 30, 50, 5),
    ],
)
def test_policies(text, day, points, cost):
    policy = late.parse(text)
    assert policy.cost(day, points) == pytest.approx(cost) and late.parse(policy.text) == policy


@pytest.mark.parametrize(
    "text", ["", "10%", "10 a day", "-1% a day", "10% a week", "10% a day, at least 5%", "1e3% a day"]
)
def test_other_sentences_are_refused(text, output, capsys):
    assert run("late", "small", " " + text, "--output", output) == 2
    assert "policy: got" in capsys.readouterr().err and "late" not in json.loads((output / "settings.json").read_text())


def test_the_deduction_shows_everywhere(output, small, capsys):
    days(output, "ann,2\nbob,20\nkim,3\n")
    assert run("late", "small", "10% a day, at most 50%", "--output", output) == 0
    assert "10% a day, at most 50%; 3 late" in capsys.readouterr().out
    found = rows(output)
    assert [found["ann"][name] for name in ("before", "late", "score", "max", "note")] == [
        "80",
        "20",
        "60",
        "100",
        "2 days late: 20 points are taken off, from 80.",
    ]
    assert [found["bob"][name] for name in ("before", "late", "score")] == ["80", "50", "30"]
    assert [found["cyn"][name] for name in ("before", "late", "score", "note")] == ["", "", "80", ""]
    assert found["kim"]["score"] == found["kim"]["note"] == ""
    assert "60 of 80 points" in page(output, "ann") and "2 days late: 20 points are taken off, from 80." in page(
        output, "ann"
    )
    assert "late" not in page(output, "cyn")
    (output / "gradebook.csv").write_text("Student,ID,A small assignment (5)\nAnn,ann,\n")
    (output / "worksheet.csv").write_text("Identifier,Full name,Grade,Feedback comments\nParticipant 1,ann,-,\n")
    for system, table in (("canvas", "gradebook"), ("moodle", "worksheet")):
        assert run("export", system, "small", "--output", output, "--worksheet", output / f"{table}.csv") == 0
    (*_, line) = csv.reader(io.StringIO((output / "canvas.csv").read_text("utf-8")))
    assert line == ["Ann", "ann", "60"]
    (*_, line) = csv.reader(io.StringIO((output / "moodle.csv").read_text("utf-8")))
    assert line[2:] == ["60", "graded: 60 of 100 points (2 days late: 20 points are taken off, from 80.)"]
    assert run("late", "small", "100 points a day", "--output", output) == 0
    assert rows(output)["ann"]["score"] == "0" and rows(output)["ann"]["late"] == "80"
    assert run("late", "small", "none", "--output", output) == 0
    assert rows(output)["ann"]["score"] == "80" and rows(output)["ann"]["note"] == "2 days late: nothing is taken off."


def test_written_points_and_a_total_of_a_person(output):
    days(output, "ann,1\nbob,1\n")
    assert run("late", "small", "10% a day", "--output", output) == 0
    assert (
        run("override", "small", "ann", "written", 15, "--output", output)
        == run("override", "small", "bob", "total", 70, "--output", output)
        == 0
    )
    found = rows(output)
    assert (found["ann"]["before"], found["ann"]["score"]) == ("95", "85") and "85 of 100 points" in page(output, "ann")
    assert (found["bob"]["late"], found["bob"]["score"]) == ("", "70")


def test_extensions_and_days_that_nobody_knows(output, capsys):
    days(output, "ann,3\nbob,1\ncyn,?\n")
    days(output, "ann,1\nbob,2\nnobody,4\n", late.EXTENSIONS)
    assert run("late", "small", "5 points a day", "--output", output) == 0
    found = rows(output)
    assert (found["ann"]["score"], found["bob"]["score"], found["bob"]["before"]) == ("70", "80", "")
    assert found["cyn"]["note"] == reports.UNKNOWN_DAYS and found["cyn"]["score"] == "80"
    capsys.readouterr()
    assert run("report", "small", "--output", output) == 0
    assert "'nobody': Stands in extensions.csv, but has no result." in capsys.readouterr().err
    (output / "gradebook.csv").write_text("Student,ID,A small assignment (5)\nAnn,ann,\n")
    assert run("export", "canvas", "small", "--output", output, "--worksheet", output / "gradebook.csv") == 0
    assert "1 late students lose nothing" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["ann,", "ann,-1", "ann,two", "ann,1.5", "ann,9999", ",1", "ann"])
def test_impossible_lines_are_named(line, output, capsys):
    days(output, f"bob,1\n{line}\n")
    assert run("report", "small", "--output", output) == 2
    assert "late.csv, line 3" in capsys.readouterr().err
    (output / late.LATE).write_text("name,days\n")
    assert run("report", "small", "--output", output) == 2
    assert "late.csv: there is no column 'student'; got 'name', 'days'" in capsys.readouterr().err
    (output / late.LATE).write_text("student;days\nann;1\n")  # as spreadsheets of some languages save it
    assert run("report", "small", "--output", output) == 2
    assert "got 'student;days', expected commas between" in capsys.readouterr().err
    days(output, "")
    days(output, "ann,?\n", late.EXTENSIONS)
    assert run("report", "small", "--output", output) == 2


def test_grading_again_keeps_it(output, small):
    """New results, and the settings read as a batch reads them."""
    days(output, "ann,1\n")
    assert run("late", "small", "10% a day", "--output", output) == 0
    assert (
        batch.read_settings(output)
        == {"assignment": "small", "seed": 1}
        == batch.write_settings(output, {"assignment": "small", "seed": 2})
    )
    again = results.load(results.path_of(output, "bob"))
    again.student = "ann"
    results.store(output, again)
    reports.write_all(output, small)
    assert "70 of 80 points" in page(output, "ann")
    reports.write_all(output, small, [("x", "y")])
    assert rows(output)["ann"]["score"] == "70" and late.policy_of(output).text == "10% a day"


def test_what_is_collected_updates_the_table(output):
    seen = {"ann": 2, "bob": None, "cyn": 0, "=eve": 1}
    assert late.update(output, seen) == ["=eve: 1 day late.", "ann: 2 days late.", "bob: late, nobody knows how much."]
    assert (output / late.LATE).read_text() == "student,days\n'=eve,1\nann,2\nbob,?\n"
    before = (output / late.LATE).stat().st_mtime_ns
    assert late.update(output, seen) == [] and (output / late.LATE).stat().st_mtime_ns == before
    days(output, "ann,2\nbob,3\nzoe,1\n")  # by hand
    assert late.update(output, {"ann": 0, "bob": None}) == ["ann: in time; before, 2 days late."]
    assert late.read(output / late.LATE) == {"bob": 3, "zoe": 1}


def test_days_and_dates():
    due = late.read_due("2026-10-01")
    assert [
        late.days_late(datetime(2026, 10, *when), due) for when in ((1, 23, 59), (2, 0, 0), (2, 23, 59), (3, 1, 0))
    ] == [0, 1, 1, 2]
    assert (
        late.read_due("2026-10-01 18:00") == datetime(2026, 10, 1, 18)
        and late.read_due("2026-10-01T18:00+00:00").tzinfo is None
    )


def test_a_total_above_the_maximum_needs_a_note(output, small, capsys):
    assert run("override", "small", "ann", "total", 105, "--output", output) == 2
    assert "note: missing; 105 points are more than the 100" in capsys.readouterr().err
    assert run("override", "small", "ann", "total", 950, "--note", "x", "--output", output) == 2
    assert "a number from 0 to 200" in capsys.readouterr().err
    assert run("override", "small", "ann", "q1", 31, "--note", "x", "--output", output) == 2
    assert run("override", "small", "ann", "total", 105, "--note", "Found an error.", "--output", output) == 0
    assert rows(output)["ann"]["score"] == "105" and rows(output)["ann"]["note"] == "Above the maximum. Found an error."
    assert "105 of 100 points (set by your instructor)" in page(output, "ann")
    assert overrides.read(output, small, ["ann"])["ann", "total"].points == 105
