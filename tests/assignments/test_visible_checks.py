"""What the visible checks say of an answer that lost points is quoted on its page, and costs and gives nothing else."""

from __future__ import annotations

import ast
import dataclasses

import hostile
import pytest

from assignments.grader import batch, cells, notebooks, questions, visible_checks
from assignments.grader.outcomes import CRASHED, RETURNED, Outcome, QuestionResult
from assignments.grader.sandbox import Student
from assignments.grader.visible_checks import FILE, PASS, RAISED_AT, STOP

NAMES = questions.names()
FIRST = STOP + ": “the second reward counts half”"


@pytest.fixture(scope="module")
def course(small, box):
    return batch.open_course(small, box, hostile.SEED)


@pytest.fixture(scope="module")
def shop(small, tmp_path_factory):
    return hostile.Workshop(small, tmp_path_factory.mktemp("outside"))


@pytest.fixture(scope="module")
def quick(course):
    """The same with less patience."""
    return dataclasses.replace(
        course,
        prepared=[
            dataclasses.replace(one, question=dataclasses.replace(one.question, seconds=0.5)) for one in course.prepared
        ],
    )


def answered(course, shop, text, before=""):
    """The result of the first question, answered by this text, and the status of the submission."""
    graded, status = batch.grade_notebook(course, cells.choose(shop.first(text, before), course.given))
    assert [one.points for one in graded[1:]] == [one.max_points for one in graded[1:]], "the other questions are right"
    return graded[0], status


def quoted(result):
    return [message for message in result.messages if message.startswith("The visible checks")]


def test_what_is_quoted_are_the_words_of_the_assertion():
    text = (
        'for number in (1, 2):\n    assert f(number) == 3, (\n        f"with {number}:\\n the sum of all {number!r} rewards")\n'
        + ('assert g(1), hint\nassert h(1) == (\n    2), "got 2"\nassert f(0), "' + 500 * "x" + '"')
    )
    found = visible_checks.sentences(text)
    assert found[0] == PASS
    assert found[2] == found[3] == STOP + ": “with ...: the sum of all ... rewards”"
    assert found[4] == STOP + " at `g(1)`."
    assert found[5] == found[6] == STOP + " at `h(1) == ( 2)`."
    assert len(found[7]) < 500 and found[7].endswith("x ...”") and 1 not in found


@pytest.mark.parametrize(
    ("own", "shown"),
    [
        ("1.5", "1.5"),
        ("-1e-05", "-1e-05"),
        ("[[1. nan]\n [-inf 2.]]", "[[1. nan] [-inf 2.]]"),
        ("tensor([0.5000, 1.0000], dtype=torch.float64)", "tensor([0.5000, 1.0000], dtype=torch.float64)"),
        ("(True, None)", "(True, None)"),
        ("first state", "first state"),
        ("'first state'", "'first state'"),
        ("the second state, 0.731", "..."),
        ("the input is 0.731", "..."),
        ("1.5 <b>", "..."),
        ("`1.5`", "..."),
        ("trueness", "..."),
        ("e", "..."),
        ("", "..."),
        ("1" * 201, "..."),
        ("1" * 10**7, "..."),
        ("٣", "..."),
        (1.5, "..."),
        (None, "..."),
    ],
)
def test_a_message_is_filled_in_as_in_the_notebook_but_with_numbers_only(own, shown):
    text = 'assert f("first state"), f"V(0) is 2, got {v[0]}: divide by the one episode that visited"'
    says = f"{STOP}: “V(0) is 2, got {shown}: divide by the one episode that visited”"
    assert visible_checks.sentences(text, [own])[1] == says
    assert visible_checks.sentences(text)[1] == says.replace(shown, "...")


@pytest.mark.parametrize("name", NAMES)
def test_every_question_has_checks_that_can_be_quoted(name):
    assignment = questions.load(name)
    given = cells.given(assignment, notebooks.read(assignment.notebook))
    assert list(given.quoted) == [question.name for question in assignment.questions]
    for _, text in given.quoted.values():
        lines = [node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assert)]
        found = visible_checks.sentences(text)
        assert len(lines) >= 5 and set(lines) < found.keys()
        # a message that a loop fills in, or a bare condition, would tell the reader of the page nothing
        assert all(found[line].startswith(STOP + ": “") for line in lines)


@pytest.mark.parametrize("name", ["01_mdps", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])])
def test_the_instructors_answers_pass_them_in_the_sandbox(name, box):
    """With none of the student's cells but the answers: what a check needs besides is ours."""
    assignment = questions.load(name)
    notebook = notebooks.read(assignment.notebook)
    given = cells.given(assignment, notebook)
    chosen = cells.choose(notebook, given)
    with Student(box, chosen.setup, chosen.first, batch.Course(assignment, box, given, [], "").limits) as student:
        for question in assignment.questions:
            case = questions.Case((*given.quoted[question.name], FILE), "")
            asked = dataclasses.replace(question, driver=visible_checks.stopped_at)
            assert student.call(asked, case) == Outcome(RETURNED, [0, []])


def test_a_wrong_answer_is_told_what_the_checks_say(course, shop):
    result, status = answered(course, shop, "def FUNCTION(rewards, gamma):\n    return float(np.sum(rewards))\n")
    assert result.points == 0 and status == "graded" and quoted(result) == [FIRST]


def test_an_answer_that_is_wrong_elsewhere_passes_them(course, shop):
    text = "def FUNCTION(rewards, gamma):\n    return 1.5 if len(rewards) == 2 else 0.25\n"
    assert quoted(answered(course, shop, text)[0]) == [PASS]


def test_our_copy_of_the_checks_counts(course, shop, small):
    """A student's copy says something else, and is not run."""
    made = shop.first("def FUNCTION(rewards, gamma):\n    return 0.25\n")
    for cell in made["cells"]:
        if notebooks.role(cell).get("grade_id") == f"{small.questions[0].name}-checks":
            cell["source"] = 'assert False, "the hidden input is 0.731"'
    graded, _ = batch.grade_notebook(course, cells.choose(made, course.given))
    assert quoted(graded[0]) == [FIRST]


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("", 'raise AssertionError("the first input is 0.731")'),
        ("class Odd(AssertionError):\n    __traceback__ = property(lambda self: 1 / 0)", "raise Odd"),
        ("class Odd(AssertionError):\n    __traceback__ = property(lambda self: None)", "raise Odd"),
        ("", "raise KeyboardInterrupt"),
        ("", f'exec(compile(999 * "\\n" + "raise AssertionError", {FILE!r}, "exec"))'),
        ("", f'exec(compile("\\n\\n\\nraise AssertionError(0.731)", {FILE!r}, "exec"))'),
        ("import builtins\nbuiltins.vars = builtins.AssertionError = None", "return 0.25"),
        ("import sys\nsys.modules['__main__'] = None", "return 0.25"),
    ],
)
def test_forged_endings_say_nothing_but_our_own_sentences(course, shop, before, body):
    result, status = answered(
        course,
        shop,
        f"def FUNCTION(rewards, gamma):\n    if len(rewards) != 2:\n        return 0.25\n    {body}\n",
        before,
    )
    assert result.points == 0 and status == "graded"
    text = course.given.quoted[result.name][1]
    assert set(quoted(result)) <= set(visible_checks.sentences(text).values()) and not any(
        "731" in message for message in result.messages
    )


def test_what_a_forged_answer_may_say(small):
    """The parent looks only for a line of ours: a number that is none, another type or another kind says nothing."""
    (question, *_), checks = small.questions, {"q1": ("", 'assert f(), "the second reward counts half"')}
    ends = [7, -7, 2**62, 2**80, True, False, 1.0, "1", None, [1], {"1": 1}]
    for value in [*ends, *([one, []] for one in ends), [1, "0.731"], [1, None], [1, [], []]]:
        result = QuestionResult("q1", "", 0.0, 10.0, RETURNED)
        visible_checks.add([result], [question], checks, lambda question, case, value=value: Outcome(RETURNED, value))
        assert result.messages == [] and result.points == 0
    for value, says in (([1, ["0.731"]], FIRST), ([-1, []], RAISED_AT.format("f()"))):
        result = QuestionResult("q1", "", 0.0, 10.0, RETURNED)
        visible_checks.add([result], [question], checks, lambda question, case, value=value: Outcome(RETURNED, value))
        assert result.messages == [says] and result.points == 0


def test_where_the_checks_end_with_an_exception_is_said(course, shop, small):
    """An argument that the answer does not take: the checks never come to a number."""
    text = course.given.quoted[small.questions[0].name][1]
    (says,) = quoted(answered(course, shop, "def FUNCTION(rewards):\n    return 0.0\n")[0])
    assert says.startswith("The visible checks of this question end with an exception at `")
    assert says in visible_checks.sentences(text).values() and "discounted_sum(" in says


def test_the_checks_of_a_right_answer_are_not_run(small):
    result, called = QuestionResult("q1", "", 10.0, 10.0, RETURNED), []
    visible_checks.add([result], small.questions[:1], {"q1": ("", "assert f()")}, lambda *given: called.append(given))
    assert not called and result.messages == []


def test_what_the_answer_has_seen_before_is_forgotten(course, shop):
    """Code that remembers the hidden inputs would choose the line by them: the checks see a new process and empty folders."""
    before = "import os\nseen = []\ndef known():\n    return len(seen) > 1 or os.path.exists('/tmp/seen')\n"
    body = "    seen.append(1)\n    open('/tmp/seen', 'w').close()\n    return 1.5 if old else 0.25\n"
    text = f"def FUNCTION(rewards, gamma):\n    old = known()\n{body}"
    assert quoted(answered(course, shop, text, before)[0]) == [FIRST], "a process that had seen the inputs would pass"


@pytest.mark.parametrize("body", ["while True: pass", "import os; os._exit(0)", "import os; os.kill(os.getpid(), 9)"])
def test_an_answer_that_ends_or_holds_up_the_checks_changes_nothing(quick, shop, body):
    text = f"def FUNCTION(rewards, gamma):\n    if len(rewards) == 2:\n        {body}\n    return 0.25\n"
    result, status = answered(quick, shop, text)
    assert (result.points, status, quoted(result)) == (0, "graded", [])


def test_after_a_call_that_did_not_come_back_no_further_check_is_made(small):
    made = [QuestionResult(question.name, "", 0.0, 10.0, RETURNED) for question in small.questions]
    asked = []

    def call(question, case):
        asked.append(question.name)
        return Outcome(CRASHED)

    visible_checks.add(made, small.questions, {question.name: ("", "assert f()") for question in small.questions}, call)
    assert asked == ["q1"]


@pytest.mark.parametrize("body", ["raise NotImplementedError", "while True: pass"])
def test_no_time_is_spent_on_what_is_not_written_or_was_stopped(quick, shop, monkeypatch, body):
    monkeypatch.setattr(visible_checks, "stopped_at", None)  # a call would fail
    result, _ = answered(quick, shop, f"def FUNCTION(rewards, gamma):\n    {body}\n")
    assert quoted(result) == []


def test_the_checks_are_in_the_time_of_the_submission(course, shop, box):
    """A student's clock that has run out: nothing is run and nothing is said."""
    with Student(
        box,
        [],
        ["def discounted_sum(rewards, gamma):\n    return 0.0"],
        dataclasses.replace(course.limits, seconds=0.0),
    ) as student:
        made = [QuestionResult("q1", "", 0.0, 10.0, RETURNED)]
        visible_checks.add(made, [course.assignment.questions[0]], course.given.quoted, student.call)
        assert made[0].messages == [] and student.starts == 0
