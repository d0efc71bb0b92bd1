"""Tests of rlbook_lib.needs: what a reader is told where something is missing. Each runs in a Python of its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from rlbook_lib.needs import NEED_TORCH, check_python
from tests.test_library import LISTED, PACKAGE

# In the new Python, as if these packages were not installed.
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
import importlib.util as util
found = util.find_spec
util.find_spec = lambda name, package=None: None if name.split(".")[0] in {names} else found(name, package)
sys.meta_path.insert(0, Missing())
"""


def said(code: str, without: tuple[str, ...] = (), folder: Path | None = None) -> str:
    """The last line that a new Python prints, on either stream: an error's sentence, or the answer."""
    whole = WITHOUT.format(names=set(without) or "set()") + code
    run = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, cwd=folder, check=False)
    return (run.stdout + run.stderr).strip().splitlines()[-1]


def test_the_list_of_modules_that_need_torch_is_right() -> None:
    found: set[str] = set()
    for name in LISTED:  # in order: a module imports only modules above it
        for node in ast.parse((PACKAGE / f"{name}.py").read_text("utf-8")).body:  # at the top, not inside a function
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [getattr(node, "module", None) or ""]
            )
            if any(
                imported.split(".")[0] == "torch" or imported.removeprefix("rlbook_lib.") in found for imported in names
            ):
                found.add(name)
    assert found == NEED_TORCH


def test_all_other_modules_work_without_torch() -> None:
    """What chapters 1 to 4 import, and a piece of each: no table of theirs asks for torch later either."""
    names = ", ".join(f"rlbook_lib.{name}" for name in LISTED if name not in NEED_TORCH)
    code = f"""
import sys, {names}
from rlbook_lib.maze import Maze
from rlbook_lib.dynamic_programming import value_iteration
from rlbook_lib.returns import discounted_returns
from rlbook_lib.divergences import kl_divergence
value_iteration(Maze().to_mdp(0.9))
discounted_returns([1.0, 2.0], 0.5)
kl_divergence([0.5, 0.5], [0.25, 0.75])
print("torch" in sys.modules)
"""
    assert said(code, without=("torch",)) == "False"


def test_a_module_that_needs_torch_says_what_to_install() -> None:
    code = f"""
from importlib import import_module
for name in {sorted(NEED_TORCH)}:
    try:
        import_module("rlbook_lib." + name)
    except ModuleNotFoundError as error:
        told = f"rlbook_lib.{{name}} needs torch, which is not installed here: pip install 'torch>=2.11', then restart the kernel."
        assert str(error) == told, error
        assert error.name == "torch"
    else:
        raise AssertionError(name)
print("all say it")
"""
    assert said(code, without=("torch",)) == "all say it"


def test_where_torch_is_installed_nothing_watches() -> None:
    code = "import sys, rlbook_lib.needs as needs\nprint(needs.TorchWatch in sys.meta_path)"
    assert said(code) == "False"


def test_without_numpy_it_is_named() -> None:
    sentence = "ModuleNotFoundError: rlbook_lib needs numpy, which is not installed here: pip install --upgrade 'numpy>=2.0', then restart the kernel."
    assert said("import rlbook_lib", without=("numpy",)) == sentence


def test_an_old_numpy_is_named_with_its_version() -> None:
    code = "import numpy\nnumpy.__version__ = '1.26.4'\nimport rlbook_lib.mdp"
    sentence = "ImportError: rlbook_lib needs numpy 2.0 or newer, and this is 1.26.4: pip install --upgrade 'numpy>=2.0', then restart the kernel."
    assert said(code) == sentence


def test_an_old_python_is_named_with_its_version() -> None:
    with pytest.raises(
        ImportError,
        match=r"^rlbook_lib needs Python 3\.11 or newer, and this is 3\.10: make an environment with a newer one\.$",
    ):
        check_python((3, 10))


@pytest.mark.parametrize("name", ["__init__", "needs"])
def test_an_old_python_can_read_what_says_so(name: str) -> None:
    ast.parse((PACKAGE / f"{name}.py").read_text("utf-8"), feature_version=(3, 9))


def test_without_ipywidgets_a_live_figure_says_what_to_install() -> None:
    code = """
from matplotlib import pyplot as plt
from rlbook_lib.explore import explore
def setup():
    return plt.subplots()[1].plot([], [])[0]
explore(setup, lambda line, x: None, x=(0, 1), alt="A line", live=True).widget()
"""
    sentence = "ModuleNotFoundError: live=True needs ipywidgets: pip install ipywidgets, then restart the kernel."
    assert said(code, without=("ipywidgets",)) == sentence
