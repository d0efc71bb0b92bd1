"""Grade the assignments: hand out, collect, grade, export. Each command has a --help of its own."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from pathlib import Path

try:
    from tqdm import tqdm

    from . import (
        batch,
        checking,
        class_page,
        collecting,
        drafts,
        exporting,
        handing_back,
        inside,
        late,
        notebooks,
        overrides,
        own_inputs,
        questions,
        reports,
        results,
        rubric_page,
        similar,
        tables,
        term,
    )
    from .sandbox import InfrastructureError, Limits, Sandbox
except ModuleNotFoundError as error:
    raise SystemExit(
        f"{error.name} is not installed for {sys.executable}. In the folder of the book's repository, `make setup` makes the environment"
        " .venv that has it; then say `.venv/bin/python -m assignments.grader ...`."
    ) from error


def check(options: argparse.Namespace) -> int:
    """Check assignments against their own known mistakes."""
    code = 0
    for name in options.assignments or questions.names(options.home):
        began = time.monotonic()
        assignment = questions.load(name, options.home)
        seeds = tqdm(range(options.seeds), desc=name, unit="seed", disable=None, leave=False)
        found = list(checking.faults(assignment, seeds))
        for fault in dict.fromkeys(found):
            print(f"{name}: {fault}")
        mistakes = sum(len(question.mistakes) for question in assignment.questions)
        state = f"{len(set(found))} faults" if found else "in order"
        print(
            f"{name}: {len(assignment.questions)} questions and 1 written, {assignment.points:g} points,"
            f" {mistakes} known mistakes, {options.seeds} seeds: {state} ({time.monotonic() - began:.1f} s)"
        )
        code |= bool(found)
    return code


def release(options: argparse.Namespace) -> int:
    """Write what students get."""
    for name in options.assignments or questions.names(options.home):
        path = options.home / "release" / f"{name}.ipynb"
        notebooks.write(notebooks.released(notebooks.read(questions.load(name, options.home).notebook)), path)
        print(path.relative_to(options.home.parent))
    return 0


def collect(options: argparse.Namespace) -> int:
    """Sort what Canvas or Moodle packed into a folder to be graded."""
    due = late.read_due(options.due) if options.due else None
    name, roster = questions.load(options.assignment, options.home).name, batch.read_roster(options.roster)
    done = collecting.collect(options.system, options.source, name, options.output, roster, options.worksheet, due)
    grades = batch.output_folder(options.grades, questions.load(options.assignment, options.home))
    if due:
        if not grades.exists():
            results.private_folder(grades)
        done.said += late.update(grades, done.late)
    print("\n".join(map(repr, done.said)), end="\n" * bool(done.said))
    written = sum(row[-1].find("No notebook.") < 0 for row in done.rows)
    print(f"{len(done.rows)} students, {written} notebooks, {done.unchanged} unchanged: {options.output}.collected.csv")
    if not done.rows:
        others = [f"`collect {system}`" for system in collecting.SYSTEMS if system != options.system]
        print(
            f"Nothing has a name as {options.system} makes it. Is the source another system's? Then say {' or '.join(others)}.",
            file=sys.stderr,
        )
    if several := sum("notebooks: this one was taken." in row[-1] for row in done.rows):
        print(f"{several} handed in several notebooks: {options.output}.collected.csv says which one was taken")
    if done.unmatched:
        print(f"{len(done.unmatched)} remarks about what was not matched: {options.output}.unmatched.csv")
    if options.worksheet and not options.roster:
        print(f"The list of the course, for --roster: {options.output}.course.csv")
    if unknown := sum(collecting.UNKNOWN_TIME in row[-1] for row in done.rows):
        print(f"{unknown} with no time in the worksheet: {options.output}.collected.csv says who")
    late_ones = [student for student, days in done.late.items() if days != 0]
    if late_ones:
        print(
            f"{len(late_ones)} late" + (f": {grades / late.LATE}" if due else "; --due writes the table of late work")
        )
    if due and any(days is None for days in done.late.values()):
        print("Canvas does not say by how many days: replace each ? in the table by a number.")
    return int(not done.rows)


def lateness(options: argparse.Namespace) -> int:
    """Say what a day of late work costs."""
    output = existing(options)
    if options.policy is not None:
        late.set_policy(output, options.policy)
        reports.write_all(output, questions.load(options.assignment, options.home))
    policy, days = late.policy_of(output), late.counted(output)
    print(f"{policy.text if policy else 'no policy: nothing is taken off'}; {len(days)} late")
    return 0


def grade(options: argparse.Namespace) -> int:
    """Grade a folder of submissions."""
    if options.unsafe:
        print("Grading WITHOUT a sandbox: student code can read and change what you can.", file=sys.stderr)
    found = batch.grade(
        options.submissions,
        questions.load(options.assignment, options.home),
        options.output,
        options.workers,
        options.seed,
        options.roster,
        options.unsafe,
        options.regrade,
        secret=own_inputs.read_secret(options.inputs_per_student) if options.inputs_per_student else None,
        only=options.only,
    )
    counts = Counter(result.status for result in found)
    kept = sum(result.kept for result in found)
    print(", ".join(f"{counts[status]} {status}" for status in results.STATUSES if counts[status]) + f"; {kept} kept")
    for result in found:
        if result.status == results.INFRASTRUCTURE_ERROR:
            print(f"{result.student!r}: {result.note}", file=sys.stderr)
    unmatched = folder_of(options) / reports.UNMATCHED
    if rows := len(unmatched.read_text("utf-8").splitlines()) - 1:
        print(f"{rows} remarks about what was handed in: {unmatched}")
    print(f"Grades: {folder_of(options) / 'grades.csv'}")
    return int(counts[results.INFRASTRUCTURE_ERROR] > 0)


def regrade(options: argparse.Namespace) -> int:
    """Grade one question anew for the class after its test was mended, and say who gains and who loses."""
    output, assignment = existing(options), questions.load(options.assignment, options.home)
    names = {one.result.student: one.who for one in reports.grades(output, assignment)}
    changes = batch.regrade(options.submissions, assignment, options.question, output, options.write, options.unsafe)
    for one in changes:
        points = f"{tables.number(one.before)} -> {tables.number(one.after)}"
        if one.why or one.before != one.after:
            print(f"{names[one.student]}: {one.why or points}")
    gain, lose = (sum(sign * (one.after - one.before) > 0 for one in changes if not one.why) for sign in (1, -1))
    left = sum(bool(one.why) for one in changes)
    print(f"{options.question}: {gain} gain, {lose} lose, {len(changes) - gain - lose - left} stay, {left} left out.")
    print("Written." if options.write else "Nothing is written yet: say it again with --write.")
    return int(left > 0)


def statistics(options: argparse.Namespace) -> int:
    """Say how many were right in each part, and which mistakes are frequent, on a page and in a table."""
    output, assignment = existing(options), questions.load(options.assignment, options.home)
    print(class_page.write(output, assignment, reports.grades(output, assignment)))
    return 0


def whole_term(options: argparse.Namespace) -> int:
    """Write the grades of all assignments side by side; set a budget of late days for the term."""
    if options.late_days is not None:
        late.set_budget(options.grades, options.late_days)
        for name in term.gather(options.grades, options.home):
            reports.write_all(options.grades / name, questions.load(name, options.home))
    path, count = term.write(options.grades, options.home)
    budget = late.budget_of(options.grades)
    print(f"{count} students: {path}" + (f"; {budget} late days of the term are forgiven" if budget else ""))
    return 0


def report(options: argparse.Namespace) -> int:
    """Make the tables and pages again from the results."""
    output, assignment = existing(options), questions.load(options.assignment, options.home)
    reports.write_all(output, assignment)
    for name, what in late.strangers(output, [one.result.student for one in reports.grades(output, assignment)]):
        print(f"{name!r}: {what}", file=sys.stderr)
    print(f"Grades: {folder_of(options) / 'grades.csv'}")
    return 0


def override(options: argparse.Namespace) -> int:
    """Enter points of the written question, or replace a grade."""
    output, assignment = existing(options), questions.load(options.assignment, options.home)
    students = [one.result.student for one in reports.grades(output, assignment)]
    options.student = student_of(reports.grades(output, assignment), options.student)
    if options.remove:
        overrides.remove(output, assignment, students, options.student, options.question)
        said = f"{options.question} as graded"
    elif options.points is None:
        raise ValueError("points: missing; or say --remove to take an override back")
    else:
        entered = overrides.add(
            output, assignment, students, options.student, options.question, options.points, options.note
        )
        said = f"{options.question} {tables.number(entered.points)}"
    reports.write_all(output, assignment)
    grade = next(one for one in reports.grades(output, assignment) if one.result.student == options.student)
    total = (
        "no total yet"
        if grade.score is None
        else f"total {tables.number(grade.score)} of {tables.number(assignment.points)}"
    )
    print(f"{grade.who}: {said}; {total}")
    return 0


def student_of(everybody: list[reports.Grade], said: str) -> str:
    """The student whose number, folder or name this is; what is nobody's or two students' stays as it was said."""
    named = [one.result.student for one in everybody if said in (one.name, one.who)]
    known = said in [one.result.student for one in everybody]
    return named[0] if len(named) == 1 and not known else said


def export(options: argparse.Namespace) -> int:
    """Write the grades in the layout of another system."""
    output, assignment = existing(options), questions.load(options.assignment, options.home)
    everybody = reports.grades(output, assignment)
    everybody, said = exporting.check_written(assignment, everybody, options.partial)
    if options.system == "canvas":
        text, found = exporting.canvas_filled(options.worksheet, assignment, output, everybody, options.column)
    else:
        text, found = exporting.moodle_filled(options.worksheet, assignment, output, everybody)
    path = output / f"{options.system}.csv"
    results.write_whole(path, text)
    print(path)
    for sentence in filter(None, (said, found)):
        print(sentence, file=sys.stderr)
    return 0


def hand_back(options: argparse.Namespace) -> int:
    """Pack the pages of feedback so that a course system hands them back."""
    output, assignment = existing(options), questions.load(options.assignment, options.home)
    everybody = reports.grades(output, assignment)
    count, said = handing_back.pack(options.system, assignment, everybody, options.target, options.collected)
    print(f"{count} pages: {options.target}")
    waiting = sum(grade.points_are_missing and grade.result.written for grade in everybody)
    said += [f"{waiting} of the pages say that the written answer is graded later."] if waiting else []
    for sentence in said:
        print(sentence, file=sys.stderr)
    return 0


def rubric(options: argparse.Namespace) -> int:
    """Grade the answers to the written question by the rubric, on a page in the browser."""
    output, assignment = existing(options), questions.load(options.assignment, options.home)
    found = batch.find(options.submissions, assignment.name, batch.read_roster(options.roster))
    answers, said = drafts.answers(assignment, found.submissions)
    known = {one.result.student for one in reports.grades(output, assignment)}
    said += [f"{answer.student!r}: has no result yet: grade first" for answer in answers if answer.student not in known]
    for sentence in said:
        print(sentence, file=sys.stderr)
    rubric_page.serve(
        rubric_page.Desk(assignment, output, [one for one in answers if one.student in known], options.anonymous),
        options.port,
    )
    return 0


def similarity(options: argparse.Namespace) -> int:
    """Write everybody's own code as files, for a program that finds similar ones."""
    assignment = questions.load(options.assignment, options.home)
    found = batch.find(options.submissions, assignment.name, batch.read_roster(options.roster))
    count, said = similar.write(assignment, found.submissions, options.folder)
    for sentence in said:
        print(sentence, file=sys.stderr)
    print(f"{count} files: {options.folder / similar.OWN}. Compare them, with copydetect for example:")
    folders = f"-t {options.folder / similar.OWN} -b {options.folder / similar.GIVEN}"
    print(f"PYTHONHASHSEED=0 copydetect {folders} -e py -d 0.3 -a -O {options.folder / 'similar.html'}")
    return 0


def explain(options: argparse.Namespace) -> int:
    """Start a sandbox, and say what is in force on this machine."""
    with Sandbox(options.unsafe) as sandbox:
        sandbox.start(Limits()).close()
        print(sandbox.describe())
        print("A program was started this way, and answered.")
        if not options.unsafe:
            left = inside.allowed(sandbox)
            print(
                f"Tried from inside, MISSING, not refused: {', '.join(left)}"
                if left
                else "Tried from inside: all these calls are refused."
            )
    return 0


def folder_of(options: argparse.Namespace) -> Path:
    return batch.output_folder(options.output, questions.load(options.assignment, options.home))


def existing(options: argparse.Namespace) -> Path:
    """The output folder; raises ``ValueError`` if nothing was graded there."""
    output = folder_of(options)
    if not (output / "settings.json").is_file():
        raise ValueError(
            f"output: nothing was graded yet in {str(output)!r}; grade first: make grade SUBMISSIONS=folder ASSIGNMENT={options.assignment}"
        )
    return output


def parser() -> argparse.ArgumentParser:
    """All commands and their arguments."""
    top = argparse.ArgumentParser(prog="python -m assignments.grader", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="command")

    def command(name: str, run: object) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=str(run.__doc__).splitlines()[0].rstrip("."))
        made.set_defaults(run=run)
        return made

    def add_output(made: argparse.ArgumentParser) -> None:
        made.add_argument(
            "--output", type=Path, help="where results are kept (default: grades/ASSIGNMENT in the project)"
        )

    def add_roster(made: argparse.ArgumentParser) -> None:
        made.add_argument("--roster", type=Path, help="the students: CSV with a column student, or a name a line")

    def add_unsafe(made: argparse.ArgumentParser) -> None:
        made.add_argument("--unsafe", action="store_true", help="run student code without a sandbox")

    made = command("check", check)
    made.add_argument("assignments", nargs="*")
    made.add_argument("--seeds", type=int, default=3, help="how many seeds of hidden inputs (default: 3)")
    made = command("release", release)
    made.add_argument("assignments", nargs="*")
    made = command("collect", collect)
    made.add_argument("system", choices=collecting.SYSTEMS)
    made.add_argument("source", type=Path, help="the zip that the system made, or a folder")
    made.add_argument("assignment")
    made.add_argument("output", type=Path, help="the folder of submissions, to be graded later")
    add_roster(made)
    made.add_argument("--worksheet", type=Path, help="Canvas's export of the gradebook, or Moodle's grading worksheet")
    made.add_argument("--due", help="2026-10-01 (that day's end) or '2026-10-01 18:00': write late.csv")
    made.add_argument(
        "--grades", type=Path, help="where late.csv is written (default: grades/ASSIGNMENT in the project)"
    )
    made = command("late", lateness)
    made.add_argument("assignment")
    made.add_argument("policy", nargs="?", help=f"{late.EXAMPLES}; without it: what is in force".replace("%", "%%"))
    add_output(made)
    made = command("grade", grade)
    made.add_argument("submissions", type=Path)
    made.add_argument("assignment")
    made.add_argument("--only", metavar="STUDENT", help="grade this student; all others stay as they are")
    made.add_argument("--workers", type=int, default=2, help="submissions at a time (default: 2)")
    add_roster(made)
    add_output(made)
    made.add_argument(
        "--seed", type=int, help="of the hidden inputs (default: secret, drawn once for an output folder)"
    )
    made.add_argument(
        "--inputs-per-student",
        type=Path,
        metavar="FILE",
        help="of a secret, made if it is not there: every student gets hidden inputs of their own (default: all get the same)",
    )
    add_unsafe(made)
    made.add_argument("--regrade", action="store_true", help="grade again what is already graded")
    made = command("regrade", regrade)
    made.add_argument("submissions", type=Path)
    made.add_argument("assignment")
    made.add_argument("question", help="its name, such as q3")
    made.add_argument("--write", action="store_true", help="store the new points; without it they are shown only")
    add_output(made)
    add_unsafe(made)
    made = command("statistics", statistics)
    made.add_argument("assignment")
    add_output(made)
    made = command("term", whole_term)
    made.add_argument(
        "--grades", type=Path, default=batch.ROOT / "grades", help="the folder with a folder for each assignment"
    )
    made.add_argument("--late-days", type=int, help="that are forgiven each student in all assignments together")
    made = command("report", report)
    made.add_argument("assignment")
    add_output(made)
    made = command("override", override)
    for name in ("assignment", "student"):
        made.add_argument(name)
    made.add_argument("question", help="its name, the written question's, or total")
    made.add_argument("points", nargs="?")
    made.add_argument("--note", default="", help="what the student and the table should say about it")
    made.add_argument("--remove", action="store_true", help="take the override back")
    add_output(made)
    made = command("export", export)
    made.add_argument("system", choices=("canvas", "moodle"))
    made.add_argument("assignment")
    made.add_argument(
        "--partial", action="store_true", help="leave out the grades whose written answers have no points yet"
    )
    made.add_argument(
        "--worksheet", type=Path, required=True, help="Canvas's export of the gradebook, or Moodle's grading worksheet"
    )
    made.add_argument("--column", help="canvas: the heading of the assignment in the gradebook that is filled in")
    add_output(made)
    made = command("handback", hand_back)
    made.add_argument("system", choices=handing_back.SYSTEMS)
    made.add_argument("assignment")
    made.add_argument(
        "target", type=Path, help="a new zip to upload there, or a new folder with a folder for each student"
    )
    made.add_argument(
        "--collected", type=Path, help="canvas and moodle: the table SUBMISSIONS.collected.csv that collect wrote"
    )
    add_output(made)
    made = command("rubric", rubric)
    made.add_argument("submissions", type=Path)
    made.add_argument("assignment")
    made.add_argument(
        "--anonymous", action="store_true", help="show no names, and the answers in an order that tells none"
    )
    made.add_argument(
        "--port", type=int, default=0, help="of 127.0.0.1, to forward it, say (default: one that is free)"
    )
    add_roster(made)
    add_output(made)
    made = command("similar", similarity)
    made.add_argument("submissions", type=Path)
    made.add_argument("assignment")
    made.add_argument("folder", type=Path, help="a new folder for the files")
    add_roster(made)
    add_unsafe(command("sandbox", explain))
    return top


def main(arguments: list[str] | None = None, home: Path = questions.HOME) -> int:
    """Run a command; ``home``: the folder of the assignments."""
    options = parser().parse_args(arguments, argparse.Namespace(home=home))
    try:
        return int(options.run(options))
    except (ValueError, InfrastructureError, batch.CanaryError, ImportError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted: what is graded is kept; the same command goes on.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a batch queue that ends a job: clean up as for Ctrl-C
    sys.exit(main())
