"""The links of the book that lead outside.

    python tools/links.py           prints them, with the files that hold them
    python tools/links.py --write   renews tests/outside_links.txt, with which a test compares them

A link that is new, changed or gone shows in that file, where somebody who changes it can open it once. Nothing here uses a network.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "outside_links.txt"
READ = [
    "*.md",
    "*.bib",
    "*.cff",
    "_config.yml",
    "LICENSE",
    "chapters/*.md",
    "chapters/*.ipynb",
    "assignments/*.md",
    "assignments/release/*.ipynb",
    "rlbook_lib/*.py",
    "rlbook_lib/*.js",
    "_static/*.js",
    "_templates/**/*.html",
]
LINK = re.compile(r"https?://[^\s\"'`<>{}\\\[\])]+(?<![.,;:!])")
DOI = re.compile(r"^\s*doi\s*=\s*[{\"]([^}\"]+)", re.MULTILINE)
NOT_A_PLACE = re.compile(
    r"https?://(www\.w3\.org/2000/svg|127\.0\.0\.1|localhost|[\w.-]*\.invalid|example\.(com|org))\b"
)


def text_of(path: Path) -> str:
    """What a reader reads: of a notebook its cells, not their outputs."""
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])


def links(text: str) -> set[str]:
    """The outside links of a text; a DOI of the bibliography is one."""
    found = {link for link in LINK.findall(text) if not NOT_A_PLACE.match(link)}
    return found | {f"https://doi.org/{doi.strip()}" for doi in DOI.findall(text)}


def files() -> list[Path]:
    return sorted({path for pattern in READ for path in ROOT.glob(pattern) if path.is_file()})


def collected(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Each link in order, and the files that hold it."""
    holders: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        for link in links(text_of(path)):
            holders[link].append(path.relative_to(ROOT).as_posix())
    return dict(sorted(holders.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description="The links of the book that lead outside.")
    parser.add_argument("--write", action="store_true", help="renew tests/outside_links.txt")
    found = collected(files())
    if parser.parse_args().write:
        LIST.write_text("".join(f"{link}\n" for link in found), "utf-8")
    else:
        print("\n".join(f"{link}  {', '.join(holders)}" for link, holders in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
