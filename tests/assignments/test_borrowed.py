"""Tests of ``assignments.grader.borrowed``: calls of the library for the very task are told, and nothing else is."""

import json
import time

import pytest

from assignments.grader import batch, borrowed, cells, notebooks, questions
from assignments.grader.questions import as_solution


RELEASE = ["from rlbook_lib import returns as book_returns\nfrom rlbook_lib.mdp import MDP\nimport rlbook_lib"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(x):\n    return book_returns.gae(x)", ["gae"]),
        (
            "def f(x):\n    from rlbook_lib.returns import (\n        gae as g,  # mine\n        discounted_returns,\n    )\n    return g(x)",
            ["gae"],
        ),
        ("import rlbook_lib.returns as r\nf = r . gae", ["gae"]),
        ("import rlbook_lib.returns\nf = rlbook_lib.returns.gae", ["gae"]),
        ("from rlbook_lib.returns import *\nf = gae", ["gae"]),
        ("from rlbook_lib.returns import gae", []),
        ("def gae(x):\n    return x\nf = gae", []),
        ("def f(x):\n    return x.index(3), F.huber_loss(x), mine.gae(x)", []),
        ("f = MDP", ["MDP"]),
    ],
)
def test_uses_are_found_by_name(text, names):
    assert borrowed.borrowed([text], [], RELEASE) == names
    assert borrowed.borrowed([text], [text], RELEASE) == []


@pytest.mark.parametrize(
    "line",
    [
        "from rlbook_lib import (\n",
        "from rlbook_lib import (#",
        "from rlbook_lib import *\n",
        "import rlbook_lib.",
        "a . ",
        "from rlbook_lib ",
        "\u0315\u0300" * 60,  # accents, which to put in order takes time as the square of their number
    ],
)
def test_a_long_text_takes_no_time_from_others(line):
    """No other student's answer is read meanwhile: this search cannot be interrupted. Four times the text, about four times the time."""

    def spent(lines):
        began = time.thread_time()
        borrowed.borrowed([line * lines], [], RELEASE)
        return time.thread_time() - began

    assert spent(16_000) < 8 * max(spent(4_000), spent(4_000)) + 0.1


def told(name):
    """For each known solution of an assignment what is told about it, and whether its text speaks of the library."""
    assignment = questions.load(name)
    notebook = notebooks.read(assignment.notebook)
    given = cells.given(assignment, notebook)
    released = [
        notebooks.text_of(cell) for cell in notebooks.released(notebook)["cells"] if cell["cell_type"] == "code"
    ]
    own = cells.choose(notebook, given).first
    assert borrowed.borrowed(own, own, released) == []
    for question in assignment.questions:
        for solution in (*question.alternatives, *(mistake.solution for mistake in question.mistakes)):
            text = as_solution(question, solution)
            yield (
                borrowed.borrowed([text], own, released),
                any(word in text for word in ("rlbook_lib", *borrowed.imports([*released]))),
            )


@pytest.mark.parametrize("name", questions.names())
def test_no_answer_without_the_library_is_blamed(name):
    assert not [names for names, speaks in told(name) if names and not speaks]


def test_the_note_says_so(small, shop, monkeypatch):
    monkeypatch.setattr(batch, "grade_notebook", lambda course, chosen: ([], "graded"))
    course = batch.Course(small, None, cells.given(small, shop.notebook), [], "", (), ())
    submission = batch.Submission("ada", small.notebook, remark="A remark.")
    made = shop.first("from rlbook_lib.returns import discounted_returns as FUNCTION\nFUNCTION = FUNCTION")
    note = batch.result_of(course, submission, json.dumps(made).encode()).note
    assert note.startswith("A remark. The answers use of rlbook_lib") and "discounted_returns" in note
    assert batch.result_of(course, submission, json.dumps(shop.solved()).encode()).note == "A remark."


@pytest.mark.parametrize(
    "text",
    [
        "from rlbook_lib.dynamic_programming import \uff56alue_iteration as v",
        "from rlbook_lib \\\n import value_iteration as v",
    ],
)
def test_names_are_read_as_python_reads_them(text):
    """Letters of full width are the same name, and a backslash ends no line."""
    assert borrowed.borrowed([f"{text}\ndef f(): return v(1)"], [], RELEASE) == ["value_iteration"]
    assert cells.defined("def \uff46(): pass", ("f",)) == {"f"}
