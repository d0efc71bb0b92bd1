"""Every bad submission of :mod:`hostile`: one by one, and all in one batch together with good ones."""

from __future__ import annotations

import html
import re
import socket
import subprocess
import threading

import hostile
import numpy as np
import pytest
from conftest import ROOT

from assignments.grader import batch, results
from assignments.grader.preparing import prepare

pytestmark = pytest.mark.slow

GOOD = ("ann", "bob", "eve")


class Listener:
    """A port of this machine that nobody may reach."""

    def __init__(self):
        self.stream, self.packets = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
        self.stream.bind(("127.0.0.1", 0))
        self.port = self.stream.getsockname()[1]
        self.packets.bind(("127.0.0.1", self.port))
        self.stream.listen()
        self.reached: list[str] = []
        for one in (self.stream, self.packets):
            one.settimeout(0.2)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.listen)
        self.thread.start()

    def listen(self):
        while not self.ended.is_set():
            for name, wait in (("connection", self.stream.accept), ("packet", lambda: self.packets.recvfrom(100))):
                try:
                    wait()
                    self.reached.append(name)
                except TimeoutError:
                    pass

    def close(self):
        self.ended.set()
        self.thread.join()
        self.stream.close()
        self.packets.close()


def state_of(folder):
    """Every file below a folder with its size and time."""
    return {path: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*")}


def numbers_of(small):
    """The numbers of the hidden inputs and of the right results, as they would be printed."""
    found = set()
    for question in small.questions:
        prepared = prepare(question, hostile.SEED)
        for value in [*(case.arguments for case in prepared.cases), *prepared.wanted]:
            found |= {f"{number:.4f}"[:-1] for number in flat(value) if number != round(number)}
    return {text for text in found if len(text.lstrip("-0.")) >= 3}


def flat(value):
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in flat(item)]
    return np.asarray(value, dtype=float).ravel().tolist()


@pytest.fixture(scope="module")
def whole(small, box, tmp_path_factory):
    """All of them and three good ones, in one batch."""
    folder = tmp_path_factory.mktemp("hostile")
    outside = folder / "outside"
    outside.mkdir()
    listener = Listener()
    try:
        shop = hostile.Workshop(small, outside, listener.port)
        hostile.build(folder / "submissions", shop)
        for name in GOOD:
            hostile.write(folder / "submissions" / name / shop.name, shop.solved())
        (outside / "canary").write_text("alive")
        before = state_of(outside), state_of(folder / "submissions"), repository()
        found = batch.grade(folder / "submissions", small, folder / "output", seed=hostile.SEED, progress=False)
        after = state_of(outside), state_of(folder / "submissions"), repository()
    finally:
        listener.close()
    return folder, found, before, after, listener.reached


def repository():
    """What is tracked here and differs, and what is new: students must not change it."""
    done = subprocess.run(
        ["git", "ls-files", "-o", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return [line for line in done.stdout.splitlines() if "hostile-was" in line]


def test_there_are_enough():
    assert len(hostile.ALL) >= 40 and len({bad.name for bad in hostile.ALL}) == len(hostile.ALL)
    assert len({hostile.student_of(bad) for bad in hostile.ALL}) == len(hostile.ALL)


def test_the_batch_ends_and_each_gets_its_status_and_points(whole, small):
    by_student = {result.student: result for result in whole[1]}
    points = hostile.deserved_points(small)
    wrong = {
        bad.name: (result.status, result.points)
        for bad in hostile.ALL
        if not hostile.is_right(bad, result := by_student[hostile.student_of(bad)], points)
    }
    assert not wrong
    assert len(by_student) == len(hostile.ALL) + len(GOOD)


def test_nobody_elses_grade_changes(whole):
    assert [(result.status, result.points) for result in whole[1] if result.student in GOOD] == [("graded", 80)] * 3


def test_nothing_is_written_outside_and_no_packet_leaves(whole):
    _, _, before, after, reached = whole
    assert before == after and not reached


def test_no_input_and_no_right_result_gets_into_the_feedback(whole, small):
    numbers = numbers_of(small)
    assert len(numbers) > 50
    for path in [*(whole[0] / "output" / "feedback").glob("*.html"), whole[0] / "output" / "grades.csv"]:
        text = path.read_text("utf-8")
        body = text.split("</style>")[-1]
        assert not [number for number in numbers if number in body], path
        for marker in ("RLBOOK-", "RLBOOK_LEAK", "alert(1)", "alert(2)", "alert(3)", "Traceback", str(ROOT)):
            assert marker not in text, (marker, path)


def test_no_page_holds_a_students_html(whole):
    for path in (whole[0] / "output" / "feedback").glob("*.html"):
        text = path.read_text("utf-8")
        assert not re.search(r"<(script|img|iframe|object|link|form)\b", text), path
    page = whole[0] / "output" / "feedback" / f"{results.file_name(hostile.NAMES['HTML in everything'])}.html"
    assert html.escape("<script>alert(0)") in page.read_text("utf-8")


def test_no_cell_of_the_table_is_a_formula(whole):
    for line in (whole[0] / "output" / "grades.csv").read_text("utf-8").splitlines():
        assert line[:1] not in "=+-@" and '"=' not in line and ",=" not in line


@pytest.mark.parametrize("bad", hostile.ALL, ids=lambda bad: bad.name)
def test_alone(bad, small, box, tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "canary", lambda course: None)
    outside = tmp_path / "outside"
    outside.mkdir()
    hostile.build(tmp_path / "submissions", hostile.Workshop(small, outside), [bad])
    before = state_of(outside)
    (result,) = batch.grade(tmp_path / "submissions", small, tmp_path / "output", seed=hostile.SEED, progress=False)
    assert hostile.is_right(bad, result, hostile.deserved_points(small)), (result.status, result.points, result.note)
    assert state_of(outside) == before
