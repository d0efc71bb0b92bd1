"""Every visible check that fails prints the student's own number, and one cell runs the checks of all questions."""

from __future__ import annotations

import ast
import contextlib
import io
import os

import numpy as np
import pytest

from assignments.grader import checking, notebooks, questions

NUMBERS = {"allclose", "isclose", "array_equal", "equal"}
# a check without a number of the student's: whether something is there, of which kind it is, or all of many draws
WITHOUT = ("is not None", "is None", " is weight", "isinstance(", "is_tensor(", "requires_grad", " in s", "_draws[0]")


def checks(name):
    """The cells of visible checks, by question."""
    cells = notebooks.read(questions.load(name).notebook)["cells"]
    named = {notebooks.role(cell).get("grade_id", ""): notebooks.text_of(cell) for cell in cells}
    return {key: text for key, text in named.items() if key.endswith("-checks")}


def assertions(text):
    return [
        (node, ast.get_source_segment(text, node.test))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Assert)
    ]


@pytest.mark.parametrize("name", questions.names())
def test_every_check_of_a_number_shows_the_students_own(name):
    silent = []
    for question, text in checks(name).items():
        for node, condition in assertions(text):
            filled = isinstance(node.msg, ast.JoinedStr) and any(
                isinstance(one, ast.FormattedValue) for one in node.msg.values
            )
            if not filled and not any(word in condition for word in WITHOUT) and "for a in drawn" not in condition:
                silent.append((question, condition))
    assert silent in ([], [("q4-checks", "min(p[0], p[2]) > 0.2")]), silent


def test_what_is_shown_is_what_the_student_has():
    """The message of a check, for a wrong answer to the first question of the second assignment."""
    cells = notebooks.read(questions.load("02_td").notebook)["cells"]
    namespace = checking.solutions(questions.load("02_td"), notebooks.read(questions.load("02_td").notebook))
    right = namespace["first_visit_values"]
    namespace["first_visit_values"] = lambda *given: (right(*given)[0] / 2, right(*given)[1])
    with pytest.raises(AssertionError, match="half of what is right.*; yours: 3.0"):
        exec(checks("02_td")["q1-checks"], namespace)
    assert cells


@pytest.mark.parametrize(
    "name", ["01_mdps", *(pytest.param(name, marks=pytest.mark.slow) for name in questions.names()[1:])]
)
def test_one_cell_runs_the_checks_of_all_questions(name, tmp_path, monkeypatch):
    """With a right notebook every line says so; with the release every question has its own line of what is wrong."""
    assignment = questions.load(name)
    notebook = notebooks.read(assignment.notebook)
    for made, ending in (
        (notebook, "all visible checks passed"),
        (notebooks.released(notebook), "NotImplementedError"),
    ):
        notebooks.write(made, tmp_path / f"{name}.ipynb")
        monkeypatch.chdir(tmp_path)
        namespace = checking.solutions(assignment, made)
        cell = next(one for one in made["cells"] if notebooks.role(one).get("grade_id") == "check-all")
        for other in made["cells"]:  # cells between the questions that checks use
            said = notebooks.role(other)
            if other["cell_type"] == "code" and said.get("locked") and not said.get("grade") and other is not cell:
                with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
                    exec(notebooks.text_of(other), namespace)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), np.errstate(all="ignore"):
            exec(notebooks.text_of(cell), namespace)
        lines = [line for line in shown.getvalue().splitlines() if line[:1] == "q" and line[2:3] == ":"]
        assert [line[:2] for line in lines] == [f"q{number}" for number in range(1, 7)], shown.getvalue()
        assert all(ending in line for line in lines), shown.getvalue()
    assert os.getcwd() == str(tmp_path)
