"""The page for grading written answers, in a browser: two answers are graded by keyboard only, and hostile ones stay text."""

import json
import sys
import threading
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "assignments"))

import hostile

from assignments.grader import drafts, questions, reports, results, rubric_page, submissions

NAME = "02_td"
HOSTILE = (
    "<script>document.title = 'run'</script>\n</pre><h1 id=out>out</h1><img src=x onerror=\"document.title = 'run'\">\n"
    "<style>body { display: none }</style> [a](javascript:alert(1)) ![p](http://example.org/p.png)\n"
    + "Z"
    + "\u0301" * 3000
)
TEXTS = {"ann": "The maximum never picks a fall.", "bob": "Both are on-policy.", "cyn": HOSTILE, "dan": "x" * 2_000_000}

pytestmark = pytest.mark.browser


@pytest.fixture
def served(tmp_path):
    """The page for four answers to an assignment of ours."""
    output = tmp_path / "grades"
    results.private_folder(output)
    results.write_whole(output / "settings.json", json.dumps({"assignment": NAME, "seed": 1}))
    for name, text in TEXTS.items():
        made = {"cells": [{"cell_type": "markdown", "source": text, "metadata": {"nbgrader": {"grade_id": "written"}}}]}
        hostile.write(tmp_path / "submitted" / name / f"{NAME}.ipynb", made)
        results.store(output, results.Result(name, results.GRADED, written=True))
    assignment = questions.load(NAME)
    found, _ = drafts.answers(assignment, submissions.find(tmp_path / "submitted", NAME))
    with rubric_page.Server(rubric_page.Desk(assignment, output, found)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def page(browser, served):
    """A page that keeps what it complains about and what it asks others for."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    made = context.new_page()
    made.said, made.asked = [], []
    made.on("console", lambda message: made.said.append(message.text))
    made.on("pageerror", lambda error: made.said.append(str(error)))
    made.on("request", lambda request: made.asked.append(request.url))
    made.goto(served.address)
    made.get_by_text("0 of 4 graded").wait_for()
    yield made
    context.close()
    assert not made.said
    assert all(url.startswith((served.address, "data:")) for url in made.asked)


def shown(page, text):
    page.locator("#answer").get_by_text(text).wait_for()


def saved(page, progress):
    page.locator("#progress", has_text=progress).wait_for()
    page.locator("#state", has_text="Saved").wait_for()


def test_two_answers_are_graded_by_keyboard_only(page, served):
    press = page.keyboard.press
    shown(page, TEXTS["ann"])
    for key in ("a", "ArrowDown", "2", "ArrowDown", "a", "b", ".", ".", "Enter"):
        press(key)
    page.keyboard.type("Right, and 2 < 3: u x 9.")  # in the comment, keys are letters
    saved(page, "1 of 4 graded")
    press("Escape")
    press("u")
    shown(page, TEXTS["bob"])
    assert page.input_value("#comment") == ""
    for key in ("d", "ArrowDown", "4", "1", "ArrowDown", "0", ".", "ArrowUp", "Backspace", "0"):
        press(key)
    saved(page, "2 of 4 graded")
    press("ArrowLeft")
    shown(page, TEXTS["ann"])
    assert page.input_value("#comment") == "Right, and 2 < 3: u x 9."
    press("x")
    page.locator("#state", has_text="Exported: 2 entered, 0 as before, 2 not graded yet").wait_for()
    found = {
        one.result.student: (one.written, one.notes)
        for one in reports.grades(served.desk.output, served.desk.assignment)
    }
    parts = "Part 1: the dry world: {} of 4; Part 2: the slippery world: {} of 3; Part 3: the choice: {} of 3"
    assert found["ann"] == (8, (parts.format(4, 2, 2) + ". Right, and 2 < 3: u x 9.",))
    assert found["bob"] == (1.5, (parts.format(1, 0, 0.5),))
    assert found["cyn"][0] is None and found["dan"][0] is None
    page.reload()
    shown(page, TEXTS["cyn"][:40])  # the first that is not graded
    assert page.locator("#progress").inner_text() == "2 of 4 graded"


def test_no_answer_runs_or_breaks_the_page(page):
    title = page.title()
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        for student, text in TEXTS.items():
            page.select_option("#who", index=list(TEXTS).index(student))
            shown(page, text[:40])
            assert (
                page.title() == title and page.locator("#answer *").count() == 0 and page.locator("#out").count() == 0
            )
            assert page.locator("#answer").inner_text()[:200] == text[:200]
            assert page.locator("#parts").is_visible()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (student, width)
    assert "1950000 more characters" in page.locator("#warning").inner_text()


def test_the_reference_stands_beside_the_answer(page):
    shown(page, TEXTS["ann"])
    answer, reference = page.locator("#answer").bounding_box(), page.locator("#reference").bounding_box()
    assert answer["x"] + answer["width"] < reference["x"] and abs(answer["y"] - reference["y"]) < 40
    assert "Q-learning's target is" in page.locator("#reference").inner_text()
    page.keyboard.press("r")
    assert page.locator("#question").is_visible() and not page.locator("#reference").is_visible()
    assert page.locator("#question math").count() > 3
    assert "Written question: who stumbles" in page.locator("#question").inner_text()


def test_what_cannot_be_saved_is_said_and_sent_again(page, served):
    """A keystroke while the command is away is kept in the window until it is back."""
    shown(page, TEXTS["ann"])
    page.route("**/save", lambda route: route.abort())
    page.keyboard.press("1")
    page.locator("#state.bad", has_text="NOT SAVED").wait_for()
    page.keyboard.press("3")
    page.unroute("**/save")
    page.locator("#state", has_text="Saved").wait_for()
    draft = drafts.load(served.desk.output, served.desk.ids[served.desk.order[0]])
    assert draft.points == {"Part 1: the dry world": 3}
    page.said.clear()  # the browser's word on the request that failed
