"""Tests of what a teacher asks of a whole class: statistics, one question graded anew, a term with a late budget."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from dataclasses import replace

import hostile
import pytest
from conftest import some

from assignments.grader import batch, checking, class_page, late, questions, reports, results, term
from assignments.grader.__main__ import main
from assignments.grader.explaining import DIAGNOSIS
from assignments.grader.preparing import prepare
from assignments.grader.results import Result

WRONG = hostile.student_of(*some("known mistakes"))


def run(*arguments):
    return main([str(argument) for argument in arguments], hostile.HOME)


def rows(path):
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))


@pytest.fixture
def output(small, tmp_path):
    """Three students: all right, and twice the first known mistake of each question; one handed in nothing."""
    full, wrong = (
        [checking.mark_solution(prepare(question, 1), pick(question)) for question in small.questions]
        for pick in (lambda q: q.reference, lambda q: q.mistakes[0].solution)
    )
    folder = tmp_path / "grades" / "small"
    for student, marks in (("17", full), ("18", wrong), ("19", wrong)):
        results.store(folder, Result(student, results.GRADED, "key", marks))
    results.store(folder, Result("20", results.NOT_SUBMITTED, "key"))
    (folder / "settings.json").write_text('{"assignment": "small", "seed": 1}')
    (folder / "roster.json").write_text(json.dumps({"17": {"name": "Ann <A>"}, "18": {}, "19": {}, "20": {}}))
    return folder


def test_statistics_say_what_the_class_could_do(output, small, capsys):
    assert run("statistics", "small", "--output", output) == 0
    page, found = (output / "statistics.html").read_text("utf-8"), rows(output / "statistics.csv")
    right = [row for row in found if row["kind"] == "right"]
    assert {row["of"] for row in found} == {"3"} and {row["question"] for row in right} == {"q1", "q2", "q3"}
    everything = [(question.name, part) for question in small.questions for part in question.parts]
    assert [(row["question"], row["what"]) for row in right] == everything
    assert min(int(row["students"]) for row in right) == 1
    known = DIAGNOSIS + small.questions[0].mistakes[0].says
    assert [row["students"] for row in found if row["kind"] == "mistake" and row["what"] == known] == ["2"]
    assert "1 of 3" in page and "33%" in page and '<li class="often">2 of 3: ' in page and "<script" not in page
    assert "4 students, 3 with points, the median is 0 of 100" in page
    full = results.load(results.path_of(output, "17")).questions
    share = dataclasses.replace(full[0].parts[0], points=7.5, right=0, said="3 of 4 states right: 7.5 of 20 points.")
    some = [dataclasses.replace(full[0], parts=[share, *full[0].parts[1:]], points=17.5), *full[1:]]
    results.store(output, Result("19", results.GRADED, "key", some))
    assert run("statistics", "small", "--output", output) == 0
    assert "1 of 3, 1 partly" in (output / "statistics.html").read_text("utf-8")
    (partly,) = [row for row in rows(output / "statistics.csv") if row["kind"] == "partly"]
    assert (partly["what"], partly["students"], partly["of"]) == (share.name, "1", "3")
    results.store(output, Result("19", results.GRADED, "key", results.load(results.path_of(output, "18")).questions))
    results.store(output, Result("20", results.GRADED, "key", full))
    assert run("statistics", "small", "--output", output) == 0  # half of the class is often
    assert '<li class="often">2 of 4: ' in (output / "statistics.html").read_text("utf-8")


def test_nobody_makes_statistics_of_nobody(small, tmp_path):
    grades = [reports.combine(small, Result("a", results.UNREADABLE), {})]
    page = class_page.write(tmp_path, small, grades).read_text("utf-8")
    assert "1 students, 0 with points of 100" in page and "0 of 0" in page


@pytest.fixture
def course(output, small, tmp_path):
    """Two assignments, the second one a copy."""
    home = tmp_path / "home"
    for name in ("small", "tiny"):
        (home / name).mkdir(parents=True)
        text = (small.folder / "hidden_tests.py").read_text("utf-8")
        (home / name / "hidden_tests.py").write_text(text)
    other = output.parent / "tiny"
    results.store(other, replace(results.load(results.path_of(output, "17")), student="17"))
    (other / "settings.json").write_text('{"assignment": "tiny", "seed": 1, "late": "10% a day"}')
    (output / "late.csv").write_text("student,days\n17,2\n18,?\n")
    (other / "late.csv").write_text("student,days\n17,3\n")
    return home


def test_a_term_on_one_table(output, course, tmp_path, capsys):
    path, count, twice = term.write(output.parent, course)
    assert twice == []
    table = {row["student"]: row for row in rows(path)}
    assert (
        count == 4 and table["17"]["name"] == "Ann <A>" and (table["17"]["small"], table["17"]["tiny"]) == ("80", "50")
    )
    assert (table["17"]["sum"], table["17"]["of"], table["17"]["share"]) == ("130", "200", "65.0%")
    assert (table["17"]["small days late"], table["17"]["tiny days late"], table["18"]["small days late"]) == (
        "2",
        "3",
        "?",
    )
    assert table["20"]["small"] == "" and table["20"]["share"] == "0.0%"
    (output / "roster.json").write_text(json.dumps({"17": {"name": "Ann <A>"}, "18": {"name": "Ann <A>"}}))
    assert main(["term", "--grades", str(output.parent)], course) == 0
    assert "1 name under several numbers, each a row of its own: Ann <A>. " in capsys.readouterr().err
    with pytest.raises(ValueError, match="no assignment was graded"):
        term.write(tmp_path / "nothing", course)


@pytest.mark.parametrize(
    ("budget", "first", "second"), [(0, 2, 3), (1, 1, 3), (2, 0, 3), (4, 0, 1), (5, 0, 0), (9, 0, 0)]
)
def test_late_days_of_a_term_are_forgiven_in_order(budget, first, second, output, course):
    """Two days in the first assignment, three in the second: what the first uses up is gone."""
    assert main(["term", "--grades", str(output.parent), "--late-days", str(budget)], course) == 0
    assert late.counted(output).get("17", 0) == first and late.counted(output.parent / "tiny").get("17", 0) == second
    assert late.counted(output)["18"] is None  # nobody knows by how much
    table = rows(output.parent / "tiny" / "grades.csv")
    assert [row["score"] for row in table if row["student"] == "17"] == [f"{80 - 10 * second}"]


def test_an_impossible_budget_is_named(output, course, capsys):
    assert main(["term", "--grades", str(output.parent), "--late-days", "-1"], course) == 2
    assert "late-days: got -1" in capsys.readouterr().err
    (output.parent / late.BUDGET).write_text("{")
    with pytest.raises(ValueError, match=r"late_budget.json' is damaged"):
        late.counted(output)


def test_one_question_is_graded_anew(small, box, tmp_path, monkeypatch, capsys):
    """First it is shown who gains and who loses; then it is written; all other questions keep their points."""
    folder, output = tmp_path / "submissions", tmp_path / "output"
    hostile.build(folder, hostile.Workshop(small, tmp_path), some("correct", "known mistakes", "stub", "empty file"))
    batch.grade(folder, small, output, seed=hostile.SEED, progress=False)
    before = {one.student: one for one in results.load_all(output)}
    first, *others = small.questions
    assert before[WRONG].questions[0].points == 0
    mended = replace(small, questions=(replace(first, compare=lambda got, want: None), *others))
    monkeypatch.setattr(questions, "load", lambda name, home=None: mended)
    monkeypatch.setattr(batch, "key_of", lambda *given: "another key")
    arguments = ("regrade", folder, "small", first.name, "--output", output)
    assert run(*arguments) == 0
    said = capsys.readouterr().out
    assert f"{WRONG}: 0 -> {first.points:g}" in said and f"{first.name}: 1 gain, 0 lose, 2 stay, 0 left out." in said
    assert "Nothing is written yet" in said and {one.student: one for one in results.load_all(output)} == before
    assert run(*arguments, "--write") == 0 and "Written." in capsys.readouterr().out
    after = {one.student: one for one in results.load_all(output)}
    assert after[WRONG].questions[0].points == first.points
    assert after[WRONG].questions[1:] == before[WRONG].questions[1:]
    again = batch.grade(folder, mended, output, progress=False)
    assert {one.student for one in again if one.kept} >= {"correct", WRONG, "stub"}
    (folder / "stub" / "small.ipynb").write_bytes((folder / "correct" / "small.ipynb").read_bytes())
    assert run(*arguments) == 1 and "stub: another notebook than the one that was graded" in capsys.readouterr().out
    assert run("regrade", folder, "small", "q9", "--output", output) == 2
