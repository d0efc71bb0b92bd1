"""The commands: ``python -m assignments.grader --help``."""

from __future__ import annotations

import argparse
import sys
import time

from . import checking, notebooks, questions


def check(options: argparse.Namespace) -> int:
    """Check assignments against their own known mistakes."""
    code = 0
    for name in options.assignments or questions.names():
        began = time.monotonic()
        assignment = questions.load(name)
        found = [fault for seed in range(options.seeds) for fault in checking.faults(assignment, seed)]
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
    for name in options.assignments or questions.names():
        path = questions.HOME / "release" / f"{name}.ipynb"
        notebooks.write(notebooks.released(notebooks.read(questions.load(name).notebook)), path)
        print(path.relative_to(questions.HOME.parent))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m assignments.grader", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("check", help="check assignments against their own known mistakes")
    command.add_argument("assignments", nargs="*")
    command.add_argument("--seeds", type=int, default=3, help="how many seeds of hidden inputs (default: 3)")
    command.set_defaults(run=check)
    command = commands.add_parser("release", help="write the student notebooks into assignments/release")
    command.add_argument("assignments", nargs="*")
    command.set_defaults(run=release)
    options = parser.parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
