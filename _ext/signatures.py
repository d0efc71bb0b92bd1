"""Signatures on the API page as they are written: ``gamma: UnitInterval``, not what the name stands for.

The kinds of ``rlbook_lib.checks`` are type aliases; Sphinx would print what they resolve to.
"""

from __future__ import annotations

import inspect
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext import autodoc


class Written:
    """An annotation or a default that prints as it stands in the source."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def as_written(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """The signature of a function, method or class with its annotations unresolved."""
    if what not in ("function", "method", "class") or not name.startswith("rlbook_lib."):
        return None
    try:
        found = inspect.signature(inspect.unwrap(obj))
    except (TypeError, ValueError):
        return None
    if what == "method" and next(iter(found.parameters), "") in ("self", "cls"):
        found = found.replace(parameters=list(found.parameters.values())[1:])
    if not all(isinstance(p.annotation, str) or p.annotation is p.empty for p in found.parameters.values()):
        return None
    parameters = [
        p if p.annotation is p.empty else p.replace(annotation=Written(p.annotation)) for p in found.parameters.values()
    ]
    result = found.return_annotation if isinstance(found.return_annotation, str) and what != "class" else None
    return str(found.replace(parameters=parameters, return_annotation=inspect.Signature.empty)), result


def written_hints(obj: Any, *_: Any, **__: Any) -> dict[str, Any]:
    """The annotations of a class with those of its bases, as text, for the types of attributes."""
    bases = reversed(obj.__mro__) if inspect.isclass(obj) else [obj]
    return {name: kind for base in bases for name, kind in getattr(base, "__annotations__", {}).items()}


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-signature", as_written)
    autodoc.get_type_hints = written_hints  # there is no event for the types of attributes
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
