"""Tests of ``assignments.grader.diagnosing``: what is said about mistakes that nobody listed."""

import inspect
import re

import numpy as np
import pytest

from assignments.grader import checking, diagnosing, marking, questions
from assignments.grader.diagnosing import SENTENCES, relation
from assignments.grader.edits import edit

SEEDS = range(4)

# (assignment, question, base, the relation that is named or None, texts of the edit): written before the relations were,
# as mistakes that students make and that no list of known ones holds; "by chance" if it depends on the seed
NEW_MISTAKES = [
    # costs instead of rewards
    ("01_mdps", 0, "discounted_returns_plain", "opposite", ("returns[t] = G", "returns[t] = -G")),
    # rounded for printing
    ("01_mdps", 0, "discounted_returns_plain", "rounded", ("return returns", "return returns.round(2)")),
    # a column, as for a network
    ("01_mdps", 0, "discounted_returns_plain", "axis of length 1", ("return returns", "return returns[:, None]")),
    # the final value stands in the result
    ("01_mdps", 0, "discounted_returns_plain", "one more at the end", ("return returns", "return np.append(returns, final_value)")),
    # one step too few
    ("01_mdps", 0, "discounted_returns_plain", None, ("reversed(range(len(rewards)))", "reversed(range(len(rewards) - 1))")),
    # one matrix for each action
    ("01_mdps", 1, "build_maze_plain", "axes", ("return P, R, terminal", "return P.swapaxes(0, 1), R.swapaxes(0, 1), terminal")),
    # a row for each action
    ("01_mdps", 2, "q_from_values_plain", "axes", ("return q_values", "return q_values.T")),
    # the discount of two steps
    ("01_mdps", 3, "evaluate_policy_plain", None, ("gamma * P", "gamma**2 * P")),
    # the table of zeros counts as a sweep
    ("01_mdps", 4, "value_iteration_plain", "one too large", ("0, np.inf", "1, np.inf")),
    # the history starts with the table of zeros
    ("01_mdps", 5, "policy_iteration_plain", "one more at the start", ("dtype=int), []", "dtype=int), [np.zeros(S)]")),
    # the loss instead of the log-probability
    ("04_policy_gradients", 0, "categorical_log_prob_rows", "opposite", ("return log_probs", "return -log_probs")),
    # gathered, not squeezed
    ("04_policy_gradients", 0, "categorical_log_prob_rows", "axis of length 1", ("actions]", "actions][:, None]")),
    # the constant with the wrong sign
    ("04_policy_gradients", 1, "gaussian_log_prob_formula", "constant added", ("- 0.5 * math", "+ 0.5 * math")),
    # another map to positive numbers
    ("04_policy_gradients", 1, "gaussian_log_prob_formula", None, ("log_std.exp()", "torch.nn.functional.softplus(log_std)")),
    # a baseline already here
    ("04_policy_gradients", 2, "rewards_to_go_backwards", "constant added", ("return result", "return result - result.mean()")),
    # one half as in the critic's loss
    ("04_policy_gradients", 3, "policy_loss_detached", "half", ("return -(", "return -0.5 * (")),
    # only good actions are learned from
    ("04_policy_gradients", 3, "policy_loss_detached", None, ("(returns - values)", "(returns - values).clamp(min=0)")),
    # one row for each copy
    ("04_policy_gradients", 4, "generalized_advantages_backwards", "axes",
     ("return advantages, advantages + values", "return advantages.T, (advantages + values).T")),
    # divided by their deviation here, not in the update
    ("04_policy_gradients", 4, "generalized_advantages_backwards", "factor",
     ("return advantages,", "return advantages / advantages.std(),")),
    # the critic goes uphill, and only the value of the terminal state, the last one, stays right
    ("04_policy_gradients", 5, "actor_critic_update_add_at", "by chance", ("critic_rate *", "-critic_rate *")),
]  # fmt: skip


@pytest.fixture(scope="module")
def prepared():
    """The prepared questions, by assignment, number and seed."""
    loaded, made = {}, {}

    def get(name, number, seed):
        assignment = loaded.setdefault(name, None) or questions.load(name)
        loaded[name] = assignment
        key = (name, number, seed)
        if key not in made:
            made[key] = marking.prepare(assignment.questions[number], seed)
        return made[key]

    return get


def base_of(question, name):
    return next(one for one in (*question.alternatives, question.reference) if one.__name__ == name)


@pytest.mark.parametrize(("name", "number", "base", "named", "texts"), NEW_MISTAKES)
def test_a_new_mistake_gets_a_sentence(prepared, name, number, base, named, texts):
    for seed in SEEDS:
        ready = prepared(name, number, seed)
        result = checking.mark_solution(ready, edit(base_of(ready.question, base), *texts))
        assert result.points < result.max_points
        assert not any(marking.DIAGNOSIS in message for message in result.messages)  # it is none of the known ones
        said = [message for message in result.messages if any(message.endswith(sentence) for sentence in SENTENCES.values())]
        if named is None:
            assert not said, said
        elif named != "by chance":
            assert any(message.endswith(SENTENCES[named]) for message in said), (seed, result.messages)


RNG = np.random.default_rng(0)
LINES = [RNG.normal(size=length) * 3 for length in (5, 7, 6)]
TABLES = [RNG.normal(size=shape) for shape in ((4, 3), (5, 2), (3, 6))]
COUNTS = [3, 5, 8]


@pytest.mark.parametrize(
    ("named", "change", "wanted"),
    [
        ("not finite", lambda want: np.where(want > want.mean(), np.nan, want), LINES),
        ("not finite", lambda want: np.where(want > want.mean(), np.inf, want), TABLES),
        ("axis of length 1", lambda want: want[:, None], LINES), ("axis of length 1", lambda want: [want], LINES[0].tolist()),
        ("axes", np.transpose, TABLES), ("axes", lambda want: want.transpose(1, 2, 0), [np.stack([table] * 2) for table in TABLES]),
        ("one more at the start", lambda want: np.insert(want, 0, 0), LINES), ("one more at the end", lambda want: [*want, 0.0], LINES),
        ("first missing", lambda want: want[1:], LINES), ("last missing", lambda want: want[:-1], TABLES),
        ("zero", np.zeros_like, TABLES), ("zero", lambda want: 0, COUNTS), ("opposite", np.negative, LINES),
        ("reversed", lambda want: want[::-1], LINES), ("reversed", lambda want: want[::-1], TABLES[:2]),
        ("too early", lambda want: np.roll(want, -1, axis=0), TABLES), ("too early", lambda want: [*want[1:], 0.0], LINES),
        ("too late", lambda want: [0.0, *want[:-1]], LINES), ("twice", lambda want: 2 * want, LINES), ("half", lambda want: want / 2, COUNTS),
        ("divided by the length", lambda want: want / len(want), LINES), ("times the length", lambda want: want * want.size, TABLES),
        ("one too large", lambda want: want + 1, COUNTS), ("one too small", lambda want: want - 1, LINES),
        ("whole numbers", lambda want: want.astype(int), LINES), ("whole numbers", np.rint, LINES), ("rounded", lambda want: want.round(2), LINES),
        ("all but the first", lambda want: [9.0, *want[1:]], LINES), ("all but the last", lambda want: [*want[:-1], 9.0], LINES),
        ("constant added", lambda want: want - want.mean(), LINES), ("constant added", lambda want: want + 3.25, COUNTS),
        ("factor", lambda want: want / want.std(), TABLES), ("factor", lambda want: want * -1.7, COUNTS),
        ("only the first", lambda want: want * np.arange(1, len(want) + 1), LINES),
        ("only the last", lambda want: want * np.arange(len(want), 0, -1), LINES),
        (None, lambda want: want**2 + want, LINES), (None, lambda want: "text", LINES), (None, lambda want: 10**4000, COUNTS),
        (None, lambda want: None, LINES), (None, lambda want: {"a": want}, LINES), (None, lambda want: [want, want], LINES),
        (None, lambda want: np.full(np.shape(want), np.nan), LINES), (None, lambda want: want * want, COUNTS),
    ],
)  # fmt: skip
def test_a_relation_is_found(named, change, wanted):
    pairs = [(change(want), want) for want in wanted]
    assert relation(pairs) == named
    assert relation([([{"a": got, "b": 1.0}, "word"], [{"a": want, "b": 1.0}, "word"]) for got, want in pairs]) == named  # beside what is right
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
    assert relation([(np.array([4.0]), np.array([1.0])), (np.array([6.0]), np.array([2.0]))]) is None  # a factor always fits


def test_every_relation_has_a_sentence_and_a_test():
    assert set(diagnosing.RELATIONS) | set(diagnosing.SCALES) == set(SENTENCES)
    (mark,) = [mark for mark in test_a_relation_is_found.pytestmark if mark.name == "parametrize"]
    assert {case[0] for case in mark.args[1]} - {None} == set(SENTENCES)


def test_sentences_hold_no_number_and_are_all_different():
    assert len(set(SENTENCES.values())) == len(SENTENCES) and not re.search(r"[02-9]", " ".join(SENTENCES.values()))
    assert not re.search(r"\bf[\"']|\.format\(|str\(", inspect.getsource(diagnosing))  # nothing is filled in


def test_a_part_gets_one_sentence_and_equal_ones_are_said_once(small):
    question = small.questions[0]
    ready = marking.prepare(question, 1)
    wanted = {id(case): want for case, want in zip(ready.cases, ready.wanted, strict=True)}

    def said(change):
        return marking.mark(ready, lambda question, case: marking.Outcome(marking.RETURNED, change(case, wanted[id(case)]))).messages

    assert said(lambda case, want: -want) == [marking.DIAGNOSIS + "The sign is wrong."]  # a known mistake goes before
    assert said(lambda case, want: want + 1) == [SENTENCES["one too large"]]
    first = next(iter(question.parts))
    mixed = said(lambda case, want: want + 1 if case.part == first else want / 2)
    assert mixed == [f"Tests of “{first}”: {SENTENCES['one too large']}", f"Tests of “gamma 0”: {SENTENCES['half']}"]
    partly = said(lambda case, want: want + 1 if case.part == first else want**3 + want)
    assert partly == ["The values are not right.", f"Tests of “{first}”: {SENTENCES['one too large']}"]
    assert said(lambda case, want: want**3 + want if case is ready.cases[0] else want + 1)[0] == "The values are not right."
