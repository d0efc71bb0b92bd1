"""Tests of ``assignments.grader.wire``: what travels, and what is refused."""

import json

import numpy as np
import pytest

from assignments.grader import wire


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -2.5,
        "text",
        [1, [2.0, "three"]],
        {"a": [None]},
        np.arange(6).reshape(2, 3),
        np.zeros((0, 3)),
        np.array(2.5),
        np.array([True, False]),
        np.ones(3, dtype=np.float32),
        {"deep": {"deeper": [np.arange(2)]}},
    ],
)
def test_what_is_encoded_comes_back(value):
    back = wire.decode(json.loads(json.dumps(wire.encode(value))))
    np.testing.assert_equal(back, value)
    if isinstance(value, np.ndarray):
        assert back.dtype == value.dtype and back.shape == value.shape


def test_tuples_become_lists_and_numpy_numbers_plain_ones():
    assert wire.encode((np.float64(1.5), np.int64(2), np.bool_(True))) == [1.5, 2, True]


@pytest.mark.parametrize("kind", ["float16", "longdouble", "uint16", "uint64", ">f8", ">f4", ">i4"])
def test_rare_kinds_of_numbers_travel_too(kind):
    values = np.array([1, 2, 300]).astype(kind)
    for value, wanted in ((values, [1, 2, 300]), (list(values), [1, 2, 300]), (values[2], 300)):
        np.testing.assert_equal(wire.decode(json.loads(json.dumps(wire.encode(value)))), wanted)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1: 2},
        np.array([object()]),
        np.array(["a"]),
        1j,
        b"bytes",
        {1, 2},
        lambda: 0,
        type("Number", (float,), {})(1),
    ],
)
def test_other_values_cannot_travel(value):
    with pytest.raises(wire.WireError):
        wire.encode(value)


def test_deep_and_circular_values_are_refused():
    circle: list = []
    circle.append(circle)
    with pytest.raises(wire.WireError, match="deeply"):
        wire.encode(circle)


@pytest.mark.parametrize(
    "message",
    [
        {"__array__": "AAAA", "dtype": "object", "shape": [1]},
        {"__array__": "", "dtype": "float64", "shape": [1]},
        {"__array__": "!!", "dtype": "float64", "shape": [0]},
        {"__array__": "", "dtype": "float64", "shape": [-1]},
        {"__array__": "", "dtype": "float64", "shape": [0, 2**62, 2**62]},
        {"__array__": "", "dtype": "float64", "shape": "x"},
        {"__array__": "", "dtype": ["float64"], "shape": []},
        {"__array__": 3, "dtype": "float64", "shape": []},
        {"__array__": ""},
    ],
)
def test_forged_arrays_are_refused(message):
    with pytest.raises(wire.WireError):
        wire.decode(message)


@pytest.mark.parametrize("line", [b"", b"hello", b"[1]", b"3", b"\xff\xfe", b"[" * 100_000, b"{" + b"9" * 5000])
def test_only_a_dictionary_is_a_message(line):
    with pytest.raises(wire.WireError):
        wire.from_line(line)


def test_a_message_is_one_line():
    line = wire.to_line({"id": "a\nb", "value": wire.encode(np.arange(3))})
    assert line.count(b"\n") == 1 and wire.from_line(line)["id"] == "a\nb"
