"""Tables for people and spreadsheets: rows as CSV, and numbers as people write them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

FORMULAS = ("=", "+", "-", "@", "|", "%", "'")


def safe_cell(text: str) -> str:
    """Text for a table that a spreadsheet will not take for a formula: an apostrophe goes before what looks like one."""
    text = " ".join(text.split())
    return f"'{text}" if text.startswith(FORMULAS) and text != "-" else text


def plain_cell(text: str) -> str:
    """The text that :func:`safe_cell` was given."""
    return text[1:] if text[:1] == "'" and text[1:].startswith(FORMULAS) else text


def number(points: float | None) -> str:
    """Points as people write them; empty if there are none."""
    return "" if points is None else f"{points:.2f}".rstrip("0").rstrip(".")


def table(rows: Iterable[Iterable[str]]) -> str:
    """Rows as CSV, safe for spreadsheets."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([safe_cell(cell) for cell in row] for row in rows)
    return text.getvalue()


def read_rows(path: Path, what: str) -> list[list[str]]:
    """The rows of a table that somebody gave; raises ``ValueError`` that begins with what it is."""
    try:
        return list(csv.reader(io.StringIO(path.read_text("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{what}: {path.name} is not a table in UTF-8: {error}") from error
