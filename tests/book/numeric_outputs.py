"""A pytest plugin for the nbval run: outputs agree if their words are equal and their numbers close.

Load it with ``-p numeric_outputs`` (this folder on PYTHONPATH). nbval executes the cells; whether a cell's fresh outputs agree with
the stored ones is decided here: texts, streams and tables as in ``numeric_text.py``, figures as in ``stored_figures.py``. A tag that
looks like a tolerance and is none turns the cell red.
"""

from __future__ import annotations

from typing import Any

import pytest
import stored_figures
from nbval.plugin import IPyNbCell
from numeric_text import Tolerance, differences, tolerance_of


def pytest_configure() -> None:
    IPyNbCell.compare_outputs = compare_outputs


def pytest_runtest_setup(item: pytest.Item) -> None:
    if isinstance(item, IPyNbCell):
        try:
            tolerance_of(item.cell.metadata.get("tags", []))
        except ValueError as error:
            pytest.fail(f"cell {item.cell.id}: {error}", pytrace=False)


def compare_outputs(cell: IPyNbCell, fresh: list[Any], stored: list[Any], skip_compare: Any = None) -> bool:
    """Whether the outputs agree; what differs goes where nbval looks for it."""
    tolerance = tolerance_of(cell.cell.metadata.get("tags", []))
    skipped = skip_compare or cell.parent.skip_compare
    old, new = contents(stored, skipped), contents(fresh, skipped)
    cell.comparison_traceback = [
        f"cell {cell.cell.id}, {kind}, {difference}"
        for kind in dict.fromkeys([*old, *new])
        for difference in list_differences(old.get(kind, []), new.get(kind, []), tolerance)
    ]
    return not cell.comparison_traceback


def contents(outputs: list[Any], skipped: Any) -> dict[str, list[str]]:
    """What the outputs hold, by kind: stdout, text/plain, text/html, error, ..."""
    found: dict[str, list[str]] = {}
    for output in outputs:
        if output.output_type == "stream":
            parts = {output.name: output.text}
        elif output.output_type == "error":
            parts = {"error": f"{output.ename}: {output.evalue}"}
        else:
            parts = {kind: value for kind, value in output.data.items() if kind not in skipped}
        for kind, value in parts.items():
            found.setdefault(kind, []).append(str(value))
    return found


def list_differences(stored: list[str], fresh: list[str], tolerance: Tolerance) -> list[str]:
    if len(stored) != len(fresh):
        return [f"{len(stored)} outputs stored, {len(fresh)} fresh:\n" + "\n".join([*stored, "--- fresh:", *fresh])]
    found = []
    for old, new in zip(stored, fresh, strict=True):
        both_figures = stored_figures.is_figure(old) and stored_figures.is_figure(new)
        found += (stored_figures.differences if both_figures else differences)(old, new, tolerance)
    return found
