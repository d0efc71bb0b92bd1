"""Tests of _ext/hosting: the settings that name the repository and the site, what they put on pages, and the dates from git."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import hosting
import pytest
from sphinx.errors import ConfigError

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
ROOT = Path(__file__).resolve().parent.parent
REPOSITORY, SITE = "https://github.com/owner/name", "https://owner.github.io/name"


# ---------------------------------------------------------------- the settings


def read(pattern: re.Pattern[str], value: str) -> re.Match[str] | None:
    return hosting.setting("BOOK_PLACE", value, pattern, "book_place", "an address")


def test_nothing_is_named_unless_somebody_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOOK_PLACE", raising=False)
    assert read(hosting.REPOSITORY, "") is None
    monkeypatch.setenv("BOOK_PLACE", "")
    assert read(hosting.REPOSITORY, "") is None


def test_the_environment_goes_before_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOK_PLACE", "https://gitlab.com/someone/else")
    found = read(hosting.REPOSITORY, REPOSITORY)
    assert found and found.groupdict() == {"host": "gitlab", "owner": "someone", "name": "else"}


@pytest.mark.parametrize("ending", ["", "/", ".git", ".git/"])
def test_a_repository_is_known_however_its_address_ends(ending: str) -> None:
    found = read(hosting.REPOSITORY, REPOSITORY + ending)
    assert found and (found["owner"], found["name"]) == ("owner", "name")


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        (hosting.REPOSITORY, "owner/name"),
        (hosting.REPOSITORY, "http://github.com/owner/name"),
        (hosting.REPOSITORY, REPOSITORY + "/tree/main"),
        (hosting.REPOSITORY, "https://example.org/owner/name"),
        (hosting.SITE, "owner.github.io"),
        (hosting.SITE, SITE + "?page=1"),
    ],
)
def test_an_address_of_another_form_is_refused(pattern: re.Pattern[str], value: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"book_place is {value!r}; expected an address")):
        read(pattern, value)


# ---------------------------------------------------------------- a small book, with and without them

CONF = f"""
extensions = ["myst_nb", "sphinxext.opengraph", "frame", "hosting"]
html_theme = "furo"
templates_path = [{str(ROOT / "_templates")!r}]
project = "Small"
ogp_social_cards = {{"enable": False}}
nb_execution_mode = "off"
exclude_patterns = ["build"]
"""
NOTEBOOK = """{"cells": [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# One\\n"]}],
"metadata": {"kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}}, "nbformat": 4, "nbformat_minor": 5}"""


@pytest.fixture
def build(tmp_path: Path):
    """Builds a book of two pages where ``tmp_path`` is, and returns the pages."""
    (tmp_path / "conf.py").write_text(CONF, "utf-8")
    (tmp_path / "index.md").write_text("# Small\n\n```{toctree}\none\n```\n", "utf-8")
    (tmp_path / "one.ipynb").write_text(NOTEBOOK, "utf-8")

    def run(**places: str) -> dict[str, str]:
        known = {name: value for name, value in os.environ.items() if not name.startswith(("BOOK_", "GIT_"))}
        environment = known | {"PYTHONPATH": str(ROOT / "_ext")} | places
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "-E", "-b", "html", ".", "build"]
        said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stderr
        return {
            path.stem: path.read_text("utf-8")
            for path in (tmp_path / "build").iterdir()
            if path.suffix in (".html", ".xml")
        }

    return run


def outside(page: str) -> set[str]:
    """The links of a page to where it might be hosted."""
    return set(re.findall(r'href="(https://[^"]*(?:owner|binder|colab)[^"]*)"', page))


def test_without_settings_a_page_shows_no_dead_link(build) -> None:
    pages = build()
    for page in pages.values():
        assert outside(page) == set()
        assert not re.search(r"rel=\"canonical\"|og:url|og:image|book-date", page)
    assert "og:title" in pages["one"]


def test_with_both_settings_a_page_can_be_edited_launched_and_found(build) -> None:
    pages = build(BOOK_REPOSITORY=REPOSITORY, BOOK_URL=SITE)
    assert outside(pages["one"]) == {
        f"{REPOSITORY}/edit/main/one.ipynb",
        "https://mybinder.org/v2/gh/owner/name/main?urlpath=lab/tree/one.ipynb",
        "https://colab.research.google.com/github/owner/name/blob/gh-pages/_sources/one.ipynb",
        f"{SITE}/one.html",
    }
    assert re.findall(r'class="page-link" href="https[^>]*>(\w+)<', pages["one"]) == ["Edit", "Binder", "Colab"]
    assert f'<link rel="canonical" href="{SITE}/one.html"' in pages["one"]
    assert f'og:url" content="{SITE}/one.html"' in pages["one"]
    assert f'og:image" content="{SITE}/_static/readme.png"' in pages["one"]
    assert re.findall("<loc>(.*)</loc>", pages["sitemap"]) == [f"{SITE}/index.html", f"{SITE}/one.html"]
    assert outside(pages["index"]) == {
        f"{REPOSITORY}/edit/main/index.md",
        f"{SITE}/index.html",
    }  # no notebook: nothing to launch


def test_gitlab_is_asked_as_it_wants_to_be(build) -> None:
    page = build(BOOK_REPOSITORY="https://gitlab.com/owner/name", BOOK_URL=SITE)["one"]
    assert outside(page) >= {
        "https://gitlab.com/owner/name/-/edit/main/one.ipynb",
        "https://mybinder.org/v2/gl/owner%2Fname/main?urlpath=lab/tree/one.ipynb",
    }
    assert "colab" not in page


def test_without_a_site_no_button_opens_a_notebook_that_cannot_run(build) -> None:
    page = build(BOOK_REPOSITORY=REPOSITORY)["one"]
    assert "mybinder.org" in page
    assert "colab" not in page


# ---------------------------------------------------------------- the dates


def commit(folder: Path, day: str) -> None:
    who = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "A"), ("EMAIL", "a@b"), ("DATE", f"{day}T12:00:00Z"))
    }
    nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for words in (["add", "-A"], ["commit", "-q", "-m", day]):
        subprocess.run(["git", *words], cwd=folder, check=True, env=os.environ | who | nobody)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A repository whose folder ``book`` has two files of two days."""
    book = tmp_path / "whole" / "book"
    (book / "chapters").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", book.parent], check=True)
    for day, name in (("2024-01-02", "index.md"), ("2024-03-04", "chapters/größe.md")):
        (book / name).write_text(day, "utf-8")
        commit(book, day)
    return book


@needs_git
def test_a_page_has_the_day_of_its_last_commit(history: Path) -> None:
    assert hosting.dates(history) == {"index.md": "2024-01-02", "chapters/größe.md": "2024-03-04"}
    (history / "index.md").write_text("again", "utf-8")
    commit(history, "2024-05-06")
    assert hosting.dates(history)["index.md"] == "2024-05-06"


@needs_git
def test_without_history_there_are_no_dates(history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", history.parent.as_uri(), shallow], check=True)
    assert hosting.dates(shallow / "book") == {}
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    alone = tmp_path / "alone"
    alone.mkdir()
    assert hosting.dates(alone) == {}
    monkeypatch.setenv("PATH", str(alone))  # no git at all
    assert hosting.dates(history) == {}


@needs_git
def test_the_date_stands_at_the_foot_of_the_page(build, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("*\n!one.ipynb\n", "utf-8")
    commit(tmp_path, "2024-01-02")
    pages = build()
    assert re.search(r"Last updated on 2024-01-02\.", pages["one"])
    assert "Last updated" not in pages["index"]  # not in the repository
