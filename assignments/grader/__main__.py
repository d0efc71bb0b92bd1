"""Grade the assignments: hand out, collect, grade, export. Each command has a --help of its own."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    from tqdm import tqdm

    from . import batch, checking, class_page, collecting, drafts, exporting, handing_back, inside, late, notebooks
    from . import overrides, own_inputs, questions, reports, results, rubric_page, similar, tables, term
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
        mistakes = sum(len(one.mistakes) for one in assignment.questions)
        what = f"{len(assignment.questions)} questions and 1 written, {assignment.points:g} points, {mistakes} known mistakes"
        state = f"{len(set(found))} faults" if found else "in order"
        print(f"{name}: {what}, {options.seeds} seeds: {state} ({time.monotonic() - began:.1f} s)")
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
    assignment, roster = questions.load(options.assignment, options.home), batch.read_roster(options.roster)
    name, grades = assignment.name, batch.output_folder(options.grades, assignment)
    done = collecting.collect(options.system, options.source, name, options.output, roster, options.worksheet, due)
    if due:
        if not grades.exists():
            results.private_folder(grades)
        done.said += late.update(grades, done.late)
    for student, _, what in (line.partition(": ") for line in done.said):
        print(f"{reports.called(student, done.names.get(student, ''))}: {what}")
    written = sum(row[-1].find("No notebook.") < 0 for row in done.rows)
    print(
        f"{tables.counted(done.rows, 'student')}, {written} notebooks, {done.unchanged} unchanged: {options.output}.collected.csv"
    )
    if not done.rows:
        others = " or ".join(f"`collect {system}`" for system in collecting.SYSTEMS if system != options.system)
        complain(f"Nothing has a name as {options.system} makes it. Is the source another system's? Then say {others}.")
    if several := sum("notebooks: this one was taken." in row[-1] for row in done.rows):
        print(f"{several} handed in several notebooks: {options.output}.collected.csv says which one was taken")
    if done.unmatched:
        print(f"{tables.counted(done.unmatched, 'remark')} about what was not matched: {options.output}.unmatched.csv")
    if options.worksheet and not options.roster:
        print(f"The list of the course, for --roster: {options.output}.course.csv")
    if unknown := sum(collecting.UNKNOWN_TIME in row[-1] for row in done.rows):
        print(f"{unknown} with no time in the worksheet: {options.output}.collected.csv says who")
    if late_ones := sum(days != 0 for days in done.late.values()):
        print(f"{late_ones} late" + (f": {grades / late.LATE}" if due else "; --due writes the table of late work"))
    if due and any(days is None for days in done.late.values()):
        print("Canvas does not say by how many days: replace each ? in the table by a number.")
    return int(not done.rows)


def lateness(options: argparse.Namespace) -> int:
    """Say what a day of late work costs."""
    output, assignment = existing(options)
    if options.policy is not None:
        late.set_policy(output, options.policy)
        reports.write_all(output, assignment)
    policy, days = late.policy_of(output), late.counted(output)
    print(f"{policy.text if policy else 'no policy: nothing is taken off'}; {len(days)} late")
    return 0


def grade(options: argparse.Namespace) -> int:
    """Grade a folder of submissions."""
    if options.unsafe:
        complain("Grading WITHOUT a sandbox: student code can read and change what you can.")
    assignment = questions.load(options.assignment, options.home)
    output = batch.output_folder(options.output, assignment)
    own = own_inputs.read_secret(options.inputs_per_student) if options.inputs_per_student else None
    how = {name: getattr(options, name) for name in ("workers", "seed", "roster", "unsafe", "regrade", "only")}
    found = batch.grade(options.submissions, assignment, output, secret=own, **how)
    counts = Counter(result.status for result in found)
    kept = sum(result.kept for result in found)
    print(", ".join(f"{counts[status]} {status}" for status in results.STATUSES if counts[status]) + f"; {kept} kept")
    failed = [one for one in found if one.status == results.INFRASTRUCTURE_ERROR]
    complain(*(f"{result.student!r}: {result.note}" for result in failed))
    unmatched = output / reports.UNMATCHED
    if rows := unmatched.read_text("utf-8").splitlines()[1:]:
        print(f"{tables.counted(rows, 'remark')} about what was handed in: {unmatched}")
    print(f"Grades: {output / 'grades.csv'}")
    return int(bool(failed))


def regrade(options: argparse.Namespace) -> int:
    """Grade one question anew for the class after its test was mended, and say who gains and who loses."""
    output, assignment = existing(options)
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
    output, assignment = existing(options)
    print(class_page.write(output, assignment, reports.grades(output, assignment)))
    return 0


def whole_term(options: argparse.Namespace) -> int:
    """Write the grades of all assignments side by side; set a budget of late days for the term."""
    if options.late_days is not None:
        late.set_budget(options.grades, options.late_days)
        for name in term.gather(options.grades, options.home):
            reports.write_all(options.grades / name, questions.load(name, options.home))
    path, count, twice = term.write(options.grades, options.home)
    budget = late.budget_of(options.grades)
    if twice:
        complain(
            f"{tables.counted(twice, 'name')} under several numbers, each a row of its own: {', '.join(twice[:5])}. Moodle's numbers"
            " hold for one assignment only: give `collect` and `make grade` your own list, by --roster and ROSTER."
        )
    print(f"{count} students: {path}" + (f"; {budget} late days of the term are forgiven" if budget else ""))
    return 0


def report(options: argparse.Namespace) -> int:
    """Make the tables and pages again from the results."""
    output, assignment = existing(options)
    reports.write_all(output, assignment)
    strangers = late.strangers(output, [one.result.student for one in reports.grades(output, assignment)])
    complain(*(f"{name!r}: {what}" for name, what in strangers))
    print(f"Grades: {output / 'grades.csv'}")
    return 0


def override(options: argparse.Namespace) -> int:
    """Enter points of the written question, or replace a grade."""
    output, assignment = existing(options)
    everybody = reports.grades(output, assignment)
    students, student = [one.result.student for one in everybody], student_of(everybody, options.student)
    if options.remove:
        overrides.remove(output, assignment, students, student, options.question)
        said = f"{options.question} as graded"
    elif options.points is None:
        raise ValueError("points: missing; or say --remove to take an override back")
    else:
        decided = (student, options.question, options.points, options.note)
        said = f"{options.question} {tables.number(overrides.add(output, assignment, students, *decided).points)}"
    reports.write_all(output, assignment)
    grade = next(one for one in reports.grades(output, assignment) if one.result.student == student)
    score, most = tables.number(grade.score), tables.number(assignment.points)
    total = f"total {score} of {most}" if score else "no total yet"
    print(f"{grade.who}: {said}; {total}")
    return 0


def student_of(everybody: list[reports.Grade], said: str) -> str:
    """The student whose number, folder or name this is; what is nobody's or two students' stays as it was said."""
    named = [one.result.student for one in everybody if said in (one.name, one.who)]
    known = said in [one.result.student for one in everybody]
    return named[0] if len(named) == 1 and not known else said


def export(options: argparse.Namespace) -> int:
    """Write the grades in the layout of another system."""
    output, assignment = existing(options)
    everybody, said = exporting.check_written(assignment, reports.grades(output, assignment), options.partial)
    if options.system == "canvas":
        text, found = exporting.canvas_filled(options.worksheet, assignment, output, everybody, options.column)
    else:
        text, found = exporting.moodle_filled(options.worksheet, assignment, output, everybody)
    path = output / f"{options.system}.csv"
    results.write_whole(path, text)
    print(path)
    complain(said, found)
    return 0


def hand_back(options: argparse.Namespace) -> int:
    """Pack the pages of feedback so that a course system hands them back."""
    output, assignment = existing(options)
    everybody = reports.grades(output, assignment)
    count, said = handing_back.pack(options.system, assignment, everybody, options.target, options.collected)
    print(f"{count} pages: {options.target}")
    waiting = sum(grade.points_are_missing and grade.result.written for grade in everybody)
    said += [f"{waiting} of the pages say that the written answer is graded later."] if waiting else []
    complain(*said)
    return 0


def rubric(options: argparse.Namespace) -> int:
    """Grade the answers to the written question by the rubric, on a page in the browser."""
    output, assignment = existing(options)
    found = batch.find(options.submissions, assignment.name, batch.read_roster(options.roster))
    answers, said = drafts.answers(assignment, found.submissions)
    known = {one.result.student: one.who for one in reports.grades(output, assignment)}
    said |= {answer.student: "It has no result yet: grade first." for answer in answers if answer.student not in known}
    complain(*(f"{known.get(student, student)}: {problem}" for student, problem in said.items()))
    shown = [one for one in answers if one.student in known]
    rubric_page.serve(rubric_page.Desk(assignment, output, shown, options.anonymous), options.port)
    return 0


def similarity(options: argparse.Namespace) -> int:
    """Write everybody's own code as files, for a program that finds similar ones."""
    assignment = questions.load(options.assignment, options.home)
    found = batch.find(options.submissions, assignment.name, batch.read_roster(options.roster))
    count, said = similar.write(assignment, found.submissions, options.folder)
    complain(*said)
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
            left = ", ".join(inside.allowed(sandbox))
            said = f"MISSING, not refused: {left}" if left else "all these calls are refused."
            print(f"Tried from inside{':' if not left else ','} {said}")
    return 0


def existing(options: argparse.Namespace) -> tuple[Path, questions.Assignment]:
    """The output folder and whose it is; raises ``ValueError`` if nothing was graded there."""
    assignment = questions.load(options.assignment, options.home)
    output = batch.output_folder(options.output, assignment)
    if not (output / "settings.json").is_file():
        how = f"make grade SUBMISSIONS=folder ASSIGNMENT={options.assignment}"
        raise ValueError(f"output: nothing was graded yet in {str(output)!r}; grade first: {how}")
    return output, assignment


def complain(*said: str) -> None:
    for sentence in filter(None, said):
        print(sentence, file=sys.stderr)


# arguments of several commands
SHARED: dict[str, dict[str, Any]] = {
    "assignments": {"nargs": "*"},
    "submissions": {"type": Path},
    "--output": {"type": Path, "help": "where results are kept (default: grades/ASSIGNMENT in the project)"},
    "--roster": {"type": Path, "help": "the students: CSV with a column student, or a name a line"},
    "--unsafe": {"action": "store_true", "help": "run student code without a sandbox"},
    "--worksheet": {"type": Path, "help": "Canvas's export of the gradebook, or Moodle's grading worksheet"},
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m assignments.grader", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="command")

    def command(name: str, run: object, *arguments: str) -> Callable[..., object]:
        made = commands.add_parser(name, help=str(run.__doc__).splitlines()[0].rstrip("."))
        made.set_defaults(run=run)
        for argument in arguments:
            made.add_argument(argument, **SHARED.get(argument, {}))
        return made.add_argument

    add = command("check", check, "assignments")
    add("--seeds", type=int, default=3, help="how many seeds of hidden inputs (default: 3)")
    command("release", release, "assignments")
    add = command("collect", collect, "--roster", "--worksheet")
    add("system", choices=collecting.SYSTEMS)
    add("source", type=Path, help="the zip that the system made, or a folder")
    add("assignment")
    add("output", type=Path, help="the folder of submissions, to be graded later")
    add("--due", help="2026-10-01 (that day's end) or '2026-10-01 18:00': write late.csv")
    add("--grades", type=Path, help="where late.csv is written (default: grades/ASSIGNMENT in the project)")
    add = command("late", lateness, "assignment", "--output")
    add("policy", nargs="?", help=f"{late.EXAMPLES}; without it: what is in force".replace("%", "%%"))
    add = command("grade", grade, "submissions", "assignment", "--roster", "--output", "--unsafe")
    add("--only", metavar="STUDENT", help="grade this student; all others stay as they are")
    add("--workers", type=int, default=2, help="submissions at a time (default: 2)")
    add("--seed", type=int, help="of the hidden inputs (default: secret, drawn once for an output folder)")
    own = "of a secret, made if it is not there: every student gets hidden inputs of their own (default: the same for all)"
    add("--inputs-per-student", type=Path, metavar="FILE", help=own)
    add("--regrade", action="store_true", help="grade again what is already graded")
    add = command("regrade", regrade, "submissions", "assignment", "question", "--output", "--unsafe")
    add("--write", action="store_true", help="store the new points; without it they are shown only")
    command("statistics", statistics, "assignment", "--output")
    add = command("term", whole_term)
    add("--grades", type=Path, default=batch.ROOT / "grades", help="the folder with a folder for each assignment")
    add("--late-days", type=int, help="that are forgiven each student in all assignments together")
    command("report", report, "assignment", "--output")
    add = command("override", override, "assignment", "student", "--output")
    add("question", help="its name, the written question's, or total")
    add("points", nargs="?")
    add("--note", default="", help="what the student and the table should say about it")
    add("--remove", action="store_true", help="take the override back")
    add = command("export", export, "--output")
    add("system", choices=("canvas", "moodle"))
    add("assignment")
    add("--partial", action="store_true", help="leave out the grades whose written answers have no points yet")
    add("--worksheet", required=True, **SHARED["--worksheet"])
    add("--column", help="canvas: the heading of the assignment in the gradebook that is filled in")
    add = command("handback", hand_back, "--output")
    add("system", choices=handing_back.SYSTEMS)
    add("assignment")
    add("target", type=Path, help="a new zip to upload there, or a new folder with a folder for each student")
    add("--collected", type=Path, help="canvas and moodle: the table SUBMISSIONS.collected.csv that collect wrote")
    add = command("rubric", rubric, "submissions", "assignment", "--roster", "--output")
    add("--anonymous", action="store_true", help="show no names, and the answers in an order that tells none")
    add("--port", type=int, default=0, help="of 127.0.0.1, to forward it, say (default: one that is free)")
    add = command("similar", similarity, "submissions", "assignment", "--roster")
    add("folder", type=Path, help="a new folder for the files")
    command("sandbox", explain, "--unsafe")
    return top


def main(arguments: list[str] | None = None, home: Path = questions.HOME) -> int:
    """Run a command; ``home``: the folder of the assignments."""
    options = parser().parse_args(arguments, argparse.Namespace(home=home))
    try:
        return int(options.run(options))
    except (ValueError, InfrastructureError, batch.CanaryError, ImportError, OSError) as error:
        complain(str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}")
        return 2
    except KeyboardInterrupt:
        print("Interrupted: what is graded is kept; the same command goes on.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a batch queue that ends a job: clean up as for Ctrl-C
    sys.exit(main())
