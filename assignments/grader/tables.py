"""Tables for people and spreadsheets: rows as CSV, and numbers as people write them."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable
from pathlib import Path

FORMULAS = ("=", "+", "-", "@", "|", "%", "'")


def safe_cell(text: str) -> str:
    """Text for a table that a spreadsheet will not take for a formula: an apostrophe goes before what looks like one."""
    text = " ".join(text.split())
    return f"'{text}" if text.startswith(FORMULAS) and text != "-" else text


def plain_cell(text: str) -> str:
    return text[1:] if text[:1] == "'" and text[1:].startswith(FORMULAS) else text


def number(points: float | None) -> str:
    """Points as people write them; empty if there are none."""
    return "" if points is None else f"{points:.2f}".rstrip("0").rstrip(".")


def counted(things: Collection[object], word: str) -> str:
    return f"{len(things)} {word}{'s' * (len(things) != 1)}"


def table(rows: Iterable[Iterable[str]]) -> str:
    """Rows as CSV, safe for spreadsheets."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([safe_cell(cell) for cell in row] for row in rows)
    return text.getvalue()


def read_rows(path: Path, what: str, needed: Iterable[str] = ()) -> list[list[str]]:
    """The rows of a table that somebody gave, each as long as the first; raises ``ValueError`` that begins with ``what``."""
    return [row for _, row in numbered_rows(path, what, needed)]


def read_table(path: Path, what: str, needed: Iterable[str]) -> list[tuple[int, dict[str, str]]]:
    """The rows below the first by their columns, each with the number of its line; a column that is missing is named."""
    (_, header), *rows = numbered_rows(path, what, needed)
    cells = [(line, [plain_cell(cell.strip()) for cell in row]) for line, row in rows]
    return [(line, dict(zip(header, row, strict=True))) for line, row in cells]


def numbered_rows(path: Path, what: str, needed: Iterable[str]) -> list[tuple[int, list[str]]]:
    what = f"{path.name}: " if what == path.name else f"{what}: {path.name}: "
    try:
        reader = csv.reader(io.StringIO(path.read_text("utf-8-sig"), newline=""))
        rows = [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{what}this is not a table in UTF-8: {error}") from error
    header = rows[0][1] if rows else []
    if missing := [name for name in needed if name not in header]:
        got = ", ".join(map(repr, header)) or "none"
        raise ValueError(f"{what}there is no column {missing[0]!r}; got {got}, expected commas between the columns")
    return [(line, [*row, *[""] * (len(header) - len(row))][: len(header)]) for line, row in rows]
