"""The deck of cards, read back: each quiz and each numbered formula of the notebooks is there once."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from lxml.html import fromstring

sys.path.insert(0, str(ROOT / "tools"))
import cards
from equation_index import markdown_of, numbered_equations


@pytest.fixture(scope="module")
def rows(site: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The rows of the file, read as Anki reads it: comments first, then columns with a tab between them."""
    file = tmp_path_factory.mktemp("cards") / "cards.txt"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cards, "FILE", file)
        assert cards.main() == 0
    lines = file.read_text("utf-8").splitlines()
    assert [line for line in lines if line.startswith("#")] == lines[: len(cards.HEAD)] == cards.HEAD
    return list(csv.reader(lines[len(cards.HEAD) :], delimiter="\t"))


@pytest.mark.site
def test_each_quiz_and_each_numbered_formula_is_there_once(rows: list[list[str]]) -> None:
    names = [row[0] for row in rows]
    assert len(names) == len({*names}) and len({row[2] for row in rows}) == len(rows)
    labels = {f"equation-{place.label}" for place in numbered_equations(ROOT)}
    assert {name for name in names if name.startswith("equation-")} == labels
    texts = {path.stem: "\n".join(markdown_of(path)) for path in sorted((ROOT / "chapters").glob("*.ipynb"))}
    quizzes = {
        name: len(re.findall(r"^:class: quiz$", text, re.MULTILINE))
        for name, text in texts.items()
        if name[0].isdigit()
    }
    assert {name: sum(one.startswith(f"{name}-quiz-") for one in names) for name in quizzes} == quizzes
    assert sum(quizzes.values()) > 50 and len(labels) > 100


@pytest.mark.site
def test_a_card_asks_and_answers(rows: list[list[str]]) -> None:
    quizzes = 0
    for name, deck, front, back, tags in rows:
        chapter = re.search(r"chapter-(\d\d)$", tags)
        assert chapter and deck.startswith(f"Reinforcement Learning::{chapter[1]} "), name
        for text in (front, back):
            assert text.count(r"\(") == text.count(r"\)") and text.count(r"\[") == text.count(r"\]"), name
            assert not re.search(r"\\(E|P|R|argmax|argmin)\b|katex|class=", text), name  # only what Anki can set
        if name.startswith("equation-"):
            assert r"\[" in back and re.search(r"<p>\(\d+\.\d+\)</p>$", back), name
        else:
            quizzes += 1
            options = len(fromstring(front).xpath("//ol[last()]/li"))
            right = re.match(r"<p><b>Answer (\d)</b></p><p><strong>Right", back)
            assert right and int(right[1]) <= options == back.count("<b>Answer "), name
    assert quizzes
    td = next(row for row in rows if row[0] == "equation-eq-td-error")
    assert "temporal_difference.td_error" in td[2] and r"\delta_t = y_t - V(s_t)" in td[3]
