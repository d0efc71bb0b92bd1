"""Python that is edited and run in the page: its numbers are those of the stored figures, and a mistake is one sentence."""

from __future__ import annotations

import contextlib
import html
import itertools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import notebook_checks
import pytest
from firefox import told_by_firefox
from conftest import ROOT
from lesson_limits import CENTRAL
from page_visit import AXE
from test_your_turn import lesson, your_turn

from rlbook_lib.explore import script, style

sys.path.append(str(ROOT / "_ext"))

from labs import copy_lab  # noqa: E402

pytestmark = pytest.mark.browser
NUMBER = re.compile(r"[-+\u2212]?\d+(?:\.\d+)?")
EXACT = {
    "02_mdps": 4,
    "03_maze": 3,
    "05_dqn": 8,
    "06_policy_gradients": 8,
    "07_gae": 8,
    "08_entropy_kl": 8,
    "09_trpo": 8,
}  # digits of the arrays that are printed, in lessons whose programs draw no random numbers
RANDOM = 0.5  # lesson 4 draws 300 agents anew: four standard errors of such a mean


def cells(name: str) -> list[dict[str, Any]]:
    """The cells that run on the page."""
    return [cell for cell in lesson(name)["cells"] if "runs" in notebook_checks.tags(cell)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two cells that a reader may change, and the labs' folder as the site has it, on a disk."""
    folder = tmp_path_factory.mktemp("python")
    copy_lab(ROOT / "_static" / "lab", folder / "lab")
    own = lesson("10_ppo")["cells"][your_turn(lesson("10_ppo"))]
    figure = "".join(own["outputs"][0]["data"]["text/html"])
    program = "for k in range(3):\n    print(k, np.exp(0.0))"
    (folder / "10_page.html").write_text(page_of([(own["source"], figure), (program, "")]), "utf-8")
    return folder


def page_of(shown: list[tuple[str, str]]) -> str:
    """A page of cells, each a source and its output."""
    parts = "".join(
        f'<div class="cell tag_runs"><div class="cell_input"><pre>{html.escape(source)}</pre></div>'
        f'<div class="cell_output">{output}</div></div>'
        for source, output in shown
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Python</title><style>{style()}</style>'
        f'<script>{script()}</script><main>{parts}</main><script src="lab/python.js"></script>'
    )


@contextlib.contextmanager
def opened(browser: Any, address: str) -> Iterator[Any]:
    page, faults = browser.new_page(viewport={"width": 390, "height": 844}), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.goto(address)
    yield page
    page.close()
    assert faults == []


def stored(name: str) -> tuple[str, list[tuple[list[Any], str]]]:
    """The cell of a lesson, and what its stored figure says for which values of its controls."""
    notebook = lesson(name)
    cell = notebook["cells"][your_turn(notebook)]
    text = "".join(cell["outputs"][0]["data"]["text/html"])
    found = re.search(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found
    data = json.loads(found[1])
    ((_, _, controls, values, shared, before, after),) = [row for row in data["changes"] if row[1] == "#readout"]
    states = []
    for state in itertools.product(*map(range, data["sizes"])):
        key = 0
        for control in controls:
            key = key * data["sizes"][control] + state[control]
        key = key if shared < 0 else data["indices"][shared][key]
        words = [data["texts"][control][index] for control, index in enumerate(state)]
        states.append(([float(w) if NUMBER.fullmatch(w) else w for w in words], before + values[key] + after))
    return cell["source"], states


def same(one: str, other: str, within: float = 0.0) -> bool:
    """The same words, and numbers that differ by one unit of the last printed digit at most."""
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    for a, b in zip(NUMBER.findall(one), NUMBER.findall(other), strict=True):
        unit = 10.0 ** -len(a.partition(".")[2]) if "." in a else 0.0
        if abs(float(a.replace("\u2212", "-")) - float(b.replace("\u2212", "-"))) > max(unit, within) * 1.001:
            return False
    return True


def test_unchanged_lines_give_the_numbers_of_the_stored_figures(browser: Any, folder: Path) -> None:
    ask = """async asked => {
      await bookPython.engine();
      const python = bookPython.machine(() => {}), found = {};
      for (const [name, source, states] of asked) {
        found[name] = [await python.ask("begin", name.slice(0, 2), source)];
        for (const values of states) found[name].push(JSON.parse(await python.ask("state", JSON.stringify(values))));
      }
      python.stop();
      return found;
    }"""
    known = {name: stored(name) for name in sorted(CENTRAL)}
    known = {name: (source, states[:: len(states) // 12 or 1]) for name, (source, states) in known.items()}
    asked = [
        [name, source.partition("\n")[2].partition("\n\nexplore(")[0], [values for values, _ in states]]
        for name, (source, states) in known.items()
    ]
    with opened(browser, (folder / "10_page.html").as_uri()) as page:
        found = page.evaluate(ask, asked)
    assert len(found) == 13
    for name, (_, states) in known.items():
        fault, *answers = found[name]
        assert fault == "", (name, fault)
        for (values, said), answer in zip(states, answers, strict=True):
            book, own = said.partition(" The real batch")[0], answer["said"].removesuffix(" [stored]")
            assert same(book, own, RANDOM if name.startswith("04") else 0.0), (name, values, book, own)
            assert all(mark[2] for panel in answer["panels"] for mark in panel["marks"] if mark[0] == "line")


def test_programs_without_chance_print_on_the_page_what_the_notebook_prints(browser: Any, folder: Path) -> None:
    ask = """async ([programs, digits]) => {
      await bookPython.engine();
      let lines = [];
      const python = bookPython.machine(line => lines.push(line)), found = [];
      for (const program of programs) {
        lines = [];
        found.push([await python.ask("program", program, digits), lines.join("\\n")]);
      }
      python.stop();
      return found;
    }"""
    for name, digits in EXACT.items():
        programs = [cell for cell in cells(name) if not cell["source"].startswith("# Your turn")]
        with opened(browser, (folder / "10_page.html").as_uri()) as page:
            found = page.evaluate(ask, [[cell["source"] for cell in programs], digits])
        for cell, (fault, printed) in zip(programs, found, strict=True):
            assert fault == ""
            assert same("".join("".join(out["text"]) for out in cell["outputs"]).rstrip(), printed)


def test_a_reader_changes_lines_makes_mistakes_and_stops(browser: Any, folder: Path) -> None:
    with opened(browser, (folder / "10_page.html").as_uri()) as page:
        page.evaluate("bookPython.open(document.querySelector('.cell'))")
        area, said = page.get_by_role("textbox", name="Your lines"), page.locator(".python-said").first
        area.wait_for()

        def run(line: str) -> str:
            area.fill(f"def mine(rho, A, epsilon):\n    {line}")
            area.press("Shift+Enter")
            page.wait_for_function("!document.querySelector('.python-box').hasAttribute('data-busy')")
            return said.inner_text()

        assert run("return rho * A").startswith("The picture is drawn with your lines")
        sentence = page.locator(".python-sentence")
        assert "good action gradient +1; bad action gradient -1." in sentence.inner_text()
        page.locator("rlx-figure input[type=range]").first.press("ArrowLeft")
        page.wait_for_function("document.querySelector('.python-sentence').textContent.startsWith('ρ = 1.40')")
        assert run("return rho +") == "Line 2, `return rho +`: SyntaxError: invalid syntax."
        assert page.locator(".python-picture").is_hidden() and page.locator(".rlx-picture > svg").is_visible()
        assert run("return rho * apples").startswith("Line 2, `return rho * apples`: NameError")
        assert run("rho * A").startswith("`mine` returned None for rho =") and "`return`" in said.inner_text()
        assert "no finite number" in run("return np.log(rho - rho)")
        assert run("return A / 0").startswith("Line 2, `return A / 0`: ZeroDivisionError")
        area.fill("def mine(rho, A, epsilon):\n    while True:\n        pass")
        area.press("Shift+Enter")
        page.wait_for_timeout(300)
        assert said.inner_text().startswith("Python is at work")
        page.get_by_role("button", name="Stop").first.click()
        assert said.inner_text() == "Stopped."
        page.get_by_role("button", name="Reset").first.click()
        assert "np.minimum(rho * A" in area.input_value()
        assert run("return rho * A").startswith("The picture is drawn with your lines")

        page.evaluate("bookPython.open(document.querySelectorAll('.cell')[1])")
        program = page.get_by_role("textbox", name="The program")
        program.wait_for()
        program.press("Shift+Enter")
        output = page.get_by_label("Output of your run").last
        page.wait_for_function("document.querySelectorAll('.python-said')[1].textContent.startsWith('Done.')")
        assert output.inner_text() == "0 1.0\n1 1.0\n2 1.0"
        page.evaluate(AXE.read_text("utf-8"))
        faults = page.evaluate(
            "axe.run('main', {preload: false}).then(found => found.violations.map(v => [v.id, v.nodes[0].html]))"
        )
        assert faults == [] and page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_firefox_runs_them_too(folder: Path, tmp_path: Path) -> None:
    run = """<script>addEventListener("load", async () => {
      const {box, start} = await bookPython.open(document.querySelector(".cell"));
      await start();
      tell([box.dataset.said, document.querySelector(".python-sentence").textContent]);
    });</script>"""
    page = (folder / "10_page.html").read_text("utf-8") + run
    said, sentence = told_by_firefox(folder, page, tmp_path / "profile", "10_firefox.html")
    assert said.startswith("The picture is drawn with your lines")
    assert sentence == "ρ = 1.50, ε = 0.2: good action no gradient; bad action gradient -1."


def test_the_first_weights_of_lesson_5_are_those_of_torch() -> None:
    import torch
    from torch import nn

    text = (ROOT / "_static" / "lab" / "python" / "page_pictures.py").read_text("utf-8")
    found = re.search(r"FIRST_WEIGHTS = (\{.*?\n\})", text, re.DOTALL)
    assert found
    for units, weights in eval(found[1]).items():
        torch.manual_seed(1)
        nn.Sequential(nn.Linear(1, units), nn.ReLU(), nn.Linear(units, 1))
        assert weights == pytest.approx((0.3 * torch.randn(1, units) / units**0.5)[0].tolist(), abs=1e-7)


def test_own_lines_bring_the_controls_where_a_guess_is_open(browser: Any, folder: Path) -> None:
    """In each lesson whose question stands before the reader's lines: a faulty run leaves it open, a good one ends it."""
    asking = 0
    for path in sorted((ROOT / "chapters").glob("[01][0-9]_*.ipynb")):
        notebook = notebook_checks.read(path)
        own = next((cell for cell in notebook["cells"] if "".join(cell["source"]).startswith("# Your turn")), None)
        if own is None or '"guess"' not in (figure := "".join(own["outputs"][0]["data"]["text/html"])):
            continue
        asking += 1
        page_file = folder / f"{path.stem[:2]}_guess.html"
        page_file.write_text(page_of([(own["source"], figure)]), "utf-8")
        with opened(browser, page_file.as_uri()) as page:
            page.evaluate("bookPython.open(document.querySelector('.cell'))")
            area, controls = page.get_by_role("textbox", name="Your lines"), page.locator(".rlx-controls")
            area.wait_for()
            assert page.locator(".rlx-guess").is_visible() and controls.is_hidden()
            lines = area.input_value()
            for text, runs in (("def mine(", False), (lines, True)):
                area.fill(text)
                area.press("Shift+Enter")
                page.wait_for_function("!document.querySelector('.python-box').hasAttribute('data-busy')")
                assert controls.is_visible() == runs and page.locator(".rlx-guess").count() == (not runs)
            assert page.locator(".python-picture").is_visible() and page.locator(".python-sentence").is_visible()
    assert asking >= 3


@pytest.mark.site
def test_a_page_of_the_book_brings_python_with_the_first_touch_only(browser: Any, site: Path) -> None:
    with opened(browser, (site / "chapters" / "10_ppo.html").as_uri()) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[1]))
        page.reload()
        button = page.get_by_role("button", name="Edit and run here")
        assert button.count() == len(cells("10_ppo")) == 1 and not {"python.js", "micropython.js"} & set(asked)
        button.click()
        page.get_by_role("textbox", name="Your lines").press("Shift+Enter")
        page.wait_for_function("!document.querySelector('.python-picture').hidden")
        assert {"python.js", "micropython.js", "python.css"} <= set(asked)


@pytest.mark.site
def test_folded_lines_before_a_cell_run_first(browser: Any, site: Path) -> None:
    with opened(browser, (site / "chapters" / "04_mc_and_td.html").as_uri()) as page:
        page.get_by_role("button", name="Edit and run here").last.click()
        program = page.get_by_role("textbox", name="The program, yours to change")
        assert "def cliff_step" not in program.input_value()
        program.fill("print('folded:', cliff_step((3, 0), 0))")
        program.press("Shift+Enter")
        page.wait_for_function("document.body.innerText.includes('folded: ((2, 0), -1, False)')")
