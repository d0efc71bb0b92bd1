"""Notebooks, names and folders of every kind, made at random: each student gets one row, and nothing is our failure.

``RLBOOK_FUZZ_EXAMPLES=100000`` makes the slow tests longer.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import functools
import io
import json
import os
import tempfile
import types
import zipfile
from collections import Counter
from pathlib import Path

import hostile
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assignments.grader import (
    batch,
    cells,
    collecting,
    explaining,
    late,
    marking,
    outcomes,
    preparing,
    questions,
    reports,
    results,
    sandbox,
    submissions,
    wire,
)
from assignments.grader.explaining import note_spoiled
from assignments.grader.marking import mark
from assignments.grader.outcomes import MISSING, RETURNED, Outcome

LONG = int(os.environ.get("RLBOOK_FUZZ_EXAMPLES", "500"))
OPTIONS = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # no disk is needed

# --- what is made

WORDS = [
    "q1",
    "q2",
    "written",
    "q1-checks",
    "setup",
    "code",
    "markdown",
    "small",
    "discounted_sum",
    "cells",
    "nbgrader",
    "\ud800",
    "a\nb",
    "\0",
    "",
]
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(WORDS))
ANY = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


SOURCES = st.sampled_from(
    [
        "",
        "x = 1",
        "def discounted_sum(rewards, gamma):\n    return 0\n",
        "%%bash\nls",
        "class RunningMean: pass",
        "(" * 50,
        "'\ud800'",
        "x = '\0'",
    ]
)
OTHERS = st.one_of(ANY, SOURCES, st.sampled_from([[], {}, [[]], {"a": []}, ["x = 1", 5], None]))
NOTEBOOK = json.loads((hostile.HOME / "small" / "small.ipynb").read_text("utf-8"))


def places(value, place=()):
    """Where something stands in a value of JSON: the keys that lead there."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return (
        [] if value is None else [one for key, item in inner for one in ((*place, key), *places(item, (*place, key)))]
    )


@st.composite
def spoiled(draw):
    """A notebook in which some things were replaced, doubled or taken away."""
    made = copy.deepcopy(NOTEBOOK)
    for _ in range(draw(st.integers(0, 6))):
        known = places(made)
        if not known:
            break
        ends = [place for place in known if place[-1] in ("cell_type", "grade_id", "source", "nbgrader", "id", "cells")]
        *outer, key = draw(st.sampled_from(draw(st.sampled_from([known, ends or known]))))
        place = made
        for one in outer:
            place = place[one]
        what = draw(st.integers(0, 4))
        if what == 0:
            del place[key]
        elif what == 1 and isinstance(place, list):
            place.append(copy.deepcopy(place[key]))
        else:
            place[key] = copy.deepcopy(draw(OTHERS))  # what is drawn is shared
    return made


NOTEBOOKS = spoiled()


def zipped(content: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("small.ipynb", content)
    return data.getvalue()


JSON = st.one_of(NOTEBOOKS, NOTEBOOKS, NOTEBOOKS, ANY).map(lambda value: json.dumps(value).encode())
MANY_FILES = st.one_of(
    JSON,
    JSON,
    JSON,
    JSON.map(zipped),
    JSON.map(lambda text: text[:-1]),
    st.binary(max_size=30),
    st.just(b"\xef\xbb\xbf{}"),
)


@st.composite
def files(draw):
    """One of them; as a function it has a short name, where Hypothesis would write all of it out."""
    return draw(MANY_FILES)


FILES = files()

STEMS = st.sampled_from(
    [
        b"ada",
        b"Ada",
        b"small",
        b"jos\xc3\xa9",
        b"jose\xcc\x81",
        b"caf\xe9",
        b"caf\xe8",
        b".ada",
        b"a b",
        b"a  b",
        b"a\tb",
        b"ada (2)",
        b"...",
        b"=1+1",
        b"-x",
        b"\xe2\x80\xae",
        b"(no name)",
        b"con",
        b"'=1",
        b"__MACOSX",
        b"._ada",
        b".ipynb_checkpoints",
        b"x" * 120,
    ]
)
NAMES = st.one_of(
    STEMS,
    STEMS,
    st.binary(min_size=1, max_size=12),
    st.text(min_size=1, max_size=6).map(lambda text: text.encode("utf-8", "replace")),
)
NAMES = NAMES.map(lambda name: name.replace(b"/", b"").replace(b"\0", b"")).filter(
    lambda name: name not in (b"", b".", b"..")
)
ENDINGS = st.sampled_from([b".ipynb", b".ipynb", b".ipynb", b".IPYNB", b".pdf", b".zip", b".ipynb.txt", b""])
FILE_NAMES = st.one_of(
    st.just(b"small.ipynb"), st.just(b"small.ipynb"), st.just(b".ipynb"), st.tuples(NAMES, ENDINGS).map(b"".join)
)
LINK, PIPE, DEEP = "link", "pipe", "deep"
LOWEST = st.dictionaries(FILE_NAMES, FILES | st.sampled_from([LINK, PIPE, DEEP]), max_size=3)
LOWER = st.dictionaries(NAMES | st.just(b"small") | FILE_NAMES, LOWEST | FILES, max_size=3)
FOLDERS = st.one_of(
    LOWEST, LOWER, st.dictionaries(NAMES | st.just(b"small") | FILE_NAMES, LOWER | LOWEST | FILES, max_size=2)
)
TREES = st.dictionaries(
    st.one_of(NAMES, NAMES, FILE_NAMES),
    st.one_of(FOLDERS, FOLDERS, FILES, st.sampled_from([LINK, PIPE, DEEP])),
    min_size=1,
    max_size=6,
)
ROSTERS = st.none() | st.lists(NAMES.map(lambda name: name.decode("utf-8", "replace")), max_size=4).map(
    lambda names: {name: {} for name in names}
)


def build(place: bytes, content) -> None:
    """Write a file, a folder, a link or a pipe; what this file system does not take is left out."""
    with contextlib.suppress(OSError):
        if isinstance(content, dict):
            os.mkdir(place)
            for name, inner in content.items():
                build(place + b"/" + name, inner)
        elif content == LINK:
            os.symlink("/dev/zero", place)
        elif content == PIPE:
            os.mkfifo(place)
        else:
            with open(place, "wb") as file:
                file.write(b'{"cells": ' + b"[" * 5000 if content == DEEP else content)


# --- what must hold


@pytest.fixture(scope="module")
def course(small):
    return batch.open_course(small, types.SimpleNamespace(unsafe=False, closed=False), 1)


def grade_without_sandbox(course, chosen):
    """All that the grader does with the cells of a notebook, but for running them."""
    wire.to_line({"cells": [*chosen.setup, *chosen.everything]})
    graded = [mark(prepared, lambda question, case: Outcome(MISSING)) for prepared in course.prepared]
    functions = [prepared.question.function for prepared in course.prepared]
    note_spoiled(graded, functions, [cells.calls(function, chosen.first, functions) for function in functions])
    return graded, results.GRADED


def grade_tree(course, tree, roster) -> None:
    """Grade a folder of submissions and hold the result against what lies in the folder."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as place, pytest.MonkeyPatch.context() as patch:
        folder, output = Path(place) / "submissions", Path(place) / "output"
        build(os.fsencode(folder), tree)
        entries = [entry for entry in os.scandir(os.fsencode(folder))]
        patch.setattr(batch, "grade_notebook", grade_without_sandbox)
        roster = batch.read_roster(roster)
        survey = submissions.survey(folder, "small", roster)
        done = batch.run_batch(course, survey.submissions, output, 1, False, False)
        assert not [result for result in done if result.status == results.INFRASTRUCTURE_ERROR], done
        output.mkdir(exist_ok=True)
        reports.write_all(output, course.assignment)

        # every folder and every notebook at the top has one row, counted from the names alone
        def is_notebook(entry):
            return entry.name.lower().endswith(b".ipynb")

        def name_of(entry, cut=0):
            return submissions.student_name(os.fsdecode(entry.name[: len(entry.name) - cut]))

        ours = [entry for entry in entries if not submissions.of_the_system(os.fsdecode(entry.name))]
        folders = Counter(
            name_of(entry) for entry in ours if not is_notebook(entry) and (entry.is_symlink() or entry.is_dir())
        )
        files = Counter(name_of(entry, 6) for entry in ours if is_notebook(entry))
        rows = sum(folders.values()) + sum(files.values()) - len(folders.keys() & files.keys())
        students = [submission.student for submission in survey.submissions]
        assert len(set(students)) == len(students) and set(folders) | set(files) | set(roster or ()) <= set(students)
        absent = set(roster or ()) - set(folders) - set(files)
        assert rows <= len(students) <= rows + len(absent)  # a name with a number may stand in the roster as well
        assert len(results.load_all(output)) == len(students)
        table = list(csv.DictReader(io.StringIO((output / "grades.csv").read_text("utf-8"))))
        assert len(table) == len({row["student"] for row in table}) == len(students)
        assert len(list((output / "feedback").glob("*.html"))) == len(students) or not students

        # and what has no row of its own is told
        told = {name for name, _ in survey.unmatched}
        lost = [
            entry
            for entry in entries
            if entry not in ours or not (is_notebook(entry) or entry.is_symlink() or entry.is_dir())
        ]
        assert {name_of(entry) for entry in lost} <= told
        for submission in survey.submissions:  # of a folder and a file of one name one is graded, the other told
            if submission.student in folders.keys() & files.keys():
                assert submission.student in told or (submission.path is not None and submission.path.parent == folder)
        assert {name for counts in (folders, files) for name, count in counts.items() if count > 1} <= told
        if roster is not None:
            assert set(students) - set(roster) <= told


def grade_data(course, data: bytes) -> None:
    """Read one file as a submission."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "grade_notebook", grade_without_sandbox)
        try:
            result = batch.result_of(course, submissions.Submission("ada", Path("ada.ipynb")), data)
        except submissions.Unreadable:
            return
        assert result.status == results.GRADED and result.points == 0 and len(result.questions) == 3


@settings(max_examples=250, **OPTIONS)
@given(data=FILES)
def test_some_notebooks(course, data):
    grade_data(course, data)


@pytest.mark.parametrize("depth", [1, 100, 900, 1000, 5000, 100_000])
def test_notebooks_nested_at_every_depth(course, depth):
    grade_data(course, b'{"cells": [' + b"[" * depth + b"]" * depth + b"]}")
    grade_data(
        course, b'{"cells": [{"cell_type": "code", "source": ' + b'{"a": ' * depth + b"1" + b"}" * depth + b"}]}"
    )


@settings(max_examples=60, **OPTIONS)
@given(tree=TREES, roster=ROSTERS)
def test_some_folders(course, tree, roster):
    grade_tree(course, tree, roster)


@pytest.mark.slow
@settings(max_examples=4 * LONG, **OPTIONS)
@given(data=FILES)
def test_many_notebooks(course, data):
    grade_data(course, data)


@pytest.mark.slow
@settings(max_examples=LONG, **OPTIONS)
@given(tree=TREES, roster=ROSTERS)
def test_many_folders(course, tree, roster):
    grade_tree(course, tree, roster)


@settings(max_examples=100, **OPTIONS)
@given(
    text=st.one_of(
        st.binary(max_size=60),
        st.text(alphabet='studen,"\n \t\ra\0', max_size=40).map(lambda text: b"student," + text.encode()),
    )
)
def test_some_rosters(text):
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        path = Path(place) / "roster.csv"
        path.write_bytes(text)
        try:
            assert submissions.read_roster(path)
        except ValueError as error:
            assert "roster" in str(error)


@pytest.mark.slow
@settings(max_examples=10, **OPTIONS)
@given(made=st.lists(NOTEBOOKS, min_size=3, max_size=3))
def test_some_notebooks_in_the_sandbox(box, small, made):
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "canary", lambda course: None)
        for number, notebook in enumerate(made):
            hostile.write(Path(place) / "submissions" / str(number) / "small.ipynb", json.dumps(notebook).encode())
        found = batch.grade(Path(place) / "submissions", small, Path(place) / "output", progress=False)
        assert len(found) == 3 and not [
            result.note for result in found if result.status == results.INFRASTRUCTURE_ERROR
        ]


# --- what a student's function returns: a sentence of ours and never more points, whatever it is

ROUGH = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.just(10**400),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(
        [
            [],
            {},
            [[]],
            [[1], [2, 3]],
            [None, 1.0],
            ["", 1],
            [1e308] * 3,
            np.zeros((0, 3)),
            np.array(float("nan")),
            np.ones((2, 2), dtype=bool),
        ]
    ),
)
CHANGES = {
    "twice": lambda value: value * 2,
    "negated": lambda value: -value,
    "less": lambda value: value - 1,
    "shorter": lambda value: value[:-1],
    "turned": lambda value: value[::-1],
    "text": str,
    "list": lambda value: [value],
    "huge": lambda value: value * 1e300,
    "sum": np.sum,
    "table": lambda value: np.multiply.outer(value, value),
    "column": lambda value: np.reshape(value, (-1, 1)),
    "mean": np.mean,
    "float32": np.float32,
}


@functools.cache
def questions_of(name):
    """The questions of an assignment, and all sentences that may be said about each."""
    found = []
    for question in questions.load(name).questions:
        one = preparing.prepare(question, 7)
        found.append((one, {mistake.says for mistake in question.mistakes}))
    return found


@st.composite
def returned(draw, wanted):
    """Something like the right result, or nothing like it."""
    what = draw(st.integers(0, 9))
    if what == 0:
        return draw(ROUGH)
    if isinstance(wanted, dict) and what < 8:
        return {key: draw(returned(value)) for key, value in wanted.items()}
    if isinstance(wanted, list) and 0 < len(wanted) < 6 and what < 8:
        return [draw(returned(value)) for value in wanted]
    if what > 4:
        return wanted
    try:
        return CHANGES[draw(st.sampled_from(sorted(CHANGES)))](wanted)
    except Exception:
        return draw(ROUGH)


def entries_near(got, want):
    """How many entries of an array are about right; none of what is no array of this shape."""
    try:
        numbers = np.asarray(got, dtype=float)
    except (TypeError, ValueError, OverflowError):
        return 0
    return int(np.isclose(numbers, want, 1e-4, 1e-5).sum()) if numbers.shape == want.shape else 0


def mark_drawn(data, name):
    """Mark a question with what is drawn, and hold points and sentences against what they must be."""
    one, sentences = data.draw(st.sampled_from(questions_of(name)))
    given, again = [], data.draw(st.sampled_from([None, *CHANGES]))
    for want in one.wanted:
        try:  # one change in all cases, as an honest mistake is, or something else in each
            with np.errstate(all="ignore"):
                value = data.draw(returned(want)) if again is None else CHANGES[again](want)
            given.append(sandbox.outcome({"kind": RETURNED, "value": json.loads(json.dumps(wire.encode(value)))}))
        except (TypeError, ValueError, IndexError):
            given.append(Outcome(outcomes.RAISED, error="TypeError"))
    sent = iter(given)
    with np.errstate(all="ignore"):
        result = mark(one, lambda question, case: next(sent))
    for part in result.parts:
        cases = [place for place, case in enumerate(one.cases) if case.part == part.name]
        right = [marking.verdict(one.question, given[place], one.wanted[place]) is None for place in cases]
        most = 0.0  # of a part that gives shares, less than by the entries that are right
        if part.name in one.question.shares:
            near = [entries_near(given[place].value, np.asarray(one.wanted[place], dtype=float)) for place in cases]
            most = part.max_points * sum(near) / sum(np.size(one.wanted[place]) for place in cases)
        assert part.right == sum(right) and float(2 * part.points).is_integer()
        assert part.points == part.max_points if all(right) else 0 <= part.points <= min(most, part.max_points - 0.5)
    ends = (*sentences, *(outcomes.ENDINGS[kind].format(function=one.question.function) for kind in outcomes.ENDINGS))
    for message in result.messages:
        # the sentences of a comparison stand alone and are few; what explains is one of those that depend on no answer
        if message.startswith(explaining.DIAGNOSIS):
            assert message.endswith(ends), message
    assert (result.points == result.max_points) == (not result.messages)


@pytest.mark.parametrize("name", ["01_mdps"])
@settings(max_examples=25, **OPTIONS)
@given(data=st.data())
def test_some_results(name, data):
    mark_drawn(data, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", questions.names())
@settings(max_examples=LONG // 20, **OPTIONS)
@given(data=st.data())
def test_many_results(name, data):
    mark_drawn(data, name)


# --- archives of course systems: every file is one student's or told, and nothing is written elsewhere

PEOPLE = st.sampled_from(
    ["ada", "eve", "anon", "Jo O'Neil", "..", "=1", "a_1_2", "", "\u202eeve", "x" * 300, "con", ".ipynb"]
)
NUMBERS = st.sampled_from(["7", "42", "042", "9" * 31, "LATE", "Ab1"])
ANY_FILE = st.sampled_from(
    [
        "small.ipynb",
        "small-1.ipynb",
        "x_42_1_small.ipynb",
        "Ada_42_assignsubmission_file_small.ipynb",
        "notes.pdf",
        "",
        "../small.ipynb",
        "a\nb.ipynb",
    ]
)
PIECES = {
    "canvas": st.builds("{}{}_{}_{}_{}".format, PEOPLE, st.sampled_from(["", "_LATE"]), NUMBERS, NUMBERS, ANY_FILE),
    "moodle": st.builds(
        "{}_{}_assignsubmission_{}{}{}".format,
        PEOPLE,
        NUMBERS,
        st.sampled_from(["file", "onlinetext"]),
        st.sampled_from(["_", "/", "_/", "_/a/"]),
        ANY_FILE,
    ),
    "folder": st.builds("{}/{}".format, PEOPLE, ANY_FILE),
}
SOMEWHERE = st.text(max_size=12) | st.sampled_from(
    ["/etc/passwd", "C:\\small.ipynb", "a/../../b_1_2_small.ipynb", "small.ipynb"]
)


def collect_drawn(data, system):
    drawn = data.draw(st.lists(PIECES[system] | PIECES[system] | SOMEWHERE, min_size=1, max_size=6))
    names = dict.fromkeys(zipfile.ZipInfo(name).filename or "?" for name in drawn)
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        source, output = Path(place) / "source.zip", Path(place) / "in" / "out"
        with zipfile.ZipFile(source, "w") as archive:
            for number, name in enumerate(names):
                info = zipfile.ZipInfo(name)
                info.compress_type = data.draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
                info.external_attr = data.draw(st.sampled_from([0, 0o100644, 0o120777, 0o010644, 0o040755])) << 16
                archive.writestr(info, b"%d" % number)
        content = bytearray(source.read_bytes())
        spoils = data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=3))
        for at, byte in spoils:
            content[at] = byte
        source.write_bytes(content)
        before = set(Path(place).rglob("*"))
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(collecting.results.os, "fsync", lambda number: None)
                done = collecting.collect(system, source, "small", output)
        except ValueError as error:
            assert str(error).startswith("source: ") and spoils
            return
        tables = {output.with_name(f"out.{name}.csv") for name in ("collected", "unmatched")}
        made = set(Path(place).rglob("*")) - before - {output.parent, output} - tables
        folders = {path for path in made if path.is_dir()}
        assert {path.parent for path in folders} <= {output} and {path.name for path in made - folders} <= {
            "small.ipynb",
            "no_notebook.txt",
        }
        assert {row[0] for row in done.rows} == {path.name for path in folders} and len(done.rows) == len(folders)
        with zipfile.ZipFile(source) as archive:
            files = [
                one.filename
                for one in archive.infolist()
                if not one.filename.endswith("/") and not any(map(submissions.of_the_system, one.filename.split("/")))
            ]
        told = {path for path, _ in done.unmatched}
        whose = {
            collecting.understood(system, collecting.Piece(name, None, open)) is not None
            for name in files
            if name not in told
        }
        assert whose <= {True}
        assert len(submissions.survey(output, "small").submissions) == len(done.rows)


@pytest.mark.parametrize("system", PIECES)
@settings(max_examples=50, **OPTIONS)
@given(data=st.data())
def test_some_archives(system, data):
    collect_drawn(data, system)


@pytest.mark.slow
@pytest.mark.parametrize("system", PIECES)
@settings(max_examples=LONG // 2, **OPTIONS)
@given(data=st.data())
def test_many_archives(system, data):
    collect_drawn(data, system)


# --- files beside the results: tables of days, and what is kept of the right results

CELLS = st.sampled_from(
    ["student", "days", ",", "\n", "\r", '"', "ada", "eve", "3", "?", "-1", "1001", "\u0663", "'=1", "\0", " "]
)


@settings(max_examples=150, **OPTIONS)
@given(
    text=st.binary(max_size=40)
    | st.lists(CELLS, max_size=14).map(lambda cells: ("student,days\n" + "".join(cells)).encode())
    | st.just(b'student,days\n"' + b"x" * 140_000)
)
def test_some_tables_of_days(text):
    """Days from 0 to the largest number for names as they stand everywhere, or an error that names the table."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        path = Path(place) / late.LATE
        path.write_bytes(text)
        try:
            found = late.read(path)
        except ValueError as error:
            assert str(error).startswith(late.LATE), error
            return
        assert all(
            name == submissions.student_name(name) and (days is None or 0 <= days <= late.MAX_DAYS)
            for name, days in found.items()
        )
