"""Every lesson has one place where a reader who runs it writes a function and moves finer sliders over it."""

from __future__ import annotations

import ast
import inspect
import io
import math
import symtable
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib
import notebook_checks
import pytest
from lesson_limits import CENTRAL
from matplotlib import pyplot as plt
from notebook_checks import Notebook
from conftest import ROOT
from stored_figures import n_states

from rlbook_lib.explore import ReadersMistake, _options, explore, your_turn as told

FIRST_LINE = "# Your turn: change `mine`. (In a running notebook the sliders are finer.)"

# A function that the text below the cell proposes, or one like it: the parameters are those of the lesson's own.
READERS_OWN = {
    "01_what_is_rl": "(first + 1) / (first + second + 2)",
    "02_mdps": "2 if state == TIRED else 1",
    "03_maze": 'Maze(["S.T", ".#G", "..."], slip=slip)',
    "04_mc_and_td": "first / episode**0.5",
    "05_dqn": "np.where(cell < 12, -5, 5)",
    "06_policy_gradients": "np.clip(alpha * gradient, -0.3, 0.3)",
    "07_gae": "1 / 5",
    "08_entropy_kl": "0.5 * (np.exp(log_u) - 1) - log_u",
    "09_trpo": "0.5 + np.arctan(theta) / np.pi",
    "10_ppo": "rho * A - (rho - 1) ** 2 / (2 * epsilon)",
    "11_preferences": "0.05 + 0.9 / (1 + np.exp(-margin))",
    "12_rlhf": "np.maximum(fines, -0.05)",
    "13_grpo": "R - (R.sum() - R) / 3",
}
KNOWN = inspect.signature(explore).parameters  # the others are controls
lessons = pytest.mark.parametrize("name", sorted(CENTRAL))


def lesson(name: str) -> Notebook:
    return notebook_checks.read(ROOT / "chapters" / f"{name}.ipynb")


def is_live(cell: dict[str, Any]) -> bool:
    return cell["cell_type"] == "code" and any(
        keyword.arg == "live" and ast.unparse(keyword.value) == "True"
        for node in ast.walk(ast.parse(cell["source"]))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
    )


def your_turn(notebook: Notebook) -> int:
    """Where the live cell stands."""
    (place,) = [number for number, cell in enumerate(notebook["cells"]) if is_live(cell)]
    return place


# ---------------------------------------------------------------------------- form


@lessons
def test_a_lesson_says_your_turn_once_in_the_same_words(name: str) -> None:
    cells = lesson(name)["cells"]
    place = your_turn({"cells": cells})
    cell = cells[place]
    text = next(after["source"] for after in cells[place + 1 :] if after["cell_type"] == "markdown")
    assert cell["source"].startswith(f"{FIRST_LINE}\ndef mine(")
    assert "hide-input" not in notebook_checks.tags(cell)
    assert "explore(**picture_of(mine), live=True," in cell["source"]
    assert (
        text.count("**Your turn.** ") == 1
        and "```{dropdown} What you should have seen" in text.partition("**Your turn.** ")[0]
    )
    (output,) = cell["outputs"]
    assert output["output_type"] == "display_data"
    assert "".join(output["data"]["text/html"]).startswith('<div class="rlx-stored"><rlx-figure class="rlx">')


# ---------------------------------------------------------------------------- use


class Recorder:
    """Stands for ``explore`` while a lesson's cells run: keeps what was asked for, draws nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[Callable[[], Any], Callable[..., Any], dict[str, Any]]] = []

    def __call__(self, setup: Callable[[], Any], update: Callable[..., Any], **settings: Any) -> None:
        self.asked.append((setup, update, settings))


def needed_for(cells: list[dict[str, Any]]) -> list[str]:
    """The sources of the last cell and of those before it that define what it needs."""
    wanted, kept = set(), []
    for cell in reversed(cells):
        top = symtable.symtable(cell["source"], "cell", "exec")
        made = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
        if not kept or cell is cells[0] or made & wanted:
            wanted = (wanted | used(top)) - made
            kept.insert(0, cell["source"])
    return kept


def used(table: symtable.SymbolTable) -> set[str]:
    """The names of the notebook that a piece of code reads, inside its functions too."""
    outside = table.get_type() == "module"
    names = {s.get_name() for s in table.get_symbols() if s.is_referenced() and (outside or s.is_global())}
    return names.union(*(used(child) for child in table.get_children()))


@pytest.fixture
def plain_style() -> Iterator[None]:
    with matplotlib.rc_context():
        yield
    plt.close("all")


def picture(asked: tuple[Callable[[], Any], Callable[..., Any], dict[str, Any]]) -> tuple[str | None, bytes]:
    """What the first state says and shows."""
    setup, update, settings = asked
    plt.close("all")
    artists = setup()
    said = update(
        artists, **{name: values_of(name, spec)[0] for name, spec in controls(settings).items()} | settings["initial"]
    )
    file = io.BytesIO()
    plt.gcf().savefig(file, format="png", dpi=50)
    return said, file.getvalue()


def controls(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: spec for name, spec in settings.items() if name not in KNOWN}


def values_of(name: str, spec: Any) -> list[Any]:
    return _options(name, spec)[0]


@lessons
def test_a_function_of_the_readers_is_drawn_with_finer_steps(name: str, plain_style: None) -> None:
    notebook = lesson(name)
    place = your_turn(notebook)
    upto = [cell for cell in notebook["cells"][: place + 1] if cell["cell_type"] == "code"]
    *before, last = needed_for(upto)
    space: dict[str, Any] = {"__name__": name}
    recorder = Recorder()
    for source in before:
        exec(compile(source, name, "exec"), space)
        space["explore"] = recorder
    exec(compile(last, name, "exec"), space)
    exec(compile(with_function(last, READERS_OWN[name]), name, "exec"), space)
    book, readers = recorder.asked[-2:]
    assert picture(book) != picture(readers)

    stored = n_states("".join(notebook["cells"][place]["outputs"][0]["data"]["text/html"]))
    assert math.prod(len(values_of(name, spec)) for name, spec in controls(book[2]).items()) > stored


def with_function(source: str, expression: str) -> str:
    """The cell as a reader leaves it who writes one line."""
    tree = ast.parse(source)
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    function.body = [function.body[0], *ast.parse(f"return {expression}").body]
    return ast.unparse(tree)


# ---------------------------------------------------------------------------- a reader's mistake


def test_a_mistake_of_the_readers_is_one_sentence_with_their_line() -> None:
    """In a notebook, too: no trace through the book's code."""

    @told
    def picture_of(mine: Callable[..., Any]) -> dict[str, Any]:
        return {"setup": lambda: None, "update": lambda _, step: f"{mine(step, 2.0):.1f}"}

    def sentence(source: str, step: float = 0) -> str:
        from IPython.core.interactiveshell import InteractiveShell

        shell = InteractiveShell.instance()
        shell.user_ns["show"] = lambda mine: picture_of(mine)["update"](None, step)
        result = shell.run_cell(f"def mine(step, first):\n{source}\nshow(mine)", silent=True)
        error = result.error_in_exec
        assert isinstance(error, ReadersMistake), error
        assert error._render_traceback_() == [str(error)]
        return str(error)

    assert sentence("    first + step") == "`mine` returned None for step = 0 and first = 2: is a `return` missing?"
    divided = sentence("    a = 1\n    return first / step")
    assert divided.startswith("Line 3, `return first / step`: ZeroDivisionError: ")
    assert "no finite number for step = 0" in sentence("    return float('nan')")
    assert sentence("    return 'two'").startswith("The picture cannot be drawn with what `mine` returns. ValueError")
    mistake = pytest.raises(ReadersMistake, match="cannot be called with 2 arguments")
    with mistake:
        picture_of(lambda step: step)["update"](None, 1)
