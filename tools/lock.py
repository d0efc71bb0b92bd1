"""Renew the locks: exact versions of everything that requirements.txt brings along. Called by `make lock`.

    python tools/lock.py              keeps each pin that still fits, and adds what is new
    python tools/lock.py --upgrade    takes the newest version of everything that requirements.txt leaves open

One resolution by uv, for every Python from 3.11.0 on and every system, is written twice: ``requirements.lock``, with the
hashes of the files, is what `make` installs; ``constraints.txt``, without them, is what plain pip reads through
requirements.txt. uv is pinned here and comes into an environment that is thrown away. Needs the package index.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = "uv==0.13.9"
PYTHON = "3.11.0"  # the oldest Python that a pin must allow; newer ones are resolved along with it
LOCK, CONSTRAINTS = ROOT / "requirements.lock", ROOT / "constraints.txt"

# Torch comes in two builds, whose files have different hashes, and the one for GPUs pins what it needs by itself.
TORCH_AND_ITS_GPU_PARTS = re.compile(r"(torch|triton|(nvidia|cuda)-[a-z0-9-]+)==")
# jsonschema uses this grammar where it is there, and every program that opens a notebook would parse it for more than a second.
# It checks addresses with signs beyond ASCII; no notebook holds one. So `make` does not install it; plain pip does.
SLOW_TO_START = re.compile(r"(rfc3987-syntax|lark)==")

LOCK_HEAD = """\
# Made by `make lock` from requirements.txt: everything but torch, with the hashes of its files. `make` installs from here.
# Torch is pinned in requirements.txt and has no hash here, because its CPU build and its default build are different files.
"""
CONSTRAINTS_HEAD = """\
# Made by `make lock` from requirements.txt: the versions of requirements.lock, for plain pip, so that an install today is
# the install of tomorrow. Python 3.11.0 to 3.14.
"""


def blocks(text: str) -> list[str]:
    """One text per requirement: its line and the hashes below it."""
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    return [block.rstrip("\n") for block in re.findall(r"^[^ ].*\n(?: .*\n)*", "\n".join(lines) + "\n", re.MULTILINE)]


def version_of(block: str) -> str:
    """The requirement alone, ``name==1.0 ; marker``, without its hashes."""
    return block.splitlines()[0].removesuffix("\\").rstrip()


def resolve(folder: Path, upgrade: bool) -> str:
    """What uv makes of requirements.txt, with hashes; the pins of today are kept where they fit."""
    venv.create(folder / "uv", with_pip=True)
    binaries = folder / "uv" / ("Scripts" if sys.platform == "win32" else "bin")
    subprocess.run([binaries / "python", "-m", "pip", "install", "--quiet", UV], check=True)
    found = folder / "found.txt"
    if CONSTRAINTS.exists():  # uv prefers the versions that its output file names
        found.write_text(CONSTRAINTS.read_text("utf-8"), "utf-8")
    wanted = folder / "wanted.txt"
    # neither the pins themselves nor the folder for a Python that is too old
    wanted.write_text(
        re.sub(r"^(-c|\./) ?.*$", "", (ROOT / "requirements.txt").read_text("utf-8"), flags=re.MULTILINE), "utf-8"
    )
    command = [
        binaries / "uv",
        "pip",
        "compile",
        "--quiet",
        "--universal",
        "--python-version",
        PYTHON,
        "--generate-hashes",
    ]
    options = ["--no-header", "--no-annotate", "--cache-dir", folder / "cache", "--output-file", found]
    subprocess.run([*command, *options, *(["--upgrade"] if upgrade else []), wanted], check=True)
    return found.read_text("utf-8")


def write(resolved: str) -> None:
    """Both files, from one resolution."""
    kept = [block for block in blocks(resolved) if not TORCH_AND_ITS_GPU_PARTS.match(block)]
    LOCK.write_text(LOCK_HEAD + "\n".join(block for block in kept if not SLOW_TO_START.match(block)) + "\n", "utf-8")
    CONSTRAINTS.write_text(CONSTRAINTS_HEAD + "\n".join(map(version_of, kept)) + "\n", "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Renew requirements.lock and constraints.txt.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions instead of keeping the pins")
    options = parser.parse_args()
    before = set(CONSTRAINTS.read_text("utf-8").splitlines()) if CONSTRAINTS.exists() else set()
    (ROOT / "_build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lock-", dir=ROOT / "_build") as folder:
        try:
            write(resolve(Path(folder), options.upgrade))
        except subprocess.CalledProcessError as error:
            print(
                f"The locks stay as they were: {Path(error.cmd[0]).name} failed; its reason stands above.",
                file=sys.stderr,
            )
            return 1
    after = set(CONSTRAINTS.read_text("utf-8").splitlines())
    for line in sorted(before ^ after, key=str.lower):
        print("+" if line in after else "-", line)
    print(f"{len(blocks(LOCK.read_text('utf-8')))} packages in requirements.lock.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
