"""Tests of ``handback``: each page goes to its own student, under the name by which the course system finds the student."""

from __future__ import annotations

import csv
import re
import stat
import zipfile

import hostile
import pytest

from assignments.grader import collecting, overrides, results
from assignments.grader.__main__ import main
from assignments.grader.outcomes import PartResult, QuestionResult
from assignments.grader.results import Result

PAPER = b'{"cells": []}'
CANVAS = {
    "doejane_LATE_12345_6789012_small-1.ipynb": "12345",
    "muellerjorg_88_903_link_1_2.ipynb": "88",
    "anon_Ab1cD_905_01_small.ipynb": "Ab1cD",
    "anon_Zz9_LATE_906_small.ipynb": "Zz9",
    "group1_leebo_77_901_small.ipynb": "77",
}
MOODLE = {
    "Jane Doe_1234567_assignsubmission_file/small.ipynb": "1234567",
    "Jörg 'X' Müller_88_assignsubmission_file_/work/99_1_assignsubmission_file_small.ipynb": "88",
    "=Bo Lee_77_assignsubmission_file_small.ipynb": "77",
    "course/Kim_66_assignsubmission_file/small.ipynb": "66",
}


def run(*arguments):
    return main([str(argument) for argument in arguments], hostile.HOME)


def canvas_finds(name):
    """Whom Canvas takes the file for: of the pieces between underscores the first two that are numbers, but for hidden names."""
    pieces = [piece for piece in name.split("_") if piece != "LATE"]
    if pieces[0] == "anon":
        return pieces[1], pieces[2]
    return tuple([piece for piece in pieces if piece.isdecimal()][:2])


def moodle_finds(name):
    """Whom Moodle takes the file for: name, number, kind and name of a plugin, and the rest is the file."""
    _, number, kind, plugin, file = name.split("_", 4)
    assert (kind, plugin, file) == ("assignsubmission", "file", "small_feedback.html")
    return number


def result(small, student, number=0, written=False):
    """A grade; the note names the student."""
    parts = [
        QuestionResult(
            one.name, one.title, number, one.points, "returned", [PartResult("all", number, one.points, 0, 1)]
        )
        for one in small.questions
    ]
    return Result(student, results.GRADED, "key", parts, note=f"note {number} of {student}", written=written)


@pytest.fixture
def output(small, tmp_path):
    """A folder of results, in which everybody has a grade of their own."""
    folder = tmp_path / "grades"
    (folder / "results").mkdir(parents=True)
    (folder / "settings.json").write_text('{"assignment": "small", "seed": 1}')
    students = {*CANVAS.values(), *MOODLE.values(), "../up", "no page"}
    for number, student in enumerate(sorted(students)):
        results.store(folder, result(small, student, number))
    results.store(folder, Result("bad", results.UNREADABLE, "key", note="The file is empty."))
    return folder


def collected(system, names, folder):
    source = folder / "source.zip"
    with zipfile.ZipFile(source, "w") as archive:
        for name in names:
            archive.writestr(name, PAPER)
    assert run("collect", system, source, "small", folder / "submitted") == 0
    return folder / "submitted.collected.csv"


def pages(target):
    with zipfile.ZipFile(target) as archive:
        assert {info.external_attr >> 16 for info in archive.infolist()} == {stat.S_IFREG | 0o600}
        return {name: archive.read(name).decode() for name in archive.namelist()}


def owner_of(page):
    """The one student of whom something stands on a page."""
    (name,) = re.findall(r"feedback for ([^<]*)</p>", page)
    assert re.findall(r"note \d+ of ([^<]*?)</p>", page) == [name]
    return name


@pytest.mark.parametrize(
    ("system", "names", "finds"), [("canvas", CANVAS, canvas_finds), ("moodle", MOODLE, moodle_finds)]
)
def test_every_page_goes_to_its_own_student(system, names, finds, output, tmp_path, capsys):
    table = collected(system, names, tmp_path)
    capsys.readouterr()
    assert run("handback", system, "small", tmp_path / "back.zip", "--collected", table, "--output", output) == 0
    found = pages(tmp_path / "back.zip")
    assert stat.S_IMODE((tmp_path / "back.zip").stat().st_mode) == 0o600
    assert sorted(map(owner_of, found.values())) == sorted(names.values())
    for name, page in found.items():
        number = finds(name)
        assert (number if system == "moodle" else number[0]) == owner_of(page)
    said = capsys.readouterr()
    assert f"{len(names)} pages" in said.out
    assert "Without a page (no grade): 1 student, bad." in said.err and f"(no name of {system} in " in said.err


def test_canvas_gets_the_numbers_of_the_files_that_it_packed(output, tmp_path):
    table = collected("canvas", CANVAS, tmp_path)
    run("handback", "canvas", "small", tmp_path / "back.zip", "--collected", table, "--output", output)
    assert sorted(pages(tmp_path / "back.zip")) == [
        "anon_Ab1cD_905_small_feedback.html",
        "anon_Zz9_LATE_906_small_feedback.html",
        "doejane_LATE_12345_6789012_small_feedback.html",
        "group1_leebo_77_901_small_feedback.html",
        "muellerjorg_88_903_small_feedback.html",
    ]


def test_names_of_a_list_of_the_course_find_the_way_back(output, tmp_path, small):
    (tmp_path / "course.csv").write_text("student,id\njane,12345\n")
    results.store(output, result(small, "jane"))
    with zipfile.ZipFile(tmp_path / "source.zip", "w") as archive:
        archive.writestr("doejane_12345_6789012_small.ipynb", PAPER)
    run(
        "collect",
        "canvas",
        tmp_path / "source.zip",
        "small",
        tmp_path / "submitted",
        "--roster",
        tmp_path / "course.csv",
    )
    assert (
        run(
            "handback",
            "canvas",
            "small",
            tmp_path / "back.zip",
            "--collected",
            tmp_path / "submitted.collected.csv",
            "--output",
            output,
        )
        == 0
    )
    (page,) = pages(tmp_path / "back.zip").items()
    assert page[0].startswith("doejane_12345_6789012_") and owner_of(page[1]) == "jane"


def test_pages_are_those_of_now(output, tmp_path, small):
    """What was decided since the last report is on them."""
    overrides.add(output, small, ["77"], "77", "q1", "1.5", "a note of today")
    run("handback", "folder", "small", tmp_path / "back", "--output", output)
    assert "a note of today" in (tmp_path / "back" / "77" / "small_feedback.html").read_text("utf-8")


def test_a_folder_for_each_student_that_nobody_else_can_read(output, tmp_path):
    assert run("handback", "folder", "small", tmp_path / "back", "--output", output) == 0
    found = {path.parent.name: path for path in tmp_path.glob("back/*/*")}
    assert all(collecting.folder_name(owner_of(path.read_text("utf-8"))) == name for name, path in found.items())
    assert len(found) == len({*CANVAS.values(), *MOODLE.values()}) + 2 and "bad" not in found and ".._up" in found
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "back").rglob("*")} == {0o600, 0o700}
    assert stat.S_IMODE((tmp_path / "back").stat().st_mode) == 0o700 and not (tmp_path / "up").exists()


def test_answers_in_words_that_wait_are_said(output, tmp_path, capsys, small):
    results.store(output, result(small, "77", written=True))
    assert run("handback", "folder", "small", tmp_path / "back", "--output", output) == 0
    assert "1 of the pages say that the written answer is graded later." in capsys.readouterr().err


def test_nothing_to_hand_back_is_an_error(output, tmp_path, capsys):
    for path in (output / "results").iterdir():
        if not path.name.startswith("bad"):
            path.unlink()
    assert run("handback", "folder", "small", tmp_path / "back", "--output", output) == 2
    assert (
        "there is no page to hand back. Without a page (no grade): 1 student, bad." in capsys.readouterr().err
        and not (tmp_path / "back").exists()
    )


@pytest.mark.parametrize(
    ("system", "target", "rows", "message"),
    [
        (
            "canvas",
            "back",
            [["student", "file"], ["77", "leebo_77_901_small.ipynb"]],
            "expected a file whose name ends in .zip",
        ),
        ("canvas", "there.zip", [["student", "file"], ["77", "leebo_77_901_small.ipynb"]], "is already there"),
        ("folder", "there.zip", [], "is already there"),
        ("canvas", "back.zip", None, "collected: missing"),
        ("canvas", "back.zip", [["name", "what"], ["77", "x"]], "collected: table.csv: there is no column 'student'"),
        ("canvas", "back.zip", [], "collected: table.csv: there is no column 'student'"),
        ("moodle", "back.zip", [["student", "file"], ["77", "leebo_77_901_small.ipynb"]], "as moodle makes it"),
        (
            "canvas",
            "back.zip",
            [["student", "file"], ["77", "a_77_1_b.ipynb"], ["88", "a_77_1_c.ipynb"]],
            "the same name there: '77', '88'",
        ),
    ],
)
def test_what_cannot_be_handed_back_is_refused(system, target, rows, message, output, tmp_path, capsys):
    (tmp_path / "there.zip").write_text("mine")
    more = []
    if rows is not None:
        with (tmp_path / "table.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        more = ["--collected", tmp_path / "table.csv"]
    assert run("handback", system, "small", tmp_path / target, *more, "--output", output) == 2
    assert (
        message in capsys.readouterr().err
        and (tmp_path / "there.zip").read_text() == "mine"
        and not (tmp_path / "back.zip").exists()
    )
