"""Nothing that stood in the book is lost, and every pointer of the errata leads to where it says."""

from __future__ import annotations

import re

import pytest
from places import CHAPTERS, Page, load, lost, pages_now

POINTER = re.compile(r"\{doc\}`[^`<]*<(?P<page>\w+)>`(?P<rest>[^;.]*?), \"(?P<section>[^\"]+)\"")


def test_nothing_is_lost() -> None:
    before, moved = load()
    assert lost(before, pages_now(), moved) == []


def test_the_table_has_no_stale_entry() -> None:
    before, moved = load()
    known = {name: {*page.headings, *page.mistakes, *page.labels} for name, page in before.items()}
    assert [f"{name}: {old}" for name, rows in moved.items() for old in rows if old not in known.get(name, set())] == []


def test_pointers_of_the_errata_lead_somewhere() -> None:
    now = pages_now()
    text = (CHAPTERS / "appendix_errata.md").read_text("utf-8")
    pointers = [
        match for line in text.splitlines() if line.startswith("**Shown.**") for match in POINTER.finditer(line)
    ]
    assert len(pointers) > 50
    plain = {
        name: [re.sub(r"[`*]", "", title) for title in page.headings + page.mistakes] for name, page in now.items()
    }
    missing = [
        f"{p['page']}: {p['section']}"
        for p in pointers
        if not any(title.startswith(re.sub(r"[`*]", "", p["section"])) for title in plain.get(p["page"], []))
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("now", "moved", "expected"),
    [
        ({"01_a": Page(["One"], ["box"], ["eq-x"])}, {}, []),
        ({"01_a": Page(["One"]), "01_a_deeper": Page([], ["box"], ["eq-x"])}, {}, []),
        ({"01_a": Page(["Uno"], ["box"], ["eq-x"])}, {"01_a": {"One": "Uno"}}, []),
        ({"01_a": Page([], ["box"], ["eq-x"]), "02_b": Page(["Eins"])}, {"01_a": {"One": "02_b: Eins"}}, []),
        ({"01_a": Page([], ["box"], ["eq-x"])}, {}, ["01_a: heading 'One' is nowhere"]),
        ({"01_a": Page(["One"], [], ["eq-x"])}, {}, ["01_a: mistake 'box' is nowhere"]),
        ({"01_a": Page(["One"], ["box"], []), "02_b": Page([], [], ["eq-x"])}, {}, ["01_a: label 'eq-x' is nowhere"]),
        ({"01_a": Page(["Uno"], ["box"], ["eq-x"])}, {"01_a": {"One": "Due"}}, ["01_a: heading 'One' is nowhere"]),
    ],
)
def test_what_is_lost_is_named(now: dict[str, Page], moved: dict[str, dict[str, str]], expected: list[str]) -> None:
    assert lost({"01_a": Page(["One"], ["box"], ["eq-x"])}, now, moved) == expected
