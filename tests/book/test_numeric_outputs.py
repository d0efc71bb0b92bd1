"""Stored and fresh outputs are compared as words and numbers: what must turn a cell red does, and what may differ may."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from xml.etree import ElementTree

import nbformat
import notebook_seconds
import pytest
import stored_figures
from conftest import ROOT
from matplotlib import pyplot as plt
from nbval.plugin import IPyNbCell
from numeric_text import Tolerance, differences, tokens, tolerance_of

from rlbook_lib import svg
from rlbook_lib.explore import explore, style


def agree(stored: str, fresh: str, *tags: str) -> bool:
    return not differences(stored, fresh, tolerance_of(tags))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("V(s) = -0.30", ["V(s)", "=", -0.30]),
        ("[-1. 0.5]", ["[", -1.0, 0.5, "]"]),
        ("x=-3,y=4", ["x=", -3.0, ",y=", 4.0]),
        ("3-5 of 12", [3.0, "-", 5.0, "of", 12.0]),
        ("maze-014 k3 2x", ["maze-", 14.0, "k3", 2.0, "x"]),
        ("1.0e-11, 1e+05", [1e-11, ",", 1e5]),
        ("1,024 steps, 24,576.5", [1024.0, "steps,", 24576.5]),
        ("95% .5 5.", [95.0, "%", 0.5, 5.0]),
        ("f(0)-1 \N{MINUS SIGN}2", ["f(", 0.0, ")-", 1.0, -2.0]),
        ("information", ["information"]),
    ],
)
def test_a_line_is_cut_into_words_and_numbers(line: str, expected: list[Any]) -> None:
    as_float = [
        float(text.replace(",", "").replace("\N{MINUS SIGN}", "-")) if number else text for number, text in tokens(line)
    ]
    assert as_float == expected


@pytest.mark.parametrize(
    ("stored", "fresh", "tags"),
    [
        ("the value is 0.53", "the value is 0.54", []),
        ("0.53 and 9.99", "0.53 and 10.00", []),  # a column that moves
        ("a  9.99 |", "a 10.00 |", []),
        ("[ 0.   -0.3]", "[-0.   -0.3]", []),
        ("-0.00", "0.00", []),
        ("-0", "0", []),
        ("9.9e-12", "1.0e-11", []),  # the last digit of the one printed more finely
        ("0.12", "0.1199", []),  # :.4g leaves zeros out
        ("nan, inf, -inf", "nan, inf, -inf", []),
        ("[nan 9.99]", "[  nan 10.00]", []),
        ("1,000 steps", "1,040 steps", ["tolerance-5%"]),
        ("residual 1.0e-11", "residual 9.6e-12", ["tolerance-5%", "hide-input"]),
        ("0.50", "0.52", ["tolerance-abs-0.02"]),
        ("1.0e-11", "9.0e-12", ["tolerance-abs-1e-11"]),
        ("first\nsecond", "first\nsecond\n", []),
    ],
)
def test_what_may_differ(stored: str, fresh: str, tags: list[str]) -> None:
    assert agree(stored, fresh, *tags)
    assert agree(fresh, stored, *tags)


DIFFERENT = [
    ("0.53", "0.55", []),  # two units of the last digit
    ("0.12", "0.1197", []),
    ("9.9e-12", "9.9e-11", []),
    ("1.0e-11", "9.6e-12", []),
    ("0.53", "-0.53", []),
    ("12 of 13", "12 of 14", []),  # whole numbers are exact
    ("[1. 2.]", "[1. 3.]", []),  # numpy's whole numbers too
    ("1,024", "1,025", []),
    ("nan", "0.00", []),
    ("nan", "inf", []),
    ("inf", "-inf", []),
    ("inf", "1e300", ["tolerance-50%"]),
    ("above 0.5", "below 0.5", []),  # a changed word
    ("k3 0.5", "k2 0.5", []),
    ("0.5 m", "0.5 s", ["tolerance-50%"]),
    ("0.5", "none", []),
    ("0.5 0.6", "0.5", []),  # a missing number
    ("0.5", "0.5 0.6", []),  # an extra one
    ("1.5", "1 .5", []),
    ("a b", "ab", []),
    ("first\nsecond", "first", []),
    ("first second", "first\nsecond", []),
    ("1,000", "1,060", ["tolerance-5%"]),
    ("0.50", "0.53", ["tolerance-abs-0.02"]),
]


@pytest.mark.parametrize(("stored", "fresh", "tags"), DIFFERENT)
def test_what_must_not_differ(stored: str, fresh: str, tags: list[str]) -> None:
    assert not agree(stored, fresh, *tags)
    assert not agree(fresh, stored, *tags)


def test_the_message_names_line_numbers_and_tolerance() -> None:
    (message,) = differences("same 1\nthe value is 0.50", "same 1\nthe value is 0.58", tolerance_of(["tolerance-5%"]))
    assert message.splitlines() == [
        "line 2: stored 0.50, fresh 0.58, tolerance 5%",
        "    stored: the value is 0.50",
        "    fresh:  the value is 0.58",
    ]


@pytest.mark.parametrize(
    "tags",
    [
        *([f"tolerance{end}"] for end in "|-5|-five%|--5%|-5 %|-0%|-100%|-abs-0|-abs-|-abs-5%|-rel-5%".split("|")),
        *(["Tolerance-5%"], ["tolerence-5%"], ["tolerance-5%", "tolerance-abs-1"]),
    ],
)
def test_a_malformed_tag_is_an_error(tags: list[str]) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        tolerance_of([*tags, "hide-input"])
    assert tags[0] in str(error.value)


def test_other_tags_ask_for_nothing() -> None:
    assert tolerance_of(["hide-input", "gpu-run"]) == Tolerance()


# ---------------------------------------------------------------- through nbval

RESULT = nbformat.v4.new_output("execute_result", data={"text/plain": "0.53"}, execution_count=1)
TABLE = "<table><tr><td>mean</td><td>{}</td></tr></table>"


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return nbformat.v4.new_output("stream", name=name, text=text)


def shown(kind: str, text: str) -> dict[str, Any]:
    return nbformat.v4.new_output("display_data", data={"text/plain": "table", kind: text})


def show(kind: str, text: str) -> str:
    return f"display({{'text/plain': 'table', {kind!r}: {text!r}}}, raw=True)"


# (what is stored, the code that gives the fresh output, tags, a part of the message or "" for a green cell)
CELLS = [
    ([stream("loss 0.53\n")], "print('loss', 0.54)", [], ""),
    ([stream("loss 0.53\n")], "print('loss', 0.55)", [], "stored 0.53, fresh 0.55, tolerance one unit of the last"),
    ([stream("loss 0.53\n")], "print('gain', 0.53)", [], "stdout, line 1: stored 'loss', fresh 'gain'"),
    ([stream("0.53 0.54\n")], "print(0.53)", [], "stdout, line 1: '0.54' is missing"),
    ([stream("0.53\n")], "print(0.53, 0.54)", [], "stdout, line 1: '0.54' is new"),
    ([stream("0.53\n")], "print(float('nan'))", [], "stdout, line 1: stored 0.53, fresh nan"),
    ([stream("nan\n")], "print(0.53)", [], "stdout, line 1: stored nan, fresh 0.53"),
    ([stream("100\n")], "print(104)", ["tolerance-5%"], ""),
    ([stream("100\n")], "print(106)", ["tolerance-5%"], "stored 100, fresh 106, tolerance 5%"),
    ([stream("0.50\n")], "print(0.52)", ["tolerance-abs-0.02"], ""),
    ([stream("0.50\n")], "print(0.54)", ["tolerance-abs-0.02"], "stored 0.50, fresh 0.54, tolerance 0.02"),
    ([stream("0.50\n")], "print(0.50)", ["tolerance-5"], "expected one tag like tolerance-5%"),
    ([stream("0.50\n")], "print(0.90)", ["tolerance-5", "nbval-ignore-output"], "expected one tag like tolerance-5%"),
    ([stream("0.50\n")], "print(0.90)", ["nbval-ignore-output"], ""),
    ([stream("0.50\n")], "pass", [], "stdout, 1 outputs stored, 0 fresh"),
    ([], "print(0.50)", [], "stdout, 0 outputs stored, 1 fresh"),
    ([stream("0.50\n")], "import sys; print(0.50, file=sys.stderr)", [], "stderr, 0 outputs stored, 1 fresh"),
    ([shown("text/html", TABLE.format(0.53))], show("text/html", TABLE.format(0.54)), [], ""),
    *(
        (
            [shown(kind, text.format(0.53))],
            show(kind, text.format(0.63)),
            [],
            f"{kind}, line 1: stored 0.53, fresh 0.63",
        )
        for kind, text in (("text/html", TABLE), ("text/markdown", "| {} |"), ("text/latex", "${}$"))
    ),
    ([RESULT], "0.63", [], "text/plain, line 1: stored 0.53"),
    ([RESULT], "0.53", [], ""),
]


@pytest.fixture(scope="module")
def nbval_reports(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What nbval with our plugin says about each of CELLS; empty if the cell passed."""
    folder = tmp_path_factory.mktemp("nbval")
    cells = []
    for number, (outputs, source, tags, _) in enumerate(CELLS):
        cells.append(
            nbformat.v4.new_code_cell(
                source, id=f"id-{number}", execution_count=1, outputs=outputs, metadata={"tags": tags}
            )
        )
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), folder / "cells.ipynb")
    options = ["--nbval", "--nbval-current-env", "-p", "numeric_outputs", "--junitxml", str(folder / "report.xml")]
    command = [
        sys.executable,
        *"-m pytest -q --color=no --rootdir".split(),
        str(folder),
        *options,
        str(folder / "cells.ipynb"),
    ]
    path = {"PYTHONPATH": str(ROOT / "tests" / "book")}
    subprocess.run(command, capture_output=True, timeout=600, check=False, cwd=folder, env=os.environ | path)
    found = ElementTree.parse(folder / "report.xml").iter("testcase")
    return ["".join(fault.text or "" for fault in case) for case in found]


def test_every_cell_is_reported(nbval_reports: list[str]) -> None:
    assert len(nbval_reports) == len(CELLS)


@pytest.mark.parametrize("number", range(len(CELLS)))
def test_nbval_compares_numbers(nbval_reports: list[str], number: int) -> None:
    expected = CELLS[number][3]
    if not expected:
        assert nbval_reports[number] == ""
    else:
        assert expected in nbval_reports[number] and f"cell id-{number}" in nbval_reports[number]


def test_a_notebook_that_takes_too_long_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook_seconds, "of_children", lambda: 122.0)
    monkeypatch.setattr(notebook_seconds, "slowness", lambda: 2.0)  # a processor that is shared
    monkeypatch.setattr(notebook_seconds, "spent", {})

    def after_a_cell_of(name: str) -> None:
        cell = Mock(spec=IPyNbCell, path=Path(name), user_properties=[])
        hook = notebook_seconds.pytest_runtest_call(cell)
        next(hook)
        with pytest.raises(StopIteration):
            hook.send(None)
        assert cell.user_properties == [("seconds", 61.0)]

    after_a_cell_of("12_rlhf.ipynb")  # a language model is trained there
    with pytest.raises(pytest.fail.Exception, match="05_dqn.ipynb has taken 61 s of the processor, of 60"):
        after_a_cell_of("05_dqn.ipynb")


# ---------------------------------------------------------------- another processor


def test_portable_mode_hides_what_the_processor_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    from run_tests import plain_processor

    ask = (
        "import numpy, torch\n"
        "from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__\n"
        "print([name for name in __cpu_dispatch__ if __cpu_features__[name]], torch.backends.cpu.get_cpu_capability())"
    )
    run = subprocess.run(  # a name that numpy does not know would be a warning, and here an error
        [sys.executable, "-W", "error::ImportWarning", "-c", ask],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | plain_processor(),
    )
    assert run.stdout.split() == ["[]", "DEFAULT"]


# ---------------------------------------------------------------- figures


def figure(height: float, printed: str, opacity: float = 0.5) -> str:
    def setup() -> Any:
        _, ax = plt.subplots(figsize=(4, 2))
        ax.set(xlim=(0, 1), ylim=(0, 1))
        ax.text(0.5, 0.5, printed)
        ax.axvspan(0, 1, alpha=opacity)
        return ax.plot([0, 1], [0, 0], color=svg.PALETTE["blue"][0])[0]

    def update(line: Any, x: float) -> str:
        line.set_ydata([0, x * height])
        line.set_color(svg.PALETTE["blue" if x else "red"][0])
        return f"{x:.1f} gives {printed}."

    html = explore(setup, update, x=(0.0, 1.0, 0.5), alt="A line").html
    plt.close("all")
    return html


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"height": 0.5002}, ""),
        ({"printed": "-0.53"}, ""),
        ({"height": 0.6}, "state 1, element"),
        ({"printed": "-0.56"}, "#text"),
        ({"printed": "0.52"}, "#text"),
        ({"printed": "nan"}, "#text"),
        ({"printed": "none"}, "#text"),
        ({"opacity": 0.9}, "opacity"),
    ],
)
def test_figures_are_compared(change: dict[str, Any], expected: str) -> None:
    usual = {"height": 0.5, "printed": "-0.52"}
    found = stored_figures.differences(figure(**usual), figure(**usual | change))
    assert any(expected in difference for difference in found) if expected else found == []


def test_a_tolerance_holds_for_what_a_figure_says() -> None:
    stored, fresh = figure(0.5, "0.50"), figure(0.5, "0.52")
    assert stored_figures.differences(stored, fresh) != []
    assert stored_figures.differences(stored, fresh, tolerance_of(["tolerance-5%"])) == []


def test_a_color_is_changed_in_one_place_and_no_stored_picture_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The built page takes the new color; a picture drawn anew counts as the stored one."""
    usual = {"height": 0.5, "printed": "0.5"}
    stored = figure(**usual)
    monkeypatch.setitem(svg.PALETTE, "blue", ("#123456", "#123457", "#abcdef"))
    assert "--rlx-blue:light-dark(#123456,#abcdef);--rlx-blue-ink:light-dark(#123457,#abcdef);" in style()
    assert figure(**usual) != stored and stored_figures.differences(stored, figure(**usual)) == []
    assert stored_figures.differences(stored, figure(**usual).replace("blue,#", "green,#")) != []
