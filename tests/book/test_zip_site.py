"""The site in one file: what it holds, the same bytes each time, and links that work from where it was unpacked."""

from __future__ import annotations

import html
import re
import sys
import zipfile
from pathlib import Path
from urllib.parse import unquote

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from zip_site import zip_site

LINK = re.compile(r'<(?:a|link|script|img)\b[^>]*?\s(?:href|src)="([^"]*)"')
NAME = re.compile(r'\s(?:id|name)="([^"]*)"')


@pytest.fixture(scope="module")
def unpacked(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zip")
    zip_site(site, folder / "book.zip")
    with zipfile.ZipFile(folder / "book.zip") as archive:
        archive.extractall(folder / "elsewhere")
    return folder / "elsewhere" / "rlbook"


@pytest.mark.site
def test_it_holds_what_the_site_holds(site: Path, unpacked: Path) -> None:
    marks = {".buildinfo", ".complete"}
    there = {
        path.relative_to(site): path.read_bytes()
        for path in site.rglob("*")
        if path.is_file() and path.name not in marks
    }
    assert {path.relative_to(unpacked): path.read_bytes() for path in unpacked.rglob("*") if path.is_file()} == there


@pytest.mark.site
def test_every_link_of_an_unpacked_page_leads_somewhere(unpacked: Path) -> None:
    pages = {path: path.read_text("utf-8") for path in unpacked.rglob("*.html") if "_static" not in path.parts}
    names = {path: set(map(html.unescape, NAME.findall(text))) for path, text in pages.items()}
    faults, followed = [], 0
    for path, text in pages.items():
        for link in set(map(html.unescape, LINK.findall(text))):
            if re.match(r"(https?|mailto|data):", link):
                continue
            address, _, name = re.sub("(#lab-[a-z]+):.*", r"\1", link).partition("#")  # settings follow a lab's name
            target = (path.parent / unquote(address.partition("?")[0])).resolve() if address else path
            followed += 1
            found = target.is_file() and (not name or target not in names or unquote(name) in names[target])
            if not (found and target.is_relative_to(unpacked.resolve())):
                faults.append(f"{path.relative_to(unpacked)}: {link}")
    assert faults == []
    assert followed > 1000


def little_site(folder: Path) -> Path:
    (folder / "_static").mkdir(parents=True)
    for name in ("index.html", ".buildinfo", "_static/b.css", "_static/a.js"):
        (folder / name).write_text(name, "utf-8")
    return folder


def test_the_same_site_gives_the_same_bytes(tmp_path: Path) -> None:
    one = little_site(tmp_path / "one")
    zip_site(one, tmp_path / "one.zip")
    other = tmp_path / "other"  # made in another order, with other modes and dates
    other.mkdir()
    for path in sorted(one.rglob("*"), reverse=True):
        copy = other / path.relative_to(one)
        if path.is_file():
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(path.read_bytes())
            copy.chmod(0o600)
    zip_site(other, tmp_path / "other.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "other.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert archive.namelist() == ["rlbook/_static/a.js", "rlbook/_static/b.css", "rlbook/index.html"]


def test_a_folder_without_a_site_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"which has no index\.html; expected a built book"):
        zip_site(tmp_path, tmp_path / "book.zip")
