"""Every visible check that fails prints the student's own number, and one cell runs the checks of all questions."""

from __future__ import annotations

import ast
import contextlib
import io
import os

import numpy as np
import pytest

from assignments.grader import checking, notebooks, questions


def checks(name):
    """The cells of visible checks, by question."""
    cells = notebooks.read(questions.load(name).notebook)["cells"]
    named = {notebooks.role(cell).get("grade_id", ""): notebooks.text_of(cell) for cell in cells}
    return {key: text for key, text in named.items() if key.endswith("-checks")}


@pytest.mark.parametrize("name", questions.names())
def test_every_check_shows_the_students_own_and_asks_one_thing(name):
    """Of "A and B" a message would show the one that holds."""
    silent, double = [], []
    for question, text in checks(name).items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Assert):
                filled = isinstance(node.msg, ast.JoinedStr) and any(
                    isinstance(one, ast.FormattedValue) for one in node.msg.values
                )
                condition = (question, ast.unparse(node.test))
                silent += [] if filled else [condition]
                joined = isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And)
                double += [condition] if joined else []
    assert (silent, double) == ([], [])


@pytest.mark.parametrize(
    "name", ["01_mdps", *(pytest.param(name, marks=pytest.mark.slow) for name in questions.names()[1:])]
)
def test_no_known_mistake_passes_the_visible_checks_and_every_right_answer_does(name):
    """A parameter that is only 1/2, 1 or 0, or rows that are all alike, would let wrong formulas pass."""
    assignment = questions.load(name)
    notebook = notebooks.read(assignment.notebook)
    solved = checking.solutions(assignment, notebook)
    assert not list(checking.visible_faults(assignment, notebook, solved))


def test_checks_that_cannot_tell_a_mistake_are_named(small):
    """The checks of one question, replaced by ones that let everything through, or nothing."""
    notebook = notebooks.read(small.notebook)
    solved = checking.solutions(small, notebook)
    cell = next(one for one in notebook["cells"] if notebooks.role(one).get("grade_id") == "q1-checks")
    cell["source"] = "print('fine')"
    found = list(checking.visible_faults(small, notebook, solved))
    assert len(found) == len(small.questions[0].mistakes) and "mistake 1 (" in found[0]
    cell["source"] = "assert False, 'no'"
    found = list(checking.visible_faults(small, notebook, solved))
    assert len(found) == 1 + len(small.questions[0].alternatives) and "refuse right solution 0" in found[0]


def test_a_renamed_notebook_is_told_where_to_put_its_name(tmp_path, monkeypatch):
    """One sentence, and what it asks for works."""
    made = notebooks.read(questions.load("02_td").notebook)
    text = next(notebooks.text_of(one) for one in made["cells"] if notebooks.role(one).get("grade_id") == "check-all")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="there is no 02_td.ipynb in .* `notebook = "):
        exec(text, {})
    notebooks.write(made, tmp_path / "02_td (1).ipynb")
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(text, {"notebook": "02_td (1).ipynb"})
    assert shown.getvalue().count("NameError") == 6  # no answer was run: each question has its line


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
        (notebooks.released(notebook), "nothing is written yet"),
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
