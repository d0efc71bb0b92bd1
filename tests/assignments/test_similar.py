"""Tests of the report of similar submissions: copies in disguise are found, independent solutions are not."""

import ast
import json
import time

import hostile
import pytest

from assignments.grader import notebooks, questions, similar, submissions
from assignments.grader.__main__ import main

NAMES = questions.names()


class Renamed(ast.NodeTransformer):
    """Other names for arguments and variables."""

    def __init__(self, names):
        self.names = names

    def visit_Name(self, node):
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node):
        node.arg = self.names.get(node.arg, node.arg)
        return node


def disguised(text, keep):
    """A program with every variable renamed, without its comments, with new ones and a new layout."""
    tree = ast.parse(text)
    found = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    found |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names = {name: f"my_{number}_{name[::-1]}" for number, name in enumerate(sorted(found - keep - {"self"}))}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node):
            node.body[0].value.value = "My own words."
    lines = ast.unparse(Renamed(names).visit(tree)).split("\n")
    return "\n\n".join(f"{line}  # my step {number}" if number % 3 == 0 else line for number, line in enumerate(lines))


def solutions(assignment):
    """Independent right solutions of all questions: the alternatives, which are here not among what is left out."""
    number = min(len(question.alternatives) for question in assignment.questions)
    return [
        [questions.as_solution(one, one.alternatives[index]) for one in assignment.questions] for index in range(number)
    ]


def release(assignment):
    """What students get, and the instructor's answers."""
    notebook = notebooks.read(assignment.notebook)
    both = (notebook, notebooks.released(notebook))
    return [notebooks.text_of(cell) for book in both for cell in book["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("name", NAMES)
def test_copies_in_disguise_are_found_and_independent_solutions_are_not(name):
    assignment = questions.load(name)
    honest = solutions(assignment)
    keep = {question.function for question in assignment.questions}
    copy = [disguised(text, keep) for text in honest[1]][::-1]  # reordered
    half = [*copy[:3], *honest[0][3:]] if len(copy) > 3 else copy
    students = {f"honest{number}": texts for number, texts in enumerate(honest)} | {"copy": copy, "half": half}
    works = [similar.work(student, "\n\n".join(texts)) for student, texts in students.items()]
    pairs = {(pair.first.student, pair.second.student): pair for pair in similar.compare(works, release(assignment))}
    assert min(pairs["honest1", "copy"].shares) > 0.8
    assert max(pairs["honest1", "half"].shares) > 0.4
    assert "my_" not in pairs["honest1", "copy"].first.text
    for (first, second), pair in pairs.items():
        assert max(pair.shares) <= 1
        if first.startswith("honest") and second.startswith("honest"):
            assert max(pair.shares) < 0.16, (first, second)
    assert similar.LEAST == 25  # between the two


def test_what_everybody_was_given_is_nobodys(small):
    """The release, the instructor's answers, references and alternatives are left out."""
    given = similar.known_code(small)
    for texts in (
        [question.reference for question in small.questions],
        [one for question in small.questions for one in question.alternatives],
    ):
        text = "\n\n".join(map(questions.source_of, texts))
        works = [similar.work(name, text) for name in ("ann", "bob")]
        assert len(works[0].words) > similar.RUN and similar.compare(works, given) == []
        assert similar.compare(works, [])[0].shares == (1, 1)


OWN = """
def smoothed(rewards, gamma):
    total, weight = 0.0, 1.0
    for step, reward in enumerate(rewards):
        if step % 2 == 0 and reward > 0:
            total += weight * reward / (1 + step)
        elif reward < -1:
            total -= weight * abs(reward) ** 0.5
        weight *= gamma + 0.01 * step
    return {"total": total, "weight": weight, "mean": total / max(1, len(rewards))}
"""


def test_what_a_large_part_of_the_class_has_is_left_out():
    many = [similar.work(f"s{number}", OWN) for number in range(similar.COMMON_AT_LEAST + 1)]
    assert similar.compare(many, []) == [] and many[0].own == 0
    few = [similar.work(f"s{number}", OWN) for number in range(similar.COMMON_AT_LEAST)]
    assert len(similar.compare(few, [])) == similar.COMMON_AT_LEAST * (similar.COMMON_AT_LEAST - 1) // 2


def read(text):
    return [word for word, _ in similar.tokens(text)]


def test_tokens_are_normalized():
    assert read("a = np.zeros(3)  # x") == read("b=my.zeros( 3 )") != read("b = my.ones(3)")
    assert read('def f(x):\n    """Doc."""\n    return "a" + f"b"') == read("def g(y):\n    return 'c' + 'd'")
    assert read("for x in range(3): pass") != read("while x in range(3): pass")
    assert read("x = 1") != read("x = 2")
    assert read("def broken(:\n  ((( 'never closed") and read("") == []


def cell(text):
    return {"cells": [{"cell_type": "code", "source": text, "metadata": {}}]}


@pytest.fixture
def submitted(tmp_path):
    folder = tmp_path / "submitted"
    attack = (
        OWN.replace("rewards", "r").replace("total", "sum_")
        + "\n# </pre><script>alert(1)</script>\nx = '</mark><img src=x onerror=alert(1)>\u202e'\n"
    )
    for name, text in {"ann": OWN, "<b>bob": attack, "cyn": "def other():\n    return 1"}.items():
        hostile.write(folder / name / "small.ipynb", cell(text))
    hostile.write(folder / "bad" / "small.ipynb", b"{")
    return folder


def test_the_command(submitted, tmp_path, capsys):
    output = tmp_path / "grades"
    assert main(["similar", str(submitted), "small", "--output", str(output)], hostile.HOME) == 0
    said, complaints = capsys.readouterr()
    assert (
        "'<b>bob', 'ann': " in said
        and "1 pairs of 3 submissions" in said
        and "'bad': The file is not a notebook" in complaints
    )
    table, page = output / "similar" / "similar.csv", output / "similar" / "similar.html"
    assert [path.stat().st_mode & 0o777 for path in (output, table.parent, table, page)] == [0o700, 0o700, 0o600, 0o600]
    rows = table.read_text("utf-8").splitlines()
    assert len(rows) == 2 and rows[1].startswith("<b>bob,ann,") and rows[1].split(",")[3] == "100%"
    text = page.read_text("utf-8")
    assert text.count('<div class="sides">') == 1 and "default-src 'none'" in text
    left, right = (side.split("</pre>")[0] for side in text.split("<pre>")[1:])
    assert "weight *= gamma" in left and "weight *= gamma" in right and "sum_ +=" in left and "total +=" in right
    assert "<script" not in text and "<img" not in text and "<b>" not in text and "\u202e" not in text
    assert main(["similar", str(submitted), "small", "--output", str(output), "--least", "101"], hostile.HOME) == 0
    assert "0 pairs" in capsys.readouterr().out and len(table.read_text("utf-8").splitlines()) == 1


def test_answers_in_the_release_are_not_compared(small, tmp_path):
    """Two students who changed nothing share nothing."""
    stub = notebooks.released(notebooks.read(small.notebook))
    for name in ("ann", "bob"):
        hostile.write(tmp_path / name / "small.ipynb", json.dumps(stub).encode())
    works, said = similar.own_code(small, submissions.find(tmp_path, "small"))
    assert said == [] and similar.compare(works, similar.known_code(small)) == []


@pytest.mark.parametrize(
    "text",
    ["x=1\n" * 60_000, "(" * 250_000, "'" * 250_000, 'f"{' * 80_000, "\\" * 250_000, "0" * 250_000, "a." * 120_000],
)
def test_no_text_takes_long(text, small):
    began = time.monotonic()
    works = [similar.work(name, text[: similar.LONGEST]) for name in ("ann", "bob")]
    pairs = similar.compare(works, [])
    similar.page(small, pairs, 2)
    assert time.monotonic() - began < 20
