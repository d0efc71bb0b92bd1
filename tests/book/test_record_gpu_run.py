"""Tests of ``tools/record_gpu_run.py``, as an author calls it, on the CPU."""

import ast
import json
import re
import runpy
import subprocess
import sys
from functools import cache

import pytest
import torch
from conftest import ROOT
from torch.utils._python_dispatch import TorchDispatchMode

from rlbook_lib import devices
from rlbook_lib.fine_tuning import SFTConfig
from rlbook_lib.language_model import TransformerConfig
from rlbook_lib.rlhf import RLHFConfig
from rlbook_lib.text_tasks import Sorting

RECORDINGS = ROOT / "chapters" / "recordings"
IMPORTS = "import torch\nimport a_module_that_nobody_has\nfrom rlbook_lib.devices import gpu_run\n"
RUN = """def experiment(device):
    return {"config": {"copies": 2}, "seeds": [0], "curve": {"x": [1.0]},
            "summary": {"sum": float(torch.ones(3, device=device).sum())}}

record = gpu_run("toy", experiment)
"""


def notebook(path, *cells):
    """A notebook of (source, tags) cells."""
    cells = [
        {
            "cell_type": "code",
            "id": f"c{i}",
            "metadata": {"tags": tags},
            "source": source.splitlines(True),
            "outputs": [],
            "execution_count": None,
        }
        for i, (source, tags) in enumerate(cells)
    ]
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


TOOL = runpy.run_path(str(ROOT / "tools" / "record_gpu_run.py"))


def record(*arguments):
    """Call the tool; the message it gave up with, or None."""
    try:
        TOOL["main"]([str(argument) for argument in arguments])
    except SystemExit as end:
        return str(end)
    return None


def test_a_rehearsal_writes_a_record_that_says_so(tmp_path, capsys):
    page = notebook(
        tmp_path / "page.ipynb", (IMPORTS, []), ("raise RuntimeError('not for the GPU')", []), (RUN, ["gpu-run"])
    )
    assert record(page, "--device", "cpu", "--output", tmp_path / "out") is None
    assert "left out: import a_module_that_nobody_has" in capsys.readouterr().err
    made = json.loads((tmp_path / "out" / "toy.json").read_text())
    assert made["summary"] == {"sum": 3.0} and made["seeds"] == [0]
    assert made["rehearsal"] is True and made["name"] == "toy"
    assert devices.gpu_run.__module__ == devices.__name__  # put back


@pytest.mark.parametrize("output", [[], ["--output", RECORDINGS / "deeper"], ["--output", "tools/../chapters"]])
def test_a_rehearsal_is_never_written_below_chapters(tmp_path, monkeypatch, output):
    monkeypatch.chdir(ROOT)
    page = notebook(tmp_path / "page.ipynb", (IMPORTS, []), (RUN, ["gpu-run"]))
    assert "not written below chapters" in record(page, "--device", "cpu", *output)
    assert not (RECORDINGS / "deeper").exists()
    assert not (RECORDINGS / "toy.json").exists() and not (ROOT / "chapters" / "toy.json").exists()


def test_a_page_without_a_gpu_run_is_an_error(tmp_path):
    untagged = notebook(tmp_path / "untagged.ipynb", (IMPORTS, []), (RUN, []))
    silent = notebook(tmp_path / "silent.ipynb", (IMPORTS, []), ("x = 1", ["gpu-run"]))
    for page, said in ((untagged, "no cell has the tag"), (silent, "never called gpu_run")):
        assert said in record(page, "--device", "cpu", "--output", tmp_path / "out")


@pytest.mark.slow
def test_every_gpu_run_of_the_book_is_rehearsed_to_its_end_and_drawn(tmp_path, capsys, monkeypatch):
    """Small, on the CPU, with what the pages would print and draw of it, there and from the files."""
    pages = sorted((ROOT / "chapters").glob("*_deeper.ipynb"))
    assert record(*pages, "--device", "cpu", "--small", "--output", tmp_path) is None
    small, cells_to_run = (TOOL[name] for name in ("SMALL", "cells_to_run"))
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(small) and len(small) == 5
    for path in tmp_path.iterdir():
        made = json.loads(path.read_text())
        assert made["rehearsal"] is True and made["summary"] and made["seeds"]
        assert all(len(column) >= 2 for column in made["curve"].values())
    assert "million parameters, accuracy" in (said := capsys.readouterr().out) and "matrix rate" in said
    assert said.count(" -> ") == 5 and said.count("\ncurve: ") == 5 and "not drawn" not in said

    # as if a GPU had recorded them: each page draws what its file holds, and computes nothing
    monkeypatch.setattr(devices, "RECORDINGS", tmp_path)
    monkeypatch.setattr(devices, "make_record", None)
    drawn = dict.fromkeys(small)
    for path in tmp_path.iterdir():
        path.write_text(json.dumps(json.loads(path.read_text()) | {"rehearsal": False, "device": "Some GPU"}))
    for page in pages:
        names = {"__name__": "__main__"}
        for source in cells_to_run(page):
            *body, last = ast.parse(source).body
            exec(compile(ast.Module(body, []), page.name, "exec"), names)
            if isinstance(last, ast.Expr) and "show_record" in ast.unparse(last):
                name = next(name for name in small if f'gpu_run("{name}"' in source)
                drawn[name] = eval(compile(ast.Expression(last.value), page.name, "eval"), names)
            else:
                exec(compile(ast.Module([last], []), page.name, "exec"), names)
    assert capsys.readouterr().out.count("Recorded run: on Some GPU") == 5
    for name, figure in drawn.items():
        assert re.fullmatch(r"[\w ,]+ over [\w ]+: .+ from .+ to .+", figure.alt), (name, figure.alt)
        assert f'aria-label="{figure.alt}"' in figure.html and "<path" in figure.html


def test_the_tool_runs_by_itself(tmp_path):
    tool = ROOT / "tools" / "record_gpu_run.py"
    done = subprocess.run(
        [sys.executable, str(tool), "none.ipynb", "--device", "nothing"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=600,
    )
    assert done.returncode == 1 and "'nothing'" in done.stderr


class Counter(TorchDispatchMode):
    """Counts the operators that torch runs, of the way back and of the optimizer, too."""

    operators = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operators += 1
        return func(*args, **(kwargs or {}))


def operators(name, known={}, **how):  # noqa: B006  each call is counted once
    if (name, str(how)) not in known:
        with Counter() as counter:
            experiments()[name](torch.device("cpu"), **how)
        known[name, str(how)] = counter.operators
    return known[name, str(how)]


@cache
def experiments():
    """Name to experiment, of all pages."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "gpu_run", lambda name, experiment, **_: found.update({name: experiment}))
        for page in sorted((ROOT / "chapters").glob("*_deeper.ipynb")):
            names = {"__name__": "__main__"}
            for source in TOOL["cells_to_run"](page):
                exec(source, names)
            names["evaluate_accuracy"] = lambda *_, **__: 0.0  # twice a run: not worth the counting
    return found


# Calls that are counted, (a, b), and how often the whole run holds what b has more than a; floating-point operations of all.
TRANSFORMER = {"width": 32, "layers": 8, "heads": 8}
LONG = {"task": Sorting(12, 20), "model": TransformerConfig(**TRANSFORMER), "matrix": 64}


def rlhf(sft, updates):
    config = RLHFConfig(updates=updates, batch_size=16)
    return {"size": LONG | {"sft": SFTConfig(updates=sft, batch_size=16), "rlhf": config}}


def grpo(steps, updates):
    shape = {"width": 32, "layers": 8, "digits": (10, 16), "prompts": 4, "group": 4, "size": 64, "count": 16}
    return shape | {"steps": steps, "updates": updates}


WHOLE = {
    "dqn-many-carts": [({"copies": 16, "batch": 64, "updates": 20, "seeds": [0]}, {"updates": 40}, 3 * 1500 / 20)],
    "trpo-cartpole": [({"copies": 8, "updates": 1, "seeds": [0]}, {"updates": 2}, 3 * 40)],
    "ppo_cartpole": [({"copies": [8], "updates": 1, "seeds": [0]}, {"updates": 2}, 3 * 2 * 40)],
    "rlhf-large": [(rlhf(1, 1), rlhf(2, 1), 1200), (rlhf(1, 1), rlhf(1, 2), 60)],
    "grpo_sorting": [(grpo(1, 1), grpo(2, 1), 1500), (grpo(1, 1), grpo(1, 2), 200)],
}
WEIGHTS = 8 * 12 * 512**2
FLOPS = {
    "rlhf-large": WEIGHTS * (1200 * 512 * 6 * 34 + 60 * 2048 * 34 * (6 + 12 * RLHFConfig().epochs)),
    "grpo_sorting": WEIGHTS * (1500 * 512 * 6 * 28 + 200 * 128 * 16 * 28 * 8),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_a_gpu_run_ends_within_ten_minutes_by_count(name):
    """At 30 microseconds an operator, 0.3 milliseconds a step of a judged pole, and 5e13 operations a second."""
    count = sum((operators(name, **one | two) - operators(name, **one)) * times for one, two, times in WHOLE[name])
    judged = 240 * 500 * 3e-4 if name == "ppo_cartpole" else 0
    seconds = 30e-6 * count + judged + FLOPS.get(name, 0) / 5e13
    assert seconds < (400 if name == "rlhf-large" else 600)
