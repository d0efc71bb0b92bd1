"""Tests of what an installation rests on: the pins, the locks, and the script that installs them. Nothing here uses a network."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))

import lock  # noqa: E402
import outdated  # noqa: E402

import rlbook_lib  # noqa: E402

SUPPORTED = ["3.11.0", "3.12.0", "3.13.0", "3.14.0"]


def pinned(name: str) -> list[Requirement]:
    """The pins of a file: ``name==version``, with a marker where there is one; options, paths, hashes and comments left out."""
    found = []
    for line in (ROOT / name).read_text("utf-8").splitlines():
        text = line.split(" #")[0].removesuffix("\\").strip()
        if re.match(r"[A-Za-z0-9]", text):
            found.append(Requirement(text))
    return found


# ---------------------------------------------------------------- the pins


def refused(requires_python: str | None) -> list[str]:
    """The supported versions of Python that a package does not allow."""
    return [version for version in SUPPORTED if requires_python and version not in SpecifierSet(requires_python)]


def test_a_package_that_is_too_new_for_the_oldest_python_is_seen():
    assert refused(">=3.11.5") == ["3.11.0"]
    assert refused("<3.13,>=3.9") == ["3.13.0", "3.14.0"]
    assert refused(">=3.11") == refused(None) == []


def test_every_pin_allows_the_oldest_and_the_newest_python():
    """What was pinned once, soupsieve 4.1.1, asks for 3.11.5, and Debian 12 has 3.11.2."""
    faults, seen = [], 0
    for pin in [*pinned("constraints.txt"), *pinned("requirements.txt")]:
        if (pin.marker and not pin.marker.evaluate()) or lock.SLOW_TO_START.match(f"{pin.name}=="):
            continue
        found = metadata.metadata(pin.name)
        assert pin.specifier.contains(found["Version"]), (
            f"{pin.name} {found['Version']} is installed; the pin is {pin.specifier}"
        )
        faults += [f"{pin} does not allow Python {version}" for version in refused(found.get("Requires-Python"))]
        seen += 1
    assert faults == []
    assert seen > 150


def test_both_locks_hold_the_same_pins():
    installed = [str(pin) for pin in pinned("constraints.txt") if not lock.SLOW_TO_START.match(f"{pin.name}==")]
    assert [*map(str, pinned("requirements.lock"))] == installed


def test_the_lock_is_whole():
    """It is installed without asking what a package needs."""
    here = [pin for pin in pinned("requirements.lock") if not pin.marker or pin.marker.evaluate()]
    needed = {
        canonicalize_name(need.name)
        for pin in here
        for need in map(Requirement, metadata.requires(pin.name) or [])
        if not need.marker or need.marker.evaluate({"extra": ""})
    }
    assert needed - {canonicalize_name(pin.name) for pin in here} <= {"torch"}


def test_the_locks_hold_every_direct_pin():
    locked = {canonicalize_name(pin.name): str(pin.specifier) for pin in pinned("requirements.lock")}
    direct = {
        canonicalize_name(pin.name): str(pin.specifier) for pin in pinned("requirements.txt") if pin.name != "torch"
    }
    assert {name: locked.get(name) for name in direct} == direct


def test_the_lock_has_hashes_and_names_no_host():
    text = (ROOT / "requirements.lock").read_text("utf-8")
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in lock.blocks(text))
    assert not re.search(
        r"https?:|file:|--(extra-)?index-url|--find-links", text + (ROOT / "constraints.txt").read_text("utf-8")
    )


def test_the_locks_leave_out_torch_and_what_only_its_gpu_build_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(lock, "CONSTRAINTS", tmp_path / "constraints")
    lock.write(
        "# a comment\nfilelock==4.2.11 \\\n    --hash=sha256:aa\nnvidia-cublas==13.1 ; sys_platform == 'linux' \\\n    --hash=sha256:bb\n"
        "overrides==7.7.0 ; python_full_version < '3.12' \\\n    --hash=sha256:cc \\\n    --hash=sha256:dd\ntorch==2.13.0 \\\n    --hash=sha256:ee\n"
    )
    assert (tmp_path / "constraints").read_text("utf-8").splitlines()[-2:] == [
        "filelock==4.2.11",
        "overrides==7.7.0 ; python_full_version < '3.12'",
    ]
    assert re.findall("sha256:(..)", (tmp_path / "lock").read_text("utf-8")) == ["aa", "cc", "dd"]


# ---------------------------------------------------------------- the wrong Python


def test_plain_pip_is_told_of_a_python_that_is_too_old():
    line = next(line for line in (ROOT / "requirements.txt").read_text("utf-8").splitlines() if line.startswith("./"))
    folder, marker = line.split(" ; ")
    assert [Marker(marker).evaluate({"python_version": version}) for version in ("3.9", "3.10", "3.11", "3.14")] == [
        True,
        True,
        False,
        False,
    ]
    said = subprocess.run([sys.executable, ROOT / folder / "refuse.py"], capture_output=True, text=True, check=False)
    version = "{}.{}".format(*sys.version_info)
    assert said.returncode == 1
    assert said.stderr.startswith(f"The book needs Python 3.11, 3.12, 3.13 or 3.14; this is Python {version}.")


# ---------------------------------------------------------------- tools/setup.sh

FAKE = """#!/bin/bash
# a Python that makes environments of itself, and whose pip says what a file says
case "$*" in
    "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    *"pip install"*) echo "$*" >> "$ASKED"; case "$*" in *$FAILS*) cat "$SAYS"; exit 1 ;; esac ;;
    *'print("Python'*) echo "Python $VERSION" ;;
    *importlib.metadata*) [ "$(grep -c torch "$ASKED")" -gt "${TORCH_AFTER:-0}" ] ;;
    *"version_info[:2]"*) [ "$VERSION" != 3.10.13 ] ;;
    *) echo "Python $VERSION" ;;
esac
"""

PIP_SAYS = """Collecting rich==9
ERROR: Ignored the following versions that require a different python version: 4.1.1 Requires-Python >=3.11.5
ERROR: No matching distribution found for soupsieve==4.1.1
WARNING: You are using pip
"""

OFFLINE = """WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('no address')': /simple/rich/
ERROR: Could not find a version that satisfies the requirement rich==9 (from versions: none)
ERROR: No matching distribution found for rich==9
"""


@pytest.fixture
def setup_script(tmp_path):
    """Runs a copy of the script with a made-up Python, and returns what it said and what it asked pip for."""
    if os.name != "posix" or not shutil.which("bash"):
        pytest.skip("the script needs bash")
    for name in ("tools/setup.sh", "requirements.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    fake = tmp_path / "python"
    fake.write_text(FAKE, "utf-8")
    fake.chmod(0o755)
    (tmp_path / "says").write_text(PIP_SAYS, "utf-8")

    def run(fails="nothing", version="3.11.2", torch="auto", torch_after="0", path="/usr/bin:/bin"):
        asked = tmp_path / "asked"
        asked.write_text("", "utf-8")
        named = {
            "ASKED": asked,
            "SAYS": tmp_path / "says",
            "FAILS": fails,
            "VERSION": version,
            "BOOK_TORCH": torch,
            "TORCH_AFTER": torch_after,
        }
        environment = {"PATH": path, "BOOK_PYTHON": str(fake), **{name: str(value) for name, value in named.items()}}
        said = subprocess.run(
            ["/bin/bash", tmp_path / "tools/setup.sh", ".venv"],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        return said, asked.read_text("utf-8").splitlines()

    return run


def test_setup_prints_the_reason_when_pip_fails(setup_script):
    said, _ = setup_script(fails="require-hashes")
    assert said.returncode == 1
    assert "4.1.1 Requires-Python >=3.11.5" in said.stderr
    assert "No matching distribution found for soupsieve==4.1.1" in said.stderr
    assert said.stderr.splitlines()[-1] == "In short: no file of soupsieve==4.1.1 is for Python 3.11.2 on this system."


def test_setup_says_when_the_index_cannot_be_reached(setup_script, tmp_path):
    (tmp_path / "says").write_text(OFFLINE, "utf-8")
    said, _ = setup_script(fails="require-hashes")
    assert said.returncode == 1
    assert said.stderr.splitlines()[-1] == "In short: the package index cannot be reached from here."


def test_setup_names_the_pythons_that_do_not_do(setup_script, tmp_path):
    tools = tmp_path / "few"
    tools.mkdir()
    (tools / "dirname").symlink_to(shutil.which("dirname"))
    said, asked = setup_script(version="3.10.13", path=str(tools))
    assert said.returncode == 1
    assert "The book needs Python 3.11, 3.12, 3.13 or 3.14" in said.stderr
    assert f"{tmp_path / 'python'} is Python 3.10.13." in said.stderr
    assert asked == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has two builds of torch")
class TestWhichTorch:
    def test_the_cpu_build_is_taken_when_it_is_asked_for(self, setup_script):
        said, asked = setup_script(torch="cpu")
        assert said.returncode == 0, said.stderr
        assert [re.search(r"torch==\S+", line)[0] for line in asked if "torch==" in line] == ["torch==2.13.0+cpu"]

    def test_the_default_build_is_taken_when_it_is_asked_for(self, setup_script):
        _, asked = setup_script(torch="default")
        assert [re.search(r"torch==\S+", line)[0] for line in asked if "torch==" in line] == ["torch==2.13.0"]

    def test_the_default_build_is_taken_where_no_other_is_to_be_had(self, setup_script):
        said, asked = setup_script(torch="cpu", fails="+cpu", torch_after="1")
        assert said.returncode == 0, said.stderr
        assert "taking the default build, several GB" in said.stderr
        assert [re.search(r"torch==\S+", line)[0] for line in asked if "torch==" in line] == [
            "torch==2.13.0+cpu",
            "torch==2.13.0",
        ]

    def test_a_word_that_names_no_build_is_refused(self, setup_script):
        said, _ = setup_script(torch="gpu")
        assert said.returncode == 2
        assert "BOOK_TORCH is gpu; expected cpu, default or auto" in said.stderr


# ---------------------------------------------------------------- tools/outdated.py


def test_a_trial_leaves_nothing_behind(tmp_path, capsys):
    folder = tmp_path / "trial"
    folder.mkdir()
    (folder / "of the last time").touch()
    assert outdated.in_passing(folder, lambda: len(list(folder.iterdir()))) == 0
    assert not folder.exists()
    command = [sys.executable, "-c", "import sys; sys.exit(3)"]
    assert outdated.in_passing(folder, lambda: subprocess.run(command, check=True).returncode) == 2
    assert not folder.exists()
    assert "Nothing was tried: " in capsys.readouterr().err


def test_the_newest_packages_are_asked_for_without_versions():
    text = "# a comment\n-c constraints.txt\ntorch==2.13.0   # first\nnumpy==2.4.6   # arrays\n"
    assert outdated.wanted(text, with_torch=False) == ["torch==2.13.0", "numpy"]
    assert outdated.wanted(text, with_torch=True) == ["torch", "numpy"]


def test_the_test_that_is_left_out_with_the_newest_packages_exists():
    file, name = outdated.PINS_HOLD.split("::")
    assert (ROOT / file).samefile(__file__)
    assert name in globals()


def test_what_broke_is_named_once():
    said = "x\nFAILED tests/test_mdp.py::test_a - assert 1\nFAILED tests/test_mdp.py::test_a - again\nERROR tests/test_svg.py - ImportError\n"
    assert outdated.broken(said) == ["tests/test_mdp.py::test_a", "tests/test_svg.py"]


def test_what_changed_is_told_by_version():
    before = {"numpy": "2.4.6", "torch": "2.13.0", "anyio": "4.0"}
    rows = outdated.changes(before, {"numpy": "2.5.0", "torch": "2.13.0+cpu", "new": "1"})
    assert [row.split() for row in rows] == [["new", "-", "->", "1"], ["numpy", "2.4.6", "->", "2.5.0"]]


# ---------------------------------------------------------------- the version, and how to cite it


def test_the_version_is_one_wherever_it_is_said():
    page = (ROOT / "chapters" / "run_it_yourself.md").read_text("utf-8")
    cited = dict(re.findall(r"^  (\w+) += \{+(.*?)\}+,?$", page, re.MULTILINE))
    file = dict(re.findall(r"^(\S[\w-]+): \"?(.*?)\"?$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE))
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert rlbook_lib.__version__ == version == file["version"] == cited["version"]
    assert set(re.findall(r"rlbook_lib-([\d.]+)-py3", page)) == {version}
    assert (cited["title"], cited["year"]) == (file["title"], file["date-released"][:4])
    assert f"name: {cited['author']}" in (ROOT / "CITATION.cff").read_text("utf-8")


@pytest.mark.parametrize(
    "page", ["README.md", "chapters/run_it_yourself.md", "chapters/instructors_guide.md", "CONTRIBUTING.md"]
)
def test_every_make_command_is_there(page):
    told = set(re.findall(r"(?:^|`)make ([a-z-]+)", (ROOT / page).read_text("utf-8"), re.MULTILINE))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert told and told <= targets
