"""Which submissions share passages of code that neither the release nor the instructor's answers explain.

A submission is read as tokens, without comments, docstrings and layout, and with one word for every name that a student
can choose; so renaming, reordering and new comments change little. Two submissions share what stands in both as a run of
at least ``RUN`` tokens. Runs that the release, the instructor's answers or a large part of the class have are left out.

The library copydetect (0.5.0) was tried first: its numbers change from run to run, because it picks fingerprints by
Python's salted hash. The tokens are Pygments's, which reads broken code too.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Operator, String, Text

from . import cells, notebooks, questions, reports, results, submissions
from .questions import Assignment
from .submissions import Submission, Unreadable
from .tables import table
from .written import visible

RUN = 24  # tokens, about three lines
LEAST = 25  # percent of a student's own code, for a pair to be listed; the tests say what copies and others have
COMMON = 0.25  # of the class: what more students have is how everybody writes it
COMMON_AT_LEAST = 8  # students
LONGEST = 200_000  # characters of a submission that are read
REPEATS = 8  # places of one run in a submission that are looked at
PAIRS, PASSAGES, LINES = 100, 30, 80  # shown on the page

Run = tuple[str, ...]


@dataclass
class Work:
    """What one student wrote: the text, and its tokens with their places in the text.

    ``runs``: where each run of tokens begins. ``left_out``: a 1 for each token in a run that is left out.
    """

    student: str
    text: str
    words: list[str]
    places: list[tuple[int, int]]
    runs: dict[Run, list[int]] = field(default_factory=dict)
    left_out: bytearray = field(default_factory=bytearray)

    @property
    def own(self) -> int:
        """How many tokens are the student's own."""
        return self.left_out.count(0)


@dataclass(frozen=True)
class Pair:
    """Two students and how many of each one's own tokens stand in shared runs; ``shares``: of all their own, from 0 to 1."""

    first: Work
    second: Work
    tokens: tuple[int, int]

    @property
    def shares(self) -> tuple[float, float]:
        return self.tokens[0] / max(1, self.first.own), self.tokens[1] / max(1, self.second.own)


def own_code(assignment: Assignment, found: Sequence[Submission]) -> tuple[list[Work], list[str]]:
    """The code of every student without the cells of the release, and sentences about those who have none."""
    given = cells.given(assignment, notebooks.read(assignment.notebook))
    works, said = [], []
    for submission in found:
        try:
            if submission.problem or submission.path is None:
                raise Unreadable(submission.problem or "Nothing was handed in.")
            chosen = cells.choose(submissions.parse(submission.read()), given)
            text = "\n\n".join(text for text in chosen.first if text.strip() not in given.stubs)
            if len(text) > LONGEST:
                said.append(f"{submission.student!r}: only the first {LONGEST} characters were compared")
            works.append(work(submission.student, text[:LONGEST]))
        except Unreadable as problem:
            said.append(f"{submission.student!r}: {problem}")
    return works, said


def known_code(assignment: Assignment) -> list[str]:
    """What nobody has to be asked about: the release, and the instructor's answers, references and alternatives."""
    notebook = notebooks.read(assignment.notebook)
    texts = [
        notebooks.text_of(cell)
        for book in (notebook, notebooks.released(notebook))
        for cell in book["cells"]
        if cell["cell_type"] == "code"
    ]
    for question in assignment.questions:
        texts += [questions.source_of(one) for one in (question.reference, *question.alternatives)]
    return texts


def work(student: str, text: str) -> Work:
    """A text and its tokens."""
    read = list(tokens(text))
    made = Work(student, text, [word for word, _ in read], [place for _, place in read])
    for start in range(len(made.words) - RUN + 1):
        made.runs.setdefault(tuple(made.words[start : start + RUN]), []).append(start)
    return made


def tokens(text: str) -> Iterable[tuple[str, tuple[int, int]]]:
    """The tokens of a program with their places. Names become one word, but for keywords, builtins and what follows a dot."""
    dotted = False
    for start, kind, value in PythonLexer(stripnl=False, ensurenl=False).get_tokens_unprocessed(text):
        if kind in Comment or kind in Text or kind in String.Doc or not value.strip():
            continue
        if kind in String:
            word = "'"
        elif kind in Name.Builtin or dotted or kind in Keyword or kind in Operator.Word:
            word = "name" if value == "self" else value
        else:
            word = "name" if kind in Name else value
        dotted = value == "."
        if word == "'" and kind in String.Affix:
            continue
        yield word, (start, start + len(value))


def compare(works: Sequence[Work], known: Iterable[str]) -> list[Pair]:
    """All pairs that share something, the largest share first; ``known``: texts whose runs are left out."""
    left_out = {run for text in known for run in work("", text).runs}
    holders: dict[Run, list[int]] = defaultdict(list)
    for number, one in enumerate(works):
        for run in one.runs:
            holders[run].append(number)
    most = max(COMMON_AT_LEAST, COMMON * len(works))
    left_out |= {run for run, who in holders.items() if len(who) > most}
    for one in works:
        one.left_out = bytearray(len(one.words))
        for run in one.runs.keys() & left_out:
            for start in one.runs[run]:
                one.left_out[start : start + RUN] = b"\1" * RUN
    shared: dict[tuple[int, int], list[Run]] = defaultdict(list)
    for run, who in holders.items():
        if len(who) > 1 and run not in left_out:
            for pair in itertools.combinations(who, 2):
                shared[pair].append(run)
    pairs = []
    for (a, b), runs in shared.items():
        counts = covered(works[a], runs), covered(works[b], runs)
        if any(counts):  # a run across the border of two that are left out is nobody's
            pairs.append(Pair(works[a], works[b], counts))
    return sorted(pairs, key=lambda pair: (-max(pair.shares), pair.first.student, pair.second.student))


def covered(one: Work, runs: Iterable[Run]) -> int:
    """How many of a student's own tokens stand in at least one of these runs."""
    count = end = 0
    for start in sorted(start for run in runs for start in one.runs[run]):
        count += one.left_out[max(start, end) : start + RUN].count(0)
        end = start + RUN
    return count


def passages(pair: Pair) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The shared passages, the longest first, as places in both texts; no token of the first student is in two of them."""
    a, b = pair.first, pair.second
    found = []
    for run in a.runs.keys() & b.runs.keys():
        for i, j in itertools.product(a.runs[run][:REPEATS], b.runs[run][:REPEATS]):
            begins_earlier = (
                i > 0 and j > 0 and a.words[i - 1] == b.words[j - 1] and 0 in a.left_out[i - 1 : i - 1 + RUN]
            )
            if begins_earlier or 0 not in a.left_out[i : i + RUN]:
                continue
            end = RUN
            while i + end < len(a.words) and j + end < len(b.words) and a.words[i + end] == b.words[j + end]:
                end += 1
            found.append((end, i, j))
    taken, kept = bytearray(len(a.words)), []
    for length, i, j in sorted(found, key=lambda one: (-one[0], one[1], one[2])):
        if 1 not in taken[i : i + length]:
            taken[i : i + length] = b"\1" * length
            kept.append(((a.places[i][0], a.places[i + length - 1][1]), (b.places[j][0], b.places[j + length - 1][1])))
    return kept


def percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def write(output: Path, assignment: Assignment, pairs: Sequence[Pair], everybody: int) -> Path:
    """Write the table of pairs and the page, for their owner only; where the page is."""
    folder = output / "similar"
    results.private_folder(output)
    results.private_folder(folder)
    rows = [["first", "second", "share of first", "share of second", "tokens of first", "tokens of second"]]
    rows += [
        [pair.first.student, pair.second.student, *map(percent, pair.shares), *map(str, pair.tokens)] for pair in pairs
    ]
    results.write_whole(folder / "similar.csv", table(rows))
    results.write_whole(folder / "similar.html", page(assignment, pairs, everybody).encode("utf-8", "replace"))
    return folder / "similar.html"


STYLE = """
body { max-width: 90rem; } table { table-layout: auto; width: auto; } td, th { padding-right: 1.5rem; }
th:nth-child(2), td:nth-child(2), th:last-child, td:last-child { width: auto; text-align: left; }
.sides { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 0.6rem; margin: 0.6rem 0; }
pre { margin: 0; padding: 0.5rem; background: var(--soft); overflow: auto; contain: paint; font: 0.8rem/1.45 ui-monospace, monospace; }
mark { background: none; color: var(--right); font-weight: 600; } h2 { margin: 1.5rem 0 0.3rem; }
@media (max-width: 34rem) { .sides { grid-template-columns: minmax(0, 1fr); } td { padding: 0 !important; } }
"""
SAYS = (
    "A share says how much of a student's own code stands in the other submission too, up to names, comments and order."
    " It is a reason to read both, not a finding: see the instructor's guide for what it cannot tell."
)


def page(assignment: Assignment, pairs: Sequence[Pair], everybody: int) -> str:
    """The pairs with their passages side by side, complete in one file; nothing of a student is more than text in it."""
    title = f"{assignment.title}: similar submissions"
    shown = pairs[:PAIRS]
    parts = [
        *reports.head(title, STYLE),
        f"<h1>{escape(title)}</h1>",
        f"<p>{len(pairs)} pair{'s' * (len(pairs) != 1)} of {everybody} submissions. {escape(SAYS)}</p>",
        "<table>",
        "<tr><th>Students</th><th>Share of the first</th><th>Share of the second</th></tr>",
    ]
    for number, pair in enumerate(shown, 1):
        shares = "".join(
            f"<td>{percent(share)} of {one.own} tokens</td>"
            for share, one in zip(pair.shares, (pair.first, pair.second), strict=True)
        )
        parts.append(f'<tr><td><a href="#pair{number}">{names(pair)}</a></td>{shares}</tr>')
    parts.append("</table>")
    if len(pairs) > PAIRS:
        parts.append(f"<p>Only the first {PAIRS} are shown; similar.csv has all.</p>")
    for number, pair in enumerate(shown, 1):
        found = passages(pair)
        parts.append(f'<h2 id="pair{number}">{names(pair)}</h2>')
        parts += [
            f'<div class="sides"><pre>{excerpt(pair.first.text, left)}</pre><pre>{excerpt(pair.second.text, right)}</pre></div>'
            for left, right in found[:PASSAGES]
        ]
        if len(found) > PASSAGES:
            parts.append(f"<p>{len(found) - PASSAGES} shorter passages are not shown.</p>")
    return "\n".join([*parts, *reports.FOOT])


def names(pair: Pair) -> str:
    return f"{escape(pair.first.student[:200])} and {escape(pair.second.student[:200])}"


def excerpt(text: str, place: tuple[int, int]) -> str:
    """The lines of a passage, the passage marked."""
    start, end = place
    first, last = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    before, inside, after = text[first:start], text[start:end], text[end : last if last >= 0 else len(text)]
    lines = inside.split("\n")
    if len(lines) > LINES:
        inside, after = "\n".join(lines[:LINES]), f"\n({len(lines) - LINES} more lines)"
    return "{}<mark>{}</mark>{}".format(*(escape(shorten(one)) for one in (before, inside, after)))


def shorten(text: str) -> str:
    """Text whose characters can all be seen, without endless lines."""
    return "\n".join(line if len(line) <= 300 else f"{line[:300]} ..." for line in visible(text).split("\n"))
