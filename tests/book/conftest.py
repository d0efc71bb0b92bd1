"""The built book, a browser, and a report of what was measured."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "_build" / "html"
REPORT = ROOT / "_build" / "report.json"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# For the address bar of each new window, which no test has, Chromium starts two processes: most of what a window costs. They
# join the features that Playwright leaves out: of that option only the last one counts.
LEFT_OUT = "WebUIOmniboxPopup,WebUIOmniboxAimPopup"
LAUNCH = """#!/bin/sh
for one do
    case $one in --disable-features=*) one=$one,LEFT_OUT ;; esac
    shift
    set -- "$@" "$one"
done
exec "CHROMIUM" "$@"
""".replace("LEFT_OUT", LEFT_OUT)

PARTS = ROOT / "_build" / "report-parts"  # one file per test process, joined at the end

measured: dict[str, Any] = {}


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(PARTS, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Work for two processes: the tests of one page go together, because they share one visit; so do those of any other file.

    A scheduler of our own, because pytest-xdist's groups (3.8) do not reach it with pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class PageScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            page = re.search(r"test_pages\.py::.*\[(?:light-|dark-)?(.+)\]$", nodeid)
            return page[1] if page else nodeid.split("::")[0]

    config.option.loadscopereorder = False  # by name: what has the most tests is not what takes longest
    return PageScheduling(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Each process keeps what it measured."""
    if measured:
        PARTS.mkdir(parents=True, exist_ok=True)
        worker = getattr(session.config, "workerinput", {}).get("workerid", "main")
        (PARTS / f"{worker}.json").write_text(json.dumps(measured), "utf-8")


def joined() -> dict[str, Any]:
    """What all processes measured."""
    whole: dict[str, Any] = {}
    for path in sorted(PARTS.glob("*.json")):
        for name, rows in json.loads(path.read_text("utf-8")).items():
            whole.setdefault(name, {}).update(rows)
    return whole


def missing(what: str) -> None:
    """Skip the test, or fail it where nothing may be skipped."""
    if os.environ.get("RLBOOK_REQUIRE_BROWSER") == "1":
        pytest.fail(f"{what}, and RLBOOK_REQUIRE_BROWSER=1 asks for it")
    pytest.skip(what)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium: one for all tests of a process, because two of Playwright's loops cannot run at once."""
    names = ("chromium", "chromium-browser", "google-chrome")
    executable = os.environ.get("RLBOOK_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if not executable:
        missing("no Chromium found (RLBOOK_CHROMIUM can name one)")
    from playwright.sync_api import sync_playwright

    launch = tmp_path_factory.mktemp("chromium") / "launch.sh"
    launch.write_text(LAUNCH.replace("CHROMIUM", executable), "utf-8")
    launch.chmod(0o700)
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=launch, args=FLAGS)
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


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the measured figures and keep them."""
    report = joined()
    if not report:
        return
    REPORT.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n", "utf-8")
    write = terminalreporter.write_line
    if "pages" in report:
        terminalreporter.section("pages, as a first visit loads them")
        write(f"{'page':<40}{'KB raw':>8}{'KB gzip':>9}{'requests':>10}{'controls':>10}   ms a step: median, max")
        for name, row in sorted(report["pages"].items()):
            steps = f"{row['step_ms_median']:>16.1f}{row['step_ms_max']:>8.1f}" if row["controls"] else ""
            numbers = f"{row['raw_kb']:>8.0f}{row['gzip_kb']:>9.0f}{row['requests']:>10}{row['controls']:>10}"
            write(f"{name:<40}{numbers}{steps}")
    if "figures" in report:
        terminalreporter.section("interactive figures")
        for name, row in sorted(report["figures"].items()):
            write(f"{name:<40}{row['raw_kb']:>8.0f} KB raw{row['gzip_kb']:>6.0f} KB gzip{row['states']:>6} states")
