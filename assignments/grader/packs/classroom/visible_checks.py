"""Run the notebook and say which of the checks in it pass.

    python visible_checks.py              run, and say it for every question
    python visible_checks.py run          run, and keep what came out for the next command
    python visible_checks.py say q1       say it for one question; exit code 1 if its check failed

The checks are examples. They are not what the work is graded with.
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GIVEN = json.loads((HERE / "visible_checks.json").read_text("utf-8"))
RESULTS = HERE / "visible_checks.results.json"
SECONDS = 300  # for one cell


def with_checks(notebook: Any) -> Any:
    """The notebook with every check as it was handed out, wherever it stands now; a check that is missing goes to the end."""
    import nbformat

    cells = {f"{name}-checks": question["check"] for name, question in GIVEN["questions"].items()}
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name in cells:
            cell.source, cell.cell_type = cells.pop(name), "code"
    for name, text in cells.items():
        notebook.cells.append(nbformat.v4.new_code_cell(text, metadata={"nbgrader": {"grade_id": name}}))
    return notebook


def run() -> None:
    """Run all cells, go on after errors, and keep for each question what its check said: nothing if it passed."""
    import nbformat
    from nbclient import NotebookClient

    notebook = with_checks(nbformat.read(HERE / GIVEN["notebook"], as_version=4))
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        interrupt_on_timeout=True,
        allow_errors=True,
        resources={"metadata": {"path": str(HERE)}},
    )
    client.execute()
    said = {}
    for cell in notebook.cells:
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        name = grade_id.removesuffix("-checks")
        if name in GIVEN["questions"] and name != grade_id:
            errors = [f"{output.ename}: {output.evalue}" for output in cell.outputs if output.output_type == "error"]
            said[name] = errors[0] if errors else ""
    RESULTS.write_text(json.dumps(said, indent=1) + "\n", "utf-8")


def say(names: list[str]) -> int:
    """Print what the checks of these questions said; 1 if one failed."""
    if not RESULTS.exists():
        print("The notebook was not run: python visible_checks.py run")
        return 1
    said = json.loads(RESULTS.read_text("utf-8"))
    for name in names:
        print(
            f"{name}, {GIVEN['questions'][name]['title']}: {'FAILED: ' + said[name] if said[name] else 'the visible checks pass'}"
        )
    return int(any(said[name] for name in names))


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["say"] and len(arguments) == 2 and arguments[1] in GIVEN["questions"]:
        return say(arguments[1:])
    if arguments not in ([], ["run"]):
        print(__doc__)
        return 2
    run()
    return 0 if arguments else say(list(GIVEN["questions"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
