"""Tests of the door: what each kind of annotation lets in, what it refuses, and in which words."""

import math
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pytest
import torch

from rlbook_lib import checks
from rlbook_lib.checks import (
    Array,
    Count,
    Finite,
    Flags,
    Floats,
    Integers,
    LogProbs,
    Mask,
    MaskedFloats,
    Natural,
    NotNegative,
    Numbers,
    OpenUnitInterval,
    Positive,
    Probabilities,
    Range,
    UnitInterval,
    check,
    checked,
    library_of,
    settings,
)
from rlbook_lib.evaluation import bootstrap_interval
from rlbook_lib.returns import return_bound

NAN = math.nan
RIGHT = [
    (Finite, -3, -3.0),
    (Positive, np.float32(2), 2.0),
    (NotNegative, 0, 0.0),
    (UnitInterval, 1, 1.0),
    (OpenUnitInterval, 0.5, 0.5),
    (Count, np.int64(3), 3),
    (Natural, 0, 0),
    (int, -2, -2),
    (float, 1, 1.0),
    (bool, np.True_, True),
    (str, "a", "a"),
    (Literal["a", "b"], "b", "b"),
    (Literal[0, 1], 1, 1),
    (Positive | None, None, None),
    (Positive | Literal["auto"], "auto", "auto"),
    (tuple[Count, ...], [3, 4], (3, 4)),
    (tuple[Positive, UnitInterval], (2, 1), (2.0, 1.0)),
    (Sequence[Finite], np.array([1, 2]), [1.0, 2.0]),
    (dict[str, Count], {"a": 1}, {"a": 1}),
    (Any, NAN, NAN),
]
WRONG = [
    (Finite, NAN, ValueError, "a finite number"),
    (Finite, math.inf, ValueError, "a finite number"),
    (Finite, "1", TypeError, "a finite number"),
    (Finite, None, TypeError, "a finite number"),
    (Finite, True, TypeError, "a finite number"),
    (Finite, 1j, TypeError, "a finite number"),
    (Positive, 0, ValueError, "a number, above 0"),
    (NotNegative, -1e-9, ValueError, "a number, 0 or more"),
    (UnitInterval, 1.01, ValueError, "a number, from 0 to 1"),
    (OpenUnitInterval, 1, ValueError, "a number, above 0 and below 1"),
    (Count, 0, ValueError, "a whole number, 1 or more"),
    (Count, 2.5, TypeError, "a whole number, 1 or more"),
    (Count, 2.0, TypeError, "a whole"),
    (Natural, -1, ValueError, "a whole number, 0 or more"),
    (int, "x", TypeError, "a whole number"),
    (bool, 1, TypeError, "True or False"),
    (str, 3, TypeError, "text"),
    (Literal["a", "b"], "c", ValueError, "one of 'a', 'b'"),
    (Literal["a", "b"], 3, TypeError, "one of 'a', 'b'"),
    (Literal[0, 1], True, TypeError, "one of 0, 1"),
    (Positive | None, 0, ValueError, "a number, above 0"),
    (Positive | Literal["auto"], "b", ValueError, "one of 'auto'"),
    (Positive | Literal["auto"], [], TypeError, "a number, above 0 or one of 'auto'"),
    (Callable[..., Any], 3, TypeError, "a function"),
    (tuple[Count, ...], 3, TypeError, "a tuple of entries"),
    (tuple[Count, ...], "ab", TypeError, "a tuple"),
    (tuple[Positive, UnitInterval], (1,), ValueError, "a tuple of 2 entries"),
    (dict[str, Count], [1], TypeError, "a mapping"),
    (np.random.Generator, 0, TypeError, "a Generator"),
]


@pytest.mark.parametrize(("kind", "value", "expected"), RIGHT)
def test_what_is_right_comes_in_as_plain_python(kind, value, expected):
    found = check("x", value, kind)
    assert found is expected if expected is None or expected is NAN else found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(("kind", "value", "error", "wanted"), WRONG)
def test_what_is_wrong_is_named(kind, value, error, wanted):
    with pytest.raises(error, match=re.escape("x is ") + ".*; expected " + re.escape(wanted)):
        check("x", value, kind)


def test_an_entry_and_a_key_are_named():
    with pytest.raises(ValueError, match=re.escape("hidden[1] is 0; expected a whole number, 1 or more")):
        check("hidden", (3, 0), tuple[Count, ...])
    with pytest.raises(ValueError, match=re.escape("sizes['b'] is 0; expected")):
        check("sizes", {"a": 1, "b": 0}, dict[str, Count])


def test_a_long_value_is_shortened():
    with pytest.raises(TypeError, match=r"^x is \[0, 1, .{1,70} \(list\); expected text$"):
        check("x", list(range(10_000)), str)


# ------------------------------------------------------------------------------------------------------- arrays

ARRAYS_WRONG = [
    (Floats[Array, "N"], "abc", TypeError, "x is 'abc'; expected real numbers"),
    (Floats[Array, "N"], None, TypeError, "x is None; expected real numbers"),
    (Floats[Array, "N"], [[1], [1, 2]], TypeError, "x is [[1], [1, 2]]; expected an array of numbers"),
    (Floats[Array, "N"], [1j], TypeError, "x has type complex128; expected real numbers"),
    (Floats[Array, "N"], [True], TypeError, "x has type bool; expected real numbers"),
    (Floats[Array, "N"], [], ValueError, "x is empty, of shape (0,); expected at least one number"),
    (Floats[Array, "N"], [[1.0]], ValueError, "x has shape (1, 1); expected (N,)"),
    (Floats[Array, "N 2"], [[1.0, 2.0, 3.0]], ValueError, "x has shape (1, 3); expected (N, 2)"),
    (Floats[Array, "N N"], [[1.0, 2.0]], ValueError, "x has shape (1, 2); expected (N, N)"),
    (Floats[Array, "T ..."], 3.0, ValueError, "x has shape (); expected (T, ...)"),
    (Floats[Array, "T N?"], 3.0, ValueError, "x has shape (); expected (T,) or (T, N)"),
    (Floats[Array, "T N?"], [[[1.0]]], ValueError, "x has shape (1, 1, 1); expected (T,) or (T, N)"),
    (Floats[Array, "N"], [1.0, NAN], ValueError, "x holds NaN or infinite values; expected finite numbers"),
    (Floats[Array, "N"], [math.inf], ValueError, "x holds NaN or infinite values; expected finite numbers"),
    (
        Probabilities[Array, "... A"],
        [0.5, 0.4],
        ValueError,
        "x has a row that sums to 0.9; expected probabilities that sum to 1",
    ),
    (Probabilities[Array, "... A"], [1.5, -0.5], ValueError, "x holds -0.5; expected real numbers, 0 or more"),
    (Numbers[Array, "N"], [True], TypeError, "x has type bool; expected real numbers"),
    (
        LogProbs[Array, "N"],
        [0.5, NAN],
        ValueError,
        "x holds NaN or inf; expected finite numbers, or -inf for a probability of 0",
    ),
    (LogProbs[Array, "N"], [0.5, math.inf], ValueError, "x holds NaN or inf"),
    (Integers[Array, "N"], [1.5], ValueError, "x holds fractions; expected whole numbers"),
    (Flags[Array, "N"], [0, 2], ValueError, "x holds values other than 0 and 1; expected flags, True or False"),
    (
        Mask[Array, "B T"],
        [[1, 0], [0, 0]],
        ValueError,
        "x is empty in row 1; expected at least one flag that is set in each row",
    ),
    (Integers[Array, "S"] | Probabilities[Array, "S A"], [[1, 1]], ValueError, "x has a row that sums to 2"),
    (Integers[Array, "S"] | Probabilities[Array, "S A"], [0.5, 0.5], ValueError, "x holds fractions"),
]


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize(("kind", "value", "error", "says"), ARRAYS_WRONG)
def test_a_wrong_array_is_named(kind, value, error, says, as_tensor):
    if as_tensor:
        try:
            value = torch.tensor(value)
        except (TypeError, ValueError, RuntimeError):
            pytest.skip("no tensor holds that")
        says = says.replace("complex128", "torch.complex64").replace("type bool", "type torch.bool")
    with pytest.raises(error, match=re.escape(says)):
        check("x", value, kind)


def test_types_of_arrays():
    assert check("x", [1, 2], Floats[Array, "N"]).dtype == np.float64
    assert check("x", np.ones(2, np.float32), Floats[Array, "N"]).dtype == np.float32
    assert check("x", [1.0, 2.0], Integers[Array, "N"]).dtype == np.int64
    assert check("x", [1, 0], Flags[Array, "N"]).dtype == bool
    assert check("x", torch.ones(2, dtype=torch.int64), Floats[Array, "N"]).dtype == torch.get_default_dtype()
    assert check("x", [1.0, -math.inf], LogProbs[Array, "N"])[1] == -math.inf
    assert math.isnan(check("x", [1.0, NAN, math.inf], Numbers[Array, "N"])[1])


def test_probabilities_sum_to_one_as_well_as_their_type_can():
    rows = np.random.default_rng(0).dirichlet(np.ones(10_000), 20).astype(np.float32)
    assert check("x", rows, Probabilities[Array, "... A"]) is rows
    check("x", torch.from_numpy(rows), Probabilities[Array, "... A"])
    with pytest.raises(ValueError, match="a row that sums to"):
        check("x", rows.astype(float) * (1 + 1e-5), Probabilities[Array, "... A"])


@checked(arrays="either")
def difference(
    x: Floats[Array, "T ..."],
    y: Floats[Array, "T ..."],
    scale: Positive = 1.0,
    weights: Floats[Array, "T"] | None = None,
) -> Array:
    return (x - y) * scale


@checked(arrays="tensors")
def masked_sum(x: MaskedFloats[Array, "B T"], mask: Mask[Array, "B T"]) -> Array:
    return library_of(x).where(mask, x, 0.0).sum()


class Table:
    axes_lengths = {"S": 3}


@checked
def read(table: Table, values: Floats[Array, "S"]) -> Array:
    return values


def test_arguments_of_one_call_share_their_letters():
    with pytest.raises(ValueError, match=re.escape("y has shape (3,); expected (2,), like x")):
        difference([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match=re.escape("y has shape (2, 3); expected (2, 2), like x")):
        difference(np.ones((2, 2)), np.ones((2, 3)))
    with pytest.raises(ValueError, match=re.escape("weights has shape (1,); expected (2,), like x")):
        difference([1, 2], [1, 2], weights=[1])
    with pytest.raises(ValueError, match=re.escape("values has shape (2,); expected (3,), like table")):
        read(Table(), [1, 2])


def test_tensors_stay_tensors_and_numpy_stays_numpy():
    assert isinstance(difference([1, 2], [0, 1]), np.ndarray)
    mixed = difference(torch.tensor([1.0, 2.0], requires_grad=True), [0, 1])
    assert mixed.requires_grad
    assert masked_sum([[1, 2]], [[1, 0]]) == 1.0
    assert isinstance(masked_sum([[1, 2]], [[1, 0]]), float)
    assert isinstance(masked_sum(torch.ones(1, 2), [[1, 0]]), torch.Tensor)


@checked(arrays="either")
def product(x: Floats[Array, "* K"], y: Floats[Array, "* K"], z: Floats[Array, "*"] = 1.0) -> Array:
    return (x * y).sum(-1) * z


def test_a_word_a_number_or_an_array():
    kind = Literal["none", "mean"] | Floats[Array, ""] | Floats[Array, "S"]
    assert check("b", "mean", kind) == "mean"
    assert check("b", 1.5, kind) == 1.5
    assert check("b", [1, 2], kind).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="b is 'best'; expected one of 'none', 'mean'"):
        check("b", "best", kind)
    with pytest.raises(ValueError, match="b holds NaN"):
        check("b", NAN, kind)


@pytest.mark.parametrize("make", [np.ones, torch.ones])
def test_a_star_stands_for_shapes_that_broadcast(make):
    assert product(make((2, 1, 4)), make((3, 4)), make((5, 2, 1))).shape == (5, 2, 3)
    with pytest.raises(ValueError, match=re.escape("y has shape (3, 4); expected (2, 4), like x")):
        product(make((2, 4)), make((3, 4)))
    with pytest.raises(ValueError, match=re.escape("y has shape (2, 3); expected (2, 4), like x")):
        product(make((2, 4)), make((2, 3)))
    with pytest.raises(ValueError, match=re.escape("z has shape (3,); expected (2,), like x")):
        product(make((2, 4)), make((2, 4)), make(3))


@checked(arrays="either")
def columns(x: Floats[Array, "T N?"], y: Floats[Array, "T N?"]) -> Array:
    return x + y


@pytest.mark.parametrize("make", [np.ones, torch.ones])
def test_an_axis_may_be_missing_in_all_arguments_alike(make):
    assert columns(make(3), make(3)).shape == (3,) and columns(make((3, 2)), make((3, 2))).shape == (3, 2)
    for x, y, expected in [((3,), (3, 1), "(3,)"), ((3, 1), (3,), "(3, 1)"), ((3, 2), (3, 4), "(3, 2)")]:
        with pytest.raises(ValueError, match=re.escape(f"y has shape {y}; expected {expected}, like x")):
            columns(make(x), make(y))


def test_one_number_that_goes_out_is_a_float():
    assert type(product([1.0, 2.0], [3.0, 4.0])) is float
    assert type(product(np.ones(2, np.float32), np.ones(2, np.float32))) is float
    assert isinstance(product(torch.ones(2), [3.0, 4.0]), torch.Tensor)


@checked(arrays="either")
def bootstrap(values: Floats[Array, "T", Range(), "ends"], ends: Flags[Array, "T"]) -> Array:
    return values + 0.0


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_flags_excuse_what_is_not_finite(make):
    first, second = bootstrap(make([1.0, NAN]), make([0, 1])).tolist()
    assert first == 1.0 and math.isnan(second)  # not looked at, and not changed: to leave it out is the body's task
    with pytest.raises(ValueError, match="values holds NaN or infinite values"):
        bootstrap(make([1.0, NAN]), make([1, 0]))


def test_library_of():
    assert library_of(1.0, np.ones(2)) is np
    assert library_of(np.ones(2), torch.ones(2)) is torch


def test_plain_numbers_keep_their_digits_and_take_the_type_of_tensors():
    @checked(arrays="tensors")
    def total(x: Floats[Array, "..."], y: Floats[Array, "..."]) -> Array:
        return x + y

    assert total(0.1, 0.2) == 0.1 + 0.2  # no float32 in between
    assert total(torch.tensor(0.5), 0.25).dtype == torch.float32


def test_what_a_mask_hides_changes_nothing():
    assert masked_sum([[1.0, NAN]], [[1, 0]]) == 1.0
    x = torch.tensor([[1.0, NAN]], requires_grad=True)
    masked_sum(x, [[True, False]]).backward()
    assert x.grad.tolist() == [[1.0, 0.0]]
    with pytest.raises(ValueError, match="x holds NaN or infinite values where the mask is set"):
        masked_sum([[1.0, NAN]], [[1, 1]])


# --------------------------------------------------------------------------------------------------- decorators


def test_a_generator_is_refused_at_the_call():
    @checked
    def count(n: Count) -> Any:
        yield from range(n)

    assert list(count(2)) == [0, 1]
    with pytest.raises(ValueError, match="n is 0"):
        count(0)


FROM_INSIDE = [
    ("rlbook_lib.pretend", True),
    ("rlbook_library.pretend", False),
    ("rlbook_lib", False),
    ("course", False),
]


@pytest.mark.parametrize(("module", "bare"), FROM_INSIDE)
def test_the_library_alone_reaches_the_bare_formula(module, bare):
    """And only that of its own functions: what a reader decorates stays checked, whoever calls it."""
    caller: dict[str, Any] = {"__name__": module, "return_bound": return_bound, "of_a_reader": difference}
    exec("formula = lambda: return_bound(-1.0, 0.5)\ncallback = lambda: of_a_reader([5], [3], -1.0)", caller)
    if bare:
        assert caller["formula"]() == -2.0
    else:
        with pytest.raises(ValueError, match="reward_bound is -1.0; expected a number, 0 or more"):
            caller["formula"]()
    with pytest.raises(ValueError, match="scale is -1.0; expected a number, above 0"):
        caller["callback"]()


def test_a_readers_function_is_checked_where_the_library_calls_it():
    @checked
    def largest(x: Floats[Array, "n"], axis: int) -> Array:
        return x.max(axis)

    with pytest.raises(ValueError, match=re.escape("x has shape (1, 3, 2); expected (n,)")):
        bootstrap_interval(np.ones((3, 2)), largest, resamples=1)


def test_methods_and_several_arguments_pass():
    class Box:
        @checked
        def put(self, n: Count, *more: Any, **named: Any) -> tuple[Any, ...]:
            return n, more, named

    assert Box().put(np.int32(1), 2, a=3) == (1, (2,), {"a": 3})
    with pytest.raises(TypeError, match="n is 'x'"):
        Box().put("x")


def test_annotations_are_read_once(monkeypatch):
    read, kinds_of = [], checks.kinds_of
    monkeypatch.setattr(checks, "kinds_of", lambda function: read.append(function.__name__) or kinds_of(function))

    @checked
    def one(number: Count) -> int:
        return number

    @checked
    def none() -> int:
        return 3

    for _ in range(3):
        one(1)
        none()
    assert read == ["one", "none"]


def test_wrong_calls_are_python_errors():
    with pytest.raises(TypeError, match="missing a required argument: 'y'"):
        difference([1])


def test_settings_are_checked_frozen_and_see_each_other():
    @settings
    class Config:
        low: NotNegative = 0.0
        high: Positive = 1
        hidden: tuple[Count, ...] = (64,)

        def check_together(self) -> None:
            if self.low > self.high:
                raise ValueError(f"low is {self.low}; expected at most high, {self.high}")

    assert Config(hidden=[3]) == Config(hidden=(3,))
    assert type(Config().high) is float
    with pytest.raises(TypeError, match="hidden is 3; expected a tuple"):
        Config(hidden=3)
    with pytest.raises(ValueError, match="low is 2.0; expected at most high, 1.0"):
        Config(low=2)
    with pytest.raises(AttributeError):
        Config().low = 1


def test_checking_numpy_does_not_load_torch():
    code = (
        "import sys\nfrom rlbook_lib.checks import Array, Floats, Mask, checked\n"
        "@checked(arrays='either')\ndef f(x: Floats[Array, 'B T'], mask: Mask[Array, 'B T']): return x\n"
        "f([[1.0]], [[1]])\nprint('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
