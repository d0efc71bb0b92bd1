"""Grade a folder of submissions, unattended, and again after whatever interrupted it.

Every student has one result, which is kept as long as nothing changed that it depends on. The canary comes first: the
instructor's own notebook must get full marks in this sandbox, and the stub nothing; otherwise nothing is graded.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import secrets
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from . import borrowed, cells, inside, late, notebooks, own_inputs, questions, reports, results, submissions
from . import visible_checks
from .explaining import note_missing, note_spoiled
from .marking import mark
from .outcomes import CRASHED, RAISED, TIMEOUT, Outcome, QuestionResult
from .preparing import Prepared, prepare
from .questions import Assignment, Case, Question
from .results import Result
from .sandbox import InfrastructureError, Limits, Sandbox, Student
from .submissions import Roster, Submission, Survey, Unreadable, student_name

ROOT = questions.HOME.parent
PACKAGES = ("numpy", "scipy", "torch", "gymnasium", "matplotlib")
BORROWED = "The answers use of rlbook_lib what the instructor's answers do not: {names}. Whether that is allowed, a person decides."
ATTEMPTS = 2  # before a failure of ours is given up on
BEGUN = "begun"  # in the output folder: what is being graded
# of what is graded apart: memory of the grader, and time in limits of a submission
APART_BYTES, APART_TIMES = 4 * 2**30, 10
SET_ASIDE = (
    "The grader itself died while it graded this, and again when this was tried apart. It is set aside, and all others are"
    " graded. The next run tries it apart again: look at the notebook, and enter points by hand if it must be."
)
PREPARING = threading.Lock()  # references are not made for two threads at once


class CanaryError(RuntimeError):
    """The instructor's notebook did not get full marks here, or the stub got some: this sandbox cannot grade."""


@dataclass
class Course:
    """All that is the same for every submission of a batch, or, from :meth:`of`, for all of one student.

    ``secret``: if there is one, every student has hidden inputs of their own. ``seed``: of the inputs in ``prepared``.
    """

    assignment: Assignment
    sandbox: Sandbox
    given: cells.Given
    prepared: list[Prepared]
    key: str
    released: tuple[str, ...] = ()  # all texts that students get
    answers: tuple[str, ...] = ()  # the instructor's
    seed: int = 0
    secret: str | None = None

    def of(self, student: str) -> Course:
        """This course with the hidden inputs of a student: drawn and prepared now if they are the student's own."""
        if self.secret is None:
            return self
        seed = own_inputs.seed_of(self.secret, self.assignment.name, student)
        with PREPARING:
            return replace(self, prepared=[prepare(one, seed) for one in self.assignment.questions], seed=seed)

    @property
    def limits(self) -> Limits:
        return Limits(self.assignment.seconds, self.assignment.cell_seconds, self.assignment.memory_mb)


def open_course(assignment: Assignment, sandbox: Sandbox, seed: int, secret: str | None = None) -> Course:
    """Draw the hidden inputs and compute the right results, once for all submissions."""
    notebook = notebooks.read(assignment.notebook)
    given, key = cells.given(assignment, notebook), key_of(assignment, sandbox, seed)
    right = [prepare(question, seed) for question in assignment.questions]
    cells_of_students = notebooks.released(notebook)["cells"]
    released = tuple(notebooks.text_of(cell) for cell in cells_of_students if cell["cell_type"] == "code")
    answers = tuple(cells.choose(notebook, given).first)
    return Course(assignment, sandbox, given, right, key, released, answers, seed, secret)


def key_of(assignment: Assignment, sandbox: Sandbox, seed: int) -> str:
    """A hash of all that a result depends on besides the submission."""
    found = importlib.util.find_spec("rlbook_lib")
    library = Path(found.origin).parent if found and found.origin else Path()
    files = [assignment.notebook, *sorted(assignment.folder.glob("*.py"))]
    files += sorted(Path(__file__).parent.glob("*.py")) + sorted(library.glob("*.py"))
    parts = [platform.python_version(), platform.system(), platform.machine(), str(seed), str(sandbox.unsafe)]
    parts += [f"{name} {one.version}" for name in PACKAGES for one in importlib.metadata.distributions(name=name)]
    parts += [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def grade(
    submissions: str | os.PathLike[str],
    assignment: str | Assignment,
    output: str | os.PathLike[str] | None = None,
    workers: int = 2,
    seed: int | None = None,
    roster: str | os.PathLike[str] | Roster | None = None,
    unsafe: bool = False,
    regrade: bool = False,
    progress: bool = True,
    secret: str | None = None,
    only: str | None = None,
) -> list[Result]:
    """Grade every submission in a folder and write results, feedback and tables; one result for each student, by name.

    ``output``: ``grades/<assignment>`` if not given. ``seed``: of the hidden inputs; a secret one is drawn for a new output
    folder and kept there, as is ``secret``, which gives every student inputs of their own. ``roster``: the students, or a
    file. ``regrade``: what is graded already, too. ``only``: the one student who is graded.

    Raises ``ValueError`` if an argument is wrong, ``CanaryError`` if the grader does not work here (nothing was written),
    ``InfrastructureError`` without a sandbox, and while another grader is at work in the output folder.
    """
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ValueError(f"workers: got {workers!r}, expected a whole number of at least 1")
    chosen = questions.load(assignment) if isinstance(assignment, str) else assignment
    folder = output_folder(output, chosen)
    students = read_roster(roster)
    found = find(Path(submissions), chosen.name, students)
    late.counted(folder), late.policy_of(folder)  # an impossible line is said before the work
    asked = [one for one in found.submissions if only is None or one.student == student_name(only)]
    if not asked:
        raise ValueError(f"student: got {only!r}, who has no folder and no notebook in {str(submissions)!r}")
    with Sandbox(unsafe) as sandbox, ExitStack() as locks:
        inside.keep_out(sandbox, private_paths(chosen, Path(submissions), folder))
        course = ready(chosen, sandbox, folder, seed, locks, secret)
        if students is not None:  # for later reports
            results.write_whole(folder / "roster.json", json.dumps(students, indent=1, ensure_ascii=False) + "\n")
        done = run_batch(course, asked, folder, workers, regrade, progress)
        reports.write_all(folder, chosen, found.unmatched)
    return sorted(done, key=lambda result: result.student)


def find(folder: Path, name: str, roster: Roster | None) -> Survey:
    """The submissions; raises ``ValueError`` if there are none."""
    found = submissions.survey(folder, name, roster)
    if not found.submissions:
        expected = "a folder or a notebook for each student (the zip of Canvas or Moodle: first say `collect`)"
        raise ValueError(f"submissions: nobody handed anything in in {str(folder)!r}; expected {expected}")
    return found


def private_paths(assignment: Assignment, submitted: Path, output: Path) -> list[Path]:
    return [assignment.folder, assignment.notebook, questions.HOME, submitted, output]


def output_folder(output: str | os.PathLike[str] | None, assignment: Assignment) -> Path:
    return Path(output).resolve() if output is not None else ROOT / "grades" / assignment.name


def read_roster(roster: str | os.PathLike[str] | Roster | None) -> Roster | None:
    if isinstance(roster, dict):
        return {student_name(student): columns for student, columns in roster.items()}
    return roster if roster is None else submissions.read_roster(Path(roster))


def ready(
    assignment: Assignment,
    sandbox: Sandbox,
    folder: Path,
    seed: int | None,
    locks: ExitStack,
    secret: str | None = None,
) -> Course:
    """The course with its seed, after the canary, with the output folder made and locked."""
    kept = read_settings(folder)
    check_settings(kept, assignment, seed, folder, secret)
    if kept:
        locks.enter_context(lock(folder))
        results.private_folder(folder)  # but not a folder of somebody else's that was named as the output
    drawn = seed if seed is not None else kept.get("seed", secrets.randbits(62))
    course = open_course(assignment, sandbox, drawn, secret or kept.get("secret"))
    canary(course)  # nothing is written where nothing can be graded
    if not kept:
        if not folder.exists():
            results.private_folder(folder)
        locks.enter_context(lock(folder))
        own = {"secret": secret} if secret else {}
        settings = write_settings(folder, {"assignment": assignment.name, "seed": drawn, **own})
        check_settings(settings, assignment, drawn, folder, secret)  # another grader may have been first
    for name in ("results", "feedback"):
        results.private_folder(folder / name)
    return course


def check_settings(
    kept: dict[str, Any], assignment: Assignment, seed: int | None, folder: Path, secret: str | None = None
) -> None:
    """Raise ``ValueError`` if the folder holds results of another kind."""
    if kept and kept["assignment"] != assignment.name:
        raise ValueError(f"output: {str(folder)!r} holds results of {kept['assignment']}, not of {assignment.name}")
    if kept and seed is not None and kept["seed"] != seed:
        raise ValueError(f"seed: the results in {str(folder)!r} are of another seed; choose another output folder")
    if kept and secret is not None and kept.get("secret") != secret:
        how = "with another secret" if "secret" in kept else "with the same inputs for everybody"
        said = f"the results in {str(folder)!r} were made {how}; choose another output folder"
        raise ValueError(f"inputs-per-student: {said}")


def read_settings(folder: Path) -> dict[str, Any]:
    """Seed and name of the assignment, and the secret if there is one; empty for a new folder."""
    path = folder / "settings.json"
    if not path.exists():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        own = {"secret": str(content["secret"])} if "secret" in content else {}
        return {"assignment": str(content["assignment"]), "seed": int(content["seed"]), **own}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"output: {str(path)!r} is damaged") from error


def write_settings(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Write the settings unless another job was first; what is in force. The file is for its owner only."""
    path = folder / "settings.json"
    draft = folder / f".settings-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        results.write_whole(draft, json.dumps(settings, indent=1) + "\n")
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)
    return read_settings(folder)


def lock(folder: Path) -> AbstractContextManager[None]:
    """One batch at a time in an output folder; raises ``InfrastructureError``."""
    return results.alone(folder, InfrastructureError(f"another grader is at work in {str(folder)!r}"))


def canary(course: Course) -> None:
    """Grade the instructor's notebook and the stub in the sandbox; raise :class:`CanaryError` unless all is well."""
    notebook = notebooks.read(course.assignment.notebook)
    for name, content in (("the instructor's notebook", notebook), ("the stub", notebooks.released(notebook))):
        graded, status = grade_notebook(course, cells.choose(content, course.given))
        for question in graded:
            wanted = question.max_points if content is notebook else 0
            if question.points != wanted or (content is notebook and status != results.GRADED):
                points = f"{question.points:g} of {question.max_points:g} points for {question.name}"
                said = f"{name} gets {points} and the status {status!r}: nothing was graded."
                raise CanaryError(" ".join([said, *question.messages]))


def run_batch(
    course: Course, found: list[Submission], folder: Path, workers: int, regrade: bool, progress: bool
) -> list[Result]:
    """Grade submissions with some threads, each of which waits for a sandbox most of the time.

    What an earlier grader was at when it died comes last, each in a process of its own: it may have been the reason.
    """
    done: list[Result] = []
    results.private_folder(folder / BEGUN)
    aside = [submission for submission in found if begun(folder, submission).exists()]
    executor = ThreadPoolExecutor(workers)
    try:
        others = [submission for submission in found if submission not in aside]
        futures = [executor.submit(grade_submission, course, one, folder, regrade) for one in others]
        bar = tqdm(as_completed(futures), course.assignment.name, len(futures), unit="", disable=not progress)
        done += [future.result() for future in bar]
    except BaseException:  # an interrupt, say: what was begun is dropped, what is done is kept
        executor.shutdown(wait=False, cancel_futures=True)
        course.sandbox.close()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
    return done + [grade_apart(course, submission, folder, regrade) for submission in aside]


def begun(folder: Path, submission: Submission) -> Path:
    return folder / BEGUN / results.file_name(submission.student)


def grade_apart(course: Course, submission: Submission, folder: Path, regrade: bool) -> Result:
    """Grade in a process of its own, with a limit on memory and time."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_DATA, (APART_BYTES, APART_BYTES))
            grade_submission(course, submission, folder, regrade)
            code = 0
        finally:
            os._exit(code)
    try:
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() - began > APART_TIMES * course.limits.seconds:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.02)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    known = None if begun(folder, submission).exists() else results.load(results.path_of(folder, submission.student))
    return known or Result(submission.student, results.INFRASTRUCTURE_ERROR, note=SET_ASIDE)


def grade_submission(course: Course, submission: Submission, folder: Path, regrade: bool) -> Result:
    """Grade one submission and store the result, whatever happens: a failure of ours becomes a status too."""
    began = time.monotonic()
    kept: Result | None = None
    try:
        data = None if submission.problem or submission.path is None else submission.read()
        key = key_with(course, submission, data)
        kept = results.load(results.path_of(folder, submission.student))
        if kept is not None and kept.key != key:  # the student's name is in it
            kept = None
        if kept is not None and not regrade:
            kept.kept = True
            return kept
        begun(folder, submission).touch(0o600)
        result = result_of(course, submission, data)
        result.key, result.handed = key, hashlib.sha256(data or b"").hexdigest()
    except Unreadable as problem:
        result = Result(submission.student, results.UNREADABLE, note=str(problem))
    except Exception as error:
        result = Result(submission.student, results.INFRASTRUCTURE_ERROR, note=f"{type(error).__name__}: {error}"[:300])
    begun(folder, submission).unlink(missing_ok=True)
    result.seconds = round(time.monotonic() - began, 3)
    if course.sandbox.closed or (kept is not None and result.status == results.INFRASTRUCTURE_ERROR):
        return result  # the earlier result is still right
    try:
        results.store(folder, result)
    except Exception as error:  # no room, say
        return Result(submission.student, results.INFRASTRUCTURE_ERROR, note=f"{type(error).__name__}: {error}"[:300])
    return result


def key_with(course: Course, submission: Submission, data: bytes | None) -> str:
    """The key of a result: all that it depends on, the submission included."""
    student, secret = submission.student, course.secret
    own = "" if secret is None else f" {own_inputs.seed_of(secret, course.assignment.name, student)}"
    said = f"{course.key}{own} {student} {submission.problem} {submission.remark} {data is None}\0"
    return hashlib.sha256(said.encode("utf-8", "replace") + (data or b"")).hexdigest()


@dataclass(frozen=True)
class Change:
    """A question graded anew for one student; ``why`` it could not be, or empty."""

    student: str
    before: float = 0.0
    after: float = 0.0
    why: str = ""


def regrade(
    submitted: str | os.PathLike[str],
    assignment: Assignment,
    question: str,
    output: str | os.PathLike[str] | None = None,
    write: bool = False,
    unsafe: bool = False,
) -> list[Change]:
    """Grade one question anew for everybody who has a grade, after its test was mended.

    The same inputs are drawn, and all other questions keep their points. Nothing is stored unless ``write`` is true.
    Who has handed in another notebook since is left out. Raises ``ValueError``, see :func:`grade`.
    """
    if question not in (names := [one.name for one in assignment.questions]):
        raise ValueError(f"question: got {question!r}, expected one of {', '.join(names)}")
    folder, changes = output_folder(output, assignment), []
    found = find(Path(submitted), assignment.name, None).submissions
    with Sandbox(unsafe) as sandbox, ExitStack() as locks:
        inside.keep_out(sandbox, private_paths(assignment, Path(submitted), folder))
        course = ready(assignment, sandbox, folder, None, locks)
        for submission in tqdm(found, desc=f"{assignment.name} {question}", unit="", disable=None):
            known = results.load(results.path_of(folder, submission.student))
            if known is None or known.points is None or submission.path is None:
                continue
            data = submission.read()
            if known.handed != hashlib.sha256(data).hexdigest():
                changes.append(Change(submission.student, why="another notebook than the one that was graded"))
                continue
            own = course.of(submission.student)
            short = replace(own, prepared=[one for one in own.prepared if one.question.name == question])
            try:
                (new,), _ = grade_notebook(short, cells.choose(submissions.parse(data), course.given))
            except InfrastructureError as error:
                changes.append(Change(submission.student, why=str(error)))
                continue
            place = [one.name for one in known.questions].index(question)
            changes.append(Change(submission.student, known.questions[place].points, new.points))
            if write:
                known.questions[place], known.key = new, key_with(course, submission, data)
                results.store(folder, known)
        if write:
            reports.write_all(folder, assignment)
    return changes


def result_of(course: Course, submission: Submission, data: bytes | None) -> Result:
    if submission.problem:
        return Result(submission.student, results.UNREADABLE, note=submission.problem)
    if data is None:
        return Result(submission.student, results.NOT_SUBMITTED)
    chosen = cells.choose(submissions.parse(data), course.given)
    course = course.of(submission.student)
    for attempt in range(ATTEMPTS):
        try:
            graded, status = grade_notebook(course, chosen)
            break
        except InfrastructureError:
            if attempt + 1 == ATTEMPTS or course.sandbox.closed:
                raise
    names = borrowed.borrowed(chosen.first, course.answers, course.released)
    said = BORROWED.format(names=", ".join(names)) if names else ""
    note = " ".join(filter(None, [submission.remark, said]))
    return Result(submission.student, status, questions=graded, note=note, written=chosen.written)


def grade_notebook(course: Course, chosen: cells.Chosen) -> tuple[list[QuestionResult], str]:
    texts = chosen.first
    more = chosen.everything != chosen.first
    graded, status, names_missing = mark_all(course, chosen.setup, texts, may_repeat=more)
    if names_missing and more:
        texts = chosen.everything
        graded, status, _ = mark_all(course, chosen.setup, texts)
    functions = [one.question.function for one in course.prepared]
    note_missing(graded, functions, set().union(*(cells.defined(text, tuple(functions)) for text in texts)))
    note_spoiled(graded, functions, [cells.calls(function, texts, functions) for function in functions])
    return graded, status


def mark_all(
    course: Course, setup: list[str], texts: list[str], may_repeat: bool = False
) -> tuple[list[QuestionResult], str, bool]:
    """Mark every question with these cells; also the status, and whether a call failed for want of a name.

    ``may_repeat``: whether the caller then comes again with other cells, so that what the checks say can wait.
    """
    names_missing = False
    with Student(course.sandbox, setup, texts, course.limits) as student:

        def call(question: Question, case: Case) -> Outcome:
            nonlocal names_missing
            outcome = student.call(question, case)
            names_missing |= outcome.kind == RAISED and outcome.error == "NameError"
            return outcome

        graded = [mark(one, call) for one in course.prepared]
        endings = [*(one.ending for one in graded), *student.left_out.values(), *[CRASHED] * student.disturbed]
        if not (names_missing and may_repeat):
            student.forget()
            visible_checks.add(graded, [one.question for one in course.prepared], course.given.quoted, student.call)
    status = next((kind for kind in (CRASHED, TIMEOUT) if kind in endings), results.GRADED)
    return graded, status, names_missing
