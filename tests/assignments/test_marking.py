"""Tests of ``assignments.grader`` without a sandbox: comparing, marking, checking, and the choice of cells."""

import builtins
import copy
import dataclasses

import hostile
import numpy as np
import pytest

from assignments.grader import cells, checking, comparing, notebooks, outcomes, preparing, questions
from assignments.grader.explaining import note_missing, note_spoiled
from assignments.grader.marking import mark
from assignments.grader.outcomes import CRASHED, MISSING, RAISED, RETURNED, TIMEOUT, Outcome, QuestionResult
from assignments.grader.preparing import prepare


def test_the_small_assignment_is_in_order(small):
    assert not list(checking.faults(small, range(3)))


@pytest.mark.parametrize(
    ("got", "message"),
    [
        (1.0000001, None),
        (True, None),
        (2.0, comparing.WRONG_VALUES),
        (float("nan"), comparing.NOT_FINITE),
        (None, comparing.NOTHING),
        ("1", comparing.NOT_NUMBERS),
        ([1.0], comparing.WRONG_SHAPE),
        ([[1.0], [1.0, 2.0]], comparing.NOT_NUMBERS),
        (["x" * 1000, 1.0], comparing.NOT_NUMBERS),
        ({"a": 1}, comparing.NOT_NUMBERS),
        (10**4000, comparing.NOT_NUMBERS),
    ],
)
def test_a_number_is_compared(got, message):
    try:
        assert comparing.close()(got, 1.0) == message
    except OverflowError:  # marking takes any failure of a comparison for a wrong result
        assert got == 10**4000


def test_a_long_text_among_numbers_makes_no_array():
    """numpy would give every element the room of the longest text: here 400 GB."""
    assert not comparing.is_numeric(["x" * 1_000_000] + [1.0] * 100_000)


def test_several_values_and_dictionaries():
    compare = comparing.close()
    want = [np.ones(2), {"a": 1.0, "b": "word"}, None]
    assert compare([np.ones(2), {"a": 1.0, "b": "word"}, None], want) is None
    assert compare([np.ones(2)], want) == comparing.WRONG_COUNT
    assert (
        compare(np.ones(3), [np.ones(3), np.zeros(3)]) == comparing.WRONG_COUNT
    )  # the second of two tables is missing
    assert compare([np.ones(2), np.zeros(2)], [np.ones(3), np.zeros(3)]) == comparing.WRONG_SHAPE
    assert compare([np.ones(2), {"a": 1.0}, None], want) == comparing.WRONG_WORDS
    assert compare([np.ones(2), {"a": 1.0, "b": "other"}, None], want) == comparing.WRONG_WORDS
    assert compare([np.zeros(2), {"a": 1.0, "b": "word"}, None], want) == comparing.WRONG_VALUES


def test_a_shape_that_only_the_judge_made_is_not_spoken_of():
    """Which rows were drawn is another table than the batch: a student who never draws one gave no wrong shape."""
    compare = comparing.judged(lambda raw: np.unique(raw["drawn"]), comparing.close())
    want = {"drawn": [np.array([1, 2, 3])]}
    assert compare({"drawn": [np.array([1, 3, 3])]}, want) == comparing.WRONG_VALUES
    assert compare({"drawn": [np.array([1, 3])]}, want) == comparing.WRONG_SHAPE


def test_where_the_reference_is_infinite_the_result_must_be(small):
    assert comparing.close()(np.array([1.0, np.inf]), np.array([1.0, np.inf])) is None
    assert comparing.close()(np.array([1.0, 5.0]), np.array([1.0, np.inf])) == comparing.WRONG_VALUES


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (float("nan"), float("nan"), True),
        (None, None, True),
        ("a", "b", False),
        ([1, {"a": [2.0]}], [1, {"a": [2.0]}], True),
        ([1, 2], [1, 2, 3], False),
        ({"a": 1}, {"b": 1}, False),
        ([1], {"a": 1}, False),
        (np.arange(3), np.arange(3), True),
        (np.arange(3), np.arange(3.0), False),
        (np.zeros(2), np.full(2, 1e-15), False),
        (np.array([np.nan, 1]), np.array([np.nan, 1]), True),
        (np.zeros((1, 2)), np.zeros(2), False),
        (np.ones(1), 1.0, False),
    ],
)
def test_same_is_the_same_to_the_last_bit(one, other, wanted):
    assert comparing.same(one, other) is wanted and comparing.same(other, one) is wanted


def test_verdicts_about_runs_are_made_of_raw_results():
    assert comparing.repeats([np.ones(2), np.ones(2)])
    assert not comparing.repeats([np.ones(2), np.ones(2), np.zeros(2)]) and not comparing.repeats([np.ones(2)])
    compare = comparing.judged(lambda runs: {"repeats": comparing.repeats(runs)}, comparing.close())
    assert compare([3, 3], [4, 4]) is None and compare([3, 4], [4, 4]) == comparing.WRONG_VALUES
    assert compare([3, 4], [5, 6]) is None  # as a mistake that does not repeat either


@pytest.mark.parametrize(
    "outcome", [Outcome(TIMEOUT), Outcome(CRASHED), Outcome(MISSING), Outcome(RAISED, error="KeyError")]
)
def test_a_call_that_does_not_return_scores_nothing(small, outcome):
    prepared = prepare(small.questions[0], 1)
    calls = []

    def call(question, case):
        calls.append(case)
        return outcome

    result = mark(prepared, call)
    assert result.points == 0 and result.ending == outcome.kind and result.messages
    assert len(calls) == (len(prepared.cases) if outcome.kind == RAISED else 1)


def test_parts_are_earned_one_by_one(small):
    question = small.questions[0]
    prepared = prepare(question, 1)

    def call(question, case):
        right = preparing.call_here(question, question.reference, case)
        return right if case.part == "gamma 0" else Outcome(RETURNED, -1.0)

    result = mark(prepared, call)
    assert result.points == 10 and [part.points for part in result.parts] == [0, 10]


@pytest.fixture
def nine():
    """A part of 2 points about nine states, of which entries earn a share: the right values, and those of an argument."""
    want = np.arange(1.0, 10.0)
    case = questions.Case((np.where(want < 4, want, 0), "word"), "table")
    question = questions.Question(
        "q", "", "f", {"table": 2}, lambda *_: want, lambda rng: [case], (), shares={"table": "states"}
    )
    return want, lambda got, **changed: mark(
        prepare(dataclasses.replace(question, **changed), 0), lambda *_: Outcome(RETURNED, got)
    ).parts[0]


def test_entries_that_are_right_earn_a_share(nine):
    want, marked = nine
    part = marked([*want[:7], 0, 0])  # without the argument's three and one more: 3 of 5, in halves of a point
    assert (part.points, part.said) == (1.0, "7 of 9 states right: 1 of 2 points.")
    assert marked(np.where(want < 9, want, 0)).points == 1.5 and marked(want).points == 2 and not marked(want).said
    assert marked(np.where(want < 9, want, 0), shares={}).points == 0, "only where the part says so"


GUESSES = {
    "a constant": np.full(9, 5.0),
    "the argument": np.array([1, 2, 3, 0, 0, 0, 0, 0, 0.0]),
    "both": np.array([1, 2, 3, 9, 9, 9, 9, 9, 9.0]),
    "not finite": np.full(9, np.nan),
    "a shape": np.ones((9, 1)),
    "nothing": None,
    "a text": "5",
    "a list": [1, "2"],
}


@pytest.mark.parametrize("guess", GUESSES.values(), ids=GUESSES)
def test_a_guess_earns_no_share(nine, guess):
    assert nine[1](guess).points == 0


def test_a_share_counts_the_cases_of_a_part_together(small):
    question = dataclasses.replace(small.questions[1], shares={"small chains": "states"})
    prepared, calls = prepare(question, 1), []

    def call(question, case):
        calls.append(case)
        return (
            preparing.call_here(question, question.reference, case)
            if len(calls) > 1
            else Outcome(RAISED, error="KeyError")
        )

    small_chains, large_chains = mark(prepared, call).parts
    sizes = [
        want.size for case, want in zip(prepared.cases, prepared.wanted, strict=True) if case.part == "small chains"
    ]
    assert f"{sum(sizes[1:])} of {sum(sizes)} states right" in small_chains.said and 0 < small_chains.points < 20
    assert large_chains.points == 10 and not large_chains.said


def test_a_share_of_what_is_no_array_is_a_fault(small):
    judged = comparing.judged(lambda value: value, comparing.close())
    for changed in ({"shares": {"no part": "words"}}, {"shares": {"gamma 0": "words"}, "compare": judged}):
        with pytest.raises(RuntimeError, match="parts without cases|gives shares"):
            prepare(dataclasses.replace(small.questions[0], **changed), 1)


def test_a_mistake_is_called_by_its_name(small):
    question = small.questions[0]
    result = checking.mark_solution(prepare(question, 4), question.mistakes[0].solution)
    assert result.points < result.max_points and result.messages[-1].endswith("discounted once too often.")


def test_only_names_of_pythons_own_errors_are_told():
    assert outcomes.known_error("ValueError") == "ValueError"
    for name in ("Leak_1_2_3", "SystemExit", "UnicodeTranslateError", "<script>", ""):
        assert outcomes.known_error(name) == "an exception"
    assert len(outcomes.KNOWN_ERRORS) < 10


def test_names_of_exceptions_carry_no_list_of_numbers_away(small):
    """The attack chooses a name for each case by what the inputs are: at most one of a few names may come back."""
    question = small.questions[0]
    said = set()
    for seed in range(20):
        prepared = prepare(question, seed)
        names = [
            name
            for name, value in sorted(vars(builtins).items())
            if isinstance(value, type) and issubclass(value, Exception)
        ]

        def call(question, case):
            return Outcome(RAISED, error=outcomes.known_error(names[int(case.arguments[1] * len(names))]))

        result = mark(prepared, call)
        assert (
            sum(name in " ".join(result.messages) for name in (*names, "an exception")) == 1
            and len(result.messages) == 1
        )
        said.update(result.messages)
    assert len(said) <= len(outcomes.KNOWN_ERRORS) + 1


def test_the_order_of_sentences_carries_nothing_away(small):
    question = small.questions[0]
    prepared = prepare(question, 1)
    numbers = {id(case): number for number, case in enumerate(prepared.cases)}
    kinds = [Outcome(RETURNED, value) for value in (None, "text", float("nan"), [1.0], -1.0)]
    orders = {
        tuple(mark(prepared, lambda question, case, shift=shift: kinds[(numbers[id(case)] + shift) % 5]).messages)
        for shift in range(5)
    }
    assert len(orders) == 1 and len(orders.pop()) == 5


def test_cases_depend_on_seed_and_question_only(small):
    question = small.questions[1]
    one, other, third = (prepare(question, seed).cases[0].arguments[1] for seed in (1, 1, 2))
    assert np.array_equal(one, other) and not np.array_equal(one, third)


def test_no_message_holds_a_number_of_a_case(small):
    """Every message of every known mistake, over some seeds, against every number that went in or must come out."""
    for question in small.questions:
        for seed in range(3):
            prepared = prepare(question, seed)
            numbers = {
                f"{number:.4g}"
                for value in [case.arguments for case in prepared.cases] + prepared.wanted
                for number in flat(value)
            }
            numbers -= {"0", "1", "0.5"}
            for mistake in question.mistakes:
                said = " ".join(checking.mark_solution(prepared, mistake.solution).messages)
                assert not [number for number in numbers if number in said]


def flat(value):
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in flat(item)]
    return np.asarray(value, dtype=float).ravel().tolist()


def test_an_unknown_assignment_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match="assignment: got 'nothing', expected one of small"):
        questions.load("nothing", hostile.HOME)


# --- which cells are run


def chosen(small, notebook):
    return cells.choose(notebook, cells.given(small, notebooks.read(small.notebook)))


def test_setup_and_answers_are_run_and_checks_are_not(small):
    found = chosen(small, notebooks.read(small.notebook))
    assert len(found.setup) == 1 and "import numpy" in found.setup[0]
    assert [text.split("(")[0].split(":")[0] for text in found.first] == [
        "def discounted_sum",
        "def evaluate",
        "class RunningMean",
    ]
    assert len(found.everything) == 4 and "table" in found.everything[1]
    assert not any("assert" in text for text in found.everything)


def test_the_stub_is_run_only_where_there_is_no_answer(small, shop):
    stub = notebooks.released(notebooks.read(small.notebook))
    assert len(chosen(small, stub).first) == 3
    both = copy.deepcopy(shop.notebook)
    both["cells"] += [one for one in stub["cells"] if notebooks.role(one).get("grade_id") in ("q1", "q2")]
    assert chosen(small, both).first == chosen(small, shop.notebook).first


def test_an_answer_in_a_checks_cell_is_found(small, shop):
    made = shop.first("x = 1")
    for one in made["cells"]:
        if notebooks.role(one).get("grade_id") == "q1-checks":
            one["source"] = "def discounted_sum(rewards, gamma):\n    return 0\nassert False"
    assert any(text.startswith("def discounted_sum") for text in chosen(small, made).first)


def test_the_written_answer_is_noticed(small, shop):
    assert chosen(small, shop.notebook).written
    assert not chosen(small, notebooks.released(shop.notebook)).written


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(x): pass", True),
        ("async def f(): pass", True),
        ("class f:\n  pass", True),
        ("f = lambda x: x", True),
        ("x = 1\nf: object = g", True),
        ("def ff(): pass", False),
        ("f == 3", False),
        ("  def f(): pass", False),
        ("f(3)", False),
    ],
)
def test_definitions_are_found_by_their_text(text, found):
    assert bool(cells.defined(text, ("f",))) is found


def test_limits_come_from_the_assignment(small):
    assert dataclasses.replace(small, seconds=5.0).name == "small" and small.cell_seconds == 3.0


def test_a_function_that_is_missing_was_renamed_or_stopped(small):
    prepared = prepare(small.questions[0], 1)
    function = prepared.question.function
    for there, word in ((set(), "Was it renamed"), ({function}, "a syntax error")):
        result = mark(prepared, lambda question, case: Outcome(MISSING))
        note_missing([result], [function], there)
        assert [
            message.startswith(f"`{function}` is not defined. ") and word in message for message in result.messages
        ] == [True]
    result = mark(prepared, lambda question, case: Outcome(RAISED, error="NameError"))
    assert result.messages[0].startswith("The call raises NameError. It uses a name")


def test_an_answer_that_calls_a_wrong_one_says_so_first():
    texts = [
        "def first(x):\n    return x",
        "def second(x):\n    return first(x) + 1",
        "def third(x):\n    return x  # no firstling",
    ]
    functions = ["first", "second", "third"]
    called = [cells.calls(function, texts, functions) for function in functions]
    assert called == [set(), {"first"}, set()]

    def result(points):
        return QuestionResult(
            "q", "", points, 5, "returned", messages=["This looks like the following mistake: something."]
        )

    found = [result(0), result(2), result(5)]
    note_spoiled(found, functions, called)
    assert "looks like" in found[0].messages[0]
    assert found[1].messages[0].startswith("This answer calls `first`, which lost points as well")
    assert len(found[1].messages) == 1, "no known mistake is blamed on an answer that calls a wrong one"
    found = [result(5), result(2), result(2)]
    note_spoiled(found, functions, called)
    assert all("looks like" in one.messages[0] for one in found)
