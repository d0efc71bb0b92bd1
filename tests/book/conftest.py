"""The built book, a browser, and a report of what was measured."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "_build" / "html"
REPORT = ROOT / "_build" / "report.json"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

measured: dict[str, Any] = {}


def missing(what: str) -> None:
    """Skip the test, or fail it where nothing may be skipped."""
    if os.environ.get("RLBOOK_REQUIRE_BROWSER") == "1":
        pytest.fail(f"{what}, and RLBOOK_REQUIRE_BROWSER=1 asks for it")
    pytest.skip(what)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium; one per module, because two of Playwright's loops cannot run at once."""
    names = ("chromium", "chromium-browser", "google-chrome")
    executable = os.environ.get("RLBOOK_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if not executable:
        missing("no Chromium found (RLBOOK_CHROMIUM can name one)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=executable, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the built book."""
    if not (SITE / "index.html").exists():
        missing("the book is not built: run `make book`")
    return SITE


@pytest.fixture(scope="session")
def report() -> dict[str, Any]:
    """Measured figures by name; printed at the end and kept in _build/report.json."""
    return measured


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the measured figures and keep them."""
    if not measured:
        return
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n", "utf-8")
    write = terminalreporter.write_line
    if "pages" in measured:
        terminalreporter.section("pages, as a first visit loads them")
        write(f"{'page':<38}{'KB raw':>8}{'KB gzip':>9}{'requests':>10}{'controls':>10}{'step ms, median and max':>26}")
        for name, row in measured["pages"].items():
            steps = f"{row['step_ms_median']:.1f} {row['step_ms_max']:>6.1f}" if row["controls"] else ""
            write(
                f"{name:<38}{row['raw_kb']:>8.0f}{row['gzip_kb']:>9.0f}{row['requests']:>10}{row['controls']:>10}{steps:>26}"
            )
    if "figures" in measured:
        terminalreporter.section("interactive figures")
        for name, row in measured["figures"].items():
            write(f"{name:<50}{row['raw_kb']:>7.0f} KB raw{row['gzip_kb']:>6.0f} KB gzip{row['states']:>6} states")
    if "notebooks" in measured:
        terminalreporter.section("notebooks")
        for name, row in measured["notebooks"].items():
            write(f"{name:<34}{row['seconds']:>6.1f} s{row['code_cells']:>6} cells{row['ignored']:>5} not compared")
