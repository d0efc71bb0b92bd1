"""Tests of ``assignments.grader.explaining``: which known mistake a wrong answer looks like, and what helps with the others."""

import contextlib
import io
import sys
import types

import pytest
from new_mistakes import NEW_MISTAKES

from assignments.grader import cells, checking, explaining, marking, notebooks, outcomes, preparing, questions
from assignments.grader import visible_checks
from assignments.grader.edits import edit

SEEDS = range(1, 4)  # and 0, in the quick tests


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


@pytest.fixture(scope="module")
def solved():
    """What the instructor's notebook defines, and what its visible checks need, by assignment."""
    made = {}

    def get(name):
        if name not in made:
            assignment = questions.load(name)
            notebook = notebooks.read(assignment.notebook)
            made[name] = checking.solutions(assignment, notebook), cells.given(assignment, notebook).quoted
        return made[name]

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


def name_of(new):
    return f"{new.assignment}-q{new.question + 1}-{new.why}"


@pytest.mark.parametrize("new", [one for one in NEW_MISTAKES if one.question < 5], ids=name_of)
def test_a_new_mistake_loses_points_and_is_not_called_by_a_wrong_name(prepared, new):
    check_what_is_said(prepared(new.assignment, new.question, 0), new)


@pytest.mark.slow
@pytest.mark.parametrize("new", NEW_MISTAKES, ids=name_of)
def test_a_new_mistake_loses_points_whatever_the_seed(prepared, new):
    for seed in SEEDS if new.question < 5 else (0, *SEEDS):  # the last question of each assignment takes longest
        check_what_is_said(prepared(new.assignment, new.question, seed), new)


@pytest.mark.parametrize("new", NEW_MISTAKES, ids=name_of)
def test_a_new_mistake_stops_at_a_visible_check_that_prints_its_own_number(solved, new, monkeypatch):
    """Nobody listed it: the number beside the right one is what helps, on the page as in the notebook."""
    question = questions.load(new.assignment).questions[new.question]
    names, quoted = solved(new.assignment)
    result = outcomes.QuestionResult(question.name, "", 0.0, question.points, outcomes.RETURNED)

    def call(asked, case):
        main = types.ModuleType("__main__")
        vars(main).update(names | {question.function: solution_of(question, new)})
        monkeypatch.setitem(sys.modules, "__main__", main)
        with contextlib.redirect_stdout(io.StringIO()):
            return outcomes.Outcome(outcomes.RETURNED, list(asked.driver(None, *case.arguments)))

    visible_checks.add([result], [question], quoted, call)
    (said,) = result.messages
    assert said.startswith(visible_checks.RAISED_AT.partition("{")[0]) or (
        said.startswith(visible_checks.STOP) and "..." not in said
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", questions.names())
def test_right_solutions_get_no_sentence(prepared, name):
    for number, question in enumerate(questions.load(name).questions):
        for solution in (*question.alternatives, question.reference):
            result = checking.mark_solution(prepared(name, number, 0), solution)
            assert result.points == result.max_points and not result.messages


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


def test_a_known_mistake_goes_before_all_other_sentences(small):
    ready = preparing.prepare(small.questions[0], 1)
    wanted = {id(case): want for case, want in zip(ready.cases, ready.wanted, strict=True)}

    def said(change):
        return marking.mark(
            ready, lambda question, case: outcomes.Outcome(outcomes.RETURNED, change(wanted[id(case)]))
        ).messages

    assert said(lambda want: -want) == [explaining.DIAGNOSIS + "The sign is wrong."]
    assert said(lambda want: want**3 + want) == ["The values are not right."]


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
