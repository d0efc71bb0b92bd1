"""What other systems want to be given, made of one assignment: an archive for Gradescope, a repository for GitHub Classroom.

Gradescope gets the hidden tests and runs them where students cannot look (:mod:`gradescope`). GitHub Classroom runs its
workflow in the student's own repository, where the student can read and change everything: it gets the visible checks
only, and what it shows is no grade.
"""

from __future__ import annotations

import io
import json
import re
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from . import notebooks, questions
from .gradescope import COURSE
from .questions import Assignment
from .results import write_whole

TEMPLATES = Path(__file__).resolve().parent / "packs"
ROOT = questions.HOME.parent
OLDEST = (1980, 1, 1, 0, 0, 0)  # the time of every file in a zip: the same content makes the same archive
TO_GRADE = ("numpy", "scipy", "matplotlib", "gymnasium", "tqdm")
TO_STUDY = (*TO_GRADE, "ipywidgets", "ipykernel", "nbclient", "nbformat", "jupyterlab")


def gradescope(assignment: Assignment, target: Path, seed: int, secret: str | None, visibility: str) -> int:
    """Write the archive for Gradescope, for its owner only; how many files are in it. Raises ``ValueError`` for a wrong target."""
    check_new_zip(target)
    course = {"assignment": assignment.name, "seed": seed, "visibility": visibility} | (
        {"secret": secret} if secret else {}
    )
    files = {COURSE: json.dumps(course, indent=1) + "\n", **pinned(assignment, TO_GRADE), **library()}
    grader = Path(__file__).resolve().parent
    sources = [grader.parent / "__init__.py", *sorted(grader.glob("*.py"))]
    files |= {f"assignments/{path.relative_to(grader.parent)}": path.read_bytes() for path in sources}
    parts = [assignment.notebook, *sorted(assignment.folder.glob("*.py"))]
    files |= {f"assignments/{assignment.name}/{path.name}": path.read_bytes() for path in parts}
    files |= {path.name: path.read_bytes() for path in sorted((TEMPLATES / "gradescope").iterdir())}
    write_whole(target, zipped(files, dict.fromkeys(("setup.sh", "run_autograder"), 0o755)))
    return len(files)


def check_new_zip(target: Path) -> None:
    """Raise ``ValueError`` if this is not the name of a new zip."""
    if target.suffix.lower() != ".zip":
        raise ValueError(f"target: got {str(target)!r}, expected a file whose name ends in .zip")
    if target.exists():
        raise ValueError(f"target: {str(target)!r} is already there")


def check_new_folder(target: Path) -> None:
    """Raise ``ValueError`` if something is there."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"target: {str(target)!r} is already there")


def zipped(
    files: Mapping[str, str | bytes], modes: Mapping[str, int] = MappingProxyType({}), usual: int = 0o644
) -> bytes:
    """A zip of these files; ``modes``: those that differ from the usual one."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, OLDEST)
            entry.external_attr, entry.create_system = (stat.S_IFREG | modes.get(name, usual)) << 16, 3
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, content)
    return archive.getvalue()


def classroom(assignment: Assignment, target: Path) -> int:
    """Write the folder of a template repository; how many files are in it. Raises ``ValueError`` if something is there.

    Everything in it may be read by students: the release, the library, the visible checks.
    """
    check_new_folder(target)
    release = notebooks.released(notebooks.read(assignment.notebook))
    checks = visible_checks(assignment, release)
    words = {"NAME": assignment.name, "TITLE": assignment.title}
    files: dict[str, str | bytes] = {
        f"{assignment.name}.ipynb": json.dumps(release, indent=1, ensure_ascii=False) + "\n",
        "visible_checks.json": json.dumps(checks, indent=1, ensure_ascii=False) + "\n",
        "visible_checks.py": template("visible_checks.py", words),
        ".github/workflows/classroom.yml": workflow(assignment),
        "README.md": template("README.md", words),
        ".gitignore": "__pycache__/\n.ipynb_checkpoints/\n.venv/\nvisible_checks.results.json\n",
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        **pinned(assignment, TO_STUDY),
        **library(),
    }
    for name, content in files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return len(files)


def visible_checks(assignment: Assignment, release: notebooks.Notebook) -> dict[str, Any]:
    """The checks that students see, by question: the notebook's name, and for each question its title and the check's text."""
    texts = {notebooks.role(cell).get("grade_id"): notebooks.text_of(cell) for cell in release["cells"]}
    shown = {one.name: {"title": one.title, "check": texts[f"{one.name}-checks"]} for one in assignment.questions}
    return {"notebook": f"{assignment.name}.ipynb", "questions": shown}


def workflow(assignment: Assignment) -> str:
    """The workflow: one run of the notebook, one step for each question, one report to GitHub Classroom."""
    head, step, tail = template("classroom.yml", {"NAME": assignment.name}).split("# ---\n")
    names = [question.name for question in assignment.questions]
    steps = "".join(step.replace("QUESTION", name) for name in names)
    variables = "".join(
        f'          {name.upper()}_RESULTS: "${{{{ steps.{name}.outputs.result }}}}"\n' for name in names
    )
    return head + steps + tail.replace("          VARIABLES\n", variables).replace("RUNNERS", ",".join(names))


def template(name: str, words: dict[str, str]) -> str:
    """A file of ``packs/classroom`` with the words in capitals filled in."""
    text = (TEMPLATES / "classroom" / name).read_text("utf-8")
    for word, meaning in words.items():
        text = re.sub(rf"\b{word}\b", meaning.replace("\\", r"\\"), text)
    return text


def pinned(assignment: Assignment, wanted: tuple[str, ...]) -> dict[str, str | bytes]:
    """``requirements.txt`` with the pins of this project, and torch only where the assignment uses it; the constraints."""
    texts = [path.read_text("utf-8") for path in (assignment.notebook, assignment.folder / "hidden_tests.py")]
    names = (*wanted, "torch") if any(re.search(r"\btorch\b", text) for text in texts) else wanted
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements.txt").read_text("utf-8"), re.MULTILINE))
    lines = ["-c constraints.txt", *(f"{name}=={pins[name]}" for name in names)]
    return {"requirements.txt": "\n".join(lines) + "\n", "constraints.txt": (ROOT / "constraints.txt").read_bytes()}


def library() -> dict[str, str | bytes]:
    """The book's library, which students have too."""
    found = sorted(path for path in (ROOT / "rlbook_lib").iterdir() if path.is_file())
    return {f"rlbook_lib/{path.name}": path.read_bytes() for path in found}
