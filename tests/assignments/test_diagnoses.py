"""Tests of ``assignments.grader.diagnosing``: what is said about mistakes that nobody listed."""

import inspect
import math
import re
import sys

import numpy as np
import pytest
from new_mistakes import NEW_MISTAKES

from assignments.grader import checking, diagnosing, explaining, marking, outcomes, preparing, questions
from assignments.grader.diagnosing import SENTENCES, relation
from assignments.grader.edits import edit

SEEDS = range(1, 4)  # and 0, in the quick tests
BITS = 5.9  # that the choice of a sentence may carry, for each part of a question; the instructor's guide says so


@pytest.fixture(scope="module")
def prepared():
    """The prepared questions, by assignment, number and seed."""
    loaded, made = {}, {}

    def get(name, number, seed):
        loaded[name] = loaded.get(name) or questions.load(name)
        key = (name, number, seed)
        if key not in made:
            made[key] = preparing.prepare(loaded[name].questions[number], seed)
        return made[key]

    return get


def solution_of(question, new):
    """The mistake: its base is a right solution of the question, or stands beside them."""
    known = {one.__name__: one for one in (*question.alternatives, question.reference)}
    return edit(known.get(new.base) or vars(sys.modules[question.cases.__module__])[new.base], *new.texts)


def called_known(message):
    return message.startswith((explaining.DIAGNOSIS, explaining.PARTLY_KNOWN))


def check_what_is_said(ready, new):
    result = checking.mark_solution(ready, solution_of(ready.question, new))
    assert result.points < result.max_points
    assert new.often_known or not any(called_known(message) for message in result.messages)
    assert any(SENTENCES[new.said] in message for message in result.messages), result.messages
    # whatever is said is one of the sentences that may be said, made before the answer was looked at
    for message in result.messages:
        part, found, sentence = message.partition("”: ")
        assert not found or (
            sentence in diagnosing.sentences() and part.removeprefix("Tests of “") in ready.question.parts
        )


def name_of(new):
    return f"{new.assignment}-q{new.question + 1}-{new.why}"


@pytest.mark.parametrize("new", [one for one in NEW_MISTAKES if one.question < 5], ids=name_of)
def test_a_new_mistake_gets_a_sentence(prepared, new):
    check_what_is_said(prepared(new.assignment, new.question, 0), new)


@pytest.mark.slow
@pytest.mark.parametrize("new", NEW_MISTAKES, ids=name_of)
def test_a_new_mistake_gets_a_sentence_whatever_the_seed(prepared, new):
    for seed in SEEDS if new.question < 5 else (0, *SEEDS):  # the last question of each assignment takes longest
        check_what_is_said(prepared(new.assignment, new.question, seed), new)


@pytest.mark.slow
@pytest.mark.parametrize("name", questions.names())
def test_right_solutions_get_no_sentence(prepared, name):
    for number, question in enumerate(questions.load(name).questions):
        for solution in (*question.alternatives, question.reference):
            result = checking.mark_solution(prepared(name, number, 0), solution)
            assert result.points == result.max_points and not result.messages


def test_the_choice_of_a_sentence_carries_few_bits():
    """The guide says how many, and no more than it takes."""
    assert BITS - 0.1 < math.log2(len(diagnosing.sentences()) + 1) <= BITS
    assert f"(at most {BITS} bits)" in (questions.HOME.parent / "chapters" / "instructors_guide.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (("np.abs(new - values).max()", "np.abs(new - values).mean()"), "the loop ends one sweep too early, or"),
        (("gamma / (1 - gamma)", "gamma**2 / (1 - gamma)"), "the loop ends one sweep too early, or"),
        (("    q_values[terminal] = 0\n", ""), "Their value stays at 0 in every sweep, and their action is 0."),
        (("q_values.argmax(axis=1)", "q_values.argmin(axis=1)"), "The policy takes the worst action."),
    ],
    ids=["stops early: mean", "stops early: factor", "only the action of terminal states", "worst action"],
)
def test_value_iteration_is_not_told_what_it_does_not_do(prepared, texts, says):
    """Of these it was said that a sweep is thrown away, that terminal states have a value, that rewards have the wrong sign."""
    ready = prepared("01_mdps", 4, 0)
    result = checking.mark_solution(ready, edit(ready.question.alternatives[0], *texts))
    (diagnosis,) = result.messages
    assert called_known(diagnosis) and says in diagnosis


RNG = np.random.default_rng(0)
LINES = [RNG.normal(size=length) * 3 for length in (5, 7, 6)]
TABLES = [RNG.normal(size=shape) for shape in ((4, 3), (5, 2), (3, 6))]
COUNTS = [3, 5, 8]
FLAGS = [RNG.permutation(np.arange(length) < 2) for length in (5, 7, 6)]


@pytest.mark.parametrize(
    ("named", "change", "wanted"),
    [
        ("not finite", lambda want: np.where(want > want.mean(), np.nan, want), LINES),
        ("not finite", lambda want: np.where(want > want.mean(), np.inf, want), TABLES),
        ("axis of length 1", lambda want: want[:, None], LINES),
        ("axis of length 1", lambda want: [want], LINES[0].tolist()),
        ("axes", np.transpose, TABLES),
        ("axes", lambda want: want.transpose(1, 2, 0), [np.stack([table] * 2) for table in TABLES]),
        ("one more at the start", lambda want: np.insert(want, 0, 0), LINES),
        ("one more at the end", lambda want: [*want, 0.0], LINES),
        ("first missing", lambda want: want[1:], LINES),
        ("last missing", lambda want: want[:-1], TABLES),
        ("zero", np.zeros_like, TABLES),
        ("zero", lambda want: 0, COUNTS),
        ("opposite", np.negative, LINES),
        ("permuted", lambda want: want[::-1], LINES),
        ("too early", lambda want: np.roll(want, -1, axis=0), TABLES),
        ("too early", lambda want: [*want[1:], 0.0], LINES),
        ("too late", lambda want: [0.0, *want[:-1]], LINES),
        ("twice", lambda want: 2 * want, LINES),
        ("half", lambda want: want / 2, COUNTS),
        ("divided by the length", lambda want: want / len(want), LINES),
        ("times the length", lambda want: want * want.size, TABLES),
        ("one too large", lambda want: want + 1, COUNTS),
        ("one too small", lambda want: want - 1, LINES),
        ("rounded", lambda want: want.astype(int), LINES),
        ("rounded", np.rint, LINES),
        ("rounded", lambda want: want.round(2), LINES),
        ("constant added", lambda want: want - want.mean(), LINES),
        ("factor", lambda want: want / want.std(), TABLES),
        ("mean missing", lambda want: want + np.array([-1.0, 3.0, -2.0]), COUNTS),
        ("sum missing", lambda want: [want - 7, 3, 4], COUNTS),
        ("a mean too many", np.mean, LINES),
        ("a sum too many", lambda want: want.sum(axis=1), TABLES),
        ("square", lambda want: want[None] + np.subtract.outer(want, want), LINES),
        ("truth turned around", np.logical_not, FLAGS),
        ("running sum", np.cumsum, LINES),
        ("permuted", lambda want: np.roll(want, 1, axis=0)[::-1], LINES),
        ("permuted", lambda want: want[:, [1, 0, *range(2, want.shape[1])]], [TABLES[0], TABLES[2]]),
        ("constant added", lambda want: want + 1e3, LINES),
        (None, lambda want: want + 1e15, LINES),
        (None, lambda want: want**2 + want, LINES),
        (None, lambda want: "text", LINES),
        (None, lambda want: 10**4000, COUNTS),
        (None, lambda want: None, LINES),
        (None, lambda want: {"a": want}, LINES),
        (None, lambda want: [want, want], LINES),
        (None, lambda want: np.full(np.shape(want), np.nan), LINES),
        (None, lambda want: want * want, COUNTS),
    ],
)
def test_a_relation_is_found(named, change, wanted):
    pairs = [(change(want), want) for want in wanted]
    assert relation(pairs) == named
    assert (
        relation([([{"a": got, "b": 1.0}, "word"], [{"a": want, "b": 1.0}, "word"]) for got, want in pairs]) == named
    )  # beside what is right
    assert relation(pairs[:1]) is None  # one case proves nothing
    if named is not None:
        odd = np.arange(4.0)
        assert relation([*pairs, (odd**2 + odd + 0.3, odd)]) is None  # all failing cases, not most


def test_a_mean_of_single_numbers_is_found_by_the_lengths_of_the_arguments():
    wanted, sizes = [3.7, -2.1, 8.4], [5, 7, 9]
    pairs = [(want / size, want) for want, size in zip(wanted, sizes, strict=True)]
    assert relation(pairs, [{size} for size in sizes]) == "divided by the length" and relation(pairs) is None


def test_trivial_data_proves_nothing():
    assert relation([(np.zeros((3, 2)), np.zeros((2, 3)))] * 2) is None  # any order of the axes fits
    assert relation([(np.array([2.0, 3.0]), np.array([1.0, 5.0]))] * 2) is None
    assert (
        relation([(np.array([4.0]), np.array([1.0])), (np.array([6.0]), np.array([2.0]))]) is None
    )  # a factor always fits


def test_every_relation_has_a_sentence_and_a_test():
    assert set(diagnosing.RELATIONS) | {diagnosing.SWAPPED} == set(SENTENCES)
    (mark,) = [mark for mark in test_a_relation_is_found.pytestmark if mark.name == "parametrize"]
    assert {case[0] for case in mark.args[1]} - {None} == set(diagnosing.RELATIONS)


def test_relations_of_whole_results():
    """The results of a call, one by one."""
    several = [(line, table) for line, table in zip(LINES, TABLES, strict=True)]
    assert relation([([two, one], [one, two]) for one, two in several]) == "results in another order"
    assert (
        relation([({"a": two, "b": one}, {"a": one, "b": two}) for one, two in several]) == "results in another order"
    )
    # two arrays of one shape are two results and no table
    assert relation([([-line, line], [line, line]) for line in LINES]) == "opposite"
    assert diagnosing.partly_right([-LINES[0], LINES[1]], [LINES[0], LINES[1]], ())
    assert not diagnosing.partly_right([-LINES[0], LINES[1]], [LINES[0], LINES[1]], (LINES[1],))  # an argument


def test_sentences_hold_no_number_and_are_all_different():
    assert len(set(SENTENCES.values())) == len(SENTENCES) and not re.search(r"[02-9]", " ".join(SENTENCES.values()))
    assert not re.search(r"\bf[\"']|\.format\(|str\(", inspect.getsource(diagnosing))  # nothing is filled in


def test_a_part_gets_one_sentence_and_equal_ones_are_said_once(small):
    question = small.questions[0]
    ready = preparing.prepare(question, 1)
    wanted = {id(case): want for case, want in zip(ready.cases, ready.wanted, strict=True)}

    def said(change):
        return marking.mark(
            ready, lambda question, case: outcomes.Outcome(outcomes.RETURNED, change(case, wanted[id(case)]))
        ).messages

    assert said(lambda case, want: -want) == [
        explaining.DIAGNOSIS + "The sign is wrong."
    ]  # a known mistake goes before
    assert said(lambda case, want: want + 1) == [SENTENCES["one too large"]]
    first = next(iter(question.parts))
    mixed = said(lambda case, want: want + 1 if case.part == first else want / 2)
    assert mixed == [f"Tests of “{first}”: {SENTENCES['one too large']}", f"Tests of “gamma 0”: {SENTENCES['half']}"]
    partly = said(lambda case, want: want + 1 if case.part == first else want**3 + want)
    assert partly == ["The values are not right.", f"Tests of “{first}”: {SENTENCES['one too large']}"]
    assert (
        said(lambda case, want: want**3 + want if case is ready.cases[0] else want + 1)[0]
        == "The values are not right."
    )


def test_a_known_mistake_that_only_the_failing_tests_show_is_called_so(small):
    ready = preparing.prepare(small.questions[0], 1)
    wanted = {id(case): want for case, want in zip(ready.cases, ready.wanted, strict=True)}

    def said(outcome):
        return marking.mark(ready, lambda question, case: outcome(case, wanted[id(case)])).messages

    def negated_at_first(case, want):
        return outcomes.Outcome(outcomes.RETURNED, -want if case is ready.cases[0] else want)

    assert said(negated_at_first) == [explaining.PARTLY_KNOWN + "The sign is wrong."]

    def error(case=None, want=None):
        return outcomes.Outcome(outcomes.RAISED, error="ValueError")

    # an exception of the same kind has many reasons: it must come wherever it comes from the mistake
    ready.mistakes[0] = [error() for _ in ready.cases]
    assert said(error)[-1] == explaining.DIAGNOSIS + ready.question.mistakes[0].says
    messages = said(lambda case, want: error() if case is ready.cases[0] else outcomes.Outcome(outcomes.RETURNED, want))
    assert messages == ["The call raises ValueError."]


def test_which_of_several_results_is_right_is_said(prepared):
    """The loss is right, the two slopes are not; of an answer whose results are all wrong, or of one result, nothing is said."""
    ready = prepared("06_grpo", 0, 0)

    def said(change):
        right = ready.question.alternatives[0]
        return checking.mark_solution(ready, lambda *given: change(*right(*given))).messages

    assert "Right in every test: the first result. Not right: the second and the third." in said(
        lambda loss, up, down: (loss, up**2, down**3)
    )
    assert not any("Right in every test" in one for one in said(lambda loss, up, down: (loss**2, up**2, down**3)))


def test_the_table_that_was_given_is_judged_alone(prepared):
    """An answer whose values are all wrong, and which leaves the table as it was, keeps the points of that part only."""
    result = checking.mark_solution(prepared("02_td", 1, 0), lambda values, *given: values + 1)
    assert [part.points for part in result.parts] == [0, 0, 0, 2]
    result = checking.mark_solution(prepared("02_td", 1, 0), lambda values, *given: 1.0)
    assert result.points == 0, "it has to be an answer of the shape that is asked for"
