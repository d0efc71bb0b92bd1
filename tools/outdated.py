"""What would break with today's newest packages? Called by `make outdated`.

    python tools/outdated.py            torch stays at its pin, because any other may be several GB
    python tools/outdated.py --torch    torch too

Resolves requirements.txt afresh and without its pins, in an environment under ``_build`` that is thrown away; lists what
is newer there than here; runs the quick tests and says which of them fail. Nothing here changes. Needs the package index,
2 GB of disk and some minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "_build" / "outdated"
PINS_HOLD = "tests/test_install.py::test_every_pin_allows_the_oldest_and_the_newest_python"
PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", re.MULTILINE)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """Every pin of today by its normal name: the direct ones and what these bring along."""
    text = (ROOT / "requirements.txt").read_text("utf-8") + (ROOT / "constraints.txt").read_text("utf-8")
    return {normal(name): version for name, version in PINNED.findall(text)}


def wanted(requirements: str, with_torch: bool) -> list[str]:
    """The direct dependencies without their versions; torch keeps its own unless asked."""
    found = PINNED.findall(requirements)
    return [f"{name}=={version}" if name == "torch" and not with_torch else name for name, version in found]


def installed(python: Path) -> dict[str, str]:
    said = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, text=True, check=True)
    return {normal(row["name"]): row["version"] for row in json.loads(said.stdout)}


def changes(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """One line for each package whose version differs, is new, or is no longer needed."""
    rows = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name, "-"), now.get(name, "-").split("+")[0]
        if old != new and name not in {"pip", "wheel", "rlbook-lib"} and not (new == "-" and name not in direct()):
            rows.append(f"  {name:<32}{old:>16}  ->  {new}")
    return rows


def direct() -> set[str]:
    return {normal(name) for name, _ in PINNED.findall((ROOT / "requirements.txt").read_text("utf-8"))}


def broken(said: str) -> list[str]:
    """The tests that failed, as pytest's summary names them, each once."""
    return sorted(set(re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)))


def environment(folder: Path, names: list[str]) -> Path:
    """The Python of a new environment in which these packages are installed."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--progress-bar", "off", *names], check=True)
    return python


def in_passing(folder: Path, attempt: Callable[[], int]) -> int:
    """What ``attempt`` returns, with the folder empty before and gone afterwards; 2 and a sentence where a command fails."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        return attempt()
    except subprocess.CalledProcessError as error:
        print(
            f"Nothing was tried: {' '.join(map(str, error.cmd[:6]))} ... failed; its reason stands above.",
            file=sys.stderr,
        )
        return 2
    finally:
        shutil.rmtree(folder)


def try_newest(with_torch: bool, workers: str) -> int:
    names = wanted((ROOT / "requirements.txt").read_text("utf-8"), with_torch)
    print(f"Installing the newest of {len(names)} packages and what they bring along.", flush=True)
    python = environment(FOLDER / "venv", names)
    # not editable: the environment of every day must not notice
    copy = FOLDER / "library"
    shutil.copytree(ROOT / "rlbook_lib", copy / "rlbook_lib", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", copy], check=True)
    rows = changes(pins(), installed(python))
    print("\n".join([f"{len(rows)} packages differ from their pins:", *rows]), flush=True)
    command = [python, "tools/run_tests.py", "--quick", "--workers", workers]
    settings = {
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTEST_ADDOPTS": f"--deselect {PINS_HOLD}",  # here they do not, on purpose
    }
    tests = subprocess.run(
        command,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | settings,
        check=False,
    )
    (FOLDER.parent / "outdated.log").write_text(tests.stdout, "utf-8")
    if tests.returncode == 0:
        print("The quick tests pass with them.")
        return 0
    failed = broken(tests.stdout)
    print(
        "\n".join(
            [
                f"With them {len(failed)} quick tests fail (all of it is in _build/outdated.log):",
                *(f"  {test}" for test in failed),
            ]
        )
    )
    if not failed:
        print(tests.stdout[-3000:])
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Try the newest packages in an environment that is thrown away.")
    parser.add_argument("--torch", action="store_true", help="the newest torch too (may be several GB)")
    parser.add_argument("--workers", default="2", help="how many test processes (default: 2)")
    options = parser.parse_args()
    return in_passing(FOLDER, lambda: try_newest(options.torch, options.workers))


if __name__ == "__main__":
    sys.exit(main())
