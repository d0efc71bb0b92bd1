"""Tests of ``assignments.grader``: pages, tables, overrides and exports, from results without a sandbox."""

import csv
import io
import json
import subprocess
import sys

import hostile
import pytest

from assignments.grader import checking, exporting, overrides, reports, results, tables
from assignments.grader.__main__ import main
from assignments.grader.preparing import prepare
from assignments.grader.results import Result

NASTY = "=cmd|' /C calc'!A0 <script>alert(1)</script>"


@pytest.fixture
def output(small, tmp_path):
    """Results of every status."""
    full, wrong = (
        [checking.mark_solution(prepare(question, 1), pick(question)) for question in small.questions]
        for pick in (lambda q: q.reference, lambda q: q.mistakes[0].solution)
    )
    for result in (
        Result("ann", results.GRADED, "key", full, written=True, seconds=1.0),
        Result("bob", results.GRADED, "key", wrong),
        Result("dan", results.TIMEOUT, "key", wrong),
        Result("eve", results.CRASHED, "key", full),
        Result("kim", results.UNREADABLE, "key", note="The file is empty."),
        Result("lee", results.NOT_SUBMITTED, "key"),
        Result("max", results.INFRASTRUCTURE_ERROR, note="OSError: /secret/path"),
        Result(NASTY, results.GRADED, "key", full),
    ):
        results.store(tmp_path, result)
    (tmp_path / "settings.json").write_text('{"assignment": "small", "seed": 1}')
    (tmp_path / "roster.json").write_text(
        json.dumps({"ann": {"name": "A., Ann", "email": "a@x.org", "id": "17", "section": "S1"}, "zoe": {}})
    )
    return tmp_path


def rows(text):
    return {row["student"]: row for row in csv.DictReader(io.StringIO(text))}


def everybody(output, small):
    return reports.grades(output, small)


def page(output, student):
    return (output / "feedback" / f"{results.file_name(student)}.html").read_text("utf-8")


def test_results_come_back_from_their_files(output, small):
    (ann,) = [result for result in results.load_all(output) if result.student == "ann"]
    assert ann.points == 80 and ann.questions[0].parts[0].name == "random rewards" and ann.seconds == 1.0
    (output / "results" / "ann.json").write_text('{"student": "ann"')
    assert results.load(output / "results" / "ann.json") is None


def test_the_table(output, small):
    found = rows(reports.grades_csv(small, everybody(output, small)))
    assert found["ann"]["score"] == "80" and found["ann"]["written"] == "" and found["ann"]["max"] == "100"
    assert found["bob"]["score"] == "0"
    for student in ("kim", "lee", "max", "zoe"):
        assert found[student]["score"] == found[student]["q1"] == ""
    assert found["zoe"]["status"] == "not submitted" and found["max"]["status"] == "infrastructure error"
    assert any(student.startswith("'=cmd") for student in found)


def test_every_page_is_complete_and_safe(output, small):
    reports.write_all(output, small)
    for path in (output / "feedback").glob("*.html"):
        text = path.read_text("utf-8")
        assert (
            "<script" not in text
            and "http://" not in text
            and "https://" not in text
            and "prefers-color-scheme: dark" in text
        )
    assert "&lt;script&gt;alert(1)" in page(output, NASTY)
    assert "80 of 80 points, without the written question" in page(output, "ann")
    assert "It is graded by hand later." in page(output, "ann") and "No answer was found" in page(output, "bob")
    assert "looks like the following mistake: Every reward is discounted once too often." in page(output, "bob")
    assert "No grade" in page(output, "kim") and "The file is empty." in page(output, "kim")
    assert "secret" not in page(output, "max") and "not your fault" in page(output, "max")
    assert "took too long" in page(output, "dan")


def test_who_lost_points_reads_that_the_checks_can_be_run(output, small):
    for student, grade in ((one.result.student, one) for one in reports.grades(output, small)):
        lost = grade.result.points is not None and grade.result.points < sum(
            question.max_points for question in grade.result.questions
        )
        assert (reports.CHECKS in reports.feedback_page(small, grade)) is lost, student


def test_a_share_of_a_part_is_said_in_a_sentence(output, small):
    known = results.load(results.path_of(output, "ann"))
    part = known.questions[0].parts[0]
    part.points, part.right, part.said = 7.5, 0, "3 of 4 states right: 7.5 of 20 points."
    known.questions[0].points -= 12.5
    results.store(output, known)
    reports.write_all(output, small)
    assert f"<li>“{part.name}”: {part.said}</li>" in page(output, "ann") and reports.GUESSED in page(output, "ann")
    assert rows((output / "grades.csv").read_text("utf-8"))["ann"]["q1"] == "17.5"
    assert run("override", "small", "ann", "q1", "20", "--output", output) == 0
    assert part.said not in page(output, "ann"), "the points that a person set are others"


def test_code_in_messages_is_shown_as_code():
    assert reports.message_html("`f<x>` is not defined.") == "<code>f&lt;x&gt;</code> is not defined."
    assert reports.message_html("one ` alone") == "one  alone"


def test_pages_that_did_not_change_are_not_written_again(output, small):
    reports.write_all(output, small)
    before = {path: path.stat().st_mtime_ns for path in (output / "feedback").iterdir()}
    reports.write_all(output, small)
    assert before == {path: path.stat().st_mtime_ns for path in (output / "feedback").iterdir()}


# --- overrides


def run(*arguments):
    return main([str(argument) for argument in arguments], hostile.HOME)


def test_points_of_the_written_question_count(output, small):
    assert run("override", "small", "ann", "written", 15, "--note", "Clear.", "--output", output) == 0
    found = rows((output / "grades.csv").read_text("utf-8"))["ann"]
    assert (found["written"], found["score"], found["overridden"], found["note"]) == ("15", "95", "", "Clear.")
    assert (
        "95 of 100 points" in page(output, "ann")
        and "Clear." in page(output, "ann")
        and "Graded by hand." in page(output, "ann")
    )


def test_a_question_or_the_total_can_be_set(output, small):
    assert run("override", "small", "bob", "q1", 12.5, "--note", "=late <b>", "--output", output) == 0
    assert run("override", "small", "kim", "total", 40, "--output", output) == 0
    assert run("override", "small", NASTY, "q2", 1, "--output", output) == 0
    found = rows((output / "grades.csv").read_text("utf-8"))
    assert (found["bob"]["q1"], found["bob"]["score"], found["bob"]["overridden"]) == ("12.5", "12.5", "q1")
    assert (
        found["bob"]["note"] == "'=late <b>"
        and "=late &lt;b&gt;" in page(output, "bob")
        and reports.SET in page(output, "bob")
    )
    assert (found["kim"]["status"], found["kim"]["score"]) == ("unreadable", "40")
    assert found[tables.safe_cell(NASTY)]["score"] == "51"
    assert run("override", "small", "bob", "q1", "--remove", "--output", output) == 0
    assert rows((output / "grades.csv").read_text("utf-8"))["bob"]["score"] == "0"


def test_a_page_with_an_override_reads_as_one(output, small):
    """No red "0 of 3" above points that a person has given; a bonus is at most as much again."""
    assert run("override", "small", "A., Ann", "q1", 3, "--output", output) == 0  # by the name on the list
    assert run("override", "small", "bob", "q1", 30, "--output", output) == 0
    text = page(output, "bob")
    section = text[text.index("q1:") : text.index("q2:")]
    assert "30 of 30" in section and reports.SET_ALL in section and "<table>" not in section and "wrong" not in section
    text = page(output, "ann")
    section = text[text.index("q1:") : text.index("q2:")]
    assert "feedback for A., Ann (ann)" in text and "3 of 30" in section and reports.SET in section
    assert 'class="right"' not in section and "<th>Points</th>" not in section
    assert run("override", "small", "bob", "total", 200, "--note", "twice", "--output", output) == 0
    assert run("override", "small", "bob", "total", 201, "--note", "more", "--output", output) == 2


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("nobody", "q1", "1"), "student: got 'nobody'"),
        (("ann", "q9", "1"), "question: got 'q9', expected one of q1, q2, q3, written, total"),
        (("ann", "q1", "31"), "points: got '31', expected a number from 0 to 30"),
        (("ann", "q1", "-0.5"), "points"),
        (("ann", "q1", "nan"), "points"),
        (("ann", "q1", "many"), "points"),
        (("ann", "q1"), "points: missing"),
        (("ann", "q1", "--remove"), "there is no override"),
    ],
)
def test_impossible_overrides_are_refused(arguments, word, output, small, capsys):
    arguments = [word.replace("-0.5", " -0.5") for word in arguments]
    assert run("override", "small", *arguments, "--output", output) == 2
    assert word in capsys.readouterr().err
    assert not overrides.path_of(output).exists()


def test_an_impossible_line_of_the_file_is_named(output, small):
    overrides.path_of(output).write_text("student,question,points,note\nann,q1,3,fine\nann,q1,99,\n")
    with pytest.raises(ValueError, match="overrides.csv, line 3: points: got '99'"):
        reports.grades(output, small)
    overrides.path_of(output).write_text("student,points\nann,3\n")
    with pytest.raises(ValueError, match="no column 'question'"):
        reports.grades(output, small)


def test_overrides_survive_new_results(output, small):
    assert run("override", "small", "bob", "q1", 20, "--output", output) == 0
    results.store(
        output, Result("bob", results.GRADED, "other", results.load(results.path_of(output, "ann")).questions)
    )
    reports.write_all(output, small)
    assert rows((output / "grades.csv").read_text("utf-8"))["bob"]["score"] == "70"


def test_an_override_says_the_new_total(output, small, capsys):
    assert run("override", "small", "bob", "q1", 20, "--output", output) == 0
    assert "bob: q1 20; total " in capsys.readouterr().out
    assert run("override", "small", "bob", "q1", "--remove", "--output", output) == 0
    assert "bob: q1 as graded; total " in capsys.readouterr().out


def test_the_wrong_python_is_told_which_is_right():
    from assignments.grader import questions

    code = "import runpy, sys; sys.modules['tqdm'] = None; runpy.run_module('assignments.grader', run_name='__main__')"
    ended = subprocess.run([sys.executable, "-c", code], cwd=questions.HOME.parent, capture_output=True, text=True)
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert "tqdm is not installed" in ended.stderr and ".venv/bin/python -m assignments.grader" in ended.stderr


def test_a_group_has_one_submission(output, small):
    """Who handed in nothing gets the grade of the one of the group who did, decisions and late days included."""
    group = {"group": "7"}
    known = {
        "ann": {"name": "A., Ann", **group},
        "lee": group,
        "zoe": group,
        "kit": {"group": "8"},
        "max": {},
        "eve": {},
    }
    (output / "roster.json").write_text(json.dumps(known))
    (output / "late.csv").write_text("student,days\nann,1\n")
    assert run("late", "small", "5 points a day", "--output", output) == 0
    assert run("override", "small", "ann", "written", 12, "--output", output) == 0
    assert run("override", "small", "zoe", "q1", 1, "--output", output) == 0
    found = {grade.result.student: grade for grade in everybody(output, small)}
    assert found["ann"].score == found["lee"].score == 92 - 5 > found["zoe"].score is not None
    assert found["zoe"].questions["q1"] == 1 and found["ann"].questions["q1"] == small.questions[0].points
    assert found["kit"].score is None and found["kit"].result.status == results.NOT_SUBMITTED
    assert "Handed in by A., Ann (ann) for the group." in page(output, "lee")
    assert results.load(results.path_of(output, "lee")).status == results.NOT_SUBMITTED  # what is stored stays
    (output / "roster.json").write_text(json.dumps(known | {"bob": group}))  # two of the group handed in
    assert {grade.result.student: grade.score for grade in everybody(output, small)}["lee"] is None


# --- exports

CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Assignment 1 (551),A small assignment (555),Final Score
Points Possible,,,,,10,100,(read only)
"Student, Test",9,,,S1,,,
"A., Ann",17,,ann@x.org,S1,3,1,77
"Baker, Bob",18,,bob,S1,4,,66
"Else, Somebody",99,,else,S1,5,2,55
"""
MOODLE = """Identifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,Feedback comments
Participant 17,Ann A,a@x.org,Submitted,-,100.00,Yes,
Participant 18,Bob Baker,bob,Submitted,-,100.00,Yes,
Participant 19,Nobody,n@x.org,No submission,-,100.00,Yes,
"""


def export(system, output, *more):
    """Fill in the table that the system gave."""
    table = output.parent / f"{output.name}.{system}.csv"
    if not table.exists():
        table.write_text({"canvas": CANVAS, "moodle": MOODLE}[system])
    return run("export", system, "small", "--output", output, "--worksheet", table, *more)


def test_a_total_that_was_set_replaces_the_request_to_hand_in_again(output, small):
    page = output / "feedback" / "kim.html"
    reports.write_all(output, small)
    assert "hand it in again" in page.read_text("utf-8")
    assert run("override", "small", "kim", "total", 50, "--note", "oral", "--output", output) == 0
    assert "hand it in again" not in (text := page.read_text("utf-8")) and "Your instructor set the points." in text


def grade_written(output, points=0):
    assert run("override", "small", "ann", "written", points, "--output", output) == 0


@pytest.mark.parametrize("system", ["canvas", "moodle"])
def test_a_written_answer_without_points_is_no_zero(system, output, small, capsys):
    assert export(system, output) == 2
    assert (
        "without points yet: 1 written answer (A., Ann (ann)). Enter them" in capsys.readouterr().err
        and not (output / f"{system}.csv").exists()
    )
    assert rows(reports.grades_csv(small, everybody(output, small)))["ann"]["note"] == reports.UNGRADED
    assert export(system, output, "--partial") == 0
    assert (
        "1 student without a grade" in (said := capsys.readouterr().err)
        and "Without an answer to written, which counts as 0: " in said
    )
    (line,) = [
        line for line in csv.reader(io.StringIO((output / f"{system}.csv").read_text("utf-8"))) if "17" in line
    ] or [[]]
    assert "80" not in line
    grade_written(output, 12)
    assert export(system, output) == 0
    assert "student without a grade" not in capsys.readouterr().err and ",92" in (output / f"{system}.csv").read_text(
        "utf-8"
    )
    assert run("override", "small", "ann", "written", "--remove", "--output", output) == 0
    assert run("override", "small", "ann", "total", 50, "--output", output) == 0
    assert export(system, output) == 0


def test_nobody_else_can_read_what_is_written(output, small):
    (output / "results").chmod(0o755)
    reports.write_all(output, small)
    grade_written(output)
    assert export("canvas", output) == 0
    for name in ("grades.csv", "overrides.csv", "canvas.csv", "results/ann.json", "feedback/ann.html"):
        assert (output / name).stat().st_mode & 0o777 == 0o600, name
    assert (output / "feedback").stat().st_mode & 0o777 == 0o700
    output.chmod(0o755)
    results.private_folder(output)
    results.private_folder(output / "new" / "inner")
    assert output.stat().st_mode & 0o777 == 0o750 and (output / "new" / "inner").stat().st_mode & 0o777 == 0o700


def test_the_gradebook_that_was_given_is_filled_in(output, small, tmp_path, capsys):
    """Canvas's own heading and rows come back, with the points; who has none keeps what was there."""
    grade_written(output)
    gradebook = tmp_path / "gradebook.csv"
    gradebook.write_text(CANVAS)
    assert run("export", "canvas", "small", "--output", output, "--worksheet", gradebook) == 0
    said = capsys.readouterr().err
    assert "4 students with a grade are not in gradebook.csv" in said or "3 students with a grade" in said
    made = list(csv.reader(io.StringIO((output / "canvas.csv").read_text("utf-8"))))
    names = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
    assert made[0] == [*names, "A small assignment (555)"] and made[1][-1] == "100"
    assert [(row[0], row[-1]) for row in made[2:]] == [("A., Ann", "80"), ("Baker, Bob", "0"), ("Else, Somebody", "2")]
    gradebook.write_text(CANVAS.replace("A small assignment (555)", "Homework (555)").replace(",10,100,", ",10,50,"))
    assert run("export", "canvas", "small", "--output", output, "--worksheet", gradebook) == 2
    assert "--column: 'Assignment 1 (551)', 'Homework (555)'" in capsys.readouterr().err
    column = ("--column", "Homework (555)")
    assert run("export", "canvas", "small", "--output", output, "--worksheet", gradebook, *column) == 0
    assert "Canvas has 50 points possible for 'Homework (555)', the grades 100." in capsys.readouterr().err


def test_what_two_students_are_called_finds_neither(output, small):
    (output / "roster.json").write_text(json.dumps({"ann": {"id": "17"}, "bob": {"id": "17", "email": "b@x.org"}}))
    known = exporting.known_by(output, everybody(output, small))
    assert "17" not in known and known["b@x.org"] is known["bob"] and known["ann"].result.student == "ann"


def test_the_worksheet_that_was_given_is_filled_in(output, small, tmp_path, capsys):
    grade_written(output)
    worksheet = tmp_path / "worksheet.csv"
    worksheet.write_text(MOODLE)
    assert run("export", "moodle", "small", "--output", output, "--worksheet", worksheet) == 0
    made = list(csv.DictReader(io.StringIO((output / "moodle.csv").read_text("utf-8"))))
    assert [row["Grade"] for row in made] == ["80", "0", "-"] and list(made[0]) == MOODLE.splitlines()[0].split(",")
    assert made[0]["Feedback comments"] == "graded: 80 of 100 points" and not made[2]["Feedback comments"]
    worksheet.write_text("a,b\n1,2\n")
    assert run("export", "moodle", "small", "--output", output, "--worksheet", worksheet) == 2
    assert "worksheet.csv: there is no column 'Identifier'; got 'a', 'b'" in capsys.readouterr().err
