"""The tests can fail: each fault, planted in a small copy, is caught by the check that watches for it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import notebook_checks
import pytest
from conftest import ROOT
from matplotlib import pyplot as plt
from notebook_checks import read
from page_visit import KEPT, STEP_MS, Visit, check_axe, move_controls, opened, standing_out, use_quizzes
from stored_figures import data_of, differences

from rlbook_lib.explore import dressed, explore

# ---------------------------------------------------------------- notebooks


def notebook(*cells: dict[str, Any]) -> dict[str, Any]:
    """A well-formed notebook with one cell that imports and the given ones."""
    every = [{"source": "import numpy as np"}, *cells]
    for number, cell in enumerate(every, start=1):
        blank = {"cell_type": "code", "id": f"c{number}", "metadata": {}, "outputs": [], "execution_count": number}
        cell.update(blank | cell)
    return {"cells": every, "metadata": {"kernelspec": {"name": "python3"}}, "nbformat": 4, "nbformat_minor": 5}


TAGGED = {"tags": ["nbval-ignore-output"]}
FAULTY = [
    ("length_faults", notebook({"source": "x = 1\n" * 26}), "26 lines"),
    ("import_faults", notebook() | {"cells": [notebook({"source": "x = 1"})["cells"][1]]}, "more than import"),
    ("ignored_faults", notebook({"source": "print(2)", "metadata": TAGGED}), "are not compared"),
    ("ignored_faults", notebook({"source": "print(2)", "metadata": TAGGED}), "asserts nothing"),
    (
        "output_faults",
        notebook({"source": "1/0", "outputs": [{"output_type": "error", "ename": "E"}]}),
        "holds an error",
    ),
    ("output_faults", notebook({"source": "x", "execution_count": None}), "run `make execute`"),
    (
        "output_faults",
        notebook({"source": "x", "outputs": [{"output_type": "stream", "name": "stderr", "text": "!"}]}),
        "stderr",
    ),
    ("tag_faults", notebook({"source": "x", "metadata": {"tags": ["hide-imput"]}}), "unknown tag 'hide-imput'"),
    ("tag_faults", notebook({"source": "x", "metadata": {"tags": ["tolerance-5"]}}), "expected one tag like"),
    (
        "tag_faults",
        notebook({"source": "x", "metadata": {"tags": ["tolerance-5%", "nbval-ignore-output"]}}),
        "is not compared",
    ),
    (
        "negative_zero_faults",
        notebook({"source": "x", "outputs": [{"output_type": "stream", "text": "a [-0. 1.]"}]}),
        "prints -0.",
    ),
    (
        "negative_zero_faults",
        notebook({"source": "x", "outputs": [{"output_type": "stream", "text": "bias -0.00"}]}),
        "prints -0.00",
    ),
    ("unseen_faults", notebook({"source": "show(figure, alt='a line')\nassert x > 0"}), "nothing is shown"),
    ("undrawn_faults", notebook({"source": "show(figure, alt='a line')"}), "is not stored"),
    ("leftover_faults", notebook() | {"metadata": {"widgets": {notebook_checks.WIDGETS: {}}}}, "widget state"),
    ("leftover_faults", notebook({"source": "open('/home/me/data.csv')"}), "absolute path"),
    ("leftover_faults", notebook({"source": "x", "id": "c1"}), "ids"),
    ("leftover_faults", notebook({"source": "x", "metadata": {"execution": {"time": 1}}}), "metadata"),
    ("fence_faults", notebook({"cell_type": "markdown", "source": "So. ```{dropdown} Why"}), "behind text"),
]


@pytest.mark.parametrize(("name", "faulty", "expected"), FAULTY)
def test_a_malformed_notebook_is_seen(name: str, faulty: dict[str, Any], expected: str) -> None:
    check = getattr(notebook_checks, name)
    assert any(expected in fault for fault in check(faulty))
    assert check(notebook({"source": "x = 1"})) == []


# ---------------------------------------------------------------- figures


def setup_line() -> Any:
    _, ax = plt.subplots(figsize=(4, 2))
    ax.set(xlim=(0, 1), ylim=(0, 1))
    return ax.plot([0, 1], [0, 0])[0]


def update_line(line: Any, height: float) -> str:
    line.set_ydata([0, height])
    return f"The height is {height:.1f}."


@pytest.fixture(scope="module")
def figure() -> str:
    made = explore(setup_line, update_line, height=(0.0, 1.0, 0.1), alt="A line", labels={"height": "height"})
    plt.close("all")
    return made.html


def tampered(figure: str, row: int, state: int, value: str) -> str:
    """The figure with another value for one attribute in one state."""
    data = data_of(figure)
    data["changes"][row][3][state] = value
    before, _, after = re.split(r'(?<=<script type="application/json">)(.*?)(?=</script>)', figure, maxsplit=1)
    return before + json.dumps(data) + after


def test_a_negative_zero_in_a_figure_is_seen(figure: str) -> None:
    faults = {}
    for readout in ("0.0", "-0.0"):
        shown = {"output_type": "display_data", "data": {"text/html": tampered(figure, 1, 0, readout)}}
        faults[readout] = notebook_checks.negative_zero_faults(notebook({"source": "x", "outputs": [shown]}))
    assert faults == {"0.0": [], "-0.0": ["cell c2 prints -0.0"]}


def test_a_control_that_says_nothing_is_heard(figure: str) -> None:
    """A line that stays the same, and no line at all."""
    silent, none = data_of(figure), data_of(figure)
    silent["changes"][1][2] = []
    del none["changes"][1]
    for data, expected in ((data_of(figure), []), (silent, ["control 1"]), (none, ["control 1"])):
        html = re.sub(
            r'(?<=<script type="application/json">).*?(?=</script>)', lambda _, data=data: json.dumps(data), figure
        )
        faults = notebook_checks.silent_faults(
            notebook({"source": "x", "outputs": [{"output_type": "display_data", "data": {"text/html": html}}]})
        )
        assert [fault[-9:] for fault in faults] == expected


def test_a_tampered_curve_is_seen(figure: str) -> None:
    curve, readout = data_of(figure)["changes"]
    assert (curve[1], readout[1]) == ("d", "#readout")
    height = int(curve[3][5])
    assert differences(figure, figure) == []
    assert differences(figure, tampered(figure, 0, 5, str(height - 1))) == []  # a last digit is not worth a failure
    assert "state 5" in differences(figure, tampered(figure, 0, 5, str(height - 50)))[0]
    assert "state 5" in differences(figure, tampered(figure, 1, 5, "0.7"))[0]


# ---------------------------------------------------------------- pages

# a page that follows the system's theme, as the book's do
THEME = """<script>
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.onchange = () => { document.documentElement.dataset.theme = dark.matches ? "dark" : "light"; };
  dark.onchange();
</script><style>[data-theme=dark] { background: #111; color: #eee; }</style>"""
PAGE = (
    f"<!doctype html><html lang='en'><head><title>Page</title>{THEME.replace('{', '{{').replace('}', '}}')}</head>"
    "<body><main><h1>Page</h1>{}</main></body></html>"
)
QUIZ = (
    '<div class="admonition quiz"><p class="admonition-title">Quiz</p>'
    '<details class="quiz-wrong" name="q"><summary>One</summary><div class="folded"><strong>No.</strong></div></details>'
    '<details class="quiz-right" name="q"><summary>Two</summary><div class="folded">{}</div></details></div>'
)


def look(browser: Any, folder: Path, body: str, by_axe: bool = False) -> Visit:
    """What the page checks say about a page with this body; axe, whose start is slow, where a test asks it."""
    path = folder / "page.html"
    path.write_text(PAGE.format(dressed(body)), "utf-8")
    seen = Visit("page.html")
    with opened(browser, path.as_uri(), seen) as page:
        move_controls(page, seen)
        use_quizzes(page, seen)
        page.set_viewport_size({"width": 390, "height": 800})
        seen.overflow[390] = standing_out(page)
        if by_axe:
            check_axe(page, seen)
    return seen


def dead(figure: str) -> str:
    """The figure under another name, which its script does not know."""
    return figure.replace("<rlx-figure", "<div").replace("</rlx-figure", "</div").replace(" disabled", "")


@pytest.mark.browser
class TestPages:
    def test_a_good_page_passes(self, browser: Any, tmp_path: Path, figure: str) -> None:
        seen = look(browser, tmp_path, figure + QUIZ.format("<strong>Yes.</strong>"), by_axe=True)
        assert (seen.console, seen.failed, seen.outside, seen.dead, seen.quiz_faults) == ([], [], [], [], [])
        assert (seen.axe, seen.overflow) == ({"light": [], "dark": []}, {390: []})
        assert (seen.controls, seen.quizzes) == (1, 1) and len(seen.step_ms) == 11

    def test_a_dead_slider_is_seen(self, browser: Any, tmp_path: Path, figure: str) -> None:
        found = look(browser, tmp_path, dead(figure)).dead
        assert [fault.split("dead by ")[1] for fault in found] == ["events", "mouse", "keyboard"]

    def test_a_dead_slider_below_a_good_one_is_seen(self, browser: Any, tmp_path: Path, figure: str) -> None:
        assert look(browser, tmp_path, figure + dead(figure)).dead == ["figure 2, height: dead by events"]

    def test_a_covered_slider_is_seen(self, browser: Any, tmp_path: Path, figure: str) -> None:
        cover = '<div style="position: absolute; inset: 0"></div>'
        covered = f'<div style="position: relative">{figure}{cover}</div>'
        assert look(browser, tmp_path, figure + covered).dead == ["figure 2, height: out of the mouse's reach"]

    def test_a_slider_that_no_key_reaches_is_seen(self, browser: Any, tmp_path: Path, figure: str) -> None:
        unreached = figure.replace('type="range"', 'type="range" tabindex="-1"')
        assert look(browser, tmp_path, figure + unreached).dead == ["figure 2, height: out of the keyboard's reach"]

    def test_a_slow_step_is_seen(self, browser: Any, tmp_path: Path, figure: str) -> None:
        """By the processor's time, whatever a clock says on a busy machine."""
        work = "if (event.target.value === event.target.max) for (let i = 0; i < 5e7; i++) x += i % 7;"
        script = f"<script>let x = 0; addEventListener('input', event => {{ {work} }})</script>"
        assert look(browser, tmp_path, figure + script).step_ms[-1] > STEP_MS
        assert max(look(browser, tmp_path, figure).step_ms) < STEP_MS

    def test_an_outside_script_is_seen(self, browser: Any, tmp_path: Path) -> None:
        seen = look(browser, tmp_path, '<script src="https://scripts.invalid/x.js"></script>')
        assert seen.outside == ["https://scripts.invalid/x.js"]

    def test_a_missing_file_is_seen(self, browser: Any, tmp_path: Path) -> None:
        assert look(browser, tmp_path, '<script src="missing.js"></script>').failed

    def test_an_error_of_a_script_is_seen(self, browser: Any, tmp_path: Path) -> None:
        assert look(browser, tmp_path, "<script>throw Error('broken')</script>").console == ["exception: broken"]

    def test_a_picture_without_text_and_pale_words_are_seen(self, browser: Any, tmp_path: Path) -> None:
        pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
        found = look(browser, tmp_path, f'<img src="{pixel}"><p style="color:#ccc">Pale</p>', by_axe=True).axe["light"]
        assert {finding.split(":")[0] for finding in found} == {"image-alt", "color-contrast"}

    def test_pale_words_of_one_theme_are_seen_there(self, browser: Any, tmp_path: Path) -> None:
        body = "<style>[data-theme=dark] p { color: #444 }</style><p>Pale in the dark</p>"
        found = look(browser, tmp_path, body, by_axe=True).axe
        assert found["light"] == [] and [finding.split(":")[0] for finding in found["dark"]] == ["color-contrast"]

    @pytest.mark.parametrize(
        "faulty",
        ['<p style="color:#ccc">Pale</p>', '<p><span class="pale">Pale</span></p>', "<p><button></button></p>"],
    )
    def test_a_fault_below_many_good_ones_is_seen(self, browser: Any, tmp_path: Path, faulty: str) -> None:
        """The colors of what repeats are looked at in the first few only; what looks otherwise is none of these."""
        good = "<p>Good</p><p><span>Good</span></p><p><button>Good</button></p>" * (2 * KEPT)
        found = look(browser, tmp_path, f"<style>.pale {{ color: #ccc }}</style>{good}{faulty}", by_axe=True).axe[
            "light"
        ]
        assert [finding.split(":")[0] for finding in found] == [
            "button-name" if "button" in faulty else "color-contrast"
        ]

    def test_a_wide_page_is_seen(self, browser: Any, tmp_path: Path) -> None:
        assert look(browser, tmp_path, '<div style="width:500px">Wide</div>').overflow[390]
        number = '<div class="katex-scroll">a wide formula</div><span class="eqno" style="position: absolute; right: 0">(1)</span>'
        assert look(browser, tmp_path, number).overflow[390] == ["(1) stands on its formula"]

    def test_a_quiz_without_verdict_is_seen(self, browser: Any, tmp_path: Path) -> None:
        assert any("no verdict" in fault for fault in look(browser, tmp_path, QUIZ.format("")).quiz_faults)


# ---------------------------------------------------------------- the strict build

FAULTS = {
    "picture without alternative text": "![](_static/favicon.svg)",
    "formula: ": "Broken: $\\frac{1$.",
    "unknown document": "{doc}`nowhere`",
    "undefined label": "{ref}`nowhere`",
    "equation not found": "{eq}`eq-nowhere`",
    "could not find bibtex key": "{cite}`nobody1900`",
    "no function names eq-lonely": "```{math}\n:label: eq-lonely\nx = 1\n```",
    "number it with the {math} directive": "$$\nx = 2\n$$ (eq-other)",
}


def small_book(folder: Path, page: str) -> Path:
    """The book's own settings and extensions around one page."""
    for name in ("_ext", "_static", "_templates"):
        (folder / name).symlink_to(ROOT / name)
    for name in ("chapters", "rlbook_lib", "tests"):
        (folder / name).mkdir()
    (folder / "_config.yml").write_text((ROOT / "_config.yml").read_text("utf-8"), "utf-8")
    (folder / "_toc.yml").write_text("format: jb-book\nroot: index\nchapters:\n- file: chapters/one\n", "utf-8")
    (folder / "references.bib").write_text("@misc{known2000, title={Known}, author={A. Known}, year={2000}}\n", "utf-8")
    index = "# Book\n\n{cite}`known2000`\n\n```{equation-index}\n```\n\n```{bibliography}\n```\n"
    (folder / "index.md").write_text(index, "utf-8")
    (folder / "chapters" / "one.md").write_text(page, "utf-8")
    return folder


def build(folder: Path) -> tuple[int, str]:
    command = [str(Path(sys.executable).parent / "jupyter-book"), "build", "-W", "-n", "--keep-going", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_good_small_book_builds(tmp_path: Path) -> None:
    code, said = build(small_book(tmp_path, "# One\n\nText and $x^2$.\n"))
    assert code == 0, said


@pytest.mark.slow
def test_the_strict_build_sees_every_fault(tmp_path: Path) -> None:
    """One build with all faults: each is named."""
    folder = small_book(tmp_path, "# One\n\n" + "\n\n".join(FAULTS.values()) + "\n")
    (folder / "stray.md").write_text("# A page that no table of contents names\n", "utf-8")
    broken = notebook(
        {"source": "1/0", "outputs": [{"output_type": "error", "ename": "E", "evalue": "e", "traceback": []}]}
    )
    (folder / "chapters" / "two.ipynb").write_text(json.dumps(broken), "utf-8")
    toc = (folder / "_toc.yml").read_text("utf-8") + "- file: chapters/two\n- file: chapters/missing\n"
    (folder / "_toc.yml").write_text(toc, "utf-8")
    code, said = build(folder)
    assert code != 0
    for expected in [*FAULTS, "holds an error output", "chapters/missing", "stray"]:
        assert expected in said, f"{expected!r} is not reported:\n{said}"


def test_a_notebook_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "small.ipynb"
    path.write_text(json.dumps(notebook()), "utf-8")
    assert read(path)["cells"][0]["source"] == "import numpy as np"
