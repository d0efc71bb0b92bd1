"""Tests of what others run: the workflows, the update bot, Binder, the container, and the checks before a commit. No network."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# The jobs that may do more than read, and what they may. Each runs nothing of the repository.
MAY = {"book.publish": {"contents": "write"}, "lock.commit": {"contents": "write", "actions": "write"}}


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def workflow(name: str) -> dict[str, Any]:
    """A workflow; YAML 1.1 takes the key ``on`` for true."""
    found = yaml.safe_load(read(f".github/workflows/{name}.yml"))
    return {"on" if key is True else key: value for key, value in found.items()}


def jobs() -> dict[str, dict[str, Any]]:
    return {f"{path.stem}.{name}": job for path in WORKFLOWS for name, job in workflow(path.stem)["jobs"].items()}


posix = pytest.mark.skipif(os.name != "posix", reason="a script of a shell")


# ---------------------------------------------------------------- the workflows


def loose(text: str) -> list[str]:
    """The actions of a workflow that are not named by a commit with the version beside it."""
    used = re.findall(r"uses: *(.*)", text)
    return [action for action in used if not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)]


def test_every_action_is_named_by_its_commit() -> None:
    for path in WORKFLOWS:
        assert loose(path.read_text("utf-8")) == [], path.name
        assert "uses:" in path.read_text("utf-8")
    assert loose("- uses: actions/checkout@v6\n- uses: a/b@main # v1.0.0") == [
        "actions/checkout@v6",
        "a/b@main # v1.0.0",
    ]


def test_an_action_has_one_version_everywhere() -> None:
    used = {action for path in WORKFLOWS for action in re.findall(r"uses: *(\S+)", path.read_text("utf-8"))}
    assert len({action.split("@")[0] for action in used}) == len(used)


def test_nothing_may_write_except_where_it_must() -> None:
    assert len(WORKFLOWS) == 2
    for path in WORKFLOWS:
        assert workflow(path.stem)["permissions"] == {"contents": "read"}
    assert {name: job["permissions"] for name, job in jobs().items() if "permissions" in job} == MAY


def test_a_job_that_may_write_runs_nothing_of_the_repository() -> None:
    """What a pull request or a package brings must not meet a token that can write."""
    for name in MAY:
        said = "\n".join(step.get("run", "") for step in jobs()[name]["steps"])
        assert not re.search(r"\b(make|python|pip|bash|sh)\b|\./|\.ci/", said), name


def test_no_token_stays_on_a_disk() -> None:
    """Where a job must push, its one step that pushes has the token, in its environment."""
    for name, job in jobs().items():
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step.get("with", {}).get("persist-credentials") is False, name
        with_token = ["git push" in step["run"] for step in job["steps"] if "github.token" in str(step.get("env"))]
        assert with_token == ([True] if name in MAY else []), name


def test_no_command_holds_words_of_an_event() -> None:
    """They could be somebody's shell commands; commands read variables instead."""
    for name, job in jobs().items():
        assert not [step["run"] for step in job["steps"] if "${{" in step.get("run", "")], name
        assert "timeout-minutes" in job, name
    assert all("pull_request_target" not in workflow(path.stem)["on"] for path in WORKFLOWS)


@posix
def test_every_change_is_tested_by_the_script_that_anybody_can_run() -> None:
    assert {"push", "pull_request"} <= workflow("book")["on"].keys()
    test = jobs()["book.test"]
    assert [step["run"] for step in test["steps"] if "run" in step][-1] == ".ci/run"
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_only_a_tested_main_is_published() -> None:
    publish = jobs()["book.publish"]
    assert set(publish["needs"]) == {"test", "other-pythons"}
    upload = next(step for step in jobs()["book.test"]["steps"] if "upload" in step.get("uses", ""))
    assert publish["if"] == upload["if"] == "github.event_name != 'pull_request' && github.ref == 'refs/heads/main'"
    assert upload["with"]["path"] == "_build/html"
    assert "gh-pages" in publish["steps"][-1]["run"]


def test_the_site_that_is_tested_and_published_knows_its_place() -> None:
    test = jobs()["book.test"]
    assert {"BOOK_REPOSITORY", "BOOK_URL"} <= test["env"].keys()
    checkout = test["steps"][0]["with"]
    assert checkout["fetch-depth"] == 0  # without the history, pages would have no dates


def test_packages_are_kept_between_runs_and_found_where_pip_looks() -> None:
    assert "PIP_CACHE_DIR" in workflow("book")["env"]
    assert re.search(r"^export PIP_CACHE_DIR \?=", read("Makefile"), re.MULTILINE)  # the environment's goes before
    for name in ("book.test", "book.other-pythons"):
        setup = next(step["with"] for step in jobs()[name]["steps"] if "setup-python" in step.get("uses", ""))
        assert setup["cache"] == "pip"
        assert [(ROOT / path).is_file() for path in setup["cache-dependency-path"].split()] == [True, True]


def test_every_python_that_the_book_names_is_tested() -> None:
    versions = {*jobs()["book.other-pythons"]["strategy"]["matrix"]["python"]}
    versions |= {
        step["with"]["python-version"]
        for step in jobs()["book.test"]["steps"]
        if "setup-python" in step.get("uses", "")
    }
    assert versions == {"3.11", "3.12", "3.13", "3.14"}


# ---------------------------------------------------------------- the update bot


def asked(name: str) -> list[str]:
    """The managers of the update bot that read a file."""
    bot = json.loads(read("renovate.json"))
    found = [("pip_requirements", pattern) for pattern in bot["pip_requirements"]["managerFilePatterns"]]
    found += [("uv", pattern) for manager in bot["customManagers"] for pattern in manager["managerFilePatterns"]]
    return [
        manager for manager, pattern in found if re.search(pattern.strip("/"), name) and name not in bot["ignorePaths"]
    ]


def test_the_update_bot_leaves_the_locks_to_make_lock() -> None:
    assert {
        name: asked(name) for name in ("requirements.txt", "constraints.txt", "requirements.lock", "tools/lock.py")
    } == {
        "requirements.txt": ["pip_requirements"],
        "constraints.txt": [],
        "requirements.lock": [],
        "tools/lock.py": ["uv"],
    }
    lock = workflow("lock")
    assert lock["on"]["push"] == {"branches": ["renovate/**"], "paths": ["requirements.txt", "tools/lock.py"]}
    steps = jobs()["lock.resolve"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["make lock"]
    assert steps[-1]["with"]["path"].split() == ["requirements.lock", "constraints.txt"]


def test_the_update_bot_finds_the_pin_of_uv() -> None:
    pattern = json.loads(read("renovate.json"))["customManagers"][0]["matchStrings"][0]
    found = re.search(pattern.replace("(?<", "(?P<"), read("tools/lock.py"))
    assert found and found["depName"] == "uv" and re.fullmatch(r"\d+\.\d+\.\d+", found["currentValue"])


def test_what_is_frozen_is_pinned_and_named_to_the_bot() -> None:
    rules = json.loads(read("renovate.json"))["packageRules"]
    frozen = next(rule for rule in rules if rule["description"].startswith("Frozen"))
    assert frozen["enabled"] is False
    pinned = set(re.findall(r"^([A-Za-z0-9_.-]+)==", read("requirements.txt"), re.MULTILINE))
    assert set(frozen["matchPackageNames"]) <= pinned
    assert {"jupyter-book", "sphinx"} <= set(frozen["matchPackageNames"])


# ---------------------------------------------------------------- Binder and the container


@posix
def test_binder_installs_what_the_locks_name(tmp_path: Path) -> None:
    """Its script is run with a ``python`` that only writes down what it is asked for."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("python", "jupyter"):
        (tools / name).write_text(f'#!/bin/bash\necho "{name} $*" >> "{tmp_path}/asked"\n', "utf-8")
        (tools / name).chmod(0o755)
    subprocess.run([ROOT / ".binder" / "postBuild"], cwd=ROOT, env={"PATH": f"{tools}:/usr/bin:/bin"}, check=True)
    asked = (tmp_path / "asked").read_text("utf-8").splitlines()
    torch = re.search(r"^torch==(\S+)", read("requirements.txt"), re.MULTILINE)
    assert torch
    assert "--require-hashes -r requirements.lock" in asked[0]
    assert asked[1].endswith(f"-c constraints.txt torch=={torch[1]}+cpu")
    assert asked[2].endswith("--no-deps --no-build-isolation --editable .")
    assert asked[3].startswith("jupyter trust chapters/01")
    assert read(".binder/runtime.txt") == "python-3.11\n"


def test_the_container_sets_up_the_environment_of_every_day() -> None:
    text = re.sub(r"^\s*//.*$", "", read(".devcontainer/devcontainer.json"), flags=re.MULTILINE)
    container = json.loads(text)
    assert container["updateContentCommand"] == "make setup"
    assert re.search(r"^setup:", read("Makefile"), re.MULTILINE)
    assert ":3.11-" in container["image"]
    assert all(name in container["onCreateCommand"] for name in ("chromium", "bubblewrap"))  # what .ci/run needs


# ---------------------------------------------------------------- the checks before a commit


def hooks() -> list[dict[str, Any]]:
    return yaml.safe_load(read(".pre-commit-config.yaml"))["repos"][0]["hooks"]


def test_the_checks_before_a_commit_use_the_tools_of_the_locks() -> None:
    assert [repo["repo"] for repo in yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]] == ["local"]
    for hook in hooks():
        assert hook["language"] == "system"
        assert hook["entry"].startswith(".venv/bin/")
        assert all((ROOT / path).is_file() for path in re.findall(r"tests/\S+\.py", hook["entry"]))
    assert {"ruff", "codespell", "pytest"} <= set(re.findall(r"^(\w+)==", read("requirements.lock"), re.MULTILINE))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chapters/02_mdps.ipynb", {"text", "notebooks"}),
        ("README.md", {"text"}),
        ("requirements.txt", {"hosting"}),
        (".github/workflows/book.yml", {"text", "hosting"}),
        ("renovate.json", {"hosting"}),
        ("rlbook_lib/mdp.py", {"text"}),
    ],
)
def test_a_change_meets_the_checks_that_concern_it(name: str, expected: set[str]) -> None:
    assert (ROOT / name).is_file()
    assert {hook["id"] for hook in hooks() if "files" in hook and re.search(hook["files"], name)} == expected
