"""Tests of ``assignments.grader.diagnosing``: what is said about mistakes that nobody listed."""

import inspect
import math
import re
import sys
import time

import numpy as np
import pytest
from new_mistakes import KNOWN, NEW_MISTAKES

from assignments.grader import checking, diagnosing, explaining, marking, outcomes, preparing, questions, supposing
from assignments.grader.diagnosing import SENTENCES, relation
from assignments.grader.edits import edit
from assignments.grader.questions import Case, Question

SEEDS = range(1, 4)  # and 0, in the quick tests
LEAST = 14  # of 20 new mistakes of an assignment
BITS = 8.2  # that the choice of a sentence may carry, for each part of a question; the instructor's guide says so


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


def sentence_of(said):
    """The sentence, or a piece of it, that a mistake's ``said`` stands for."""
    named = {"smallest for largest": supposing.SMALLEST, "another result": supposing.ANOTHER_RESULT} | SENTENCES
    return named.get(said) or (supposing.IF + said[3:] + "." if said.startswith("if ") else said)


def called_known(message):
    return message.startswith((explaining.DIAGNOSIS, explaining.PARTLY_KNOWN))


def check_what_is_said(ready, new):
    result = checking.mark_solution(ready, solution_of(ready.question, new))
    assert result.points < result.max_points
    if new.said != KNOWN and not new.often_known:
        assert not any(called_known(message) for message in result.messages)
    if new.said == KNOWN:
        assert any(called_known(message) for message in result.messages), result.messages
    elif new.said is not None:
        assert any(sentence_of(new.said) in message for message in result.messages), result.messages
    # whatever is said is one of the sentences that may be said, made before the answer was looked at
    may = explaining.sentences(ready)
    for message in result.messages:
        part, found, sentence = message.partition("”: ")
        assert not found or (sentence in may and part.removeprefix("Tests of “") in ready.question.parts)


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


def test_of_twenty_new_mistakes_of_each_assignment_most_get_a_sentence():
    for name in questions.names():
        new = [one for one in NEW_MISTAKES if one.assignment == name]
        assert len({one.texts + (one.question,) for one in new}) == 20
        assert sum(one.said is not None for one in new) >= LEAST, name


@pytest.mark.slow
@pytest.mark.parametrize("name", questions.names())
def test_right_solutions_get_no_sentence(prepared, name):
    for number, question in enumerate(questions.load(name).questions):
        for solution in (*question.alternatives, question.reference):
            result = checking.mark_solution(prepared(name, number, 0), solution)
            assert result.points == result.max_points and not result.messages


@pytest.mark.parametrize("name", questions.names())
def test_the_choice_of_a_sentence_carries_few_bits(name):
    for question in questions.load(name).questions:
        one, other = (
            preparing.Prepared(question, question.cases(preparing.generator(question, seed)), [], []) for seed in (0, 1)
        )
        may = explaining.sentences(one)
        assert explaining.bits_a_part(one) == math.log2(len(may) + 1) <= BITS
        assert may == explaining.sentences(other)  # no number of a hidden case stands in them


def test_the_guide_says_how_many_bits():
    """And no more than it takes for the question with the most sentences."""
    most = max(
        explaining.bits_a_part(preparing.Prepared(question, question.cases(preparing.generator(question, 0)), [], []))
        for name in questions.names()
        for question in questions.load(name).questions
    )
    assert BITS - 0.1 < most <= BITS
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
        ("reversed", lambda want: want[::-1], LINES),
        ("reversed", lambda want: want[::-1], TABLES[:2]),
        ("too early", lambda want: np.roll(want, -1, axis=0), TABLES),
        ("too early", lambda want: [*want[1:], 0.0], LINES),
        ("too late", lambda want: [0.0, *want[:-1]], LINES),
        ("twice", lambda want: 2 * want, LINES),
        ("half", lambda want: want / 2, COUNTS),
        ("divided by the length", lambda want: want / len(want), LINES),
        ("times the length", lambda want: want * want.size, TABLES),
        ("one too large", lambda want: want + 1, COUNTS),
        ("one too small", lambda want: want - 1, LINES),
        ("whole numbers", lambda want: want.astype(int), LINES),
        ("whole numbers", np.rint, LINES),
        ("rounded", lambda want: want.round(2), LINES),
        ("all but the first", lambda want: [9.0, *want[1:]], LINES),
        ("all but the last", lambda want: [*want[:-1], 9.0], LINES),
        ("constant added", lambda want: want - want.mean(), LINES),
        ("constant added", lambda want: want + 3.25, COUNTS),
        ("factor", lambda want: want / want.std(), TABLES),
        ("factor", lambda want: want * -1.7, COUNTS),
        ("only the first", lambda want: want * (1 + 0.37 * np.arange(len(want))), LINES),
        ("only the last", lambda want: want * (1 + 0.37 * np.arange(len(want)))[::-1], LINES),
        ("mean missing", lambda want: want + np.array([-1.0, 3.0, -2.0]), COUNTS),
        ("sum missing", lambda want: [want - 7, 3, 4], COUNTS),
        ("a mean too many", np.mean, LINES),
        ("a sum too many", lambda want: want.sum(axis=1), TABLES),
        ("a maximum too many", lambda want: want.max(axis=0), TABLES),
        ("first alone", lambda want: want[0], LINES),
        ("last alone", lambda want: want[-1], TABLES),
        ("square", lambda want: want[None] + np.subtract.outer(want, want), LINES),
        ("truth turned around", np.logical_not, FLAGS),
        ("running sum", np.cumsum, LINES),
        ("permuted", lambda want: np.roll(want, 1, axis=0)[::-1], LINES),
        ("permuted", lambda want: want[:, [1, 0, *range(2, want.shape[1])]], [TABLES[0], TABLES[2]]),
        ("whole multiples", lambda want: want * (1 + np.arange(len(want)) % 2), LINES),
        ("whole fractions", lambda want: want / (1 + np.arange(len(want)) % 2), LINES),
        ("constant in each row", lambda want: want - np.median(want, axis=1, keepdims=True), [TABLES[0], TABLES[2]]),
        ("factor in each row", lambda want: want / np.linalg.norm(want, axis=1, keepdims=True), [TABLES[0], TABLES[2]]),
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
    assert (
        set(diagnosing.RELATIONS) | set(diagnosing.SCALES) | set(diagnosing.WHOLE) == set(SENTENCES) > diagnosing.WEAK
    )
    (mark,) = [mark for mark in test_a_relation_is_found.pytestmark if mark.name == "parametrize"]
    assert {case[0] for case in mark.args[1]} - {None} == set(SENTENCES) - set(diagnosing.WHOLE)


def test_relations_of_whole_results():
    """The results of a call, one by one."""
    several = [(line, table) for line, table in zip(LINES, TABLES, strict=True)]
    assert relation([([two, one], [one, two]) for one, two in several]) == "results in another order"
    assert (
        relation([({"a": two, "b": one}, {"a": one, "b": two}) for one, two in several]) == "results in another order"
    )
    assert relation([([line[:2], line[2:].reshape(1, -1)], line) for line in LINES]) == "joined"
    # two arrays of one shape are two results and no table
    assert relation([([-line, line], [line, line]) for line in LINES]) == "opposite"
    assert diagnosing.partly_right([-LINES[0], LINES[1]], [LINES[0], LINES[1]], lambda value: False)
    assert not diagnosing.partly_right(
        [-LINES[0], LINES[1]], [LINES[0], LINES[1]], lambda value: value is LINES[1]
    )  # an argument


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


# --- what a right solution gives for other arguments


def discounted(rewards, gamma, done):
    total = 0.0
    for reward, over in zip(rewards[::-1], done[::-1], strict=True):
        total = reward + gamma * total * (not over)
    return {"total": total, "rewards": rewards}


def endless_at_one(rewards, gamma, done):
    while gamma == 1.0:
        gamma = abs(gamma)
    return discounted(rewards, gamma, done)


def question_of(reference, sampled=False):
    def cases(rng):
        return [
            Case((rng.normal(size=6), float(rng.uniform(0.3, 0.9)), rng.permutation(np.arange(6) == 0)), "all")
            for _ in range(4)
        ]

    return Question("q", "", "discounted", {"all": 1}, reference, cases, (), sampled=sampled)


def said_about(question, solution):
    return checking.mark_solution(preparing.prepare(question, 3), solution).messages


@pytest.mark.parametrize(
    ("solution", "said"),
    [
        (lambda rewards, gamma, done: discounted(rewards, 1.0, done), "if `gamma` is 1"),
        (lambda rewards, gamma, done: discounted(rewards, gamma, ~done), "if `done` is turned around"),
        (lambda rewards, gamma, done: discounted(rewards, gamma**2, done), "if `gamma` is squared"),
        (
            lambda rewards, gamma, done: discounted(np.where(done, 0, rewards), gamma, done) | {"rewards": rewards},
            "if `rewards` is 0 where `done` is set",
        ),
        (
            lambda rewards, gamma, done: (
                discounted(rewards, gamma, done) | {"total": discounted(rewards, gamma, done)["total"] * gamma}
            ),
            "if `rewards` is multiplied by `gamma`",
        ),
        (
            lambda rewards, gamma, done: discounted(np.exp(rewards), gamma, done) | {"rewards": rewards},
            "if the exponential of `rewards` is taken",
        ),
        (
            lambda rewards, gamma, done: discounted(np.trunc(rewards), gamma, done) | {"rewards": rewards},
            "if `rewards` is cut to whole numbers",
        ),
        (
            lambda rewards, gamma, done: discounted(np.full(6, rewards.max()), gamma, done) | {"rewards": rewards},
            "if of each row of `rewards` the largest is taken",
        ),
        # other than a right solution in one case of the four: no supposition explains that
        (lambda rewards, gamma, done: discounted(rewards, 1.0 if rewards[0] > 0 else 0.95 * gamma, done), None),
    ],
)
def test_a_supposition_is_found(solution, said):
    messages = said_about(question_of(discounted), solution)
    if said == "if `rewards` is multiplied by `gamma`":  # the same as a sentence about the result, which comes first
        assert messages == ["The result is the right one times `gamma`."]
    elif said:
        assert messages == [sentence_of(said)]
    else:
        assert not any(supposing.IF in message for message in messages)


def test_right_cases_speak_against_a_supposition(small):
    """What explains the wrong cases of a part must leave its right ones right."""
    ready = preparing.prepare(question_of(discounted), 3)

    def call(question, case):
        first = case is ready.cases[0]
        return preparing.call_here(
            question, discounted if first else lambda rewards, gamma, done: discounted(rewards, 1.0, done), case
        )

    assert not any(supposing.IF in message for message in marking.mark(ready, call).messages)


def test_where_results_are_drawn_nothing_is_supposed():
    without_discount = lambda rewards, gamma, done: discounted(rewards, 1.0, done)  # noqa: E731
    assert said_about(question_of(discounted, sampled=True), without_discount) == ["The values are not right."]


def test_an_import_is_not_stopped_halfway_and_not_counted(tmp_path, monkeypatch):
    """What a reference imports at its first call stays whole for all who need it later."""
    (tmp_path / "needed_late.py").write_text("for number in range(1000):\n    abs(number)\nwhole = True\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    def work():
        from needed_late import whole

        return whole

    first = supposing.counted(work, 100)
    assert first[0] is True and first[1] < 100
    assert supposing.counted(work, 100)[0] is True and sys.modules.pop("needed_late").whole
    result, calls = supposing.counted(lambda: [abs(number) for number in range(1000)], 100)
    assert isinstance(result, supposing.Stopped) and calls == 101 and sys.getprofile() is None


def test_a_reference_that_never_ends_is_stopped():
    before, began = sys.getprofile(), time.monotonic()
    messages = said_about(question_of(endless_at_one), lambda rewards, gamma, done: discounted(rewards, gamma**3, done))
    assert messages == ["The values are not right."] and time.monotonic() - began < 20
    assert sys.getprofile() is before
