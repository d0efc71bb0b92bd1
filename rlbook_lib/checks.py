"""The door of the library: arguments and settings are checked by their annotations, once (every chapter).

An annotation says what comes in, and the reader, the type checker and the API page see the same words::

    @checked
    def return_bound(reward_bound: NotNegative, gamma: UnitInterval) -> float: ...

    @checked(arrays="either")
    def value_targets(advantages: Floats[Array, "T N?"], values: Floats[Array, "T N?"]) -> Array: ...

    @settings
    class Config:
        steps: Count = 64
        objective: Literal["clip", "penalty"] = "clip"

Calls from inside the library reach the bare function: its data was checked when it came in. The door only checks and
converts; what a mask or a flag excuses is left out by the bodies. Every error names the argument, what came and what
is expected: a TypeError for the wrong kind of thing, a ValueError for a wrong value.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import math
import numbers
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar, Union, Unpack
from typing import cast, dataclass_transform, get_args, get_origin, get_type_hints, is_typeddict, overload

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
LIBRARY = "rlbook_lib."
# A numpy array, a torch tensor, or numbers that make one. One annotation serves the caller, who may hand in a list, and
# the body, which gets an array: where tensors come in nothing narrower is true of both. Functions of numpy alone may say
# NDArray, and mypy sees their bodies.
Array: TypeAlias = Any


# -------------------------------------------------------------------------------------------------- one number


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``; the ends belong to it unless they are open. Infinity never does."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, x: Any) -> bool:
        return bool(math.isfinite(x) and not self.outside(x))

    def outside(self, x: Any) -> Any:
        """Whether numbers lie outside, elementwise."""
        too_low = x <= self.low if self.open_low else x < self.low
        return too_low | (x >= self.high if self.open_high else x > self.high)

    def __str__(self) -> str:
        low = f"above {self.low:g}" if self.open_low else f"{self.low:g} or more"
        high = f"below {self.high:g}" if self.open_high else f"at most {self.high:g}"
        if self.low == -math.inf:
            return "finite" if self.high == math.inf else high
        if self.high == math.inf:
            return low
        return f"{low} and {high}" if self.open_low or self.open_high else f"from {self.low:g} to {self.high:g}"


ANY_FINITE = Range()
Finite = Annotated[float, ANY_FINITE]
Positive = Annotated[float, Range(0, open_low=True)]
NotNegative = Annotated[float, Range(0)]
UnitInterval = Annotated[float, Range(0, 1)]
OpenUnitInterval = Annotated[float, Range(0, 1, True, True)]
Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Seed = Annotated[int, Range(0)]


@dataclass(frozen=True)
class Offers:
    """Any object with these attributes, or text, or a function, where those stand for one; ``says`` names it in errors."""

    says: str
    names: tuple[str, ...]
    or_text_or_function: bool = False

    def __contains__(self, x: Any) -> bool:
        stands_for_one = self.or_text_or_function and (isinstance(x, str) or callable(x))
        return stands_for_one or all(hasattr(x, name) for name in self.names)


Environment = Annotated[Any, Offers("a Gymnasium id, a constructor, or an environment", ("reset", "step"), True)]
Space = Annotated[Any, Offers("a Gymnasium space", ("shape", "contains"))]
Actor = Annotated[Any, Offers("something with a method act", ("act",))]
Network = Annotated[Any, Offers("a network", ("parameters",))]
Values = Annotated[Any, Offers("a value network, with numpy and a call on tensors", ("numpy",))]
Settings = Annotated[Any, Offers("a config", ("__dataclass_fields__",))]


# -------------------------------------------------------------------------------------------------- many numbers


@dataclass(frozen=True)
class Axes:
    """An array: its shape in words and what its entries are.

    ``"B T"`` has two axes; a letter is the same length in all arguments of a call, ``...`` the same rest of the
    shape, ``*`` rests that broadcast together, a digit that length. The last axis of ``"T N?"`` may be missing, in all
    arguments alike. An argument that is no array may fix letters by its ``axes_lengths``, as an MDP does.
    ``kind``: "floats" (finite), "numbers" (NaN and infinity too), "probabilities" (rows of the last axis sum to one),
    "log_probs" (finite, or -inf where the probability is 0), "integers", "flags" (True and False, or 1 and 0), "mask"
    (flags, at least one set in each row), "masked" (floats that count where the mask of the same call is set).
    ``unless``: the name of a flags argument; where its flag is set, the entries are not looked at.
    ``below``: a letter; the entries are indices along the axis that has it.
    """

    words: str = "..."
    kind: str = "floats"
    range: Range = ANY_FINITE
    unless: str = ""
    below: str = ""


if TYPE_CHECKING:  # to the type checker they are Annotated: Floats[Array, "B T"] is an Array
    from typing import Annotated as Flags, Annotated as Floats, Annotated as Integers, Annotated as LogProbs
    from typing import Annotated as Mask, Annotated as MaskedFloats, Annotated as Numbers, Annotated as Probabilities

    __all__ = ["Flags", "Floats", "Integers", "LogProbs", "Mask", "MaskedFloats", "Numbers", "Probabilities"]
else:

    class _Kind:
        def __init__(self, kind: str) -> None:
            self.kind = kind

        def __getitem__(self, parts: tuple[Any, ...]) -> Any:
            array, words, *limits = parts
            return Annotated[array, Axes(words, self.kind, *limits)]

    Floats, Numbers, Integers, Flags = map(_Kind, ("floats", "numbers", "integers", "flags"))
    Probabilities, LogProbs, Mask, MaskedFloats = map(_Kind, ("probabilities", "log_probs", "mask", "masked"))


# ---------------------------------------------------------------------------------------------------- decorators


@overload
def checked(function: F) -> F: ...
@overload
def checked(*, arrays: Literal["numpy", "either", "tensors"]) -> Callable[[F], F]: ...
def checked(function: Any = None, *, arrays: str = "numpy") -> Any:
    """Check every call of a function by its annotations; arguments without one, such as ``self``, pass as they are.

    Args:
        function: any function or method; a generator function is checked when it is called, not when it starts.
        arrays: what the body works with. "numpy": arrays become numpy arrays. "either": tensors as soon as one
            argument is a tensor, else numpy arrays, and one number that goes out becomes a float. "tensors": always
            tensors; if no tensor came in, a tensor that goes out becomes a numpy array, or a float if it is one number.

    Returns:
        The function with its door. Calls from inside the library pass beside it, unless the function is a user's.
    """
    if function is None:
        return lambda function: checked(function, arrays=arrays)  # type: ignore[call-overload]
    signature = inspect.signature(function)
    kinds: dict[str, Any] | None = None
    ours = (function.__module__ or "").startswith(LIBRARY)
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    all_have_names = not any(p.kind in several for p in signature.parameters.values())

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        nonlocal kinds
        if ours and sys._getframe(1).f_globals.get("__name__", "").startswith(LIBRARY):
            return function(*args, **kwargs)  # from inside: what came in was checked before
        if kinds is None:  # at the first call: annotations may name what the module defines later
            kinds = kinds_of(function)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = bound.arguments
        axes: dict[str, Axes] = {}
        lengths: dict[str, tuple[Any, str]] = {}  # a letter: its length, and the argument that it was read from
        for name, value in values.items():
            found = _axes_of(kinds[name], value)
            if found is not None:
                axes[name] = found
            elif value is not None or not _is_optional(kinds[name]):
                values[name] = check(name, value, kinds[name])
                lengths |= {letter: (n, name) for letter, n in getattr(values[name], "axes_lengths", {}).items()}
        came_as_tensor = any(_is_tensor(values[name]) for name in axes)
        in_tensors = arrays == "tensors" or (arrays == "either" and came_as_tensor)
        values.update(_check_arrays({name: values[name] for name in axes}, axes, in_tensors, lengths))
        result = function(**values) if all_have_names else function(*bound.args, **bound.kwargs)
        return result if arrays == "numpy" or came_as_tensor or not axes else _as_numpy(result)

    guarded.__unchecked__ = function  # type: ignore[attr-defined]
    return guarded


@dataclass_transform(frozen_default=True)
def settings(cls: C) -> C:
    """A frozen dataclass whose fields hold what their annotations say; ``check_together`` sees what fields share."""

    def __post_init__(self: Any) -> None:
        for field in fields(self):
            kind = _fields(cls)[field.name]
            object.__setattr__(self, field.name, check(field.name, getattr(self, field.name), kind))
        getattr(self, "check_together", lambda: None)()

    cls.__post_init__ = __post_init__  # type: ignore[attr-defined]
    return cast(C, dataclass(frozen=True)(cls))


def library_of(*arrays: Any) -> Any:
    """torch if a tensor is among the arrays, else numpy: the library whose functions a formula calls."""
    return sys.modules["torch"] if any(_is_tensor(array) for array in arrays) else np


def kinds_of(function: Callable[..., Any]) -> dict[str, Any]:
    """What each argument of a function is to be; Any where nothing is said, and for ``*args`` and ``**kwargs``.

    ``**options: Unpack[Options]`` says it: the names and kinds of a TypedDict.
    """
    function = inspect.unwrap(function)
    hints, kinds = get_type_hints(function, include_extras=True), {}
    for parameter in inspect.signature(function).parameters.values():
        kind = hints.get(parameter.name, Any)
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            kind = get_args(kind)[0] if get_origin(kind) is Unpack else Any
        kinds[parameter.name] = kind
    return kinds


@functools.cache
def _fields(cls: type) -> dict[str, Any]:
    """What each field of a config or of a TypedDict is to be."""
    return get_type_hints(cls, include_extras=True)


# ------------------------------------------------------------------------------------------------- one argument


def check(name: str, value: Any, kind: Any) -> Any:
    """A value as its annotation wants it, or an error that calls it by its name.

    Args:
        kind: an annotation: one of this module's, a Literal, a class, a Callable, a Protocol, a TypedDict, a tuple, list,
            Sequence or Mapping of such, a union of them. Any and a type variable accept everything.

    Returns:
        The value: numbers as int or float, sequences of a tuple annotation as a tuple, arrays as numpy arrays or
        tensors of floats, integers or booleans.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        if isinstance(parts[1], Range):
            return _check_number(name, value, parts[0], parts[1])
        if isinstance(parts[1], Axes):
            return _check_arrays({name: value}, {name: parts[1]}, _is_tensor(value), {})[name]
        if isinstance(parts[1], Offers):
            _require(value in parts[1], name, value, parts[1].says)
            return value
        return check(name, value, parts[0])
    if kind is Any:
        return value
    if kind in (int, float):
        return _check_number(name, value, kind, ANY_FINITE)
    if origin in (Union, types.UnionType):
        axes = _axes_of(kind, value)
        return _check_union(name, value, parts) if axes is None else check(name, value, Annotated[Any, axes])
    if origin is Literal:
        if not any(type(value) is type(word) and value == word for word in parts):
            wrong = ValueError if type(value) in {type(word) for word in parts} else TypeError
            raise wrong(f"{name} is {_short(value)}; expected one of {', '.join(map(repr, parts))}")
        return value
    if origin is collections.abc.Callable or kind is Callable:
        _require(callable(value), name, value, "a function")
    elif origin in (tuple, list, collections.abc.Sequence):
        return _check_sequence(name, value, origin, parts)
    elif origin in (dict, collections.abc.Mapping):
        _require(isinstance(value, Mapping), name, value, "a mapping")
        return {check(f"a key of {name}", k, parts[0]): check(f"{name}[{k!r}]", v, parts[1]) for k, v in value.items()}
    elif is_typeddict(kind):
        for option in value.keys() - _fields(kind).keys():
            raise TypeError(f"{option} is no option here; expected one of {', '.join(_fields(kind))}")
        return {option: check(option, x, _fields(kind)[option]) for option, x in value.items()}
    elif kind is bool:
        _require(isinstance(value, (bool, np.bool_)), name, value, "True or False")
        return bool(value)
    elif getattr(kind, "_is_protocol", False):
        asked = {**vars(kind), **getattr(kind, "__annotations__", {})}  # its public names
        is_one = all(hasattr(value, part) for part in asked if not part.startswith("_"))
        _require(is_one, name, value, _described(kind))
    elif isinstance(origin or kind, type):
        _require(isinstance(value, origin or kind), name, value, _described(origin or kind))
    return value


def _check_number(name: str, value: Any, base: type, limits: Range) -> Any:
    kind = numbers.Integral if base is int else numbers.Real
    is_number = isinstance(value, kind) and not isinstance(value, (bool, np.bool_))
    if is_number and value in limits:
        return base(value)
    whole = "whole" if base is int else "finite" if limits == ANY_FINITE else ""
    wanted = " ".join(["a", whole, "number"]).replace("  ", " ") + ("" if limits == ANY_FINITE else f", {limits}")
    raise (ValueError if is_number else TypeError)(f"{name} is {_short(value)}; expected {wanted}")


def _check_union(name: str, value: Any, kinds: Sequence[Any]) -> Any:
    """The value as the first of several kinds that it is; its own error if only one is possible besides None."""
    if value is None and type(None) in kinds:
        return None
    kinds = [kind for kind in kinds if kind is not type(None)]
    refused = []
    for kind in kinds:
        try:
            return check(name, value, kind)
        except (TypeError, ValueError) as error:
            refused.append(error)
    wrong_values = [error for error in refused if isinstance(error, ValueError)]  # the right kind of thing, at least
    if wrong_values or len(refused) == 1:
        raise (wrong_values or refused)[0]
    wanted = [str(error).partition("; expected ")[2] for error in refused]
    raise TypeError(f"{name} is {_short(value)}; expected {' or '.join(wanted)}")


def _check_sequence(name: str, value: Any, origin: Any, parts: tuple[Any, ...]) -> Any:
    is_sequence = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))
    each = "entries" if origin is not tuple or parts[-1] is ... else f"{len(parts)} entries"
    _require(is_sequence, name, value, f"a {'tuple' if origin is tuple else 'list'} of {each}")
    if origin is tuple and parts[-1] is not ...:
        if len(value) != len(parts):
            raise ValueError(f"{name} is {_short(value)}; expected a tuple of {each}")
        kinds: Sequence[Any] = parts
    else:
        kinds = parts[:1] * len(value)
    entries = [check(f"{name}[{i}]", x, kind) for i, (x, kind) in enumerate(zip(value, kinds))]
    return tuple(entries) if origin is tuple else entries


def _require(right: bool, name: str, value: Any, wanted: str) -> None:
    if not right:
        raise TypeError(f"{name} is {_short(value)}; expected {wanted}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({type(value).__name__})"


def _described(kind: type) -> str:
    if kind is str:
        return "text"
    return f"{'an' if kind.__name__[0] in 'AEIOU' or kind.__name__.startswith('MDP') else 'a'} {kind.__name__}"


# --------------------------------------------------------------------------------------------- arrays of a call


def _axes_of(kind: Any, value: Any) -> Axes | None:
    """What an annotation says of a value as an array; of several kinds the one with as many axes as the value has."""
    if value is None and _is_optional(kind):
        return None
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    said = [part.__metadata__[0] for part in parts if get_origin(part) is Annotated]
    found = [axes for axes in said if isinstance(axes, Axes)]
    if isinstance(value, str) and len(found) < len(parts):  # one of the words that may stand in place of an array
        return None
    if len(found) < 2:
        return found[0] if found else None
    try:
        ndim = np.ndim(value)
    except ValueError:  # a ragged list
        return found[0]
    return next((axes for axes in found if len(axes.words.split()) == ndim), found[0])


def _is_optional(kind: Any) -> bool:
    return type(None) in get_args(kind)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")  # without torch there are no tensors
    return torch is not None and isinstance(value, torch.Tensor)


def _check_arrays(
    values: dict[str, Any], axes: dict[str, Axes], tensors: bool, lengths: dict[str, tuple[Any, str]]
) -> dict[str, Any]:
    """The array arguments of one call, together: their types, shapes, masks and entries."""
    device = next((value.device for value in values.values() if _is_tensor(value)), None)
    kinds = {name: axes[name].kind for name in values}
    arrays = {
        name: _tensor(name, value, kinds[name], device) if tensors else _ndarray(name, value, kinds[name])
        for name, value in values.items()
    }
    for name, array in arrays.items():
        _check_shape(name, tuple(array.shape), axes[name].words, lengths)
    for name, array in arrays.items():
        if axes[name].kind in ("flags", "mask"):
            arrays[name] = _as_flags(name, array, rows=axes[name].kind == "mask")
    masks = [arrays[name] for name in arrays if axes[name].kind == "mask"]
    for name, array in arrays.items():
        if axes[name].kind == "masked" and masks and (axes[name].range != ANY_FINITE or not _all_finite(array)):
            array = _where(masks[0], array)  # for the check alone: masking belongs to the body
        if axes[name].unless in arrays and not _all_finite(array):
            array = _where(~arrays[axes[name].unless], array)  # only to look at; the body leaves the others out
        if axes[name].kind not in ("numbers", "flags", "mask"):
            _check_entries(name, array, axes[name])
        if axes[name].below and int(array.max()) >= (length := lengths[axes[name].below][0]):
            raise ValueError(f"{name} holds {int(array.max())}; expected numbers from 0 to {length - 1}")
        if axes[name].kind == "integers":
            arrays[name] = array.astype(np.int64, copy=False) if isinstance(array, np.ndarray) else array.long()
    return arrays


def _ndarray(name: str, value: Any, kind: str) -> Any:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # a ragged list, a tensor that needs a gradient
        raise TypeError(f"{name} is {_short(value)}; expected an array of numbers") from error
    if array.dtype.kind not in ("biuf" if kind in ("flags", "mask", "probabilities") else "iuf"):
        what = f"has type {array.dtype}" if array.ndim else f"is {_short(value)}"
        raise TypeError(f"{name} {what}; expected {_entries(kind)}")
    if kind in ("flags", "mask", "integers") or array.dtype == np.float32:
        return array
    return array.astype(np.float64, copy=False)


def _tensor(name: str, value: Any, kind: str, device: Any = None) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        array = _ndarray(name, value, kind)
        if array.ndim == 0 and kind == "floats" and device is not None:  # it takes the type of the tensors around it
            return torch.tensor(float(array), device=device)
        return torch.as_tensor(array, device=device)
    if value.is_complex() or (value.dtype == torch.bool and kind not in ("flags", "mask")):
        raise TypeError(f"{name} has type {value.dtype}; expected {_entries(kind)}")
    if kind in ("flags", "mask", "integers") or value.is_floating_point():
        return value
    return value.to(torch.get_default_dtype())


def _entries(kind: str) -> str:
    flags = "flags, True or False"
    return {"flags": flags, "mask": flags, "integers": "whole numbers"}.get(kind, "real numbers")


def _check_shape(name: str, shape: tuple[int, ...], words: str, lengths: dict[str, tuple[Any, str]]) -> None:
    """A shape against its words; letters that were not met before are noted in ``lengths``."""
    keys = words.split()
    rest = len(shape) - len(keys) + 1  # axes that "..." or "*" stands for
    sizes: list[Any] = list(shape)
    at = next((i for i, key in enumerate(keys) if key in ("...", "*") or key.endswith("?")), None)
    if at is not None and rest >= 0:
        sizes[at : at + rest] = [shape[at : at + rest]]
        if keys[at] == "*" and "*" in lengths:
            try:
                sizes[at] = np.broadcast_shapes(sizes[at], lengths["*"][0])
                lengths["*"] = (sizes[at], lengths["*"][1])
            except ValueError:
                pass  # the rests stay different, which is the error below
    known = {key: (int(key), "") if key.isdigit() else lengths[key] for key in keys if key.isdigit() or key in lengths}
    too_many = at is not None and keys[at].endswith("?") and rest > 1
    if too_many or len(keys) != len(sizes) or any(key in known and known[key][0] != n for key, n in zip(keys, sizes)):
        lengths_of = [known.get(key, (key, ""))[0] for key in keys]
        wanted = _shape_in_words(lengths_of)
        if at is not None and keys[at].endswith("?") and keys[at] not in known:
            wanted = f"{_shape_in_words(lengths_of[:at])} or {wanted.replace('?', '')}"
        others = sorted({known[key][1] for key in known} - {""})
        like = f", like {' and '.join(others)}" if others else ""
        raise ValueError(f"{name} has shape {shape}; expected {wanted}{like}")
    for key, size in zip(keys, sizes):
        if not key.isdigit() and lengths.setdefault(key, (size, name))[0] != size:  # a letter twice in one shape
            raise ValueError(f"{name} has shape {shape}; expected ({', '.join(keys)})")
    if 0 in shape:
        raise ValueError(f"{name} is empty, of shape {shape}; expected at least one number")


def _shape_in_words(lengths: Sequence[Any]) -> str:
    parts = [str(part) for n in lengths for part in (n if isinstance(n, tuple) else [n])]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _as_flags(name: str, array: Any, rows: bool) -> Any:
    if array.dtype != library_of(array).bool:
        if not bool(((array == 0) | (array == 1)).all()):
            raise ValueError(f"{name} holds values other than 0 and 1; expected flags, True or False")
        array = array != 0
    if rows and not bool(array.any(-1).all()):
        row = int((~array.any(-1)).reshape(-1).nonzero()[0][0])
        raise ValueError(f"{name} is empty in row {row}; expected at least one flag that is set in each row")
    return array


def _where(mask: Any, array: Any) -> Any:
    library = library_of(array)
    return library.where(mask, array, array.dtype.type(0) if library is np else 0.0)


def _check_entries(name: str, array: Any, axes: Axes) -> None:
    if not isinstance(array, np.ndarray):
        array = array.detach()
    if axes.kind == "log_probs" and not bool((array < math.inf).all()):
        raise ValueError(f"{name} holds NaN or inf; expected finite numbers, or -inf for a probability of 0")
    if axes.kind != "log_probs" and not _all_finite(array):
        where = " where the mask is set" if axes.kind == "masked" else ""
        raise ValueError(f"{name} holds NaN or infinite values{where}; expected finite numbers")
    if axes.kind == "integers" and not bool((array % 1 == 0).all()):
        raise ValueError(f"{name} holds fractions; expected whole numbers")
    limits = Range(0) if axes.kind == "probabilities" else axes.range
    if limits != ANY_FINITE and bool((outside := limits.outside(array)).any()):
        raise ValueError(
            f"{name} holds {array[outside].reshape(-1)[0].item():g}; expected {_entries(axes.kind)}, {limits}"
        )
    if axes.kind == "probabilities":
        sums = array.sum(-1).reshape(-1)
        worst = float(sums[abs(sums - 1.0).argmax()])
        if abs(worst - 1.0) > (1e-6 if array.dtype == library_of(array).float64 else 1e-3):
            raise ValueError(f"{name} has a row that sums to {worst:g}; expected probabilities that sum to 1")


def _all_finite(array: Any) -> bool:
    if isinstance(array, np.ndarray):
        return bool(np.isfinite(array).all())
    return math.isfinite(float(array.detach().sum())) or bool(array.isfinite().all())  # a finite sum: finite terms


def _as_numpy(result: Any) -> Any:
    if isinstance(result, tuple) and not hasattr(result, "_fields"):
        return tuple(_as_numpy(part) for part in result)
    if not _is_tensor(result):
        return result.item() if isinstance(result, (np.generic, np.ndarray)) and result.ndim == 0 else result
    return result.item() if result.ndim == 0 else result.detach().numpy()
