"""Wrong solutions that are right nearly everywhere: each loses points by a case for its boundary."""

from dataclasses import replace

import pytest

from assignments.grader import marking, preparing, questions
from assignments.grader.edits import edit

MISSES = [
    ("02_td", "q2", "plain", "alpha *", "min(alpha, 0.6) *"),
    ("02_td", "q2", "plain", "v[next_states[t]]", "v[next_states[t]] * (gamma < 1)"),
    ("02_td", "q3", "plain", "if terminated[k] or truncated[k]", "if terminated[k] or (truncated[k] and t)"),
    ("02_td", "q4", "plain", "action_values == action_values.max()", "action_values > action_values.max() - 0.3"),
    ("02_td", "q4", "plain", "action_values == action_values.max()", "abs(action_values - action_values.max()) < 1e-3"),
    ("02_td", "q4", "plain", "rng.integers(len(action_values))", "rng.integers(max(2, len(action_values)))"),
    ("03_dqn", "q6", "plain", "epsilon(t)", "epsilon(max(t - 1, 1))"),
    ("05_trpo_ppo", "q1", "where", "entropy.mean()", "entropy.mean().detach()"),
    ("05_trpo_ppo", "q4", "loop", "range(tries)", "range(max(tries, 2))"),
    ("06_grpo", "q5", "terms", ".masked_fill(~mask, 0.0)", " * mask"),
]


@pytest.mark.parametrize(("name", "question", "solution", "old", "new"), MISSES)
def test_a_near_miss_loses_points(name, question, solution, old, new):
    (asked,) = [one for one in questions.load(name).questions if one.name == question]
    prepared = preparing.prepare(replace(asked, mistakes=()), 7)
    right = next(
        one
        for one in asked.alternatives + tuple(known.solution for known in asked.mistakes)
        if solution in one.__name__
    )

    def wrong_parts(function):
        outcomes = [preparing.call_here(asked, function, case) for case in prepared.cases]
        return [
            marking.verdict(asked, *pair)
            for pair in zip(outcomes, prepared.wanted, strict=True)
            if marking.verdict(asked, *pair)
        ]

    assert not wrong_parts(right) and wrong_parts(edit(right, old, new))
