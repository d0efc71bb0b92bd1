"""A full disk for tests, without one."""

import contextlib
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """Writing more bytes into a file fails, as on a full disk."""
    resource = pytest.importorskip("resource")  # not on Windows
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
