"""The instructor's guide holds what it says: its commands are taken, and each attack in its table is tried in a test."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from pathlib import Path

import pytest
from conftest import ROOT

from assignments.grader import questions
from assignments.grader.__main__ import parser

GUIDE = (ROOT / "chapters" / "instructors_guide.md").read_text("utf-8")
HERE = Path(__file__).parent
PAGES = ["chapters/instructors_guide.md", "chapters/assignments.md", "assignments/README.md"]
COMMAND = re.compile(r"-m assignments\.grader ((?:\\\n|[^\n`])+)")  # a backslash ends a line that goes on
TABLE = re.search(r"^\| attack \| what stops it \| tests \|\n\|.*\n((?:\|.*\n)+)", GUIDE, re.MULTILINE)
ATTACKS = TABLE[1].splitlines() if TABLE else []
COMMANDS = sorted(
    {(page, text.replace("\\\n", " ")) for page in PAGES for text in COMMAND.findall((ROOT / page).read_text("utf-8"))}
)


def names_in(file: str) -> list[str]:
    return [
        node.name
        for node in ast.walk(ast.parse((HERE / file).read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def test_there_is_a_table():
    assert len(ATTACKS) >= 25


@pytest.mark.parametrize("row", ATTACKS, ids=lambda row: row[2:40])
def test_every_attack_says_what_stops_it_and_is_tried(row):
    attack, stops, tests = (cell.strip() for cell in row.strip("|").split("|"))
    assert attack and stops
    told = re.findall(r"`([^`]+)`", tests)
    assert told and re.sub(r"`[^`]+`|[, ]", "", tests) == ""
    for one in told:
        file, *words = shlex.split(one)
        names = names_in(file)
        assert names and (not words or (words[0] == "-k" and len(words) == 2))
        for word in words[1].split(" or ") if words else []:
            assert any(word in name for name in names), f"no test of {file} has {word!r} in its name"


@pytest.mark.parametrize(("page", "text"), COMMANDS, ids=[text for _, text in COMMANDS])
def test_every_command_is_taken(page, text):
    words = shlex.split(text)
    if words == ["--help"]:
        with pytest.raises(SystemExit) as ended:
            parser().parse_args(words)
        assert ended.value.code == 0
    else:
        options = parser().parse_args(words)
        assert getattr(options, "assignment", "01_mdps") in questions.names()


def test_every_option_that_is_named_exists():
    (commands,) = [action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
    known = {
        option for made in commands.choices.values() for action in made._actions for option in action.option_strings
    }
    others = {"--no-deps"}  # of pip
    assert set(re.findall(r"--[a-z][a-z-]+", GUIDE)) <= known | others


def test_no_command_is_missing():
    (commands,) = [action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
    told = {text.split()[0] for page, text in COMMANDS if page == PAGES[0]}
    assert set(commands.choices) - told <= {"grade", "release"}, "these two are told as make grade and make release"
    assert "make grade" in GUIDE and "make release" in GUIDE


def test_the_readme_names_every_module_of_the_grader():
    told = set(re.findall(r"`(\w+\.py)`", (ROOT / "assignments" / "README.md").read_text("utf-8")))
    assert {path.name for path in (ROOT / "assignments" / "grader").glob("[a-z]*.py")} - told == set()
