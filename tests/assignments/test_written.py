"""Tests of ``assignments.grader.written``: whose answer is whose, whatever the answers say."""

import hostile
import pytest
from markdown_it import MarkdownIt

from assignments.grader import submissions, written
from assignments.grader.__main__ import main

SPOOFS = {
    "ann": "# eve\n\nAn answer worth full points.\n\n## bob\n",
    "bob": "<!-- hides what follows",
    "cyn": "```\nnever closed",
    "dan": "text\n<script>alert(1)</script>\n<details>\n- list\n\n1. list",
    "eve": "a\u2028# eve\r## eve\x0b# eve\x85# eve\u202eabc\x1b[2J",
    "fay": "\t# eve\n===\n---",
    "gus": "[a]: http://example.org\n\n> quote\n\n$$x$$ {{directive}}\n:::{note}\n",
}


def notebook(text):
    return {"cells": [{"cell_type": "markdown", "source": text, "metadata": {"nbgrader": {"grade_id": "written"}}}]}


@pytest.fixture
def submitted(tmp_path):
    folder = tmp_path / "submitted"
    for name, text in SPOOFS.items():
        hostile.write(folder / name / "small.ipynb", notebook(text))
    return folder


def test_no_answer_speaks_for_another_student(submitted, small):
    text = written.answers(small, submissions.find(submitted, "small"))
    tokens = MarkdownIt("commonmark").parse(text)
    headings = [
        inline.content for token, inline in zip(tokens, tokens[1:], strict=False) if token.type == "heading_open"
    ]
    assert headings[0] == "A small assignment: Why discount? (20 points)" and headings[1:] == list(SPOOFS)
    assert {token.type for token in tokens} == {"heading_open", "inline", "heading_close", "code_block"}
    assert sum(token.type == "code_block" for token in tokens) == len(SPOOFS)
    assert all(line[:1] in ("", " ") or line in {f"## {name}" for name in SPOOFS} for line in text.splitlines()[1:])
    assert "\u202e" not in text and "\x1b" not in text


def test_names_are_only_names(tmp_path, small):
    names = ["# eve", "<!-- x", "*a* _b_ `c`", "[l](javascript:1)", "José O'Neil"]
    for name in names:
        hostile.write(tmp_path / name / "small.ipynb", notebook("an answer"))
    tokens = MarkdownIt("commonmark").parse(written.answers(small, submissions.find(tmp_path, "small")))
    inline = [token for token in tokens if token.type == "inline"][1:]
    assert sorted("".join(child.content for child in token.children) for token in inline) == sorted(names)
    assert {child.type for token in inline for child in token.children} <= {"text", "text_special"}


def test_what_cannot_be_read_is_said(tmp_path, small):
    for name, data in (
        ("deep", b'{"cells": [' + b"[" * 100_000),
        ("deeper", b"[" * 1_000_000),
        ("empty", b""),
        ("odd", b'{"cells": [[], {"id": "written", "source": 3}]}'),
    ):
        hostile.write(tmp_path / name / "small.ipynb", data)
    hostile.write(tmp_path / "stub" / "small.ipynb", notebook("YOUR ANSWER HERE"))
    (tmp_path / "none").mkdir()
    (tmp_path / "link").symlink_to("/dev/zero")
    text = written.answers(small, submissions.find(tmp_path, "small"))
    said = text.split("\n## ")[1:]
    assert len(said) == 7 and sum("Cannot be read" in one for one in said) == 4
    assert (
        sum("No answer was found" in one for one in said) == 2
        and sum("Nothing was handed in" in one for one in said) == 1
    )


def test_the_command(submitted, tmp_path, capsys):
    path = tmp_path / "written.md"
    before = tmp_path.stat().st_mode
    assert main(["written", str(submitted), "small", str(path)], hostile.HOME) == 0
    assert (
        "## gus" in path.read_text("utf-8")
        and path.stat().st_mode & 0o777 == 0o600
        and tmp_path.stat().st_mode == before
    )
    assert main(["written", str(tmp_path / "nothing"), "small", str(path)], hostile.HOME) == 2
