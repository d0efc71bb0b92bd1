"""The page of questions: short answers, each with a place in the book, and names that are really ours."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

from rlbook_lib.dqn import DQNConfig
from rlbook_lib.policy_gradient import A2CConfig
from rlbook_lib.ppo import PPOConfig

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "chapters" / "appendix_questions.md").read_text("utf-8")
PARTS = re.split(r"(?m)^### (.+)\n", PAGE.partition("\n(names-sb3)=")[0])
ANSWERS = dict(zip(PARTS[1::2], (text.partition("\n## ")[0].partition("\n(")[0].strip() for text in PARTS[2::2])))
LINK = re.compile(r"\{(?:doc|ref|eq|numref)\}`")


def sentences(text: str) -> int:
    """How many sentences say something: links alone, at the end, are the place in the book."""
    plain = re.sub(r"`[^`]*`|\$[^$]*\$", "x", LINK.sub("LINK`", text))
    return sum("LINK" not in part for part in re.split(r"(?<=[.?!])\s+(?=[A-Z\"{$])", plain))


def test_sentences_are_counted() -> None:
    assert sentences("One. Two (0.5): It is. {ref}`x <y>`, {eq}`z`.") == 2


def test_each_of_fifty_questions_is_answered_in_three_sentences_with_a_place() -> None:
    assert len(ANSWERS) >= 50
    assert [question for question, text in ANSWERS.items() if not LINK.search(text)] == []
    assert {question: n for question, text in ANSWERS.items() if (n := sentences(text)) > 3} == {}


def test_the_threads_ask_other_words_than_the_page() -> None:
    rows = json.loads((ROOT / "tests" / "book" / "search_threads.json").read_text("utf-8"))
    assert len({row["query"] for row in rows}) == len(rows) == 70
    assert sum(row["query"] in ANSWERS for row in rows) <= 2


def test_the_names_beside_those_of_stable_baselines_are_fields_of_ours() -> None:
    table = PAGE.partition("(names-sb3)=")[2]
    named = {name for row in re.findall(r"(?m)^\| (`[^|]+) \|", table) for name in re.findall(r"`(\w+)", row)}
    fields = {field.name for config in (DQNConfig, A2CConfig, PPOConfig) for field in dataclasses.fields(config)}
    assert len(named) > 20 and named <= fields, named - fields
