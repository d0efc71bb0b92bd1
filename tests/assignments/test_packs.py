"""Tests of ``assignments.grader.packing`` and ``gradescope``: the packs are made, unpacked where they will lie, and run."""

import json
import os
import shutil
import subprocess
import sys
import zipfile

import hostile
import pytest
import yaml

from assignments.grader import gradescope, notebooks, own_inputs, packing, questions, results
from assignments.grader.__main__ import main
from assignments.grader.outcomes import PartResult, QuestionResult
from assignments.grader.results import Result

WORDS = {"output_format": ("text", "html", "simple_format", "md", "ansi"), "status": ("passed", "failed")}
WORDS |= {
    name: ("visible", "after_due_date", "after_published", "hidden") for name in ("visibility", "stdout_visibility")
}
TOP = {
    "score": (int, float),
    "execution_time": (int, float),
    "output": str,
    "output_format": str,
    "visibility": str,
    "stdout_visibility": str,
    "tests": list,
}
TEST = {
    "score": (int, float),
    "max_score": (int, float),
    "status": str,
    "name": str,
    "number": str,
    "output": str,
    "output_format": str,
    "visibility": str,
}
ADA = {"email": "Ada@x.org", "id": 7, "name": "Ada Lovelace"}
BEN = {"email": "ben@x.org", "id": 8, "name": "Ben"}


def check_fields(content, known):
    """Every field is documented, of its type, and one of its words; scores are finite."""
    for name, value in content.items():
        assert name in known and isinstance(value, known[name]) and not isinstance(value, bool), name
        assert name not in WORDS or value in WORDS[name], (name, value)


def checked(text):
    """The content of a ``results.json`` that follows the documented format."""
    content = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    check_fields(content, TOP)
    assert "score" in content or (content["tests"] and all("score" in test for test in content["tests"]))
    for test in content["tests"]:
        check_fields(test, TEST)
        assert 0 <= test["score"] <= test["max_score"]
    return content


# --- Gradescope


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The archive of the small assignment, made by the command."""
    folder = tmp_path_factory.mktemp("pack")
    secret = folder / "secret"
    target = folder / "small.zip"
    command = [
        "pack",
        "gradescope",
        "small",
        str(target),
        "--seed",
        str(hostile.SEED),
        "--visibility",
        "after_published",
        "--inputs-per-student",
        str(secret),
    ]
    assert main(command, hostile.HOME) == 0
    return target, secret.read_text().strip()


# makes an environment that is this one, and installs nothing
PYTHON = """#!/bin/sh
case "$1 $2" in
    "-m venv") mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
    "-m pip") echo "$@" > "{installed}" ;;
    *) exec "{python}" "$@" ;;
esac
"""


@pytest.fixture(scope="module")
def image(archive, box, tmp_path_factory):
    """A folder laid out as ``/autograder`` after ``setup.sh``, with this environment's packages in the place of its own."""
    folder = tmp_path_factory.mktemp("image")
    home = folder / "autograder"
    with zipfile.ZipFile(archive[0]) as packed:
        packed.extractall(home / "source")
    (folder / "python").write_text(PYTHON.format(python=sys.executable, installed=folder / "installed"))
    (folder / "python").chmod(0o755)
    environment = os.environ | {"AUTOGRADER": str(home), "GRADER_PYTHON": str(folder / "python")}
    done = subprocess.run(
        ["bash", home / "source" / "setup.sh"], env=environment, capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout == "small: 3 questions are ready.\n"
    assert (
        folder / "installed"
    ).read_text() == f"-m pip install --progress-bar off -r {home}/source/requirements.txt\n"
    shutil.copy(home / "source" / "run_autograder", home)
    return home


@pytest.fixture
def container(image, tmp_path):
    """A fresh copy of the image, as for one submission, and a way to run it: the results and what the instructor sees."""
    home = tmp_path / "autograder"
    shutil.copytree(image, home)
    (home / "submission").mkdir()
    (home / "submission_metadata.json").write_text(json.dumps({"id": 1, "users": [ADA]}))

    def run(**environment):
        done = subprocess.run(
            ["bash", home / "run_autograder"],
            env=os.environ | {"AUTOGRADER": str(home)} | environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0
        return checked((home / "results" / "results.json").read_text("utf-8")), done.stdout + done.stderr

    return home, run


def hand_in(container, notebook, name="small.ipynb"):
    (container[0] / "submission" / name).write_text(notebook if isinstance(notebook, str) else json.dumps(notebook))


def points(content):
    return sum(test["score"] for test in content["tests"])


def test_the_archive_holds_what_grading_needs_and_nothing_else(archive):
    with zipfile.ZipFile(archive[0]) as packed:
        entries = {entry.filename: entry for entry in packed.infolist()}
        course, pins = json.loads(packed.read("course.json")), packed.read("requirements.txt").decode()
    assert {
        "setup.sh",
        "run_autograder",
        "assignments/small/hidden_tests.py",
        "assignments/small/small.ipynb",
        "rlbook_lib/mdp.py",
    } <= set(entries)
    assert not [name for name in entries if name.endswith("rubric.md")]
    assert {name.split("/")[1] for name in entries if name.startswith("assignments/")} == {
        "__init__.py",
        "grader",
        "small",
    }
    assert all(entries[name].external_attr >> 16 & 0o111 for name in ("setup.sh", "run_autograder"))
    assert course == {
        "assignment": "small",
        "seed": hostile.SEED,
        "visibility": "after_published",
        "secret": archive[1],
    }
    assert archive[0].stat().st_mode & 0o777 == 0o600 and "torch" not in pins
    assert [line.split("==")[0] for line in pins.splitlines()] == ["-c constraints.txt", *packing.TO_GRADE]


def test_the_scripts_are_scripts(archive):
    for name in ("setup.sh", "run_autograder"):
        path = packing.TEMPLATES / "gradescope" / name
        subprocess.run(["bash", "-n", path], check=True)
        assert path.read_text().startswith("#!/usr/bin/env bash\n") and b"\r" not in path.read_bytes()


def test_a_right_notebook_gets_all_points_and_a_test_for_each_part(container, small):
    home, run = container
    hand_in(container, small.notebook.read_text("utf-8"))
    content, said = run()
    parts = [
        (f"{question.name}, {question.title}: {part}", worth)
        for question in small.questions
        for part, worth in question.parts.items()
    ]
    assert [(test["name"], test["max_score"]) for test in content["tests"]] == parts
    assert (
        points(content) == 80 and {test["status"] for test in content["tests"]} == {"passed"} and "score" not in content
    )
    assert {test["visibility"] for test in content["tests"]} == {"after_published"}
    assert (
        content["visibility"] == "visible"
        and content["stdout_visibility"] == "hidden"
        and "graded by a person" in content["output"]
    )
    assert "bubblewrap: " in said and "graded 80" in said
    assert not [path for path in (home / "grades").rglob("*") if path.stat().st_mode & 0o77]


LOUD = """
print("SPILLED")
def FUNCTION(*arguments):
    print("SPILLED", arguments)
    import sys; sys.stderr.write("SPILLED")
    open("/tmp/results.json", "w").write("SPILLED")
    raise ValueError(f"SPILLED {arguments}")
"""


def test_what_student_code_says_stays_inside_and_hidden_files_cannot_be_read(container, small, shop):
    home, run = container
    look = f"import os\nif os.path.lexists({str(home)!r}) or os.path.lexists('/autograder'):\n    del {small.questions[1].function}\n"
    notebook = shop.first(LOUD)
    notebook["cells"] += hostile.cell(look)
    hand_in(container, notebook, "my homework.ipynb")
    content, said = run()
    text = json.dumps(content)
    assert (
        points(content) == 80 - small.questions[0].points
    )  # the second question keeps its points: nothing was to be seen
    assert "The call raises ValueError." in text and "should be named small.ipynb" in text
    seed = own_inputs.seed_of(archive_secret(home), "small", "ada@x.org")
    assert not any(word in text + said for word in ("SPILLED", archive_secret(home), str(seed), str(home / "source")))


def archive_secret(home):
    return json.loads((home / "source" / "course.json").read_text())["secret"]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"notes.txt": "hello"}, "no notebook"),
        pytest.param({}, "Nothing was handed in", marks=pytest.mark.slow),
        pytest.param({"small.ipynb": "{"}, "damaged or of another kind", marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_graded_is_said_and_is_called_no_grade(container, files, says):
    for name, text in files.items():
        hand_in(container, text, name)
    content, _ = container[1]()
    assert content["score"] == 0 and content["tests"] == [] and says in content["output"]
    assert content["output"].startswith("NOT GRADED. ") and gradescope.NO_NUMBER in content["output"]


def test_where_no_sandbox_can_be_made_nothing_is_run(container, small, shop, tmp_path):
    """A container that forbids namespaces: the student reads that it was not graded, the instructor reads why."""
    (tmp_path / "bin").mkdir()
    broken = tmp_path / "bin" / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: Creating new namespace failed: Operation not permitted' >&2; exit 1\n")
    broken.chmod(0o755)
    witness = tmp_path / "witness"
    hand_in(container, shop.solved(before=f"open({str(witness)!r}, 'w').write('run')"))
    content, said = container[1](PATH=f"{broken.parent}:{os.environ['PATH']}")
    assert not witness.exists()
    assert content["score"] == 0 and content["tests"] == [] and content["visibility"] == "visible"
    assert content["output"] == f"NOT GRADED. {gradescope.FAILED} {gradescope.NO_NUMBER}"
    assert gradescope.ADVICE in said and "InfrastructureError: the sandbox did not start" in said
    assert "Creating new namespace failed: Operation not permitted" in said


@pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("setpriv") is None, reason="only root can give up the right to make namespaces"
)
def test_root_without_the_right_to_make_namespaces(container, small):
    """As in a container that was started without further rights."""
    hand_in(container, small.notebook.read_text("utf-8"))
    command = ["setpriv", "--bounding-set=-sys_admin", "bash", container[0] / "run_autograder"]
    done = subprocess.run(
        command,
        env=os.environ | {"AUTOGRADER": str(container[0])},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    content = checked((container[0] / "results" / "results.json").read_text("utf-8"))
    assert (
        done.returncode == 0
        and content["score"] == 0
        and content["output"].startswith("NOT GRADED.")
        and gradescope.ADVICE in done.stdout
    )


def test_a_grader_that_does_not_even_start_leaves_a_result(container):
    shutil.rmtree(container[0] / "source" / "assignments" / "small")
    (container[0] / "results").mkdir()
    (container[0] / "results" / "results.json").write_text('{"score": 99}')  # of an earlier run
    content, said = container[1]()
    assert (
        content["score"] == 0
        and content["output"].startswith("NOT GRADED. The grader failed.")
        and "FOR THE INSTRUCTOR" in said
    )


@pytest.mark.parametrize("place", ["submission/small.ipynb", "submission/small", "submission/work"])
def test_a_link_to_what_lies_beside_the_submission_is_not_followed(place, small, tmp_path):
    """Another notebook in the container, the reference's for example, is nobody's answer."""
    (tmp_path / "source" / "small").mkdir(parents=True)
    (tmp_path / "submission").mkdir()
    (tmp_path / "source" / "small" / "small.ipynb").write_bytes(small.notebook.read_bytes())
    (tmp_path / place).symlink_to(tmp_path / "source" / "small" / ("small.ipynb" if place.endswith(".ipynb") else ""))
    found = gradescope.find(tmp_path, small, "ada")
    assert found.problem and found.path in (None, tmp_path / place)


def test_modules_that_a_student_hands_in_are_not_imported(container, small):
    """The grader starts as root beside the student's files: none of them stands where Python looks for modules."""
    home, run = container
    for name in ("sitecustomize.py", "usercustomize.py", "numpy.py", "json.py", "assignments.py"):
        hand_in(container, f"open({str(home / 'witness')!r}, 'w').write('run as the grader')", name)
    (home / "submission" / "results.json").write_text('{"score": 1000}')
    hand_in(container, notebooks.released(notebooks.read(small.notebook)))
    content, _ = run()
    assert not (home / "witness").exists() and points(content) == 0 and content.get("score", 0) == 0


def test_a_group_is_one_student_whoever_of_them_uploads(tmp_path):
    names = []
    for users in ([ADA, BEN], [BEN, ADA], [ADA]):
        (tmp_path / "submission_metadata.json").write_text(json.dumps({"users": users}))
        names.append(gradescope.student_of(tmp_path))
    assert names == ["ada@x.org ben@x.org"] * 2 + ["ada@x.org"]


def test_what_is_said_about_a_question_stands_once_and_where_points_were_lost(small):
    parts = [PartResult("one", 5, 5, 2, 2), PartResult("two", 0, 5, 1, 3), PartResult("three", 0, 10, 0, 1)]
    question = QuestionResult("q1", "Sums", 5, 20, "returned", parts, ["This looks like it.", "And that."])
    content = checked(
        json.dumps(
            gradescope.report(
                small, Result("ada", results.CRASHED, questions=[question], note="A note."), "visible", 1.4
            )
        )
    )
    outputs = [test["output"] for test in content["tests"]]
    assert outputs == [
        "2 of 2 tests passed.",
        "1 of 3 tests passed.\nThis looks like it.\nAnd that.",
        "0 of 1 tests passed.",
    ]
    assert [test["number"] for test in content["tests"]] == ["1.1", "1.2", "1.3"] and "A note." in content["output"]
    secret = gradescope.report(small, Result("ada", results.INFRASTRUCTURE_ERROR, note="/root/secret"), "visible", 1.4)
    assert "/root" not in json.dumps(secret)


# --- GitHub Classroom


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classroom") / "small"
    assert main(["pack", "classroom", "small", str(folder)], hostile.HOME) == 0
    return folder


def test_the_repository_holds_nothing_that_is_hidden(template, small):
    there = {
        str(path.relative_to(template))
        for path in template.rglob("*")
        if path.is_file() and path.parent.name != "rlbook_lib"
    }
    assert there == {
        ".github/workflows/classroom.yml",
        ".gitignore",
        "LICENSE",
        "README.md",
        "constraints.txt",
        "requirements.txt",
        "small.ipynb",
        "visible_checks.json",
        "visible_checks.py",
    }
    release = json.dumps(notebooks.released(notebooks.read(small.notebook)), indent=1, ensure_ascii=False) + "\n"
    assert (template / "small.ipynb").read_text("utf-8") == release
    everything = "\n".join(
        path.read_text("utf-8") for path in template.rglob("*") if path.is_file() and path.parent.name != "rlbook_lib"
    )
    assert not any(
        word in everything
        for word in ("BEGIN SOLUTION", "hidden_tests", "BEGIN HIDDEN", small.questions[0].mistakes[0].says)
    )
    readme = (template / "README.md").read_text("utf-8")
    assert readme.startswith(f"# {small.title}\n") and "not the grade" in readme and "NAME" not in readme


def test_the_workflow_runs_the_visible_checks_only(template, small):
    workflow = yaml.safe_load((template / ".github" / "workflows" / "classroom.yml").read_text())
    assert set(workflow) == {"name", True, "permissions", "jobs"} and set(workflow[True]) == {
        "push",
        "workflow_dispatch",
        "repository_dispatch",
    }
    assert workflow["permissions"] == {"checks": "write", "actions": "read", "contents": "read"}
    (job,) = workflow["jobs"].values()
    steps = {step.get("id", step["name"]): step for step in job["steps"]}
    names = [question.name for question in small.questions]
    assert [step["run"] for step in job["steps"] if "run" in step] == [
        "python -m pip install --progress-bar off -r requirements.txt",
        "python visible_checks.py run",
    ]
    assert all(
        steps[name]["with"]["command"] == f"python visible_checks.py say {name}"
        and steps[name]["with"]["max-score"] == 1
        for name in names
    )
    reporter = job["steps"][-1]
    assert reporter["with"]["runners"] == ",".join(names)
    assert reporter["env"] == {f"{name.upper()}_RESULTS": "${{ steps." + name + ".outputs.result }}" for name in names}
    used = {step["uses"].split("@")[0] for step in job["steps"] if "uses" in step}
    assert used == {
        "actions/checkout",
        "actions/setup-python",
        *(f"classroom-resources/autograding-{kind}" for kind in ("command-grader", "grading-reporter")),
    }


def run_checks(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "visible_checks.py", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout


def test_the_checks_of_a_repository(template, small, shop, tmp_path):
    """Right answers pass, a wrong one fails, and a check that a student has emptied or deleted is the one that was handed out."""
    folder = tmp_path / "repository"
    shutil.copytree(template, folder)
    assert run_checks(folder, "say", "q1") == (1, "The notebook was not run: python visible_checks.py run\n")
    mine = shop.first("def FUNCTION(*arguments):\n    raise NotImplementedError()\n")
    mine["cells"] = [cell for cell in mine["cells"] if notebooks.role(cell).get("grade_id") != "q2-checks"]
    for cell in mine["cells"]:
        if notebooks.role(cell).get("grade_id") == "q1-checks":
            cell["source"] = "pass"
    notebooks.write(mine, folder / "small.ipynb")
    code, said = run_checks(folder)
    titles = [question.title for question in small.questions]
    lines = [
        f"q1, {titles[0]}: FAILED: NotImplementedError: ",
        *(f"q{place}, {title}: the visible checks pass" for place, title in enumerate(titles[1:], 2)),
    ]
    assert (code, said.splitlines()) == (1, lines)
    assert [run_checks(folder, "say", name)[0] for name in ("q1", "q2", "q9")] == [1, 0, 2]


@pytest.mark.parametrize("system", ["gradescope", "classroom"])
def test_nothing_is_overwritten(system, tmp_path, capsys):
    target = tmp_path / "target.zip"
    target.mkdir()
    (target / "mine").write_text("")
    assert main(["pack", system, "small", str(target)], hostile.HOME) == 2
    assert "target: " in capsys.readouterr().err and [path.name for path in target.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["small", "small.tar", ".zip"])
def test_the_archive_is_named_as_gradescope_wants_it(name, tmp_path, capsys):
    assert main(["pack", "gradescope", "small", str(tmp_path / name)], hostile.HOME) == 2
    assert "target: got " in capsys.readouterr().err and not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", questions.names())
def test_every_assignment_can_be_packed(name, tmp_path):
    assignment = questions.load(name)
    assert packing.gradescope(assignment, tmp_path / "a.zip", 1, None, "visible") == packing.gradescope(
        assignment, tmp_path / "b.zip", 1, None, "visible"
    )
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    packing.classroom(assignment, tmp_path / "repository")
    checks = json.loads((tmp_path / "repository" / "visible_checks.json").read_text("utf-8"))["questions"]
    assert list(checks) == [question.name for question in assignment.questions] and all(
        one["check"] for one in checks.values()
    )
    yaml.safe_load((tmp_path / "repository" / ".github" / "workflows" / "classroom.yml").read_text())
    assert ("torch==" in (tmp_path / "repository" / "requirements.txt").read_text()) == (
        name not in ("01_mdps", "02_td")
    )
