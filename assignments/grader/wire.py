"""How the grader and the sandbox exchange values: one line of JSON a message, never pickle.

Plain values go as they are; an array goes as its type, shape and bytes. Everything that comes back from a sandbox is
checked before it becomes an array, because the code of a student may have written it.

In the sandbox a student's code shares the process with :func:`encode`. So what it calls is bound when this file is
loaded, before any code of a student runs: functions and types that are written in C, and cannot be changed later.
"""

from __future__ import annotations

import math
from binascii import a2b_base64, b2a_base64
from json import JSONDecoder, dumps, loads
from json.encoder import c_make_encoder, encode_basestring_ascii  # type: ignore[attr-defined]
from json.scanner import c_make_scanner  # type: ignore[attr-defined]
from typing import Any

import numpy as np
from numpy import ascontiguousarray, generic, ndarray

TENSOR: Any = None  # torch's own base class, once the sandbox has loaded torch; its methods cannot be replaced
# dumps and loads look for a coder that can be replaced; these are the ones in C that they find
WRITE: Any = c_make_encoder and c_make_encoder(
    None, repr, encode_basestring_ascii, None, ": ", ", ", False, False, True
)
READ: Any = c_make_scanner and c_make_scanner(JSONDecoder())
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "float32", "float64")
MAX_DEPTH = 8
MAX_BYTES = 4_000_000  # of one answer; those of our references are a hundred times smaller
MAX_ITEMS = 100_000  # of lists and dictionaries in one answer: four bytes of text can make a list of a hundred


class WireError(ValueError):
    """A value that cannot travel, or a message that is none."""


def encode(value: Any, depth: int = 0) -> Any:
    """The value as JSON can hold it: numbers, text, lists, dictionaries with text keys, arrays and tensors.

    Tuples become lists, tensors become arrays, rare kinds of numbers (float16, long double, uint32) arrays of float64 in
    the order of bytes of this machine. Anything else raises :class:`WireError`.
    """
    if depth > MAX_DEPTH:
        raise WireError("nested too deeply")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, generic):
        plain = value.item()  # that of a long double is no number of Python's
        return encode(float(plain) if isinstance(plain, generic) else plain, depth)
    if isinstance(value, (list, tuple)):
        return [encode(item, depth + 1) for item in value]
    if isinstance(value, dict):
        if not all(type(key) is str for key in value):
            raise WireError("a dictionary needs text keys")
        return {key: encode(item, depth + 1) for key, item in value.items()}
    if TENSOR is not None and isinstance(value, TENSOR):
        value = TENSOR.numpy(TENSOR.cpu(TENSOR.detach(value)))
    elif hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, ndarray):
        if value.dtype.kind not in "biuf":
            raise WireError(f"arrays of {value.dtype.name} cannot be handed over")
        name = value.dtype.name if value.dtype.name in DTYPES else "float64"
        data = b2a_base64(ascontiguousarray(value, dtype=name).tobytes(), newline=False).decode("ascii")
        return {"__array__": data, "dtype": name, "shape": list(value.shape)}
    raise WireError(f"values of type {type(value).__name__} cannot be handed over")


def decode(value: Any, depth: int = 0) -> Any:
    """The value that :func:`encode` was given; raises :class:`WireError` for what it cannot have made."""
    if depth > MAX_DEPTH + 1:
        raise WireError("nested too deeply")
    if isinstance(value, list):
        return [decode(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if "__array__" not in value:
        return {key: decode(item, depth + 1) for key, item in value.items()}
    try:
        shape = [int(size) for size in value["shape"]]
        if value["dtype"] not in DTYPES or len(shape) > MAX_DEPTH or min(shape, default=0) < 0:
            raise WireError("not an array")
        if math.prod(size or 1 for size in shape) > MAX_BYTES:  # rows without columns: no byte, and a loop without end
            raise WireError("not an array")
        data = a2b_base64(value["__array__"], strict_mode=True)
        if len(data) != math.prod(shape) * np.dtype(value["dtype"]).itemsize:
            raise WireError("not an array")
        return np.frombuffer(data, dtype=value["dtype"]).reshape(shape).copy()
    except WireError:
        raise
    except Exception as error:
        raise WireError("not an array") from error


def to_line(message: dict[str, Any]) -> bytes:
    return ("".join(WRITE(message, 0)) if WRITE else dumps(message)).encode("utf-8") + b"\n"


def items(line: bytes) -> int:
    """At most how many lists, dictionaries and elements of them a line of JSON makes, without making them."""
    return line.count(b"[") + line.count(b"{") + line.count(b",")


def from_line(line: bytes) -> dict[str, Any]:
    """The message on a line; raises :class:`WireError` if it is none."""
    try:
        text = line.decode("utf-8")
        message, end = READ(text, 0) if READ else (loads(text), len(text))
    except (ValueError, RecursionError, StopIteration) as error:
        raise WireError("not a message") from error
    if not isinstance(message, dict) or text[end:].strip():
        raise WireError("not a message")
    return message
