"""Tests of ``assignments.grader.reading``: whatever a student sends costs the grader's own process little."""

from __future__ import annotations

import functools
import json
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from assignments.grader import marking, outcomes, preparing, questions, reading, sandbox, wire
from assignments.grader.comparing import NOT_NUMBERS, NOTHING, WRONG_SHAPE, WRONG_WORDS
from assignments.grader.outcomes import RETURNED, UNLIKE, Outcome

SECONDS, BYTES = 1.0, 40e6  # that an answer may cost beside four times what a plain wrong one costs


@functools.cache
def prepared(name, number=None, mistakes=True):
    """The questions of an assignment, or one of them, prepared with their known mistakes."""
    chosen = [one for one in questions.load(name).questions if number in (None, one.name)]
    return [preparing.prepare(one if mistakes else replace(one, mistakes=()), 7) for one in chosen]


ODD = {
    "a text": "x" * 600_000,
    "a short text": "abc",
    "texts": ["xy" * 50] * 2_000,
    "a long key": {"k" * 500_000: 1},
    "keys": {str(number): number for number in range(3_000)},
    "a number without end": 10**4000,
    "a large number": 2**63 - 1,
    "a negative number": -(2**63),
    "nothing": None,
    "not a number": float("nan"),
    "infinite": float("inf"),
    "huge": 1e308,
    "truth": True,
    "an empty list": [],
    "empty lists": [[]] * 3_000,
    "deep": [[[[[[0.0]]]]]],
    "uneven": [[0.0] * number for number in range(40)],
    "many": [0.5] * 9_000,
    "an array": np.zeros(9_000, dtype="uint8"),
    "an array of eight axes": np.zeros((2,) * 8),
    "rows without columns": np.zeros((100_000, 0)),
    "columns without rows": np.zeros((0, 100_000)),
    "a column": np.ones((900, 1)),
    "a row": np.ones((1, 900)),
    "small numbers": np.full(50, 5e-324),
}


def everywhere(value, new):
    """A result with something else in all places of it."""
    if isinstance(value, dict):
        return {key: everywhere(one, new) for key, one in value.items()}
    return [everywhere(one, new) for one in value] if isinstance(value, list) else new


def once(value, new):
    """A result with something else in its first place; of an array, as a list."""
    if isinstance(value, dict):
        key = next(iter(value))
        return value | {key: once(value[key], new)}
    if isinstance(value, np.ndarray) and value.ndim and len(value):
        value = value.tolist()
    return [once(value[0], new), *value[1:]] if isinstance(value, list) and value else new


def longer(value, new):
    """A result with something more at the end of each list and array."""
    if isinstance(value, dict):
        return {key: longer(one, new) for key, one in value.items()}
    if isinstance(value, np.ndarray) and value.ndim:
        value = value.tolist()
    return [*value, new] if isinstance(value, list) else new


WAYS = {"whole": lambda value, new: new, "everywhere": everywhere, "once": once, "longer": longer}


def total(value, count, known):
    """The sum of a count over a value and all that it holds; what stands in many places is looked at once."""
    if id(value) not in known:
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        known[id(value)] = count(value) + sum(total(one, count, known) for one in inside)
    return known[id(value)]


def arrived(value):
    """What comes out of a sandbox that sends this; what is far too large for it is not written down first."""
    texts = total(value, lambda one: len(one) if isinstance(one, str) else 0, {})
    if texts > wire.MAX_BYTES or total(value, lambda one: 1, {}) > wire.MAX_ITEMS:
        return Outcome(outcomes.CRASHED)
    try:
        sent = wire.encode(value)
        line = json.dumps({"value": sent}).encode()
    except (ValueError, RecursionError):
        return Outcome(outcomes.RAISED, error="an exception")
    if len(line) > wire.MAX_BYTES or wire.items(line) > wire.MAX_ITEMS:
        return Outcome(outcomes.CRASHED)
    return sandbox.outcome({"kind": RETURNED, "value": sent})


def cost(one, outcomes):
    """Seconds that marking takes, bytes (in a second pass: counting them takes time), and the result."""
    given, again = iter(outcomes), iter(outcomes)
    began = time.thread_time()
    result = marking.mark(one, lambda question, case: next(given))
    spent = time.thread_time() - began
    tracemalloc.start()
    marking.mark(one, lambda question, case: next(again))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return spent, peak, result


@pytest.mark.parametrize(
    ("name", "tries"), [("01_mdps", 2), *(pytest.param(name, 25, marks=pytest.mark.slow) for name in questions.names())]
)
def test_no_answer_costs_much(name, tries):
    """Comparisons with the right result and with every known mistake, and relations, all together."""
    rng = np.random.default_rng(len(name) + tries)
    pairs = [(way, odd) for way in WAYS for odd in ODD]
    for one in prepared(name):
        plain = cost(one, [arrived(everywhere(want, 0.5)) for want in one.wanted])
        for way, odd in [("everywhere", "many"), ("once", "a text"), *rng.permutation(pairs)[:tries]]:
            spent, peak, _ = cost(one, [arrived(WAYS[way](want, ODD[odd])) for want in one.wanted])
            said = (one.question.name, way, odd, spent, peak)
            assert spent < SECONDS + 4 * plain[0] and peak < BYTES + 4 * plain[1], said


def test_a_long_text_among_numbers_is_not_looked_at():
    """A table of texts has entries as wide as the longest one: 600 kB among 1,300 numbers would take 3 GB."""
    (one,) = prepared("02_td", "q4", mistakes=False)
    answer = ["x" * 600_000] + [0] * (len(one.wanted[0]) - 1)
    spent, peak, result = cost(one, [Outcome(RETURNED, answer) for _ in one.wanted])
    assert result.points == 0 and spent < 1 and peak < 20e6, (spent, peak)


def test_a_judge_sees_only_what_was_read():
    """The rule itself: no text and no dictionary where the right result has none, in any question."""
    for name in ("01_mdps", "02_td"):
        for one in prepared(name, mistakes=name == "01_mdps"):
            seen = []

            def compare(got, want):
                return seen.append(got) or "wrong"  # noqa: B023

            compare.entries = lambda got, want: seen.append(got) or np.zeros(1, dtype=bool)  # noqa: B023
            question = replace(one.question, compare=compare)
            for way in WAYS.values():
                for new in ("abc", {"a": 1}, 10**40, [[[[[[[1]]]]]]]):
                    given = iter([Outcome(RETURNED, way(want, new)) for want in one.wanted])
                    marking.mark(replace(one, question=question), lambda *_: next(given))  # noqa: B023
            assert not [value for value in seen if odd_leaf(value)], one.question.name


def odd_leaf(value, depth=0):
    """Whether something in a value is a text or a number that no array holds."""
    if isinstance(value, dict):
        return any(odd_leaf(inner, depth + 1) for inner in value.values())
    if isinstance(value, (list, tuple)):
        return depth > 6 or any(odd_leaf(inner, depth + 1) for inner in value)
    return isinstance(value, str) or (isinstance(value, int) and abs(value) >= 2**64)


@pytest.mark.parametrize(
    ("got", "want", "why"),
    [
        ([1.0, 2.0], np.zeros(2), None),
        (np.zeros((2, 1, 1)), np.zeros(2), None),
        (np.zeros((2, 1, 1, 1)), np.zeros(2), WRONG_SHAPE),
        ([[[[1]]]], np.zeros(2), WRONG_SHAPE),
        ([1.0, "2"], np.zeros(2), NOT_NUMBERS),
        (None, np.zeros(2), NOTHING),
        ([None, 1], np.zeros(2), NOT_NUMBERS),
        ([7, None, None], [7, None], None),
        ([7, "x", None], [7, None], NOT_NUMBERS),
        ({"a": 1}, {"a": 1}, None),
        ({"b": 1}, {"a": 1}, WRONG_WORDS),
        ({"a": 1}, 1.0, NOT_NUMBERS),
        ("word", "word", None),
        ("w" * 1100, "word", reading.TOO_LARGE),
        ("w" * 1000, "word", None),
        (["word"], "word", WRONG_WORDS),
        (2**64, 1, NOT_NUMBERS),
        (2**64 - 1, 1, None),
        ([0] * 1_019, [0, 0], None),
        ([0] * 1_030, [0, 0], reading.TOO_LARGE),
        ([0] * 1_031, [0, 0], reading.TOO_LARGE),
        (np.zeros(514), np.zeros(2), None),
        (np.zeros(521), np.zeros(2), reading.TOO_LARGE),
        ([np.zeros(2), 1.0], [1.0, np.zeros(2)], None),
    ],
)
def test_what_is_read(got, want, why):
    assert reading.unlike(got, want) == why


def test_at_most_ten_times_and_a_thousand():
    """The bound itself, on both sides: 1 for the list and 10 times 3."""
    assert reading.unlike([0] * (reading.ROOM + 10 * 3 - 1), [0, 0]) is None
    assert reading.unlike([0] * (reading.ROOM + 10 * 3), [0, 0]) == reading.TOO_LARGE


def test_a_mistake_is_known_by_what_is_not_read_too():
    """A known mistake that returns a text is called by its name."""
    one = prepared("01_mdps")[0]
    text = [preparing.read(Outcome(RETURNED, "text"), want) for want in one.wanted]
    assert {outcome.kind for outcome in text} == {UNLIKE}
    result = marking.mark(replace(one, mistakes=[text]), lambda *_: Outcome(RETURNED, "text"))
    assert result.messages[-1].endswith(one.question.mistakes[0].says)
