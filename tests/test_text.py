"""Spelling, the form of the code in modules and notebooks, and links to the outside. Seconds, and no network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))

import links  # noqa: E402

WRITTEN = [
    "*.md",
    "chapters/*.md",
    "assignments/**/*.md",
    "chapters/*.ipynb",
    "assignments/*/*.ipynb",
    "rlbook_lib/*.py",
    "tools/**/*.py",
    "_ext/*.py",
    "assignments/grader/*.py",
    "assignments/*/hidden_tests.py",
    "tests/**/*.py",
    "_static/*.js",
    "rlbook_lib/*.js",
]
PLANTED = {
    "cells": [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": "a",
            "metadata": {},
            "outputs": [],
            "source": ["x = undefined_name  # recieve\n"],
        }
    ],
    "metadata": {"language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def misspelled(paths: list[Path], folder: Path) -> list[str]:
    """What codespell finds in these files: ``file:line: word ==> word``. Of a notebook, the lines of its cells."""
    folder.mkdir(exist_ok=True)
    for path in paths:
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
        (folder / name.replace("/", "-")).write_text(links.text_of(path), "utf-8")
    command = [sys.executable, "-m", "codespell_lib", "--toml", ROOT / "pyproject.toml", "--quiet-level", "35", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 65), done.stderr  # 65: it found something
    return done.stdout.splitlines()


def ruff(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [
        Path(sys.executable).parent / "ruff",
        "check",
        "--no-cache",
        "--output-format",
        "concise",
        "--config",
        ROOT / "pyproject.toml",
    ]
    return subprocess.run([*command, *paths], cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_text_is_spelled_right(tmp_path: Path) -> None:
    paths = [path for pattern in WRITTEN for path in ROOT.glob(pattern) if path != Path(__file__).resolve()]
    assert len(paths) > 100
    assert misspelled(paths, tmp_path / "text") == []


@pytest.mark.parametrize("word", ["recieve", "behaviour", "teh"])
def test_a_misspelling_and_a_british_spelling_are_seen(tmp_path: Path, word: str) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"One {word} here.\n", "utf-8")
    assert [line.split()[1] for line in misspelled([path], tmp_path / "text")] == [word]


def test_ruff_finds_nothing_in_modules_tools_tests_and_notebooks() -> None:
    done = ruff(ROOT)
    assert done.returncode == 0, done.stdout


def test_the_formatter_would_change_nothing() -> None:
    command = [Path(sys.executable).parent / "ruff", "format", "--no-cache", "--check", ROOT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}run: ruff format"


def test_a_fault_in_the_code_of_a_notebook_is_seen_by_both(tmp_path: Path) -> None:
    path = tmp_path / "one.ipynb"
    path.write_text(json.dumps(PLANTED), "utf-8")
    assert "F821 Undefined name `undefined_name`" in ruff(path).stdout
    assert [line.split()[1] for line in misspelled([path], tmp_path / "text")] == ["recieve"]


def test_links_to_the_outside_are_those_of_the_list() -> None:
    """Open what is new once in a browser, then: python tools/links.py --write."""
    assert [*links.collected(links.files())] == links.LIST.read_text("utf-8").splitlines()


def test_a_link_is_found_whole_and_without_what_follows_it() -> None:
    text = "See [one](https://a.org/x?y=1#z), <https://b.org/>, https://c.org/d. And https://example.com/no.\n  doi = {10.1/ab},\n"
    assert links.links(text) == {
        "https://a.org/x?y=1#z",
        "https://b.org/",
        "https://c.org/d",
        "https://doi.org/10.1/ab",
    }
