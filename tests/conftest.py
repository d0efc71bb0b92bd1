"""What all tests share: no windows, one thread, the book's extensions importable, however the tests were started."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

ROOT = Path(__file__).resolve().parent.parent
sys.path += [
    str(ROOT),
    str(ROOT / "_ext"),
]  # the first so that a file of tests runs by itself: pytest tests/test_ppo.py

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as in a shell's background job; programs that a test starts would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def style_of_its_own() -> Iterator[None]:
    """What a test sets for figures ends with it: in another order, other tests would find it."""
    if "matplotlib" not in sys.modules:
        yield
        return
    with sys.modules["matplotlib"].rc_context():
        yield
