"""Run the book's general sentences again, on seeds that were not chosen for them, and name those that fall.

    make claims SEEDS="11 12 13"             all of them
    python tools/claims.py --seeds 11 12 --only 04_mc

``chapters/claims/04_mc_and_td.py`` holds functions about the page of that name. Each has a sentence of the page as its
docstring, takes a seed, and returns whether the sentence holds there. It runs the page's own functions: ``cells(page, *ids)``
executes code cells of the notebook, its imports first, with figures left out, and returns their names.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import inspect
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

CHAPTERS = Path(__file__).resolve().parent.parent / "chapters"
SEEDS = (11, 12, 13, 14, 15)

Claim = Callable[[int], Any]


@cache
def cells(page: str, *ids: str, edits: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    """The names that a page's imports and these code cells define; nothing is drawn or printed.

    Each of ``edits`` puts a text in the place of another, which must stand in these cells exactly once, else a ValueError.
    """
    notebook = json.loads((CHAPTERS / f"{page}.ipynb").read_text("utf-8"))
    code = {cell["id"]: "".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"}
    missing = sorted(set(ids) - code.keys())
    if missing:
        raise ValueError(f"{page} has no code cells {missing}")
    for old, new in edits:
        if (times := sum(code[name].count(old) for name in ids)) != 1:
            raise ValueError(f"{page} has {old!r} {times} times in {list(ids)}; expected it once")
        code |= {name: code[name].replace(old, new) for name in ids}
    names: dict[str, Any] = {"display": lambda *_, **__: None}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(CHAPTERS):
        for name in (next(iter(code)), *ids):
            exec(compile(code[name], f"{page}, cell {name}", "exec"), names)
            names |= {"explore": lambda *_, **__: None, "show": lambda *_, **__: None}
    return names


def sentence(claim: Claim) -> str:
    """What the page says, on one line."""
    return " ".join((claim.__doc__ or "").split())


def claims(folder: Path = CHAPTERS / "claims", only: str = "") -> Iterator[tuple[str, Claim]]:
    """The page and the function of every claim, in the order of the book."""
    for path in sorted(folder.glob(f"{only}*.py")):
        spec = importlib.util.spec_from_file_location(f"claims_{path.stem}", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, function in vars(module).items():
            if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_"):
                yield path.stem, function


def run(found: Iterator[tuple[str, Claim]], seeds: list[int]) -> list[str]:
    """Run every claim on every seed and print a line each; the sentences that fell."""
    fallen = []
    for page, claim in found:
        began = time.process_time()
        failed = [seed for seed in seeds if not claim(seed)]
        took = time.process_time() - began
        mark = "holds" if not failed else f"FALLS on {failed}"
        print(
            f"{page:28} {mark:8} {len(seeds) - len(failed)} of {len(seeds)} seeds {took:6.1f} s  {sentence(claim)}",
            flush=True,
        )
        if failed:
            fallen.append(f"{page}: {sentence(claim)}")
    return fallen


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the book's general sentences on other seeds.")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="default: 11 to 15")
    parser.add_argument("--only", default="", help="pages whose name begins so")
    options = parser.parse_args()
    os.environ.setdefault("MPLBACKEND", "Agg")
    fallen = run(claims(only=options.only), options.seeds)
    print(f"\n{len(fallen)} fell." if fallen else "\nAll hold.")
    return 1 if fallen else 0


if __name__ == "__main__":
    sys.modules["claims"] = sys.modules["__main__"]  # the claims import this file, not a second copy of it
    sys.exit(main())
