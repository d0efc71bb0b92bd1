"""Every assignment from its release to a table of grades, in the sandbox."""

import hostile
import pytest
from conftest import some

from assignments.grader import batch, notebooks, questions

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", questions.names())
def test_release_submissions_grades_feedback(name, box, tmp_path):
    assignment = questions.load(name)
    chosen = some("correct", "correct in another form", "known mistakes", "stub", "os._exit(0)", "all metadata lost", "empty file", "empty folder")
    hostile.build(tmp_path / "submissions", hostile.Workshop(assignment, tmp_path), chosen)
    released = notebooks.read(questions.HOME / "release" / f"{name}.ipynb")
    hostile.write(tmp_path / "submissions" / "as released" / f"{name}.ipynb", released)
    found = {one.student: one for one in batch.grade(tmp_path / "submissions", assignment, tmp_path / "output", seed=hostile.SEED, progress=False)}
    points = hostile.deserved_points(assignment)
    wrong = {bad.name: (one.status, one.points) for bad in chosen if not hostile.is_right(bad, one := found[hostile.student_of(bad)], points, exact=False)}
    assert not wrong
    assert (found["as released"].status, found["as released"].points) == ("graded", 0)
    assert len(list((tmp_path / "output" / "feedback").glob("*.html"))) == len(found)
    assert len((tmp_path / "output" / "grades.csv").read_text("utf-8").splitlines()) == len(found) + 1
