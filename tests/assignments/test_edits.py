"""Tests of ``assignments.grader.edits``: a mistake made from a right solution."""

import pytest

from assignments.grader import questions
from assignments.grader.questions import as_solution
from assignments.grader.edits import edit


def largest(values):
    best = values[0]
    for value in values:
        if value > best:
            best = value
    return best


class Counter:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        return self.count


def factorial(n):
    return 1 if n == 0 else n * factorial(n - 1)


def test_words_of_the_base_are_replaced():
    smallest = edit(largest, "value > best", "value < best")
    assert smallest([3, 1, 2]) == 1 and largest([3, 1, 2]) == 3
    assert smallest.__name__ == "largest"


def test_pairs_are_replaced_one_after_the_other():
    second = edit(largest, "values[0]", "values[1]", "in values:", "in values[1:]:", "values[1]\n", "values[-1]\n")
    assert questions.source_of(second).count("values[1:]") == 1 and second([9, 1, 2]) == 2


def test_a_class_and_an_edit_can_be_edited():
    by_two = edit(Counter, "+= 1", "+= 2")
    assert by_two().add() == 2 and Counter().add() == 1
    by_three = edit(by_two, "+= 2", "+= 3")
    assert by_three().add() == 3 and by_two().add() == 2


def test_a_function_that_calls_itself_calls_the_edited_one():
    assert edit(factorial, "n * f", "n + f")(3) == 7


def test_the_cell_of_a_student_holds_the_edited_text():
    question = questions.Question("q", "", "biggest", {"all": 1}, largest, lambda rng: [], (), alternatives=(largest,))
    for solution, wanted in ((largest, 3), (edit(largest, ">", "<"), 1)):
        cell: dict = {}
        exec(as_solution(question, solution), cell)
        assert cell["biggest"]([3, 1, 2]) == wanted


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (("maximum", "minimum"), "edit of largest: 'maximum' stands there 0 times, expected exactly once"),
        (("best", "worst"), "edit of largest: 'best' stands there 4 times"),
        (("", "x"), "edit of largest: '' stands there 0 times"),
        (("> best", "> best"), "'> best' is replaced by itself"),
        (("> best", "< best", "< best", "> best"), "the pairs together change nothing"),
        (("> best", "< best", "values[0]"), "got 3 texts, expected pairs"),
        (("> best:", "> best"), "the result is not one function or class"),
        (("def largest(values):\n", "x = 1\ndef largest(values):\n"), "the result is not one function or class"),
    ],
)
def test_an_edit_that_is_none_is_refused(pairs, message):
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        edit(largest, *pairs)


def test_only_text_is_replaced():
    with pytest.raises(TypeError, match="edit of largest: got 3, expected text"):
        edit(largest, "best", 3)
