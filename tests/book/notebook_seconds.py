"""A pytest plugin for the nbval run: a notebook that costs the processor more than its limit is red, at the cell that goes beyond.

Load it with ``-p notebook_seconds`` (this folder on PYTHONPATH): the notebooks run in that stage anyway, so that none is executed a
second time for it. What each cost is listed at the end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from nbval.plugin import IPyNbCell

SECONDS = 60  # of the processor, a notebook, where LOOKS take STANDARD seconds
LANGUAGE_MODEL_SECONDS = 150  # chapters 11 to 13 train a language model
LANGUAGE_MODELS = ("11_", "12_", "13_")
LOOKS, STANDARD = [0.5] * 1_000_000, 0.05  # what a quiet processor takes to look at so many numbers

spent: dict[str, tuple[float, float]] = {}  # by notebook: the kernel's seconds when last seen, and what it has taken


def limit_of(name: str) -> int:
    return LANGUAGE_MODEL_SECONDS if name.startswith(LANGUAGE_MODELS) else SECONDS


def of_children() -> float:
    """The processor's seconds of this process's kernel."""
    seconds = 0.0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            seconds += sum(child.cpu_times()[:2])
    return seconds


def slowness() -> float:
    """How much longer than STANDARD the processor takes now: a slower one, or one that is shared, gives a second less."""
    began = time.thread_time()
    sum(isinstance(one, float) for one in LOOKS)
    return max(1.0, (time.thread_time() - began) / STANDARD)


def taken_by(name: str) -> float:
    """What the notebook has taken so far, in seconds of a quiet processor."""
    seconds = of_children()
    seen, taken = spent.get(name, (0.0, 0.0))
    if seconds - seen >= 1:  # measured beside a cell that costs something; what costs less waits for the next look
        taken += (seconds - seen) / slowness()
        seen = seconds
        spent[name] = seen, taken
    return taken + seconds - seen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Look at the kernel after each cell; each notebook has a kernel of its own."""
    result = yield
    if isinstance(item, IPyNbCell):
        seconds, limit = taken_by(item.path.name), limit_of(item.path.stem)
        item.user_properties.append(("seconds", seconds))
        if seconds >= limit:
            pytest.fail(f"after this cell {item.path.name} has taken {seconds:.0f} s of the processor, of {limit}")
    return result


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What each notebook cost, whichever process ran it."""
    found: dict[str, float] = {}
    for report in terminalreporter.getreports("passed"):
        name = report.nodeid.partition("::")[0]
        found[name] = max(found.get(name, 0.0), dict(report.user_properties).get("seconds", 0.0))
    terminalreporter.section("notebooks")
    for name, seconds in sorted(found.items()):
        terminalreporter.write_line(f"{name:<52}{seconds:>6.1f} s of the processor")
