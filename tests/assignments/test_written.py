"""Tests of ``assignments.grader.written``: answers that pretend to be something else are shown as what they are."""

from assignments.grader import written

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


def test_every_character_of_an_answer_can_be_seen(small):
    for text in SPOOFS.values():
        (answer,) = written.answer(small, notebook(text))
        shown = written.visible(answer)
        assert all(map(written.is_visible, shown.replace("\n", ""))) and "\u202e" not in shown and "\x1b" not in shown
    assert written.answer(small, notebook("YOUR ANSWER HERE")) == []
