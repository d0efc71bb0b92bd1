"""Tests of the files that a program for similar code is given: each student's own code, and what all were given."""

import hostile

from assignments.grader.__main__ import main

OWN = "def my_own_way(values):\n    return [value + 1 for value in values]"


def cell(text):
    return {"cells": [{"cell_type": "code", "source": text, "metadata": {}}]}


def test_the_files(small, shop, tmp_path, capsys):
    submitted, made = tmp_path / "submitted", tmp_path / "code"
    for name, text in {"ann": OWN, "<b>bob": f"{OWN}\n# \ud800", "long": f"x = 1\n{OWN}\n" + "#" * 300_000}.items():
        hostile.write(submitted / name / "small.ipynb", cell(text))
    hostile.write(submitted / "all" / "small.ipynb", shop.solved(before=OWN))
    hostile.write(submitted / "bad" / "small.ipynb", b"{")
    assert main(["similar", str(submitted), "small", str(made)], hostile.HOME) == 0
    said, complaints = capsys.readouterr()
    assert said.startswith("4 files") and "copydetect" in said
    assert "'bad': The file is not a notebook" in complaints and "'long': only the first 200000" in complaints
    files = sorted(path.relative_to(made).as_posix() for path in made.rglob("*.py"))
    assert len(files) == 5 and "given/given.py" in files and "students/ann.py" in files
    assert not any("<" in name for name in files)
    assert all(path.stat().st_mode & 0o077 == 0 for path in (made, *made.rglob("*")))
    assert (made / "students" / "ann.py").read_text("utf-8").strip() == OWN
    whole = (made / "students" / "all.py").read_text("utf-8")
    given = (made / "given" / "given.py").read_text("utf-8")
    assert OWN in whole and OWN not in given
    lines = {line for line in whole.replace(OWN, "").splitlines() if line.strip()}
    assert lines and lines <= set(given.splitlines())
    assert "NotImplementedError" in given and f"def {small.questions[0].function}" in given
    assert main(["similar", str(submitted), "small", str(made)], hostile.HOME) == 2
    assert "is not empty" in capsys.readouterr().err
