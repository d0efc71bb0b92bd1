"""A known mistake as an edit: a wrong solution is a right one with a few words replaced.

    Mistake(edit(largest_by_loop, "max(", "min("), "The smallest is taken.")

The edited text is the solution: it is run here, and it is the cell that a student would have written.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from .questions import source_of


def edit(base: Callable[..., Any], old: str, new: str, *more: str) -> Callable[..., Any]:
    """The function or class ``base`` with ``old`` replaced by ``new``, then each further pair in turn.

    Raises ``ValueError`` if an ``old`` does not stand there exactly once, or if the result is not Python.
    """
    texts = (old, new, *more)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"edit of {base.__name__}: got {text!r}, expected text")
    if len(texts) % 2:
        raise ValueError(f"edit of {base.__name__}: got {len(texts)} texts, expected pairs of old and new")
    source = text_of(base)
    for before, after in zip(texts[::2], texts[1::2], strict=True):
        if before == after:
            raise ValueError(f"edit of {base.__name__}: {before!r} is replaced by itself")
        count = source.count(before) if before else 0
        if count != 1:
            raise ValueError(f"edit of {base.__name__}: {before!r} stands there {count} times, expected exactly once")
        source = source.replace(before, after)
    if source == text_of(base):
        raise ValueError(f"edit of {base.__name__}: the pairs together change nothing")
    return made_of(source, base)


def made_of(source: str, base: Callable[..., Any]) -> Callable[..., Any]:
    """What a text defines, where ``base`` was defined; ``source_of`` finds the text again in its ``__source__``."""
    place = getattr(base, "__globals__", None) or vars(sys.modules[base.__module__])
    namespace = dict(place)  # a copy: the file's own names stay what they are
    try:
        (definition,) = ast.parse(source).body
        exec(compile(source, f"<edit of {base.__name__}>", "exec"), namespace)
        made: Callable[..., Any] = namespace[definition.name]  # type: ignore[attr-defined]
    except (SyntaxError, ValueError, AttributeError) as error:
        raise ValueError(f"edit of {base.__name__}: the result is not one function or class: {error}") from error
    made.__source__ = source  # type: ignore[attr-defined]
    return made


@cache
def text_of(base: Callable[..., Any]) -> str:
    """The source, looked up once: to find a class takes Python a while."""
    return source_of(base)
