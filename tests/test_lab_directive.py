"""The directive that sets a lab, in a small book of its own with plain Sphinx: on a page, in a notebook, and nowhere else."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "_ext"))

from labs import LABS, PICTURES, loading, opening  # noqa: E402
from test_lab_parity import scripts_of  # noqa: E402

CONF = """
import sys
sys.path.insert(0, {ext!r})
extensions = ["myst_nb", "labs"]
html_static_path = ["_static"]
html_css_files = ["lab/lab.css", "own.css"]   # as Jupyter Book lists every sheet and script below _static
html_js_files = ["lab/lab.js", "lab/ppo.js"]
exclude_patterns = ["lab"]
nb_execution_mode = "off"
root_doc = "index"
"""
LAB = "```{lab} maze\n:mode: plan\n:layout: S.#/.TG\nWhat one can do *here*.\n```\n"
OPTIONS = {"mode": "plan", "layout": "S.#/.TG"}


def notebook(*cells: str) -> str:
    rows = [{"cell_type": "markdown", "id": f"c{k}", "metadata": {}, "source": text} for k, text in enumerate(cells)]
    return json.dumps({"cells": rows, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def built(folder: Path, page: str = LAB) -> tuple[Path, str]:
    """The small book's folder of pages, and what Sphinx warned of."""
    source, out = folder / "source", folder / "out"
    (source / "chapters").mkdir(parents=True)
    (source / "_static").mkdir()
    (source / "_static" / "lab").symlink_to(ROOT / "_static" / "lab")
    (source / "_static" / "own.css").write_text("p { color: black }", "utf-8")
    (source / "conf.py").write_text(CONF.format(ext=str(ROOT / "_ext")), "utf-8")
    toc = "```{toctree}\nchapters/page\nchapters/cells\nplain\n```\n"
    (source / "index.md").write_text(f"# Book\n\n{LAB}\n{toc}", "utf-8")
    (source / "plain.md").write_text("# Plain\n\nNo lab.\n", "utf-8")
    (source / "chapters" / "page.md").write_text(f"# Page\n\n{page}", "utf-8")
    (source / "chapters" / "cells.ipynb").write_text(notebook("# Cells", LAB), "utf-8")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(source), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return out, done.stderr


def test_a_lab_stands_on_pages_and_in_notebooks_and_costs_other_pages_nothing(tmp_path: Path) -> None:
    out, warnings = built(tmp_path)
    assert "lab" not in warnings.replace(str(tmp_path), ""), warnings
    for name, root in (("index", ""), ("chapters/page", "../"), ("chapters/cells", "../")):
        text = (out / f"{name}.html").read_text("utf-8")
        assert 'data-layout="S.#/.TG" data-mode="plan"' in opening("maze", OPTIONS)
        assert text.count(opening("maze", OPTIONS)) == 1 and "What one can do <em>here</em>." in text
        assert text.count(loading(f"{root}_static/lab/")) == 1
        assert text.count("lab/") == 1  # the one script; nothing that was listed for every page
    plain = (out / "plain.html").read_text("utf-8")
    assert "lab/" not in plain and "own.css" in plain
    copied = {path.name for path in (out / "_static" / "lab").iterdir()}
    kept = {path.name for path in (ROOT / "_static" / "lab").iterdir()} - {"python"}
    assert copied == kept | {"micropython.js"}  # although "lab" is an excluded pattern


def test_a_lab_a_mode_and_an_option_that_are_unknown_are_named(tmp_path: Path) -> None:
    wrong = LAB.replace("maze", "chess"), LAB.replace("plan", "fly"), LAB.replace(":mode: plan", ":seeds: 2")
    _, warnings = built(tmp_path, "\n".join(wrong))
    assert "lab is 'chess'; expected one of ['agent', 'cartpole', 'language', 'maze', 'people']" in warnings
    assert "mode is 'fly'; expected one of ['backup', 'learn', 'plan']" in warnings
    assert "lab maze has no option seeds; expected one of ['gamma', 'layout', 'mode', 'slip']" in warnings


def test_labs_of_one_kind_have_names_of_their_own(tmp_path: Path) -> None:
    out, _ = built(tmp_path, "\n".join([LAB, LAB, LAB.replace("plan", "learn")]))
    names = re.findall(r'<section class="lab" id="([^"]*)"', (out / "chapters" / "page.html").read_text("utf-8"))
    assert names == ["lab-maze-plan", "lab-maze-plan-2", "lab-maze-learn"]


def test_a_picture_stands_where_it_is_asked_for_and_costs_little(tmp_path: Path) -> None:
    asked = LAB.replace(":mode: plan", ":picture:")
    out, warnings = built(tmp_path, asked + LAB)
    assert "lab" not in warnings.replace(str(tmp_path), ""), warnings
    text = (out / "chapters" / "page.html").read_text("utf-8")
    promise, picture = PICTURES["maze", ""]
    assert text.count(picture) == text.count(promise) == 1 and "data-picture" not in text
    chosen = [(name, {"mode": mode} if mode else {}) for name, mode in PICTURES]
    weights = [
        len(gzip.compress("".join(opening(name, options | more) for name, options in chosen).encode()))
        for more in ({}, {"picture": ""})
    ]
    assert weights[0] < weights[1] < weights[0] + 2_000


@pytest.mark.parametrize("name", LABS)
def test_every_lab_has_its_scripts(name: str) -> None:
    """They are there, and a lab brings no other lab's and no weights before these are wanted."""
    found = scripts_of(name)
    assert {"page", "random"} < set(found) and not any(script.startswith("weights") for script in found)
    assert {script for script in found if script.startswith("lab_")} <= {f"lab_{name}", "lab_walks"}
