"""What the grader's tests share: a small assignment, a sandbox, and one graded batch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import hostile  # noqa: E402

from assignments.grader import questions, sandbox  # noqa: E402
from assignments.grader.questions import Assignment  # noqa: E402


@pytest.fixture(scope="session")
def small() -> Assignment:
    """The assignment in ``course/small``."""
    return questions.load("small", hostile.HOME)


@pytest.fixture(scope="session")
def box() -> Iterator[sandbox.Sandbox]:
    """A sandbox that works; without one the test is skipped, or fails if RLBOOK_REQUIRE_SANDBOX is 1."""
    try:
        made = sandbox.Sandbox()
        made.start(sandbox.Limits()).close()
    except sandbox.InfrastructureError as error:
        if os.environ.get("RLBOOK_REQUIRE_SANDBOX") == "1":
            raise
        pytest.skip(f"no sandbox on this machine: {error}")
    with made:
        yield made


@pytest.fixture
def shop(small: Assignment, tmp_path: Path) -> hostile.Workshop:
    """A maker of submissions."""
    outside = tmp_path / "outside"
    outside.mkdir()
    return hostile.Workshop(small, outside)


def some(*names: str) -> list[hostile.Bad]:
    """Submissions by their names."""
    known = {bad.name: bad for bad in hostile.ALL}
    return [known[name] for name in names]
