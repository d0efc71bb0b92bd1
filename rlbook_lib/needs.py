"""What has to be installed, and one clear sentence where it is missing or too old (every chapter).

The package calls ``check_installation`` before any other module is imported. So that an old Python can read this
module and say that it is old, nothing here is newer than Python 3.9, and numpy is not imported at its top.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

PYTHON = (3, 11)
NUMPY = (2, 0)

# Chapters 1 to 4 need no torch; these modules do.
NEED_TORCH = frozenset(
    """
    devices networks environments training replay_buffer dqn rollout gradient_estimators
    policy_gradient trpo ppo language_model text_tasks fine_tuning reward_model rlhf grpo engines grpo_command
    """.split()
)


def check_python(version: Sequence[int] = sys.version_info[:2]) -> None:
    """Refuse a Python that is too old."""
    if tuple(version) < PYTHON:
        needed, found = ".".join(map(str, PYTHON)), ".".join(map(str, version))
        raise ImportError(
            f"rlbook_lib needs Python {needed} or newer, and this is {found}: make an environment with a newer one."
        )


def check_numpy() -> None:
    """Refuse a numpy that is missing or too old."""
    needed = ".".join(map(str, NUMPY))
    command = f"pip install --upgrade 'numpy>={needed}', then restart the kernel."
    if not is_installed("numpy"):
        raise ModuleNotFoundError(f"rlbook_lib needs numpy, which is not installed here: {command}", name="numpy")
    import numpy

    if tuple(map(int, numpy.__version__.split(".")[:2])) < NUMPY:
        raise ImportError(
            f"rlbook_lib needs numpy {needed} or newer, and this is {numpy.__version__}: {command}", name="numpy"
        )


def is_installed(name: str) -> bool:
    """Whether an import would find this package; nothing is imported."""
    return name in sys.modules or importlib.util.find_spec(name) is not None


class TorchWatch:
    """An entry of ``sys.meta_path`` that finds nothing; asked for a module that needs torch, it says what to do."""

    @staticmethod
    def find_spec(fullname: str, path: object = None, target: object = None) -> None:
        package, _, module = fullname.partition(".")
        if package == "rlbook_lib" and module in NEED_TORCH and not is_installed("torch"):
            command = "pip install 'torch>=2.11', then restart the kernel."
            raise ModuleNotFoundError(f"{fullname} needs torch, which is not installed here: {command}", name="torch")


def check_installation() -> None:
    """Check Python and numpy now, and torch when a module that needs it is imported."""
    check_python()
    check_numpy()
    if not is_installed("torch") and TorchWatch not in sys.meta_path:
        sys.meta_path.insert(0, TorchWatch)
