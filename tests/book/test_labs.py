"""The labs, each in Chromium from a disk: press run, wait for the end, and look at the score and at the page's own thread.

The page is put together from what the directive writes, so no build is needed; the last tests look at the built book.
Seconds depend on how busy the machine is. So the tests wait long, and what they judge is not a clock: the score, and the
processor's own time in the tasks of the page's thread, which a busy neighbor does not change.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import statistics
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from firefox import told_by_firefox
from page_visit import COLOR_RULES

from rlbook_lib.dynamic_programming import policy_evaluation
from rlbook_lib.maze import Maze

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "_ext"), str(ROOT / "tests")]

from labs import LABS, loading, opening  # noqa: E402
from test_lab_parity import CALLS, CHECKS, MODULES, Engine  # noqa: E402

LAB = ROOT / "_static" / "lab"
WAIT = 240_000  # milliseconds; idle, the longest takes 6,000
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_of_labs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page on the disk that holds all labs and nothing else."""
    return write_page(tmp_path_factory.mktemp("labs"), [(name, {}) for name in LABS])


@pytest.fixture(scope="module")
def page_of_modes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page that holds each lab in each of its modes but the whole one."""
    modes = [(name, {"mode": mode}) for name in LABS for mode in LABS[name] if mode]
    return write_page(tmp_path_factory.mktemp("modes"), modes)


def write_page(folder: Path, labs: list[tuple[str, dict[str, str]]]) -> str:
    frames = "".join(f"<h2>{LABS[name][o.get('mode', '')][0]}</h2>{opening(name, o)}" for name, o in labs)
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Labs</title><style>body {{ max-width: 46rem; margin: 1rem auto; padding: 0 1rem }}</style>"
        f"</head><body><main><h1>Labs</h1>{frames}{loading(LAB.as_uri() + '/')}</main></body></html>"
    )
    (folder / "index.html").write_text(text, "utf-8")
    return (folder / "index.html").as_uri()


class Seen:
    """A page, and everything it asked for and complained about."""

    def __init__(self, page: Any) -> None:
        self.page, self.asked, self.faults = page, [], []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda m: self.faults.append(m.text) if m.type in {"error", "warning"} else None)

    def lab(self, name: str) -> Any:
        return self.page.locator(f'[data-lab="{name}"]')

    def open(self, name: str) -> Any:
        """Open a lab without running it, and wait until it stands there."""
        self.lab(name).locator(".lab-open").click()
        self.ready(self.lab(name))
        return self.lab(name)

    def ready(self, lab: Any) -> None:
        """Wait until a lab stands there and the reader is in it."""
        script = "node => node.querySelector('.lab-code') && !node.hasAttribute('aria-busy')"
        self.page.wait_for_function(script, arg=lab.element_handle(), timeout=WAIT)

    def run(self, name: str, states: str = "solved") -> float:
        """Press run, wait for the end, and return the score."""
        self.lab(name).locator(".lab-run").click()
        return self.wait(name, states)

    def wait(self, name: str, states: str = "solved") -> float:
        script = "([n, s]) => s.split(' ').includes(document.querySelector(`[data-lab=${n}]`).dataset.state)"
        self.page.wait_for_function(script, arg=[name, states], timeout=WAIT, polling=100)
        return float(self.lab(name).get_attribute("data-score"))

    def status(self, name: str) -> str:
        return self.lab(name).locator(".lab-status").inner_text()


@contextlib.contextmanager
def opened(browser: Any, address: str, **options: Any) -> Iterator[Seen]:
    context = browser.new_context(**{"viewport": WIDE, **options})
    context.set_default_timeout(WAIT)
    if not options.get("java_script_enabled", True):
        context.set_default_timeout(15_000)
    seen = Seen(context.new_page())
    try:
        seen.page.goto(address)
        yield seen
        outside = [url for url in seen.asked if not re.match(r"file:|blob:|data:|http://127\.0\.0\.1", url)]
        assert outside == [] and seen.faults == []
    finally:
        context.close()


def processor_ms(browser: Any, seen: Seen, act: Any) -> dict[str, list[float]]:
    """The processor time, in ms, of each task of the page's own thread and of its workers while ``act`` runs."""
    browser.start_tracing(page=seen.page, categories=["toplevel", "devtools.timeline", "__metadata"])
    act()
    # A task is written down when it ends, and an answer leaves before that: only a later task's answer shows the end.
    seen.page.evaluate("() => new Promise(done => setTimeout(done, 20))")
    events = json.loads(browser.stop_tracing())["traceEvents"]
    kinds = {"CrRendererMain": "page", "DedicatedWorker thread": "worker"}
    threads = {(e["pid"], e["tid"]): kinds.get(e["args"]["name"], "") for e in events if e["name"] == "thread_name"}
    found: dict[str, list[float]] = {"page": [], "worker": []}
    for event in events:
        kind = threads.get((event.get("pid"), event.get("tid")))
        if kind and event.get("ph") == "X" and event["name"].endswith("RunTask"):
            found[kind].append(event.get("tdur", 0) / 1000)
    return found


# What takes about 50 ms of the processor on the machine on which the labs were made: a yardstick that goes with a slower one.
FIFTY_MS = "() => { let x = 0; for (let i = 0; i < 5e7; i++) x += i % 7; return x; }"


def is_free(browser: Any, seen: Seen, *runs: dict[str, list[float]]) -> None:
    """The page's own thread had no long task: none took as much of the processor as the yardstick does, in the freer of the runs."""
    spent = min(runs, key=lambda run: max(run["page"]))
    yardstick = max(processor_ms(browser, seen, lambda: seen.page.evaluate(FIFTY_MS))["page"])
    assert yardstick > 10, "the yardstick's own task is missing from the trace"
    assert len(spent["page"]) > 20 and 0 < max(spent["page"]) < yardstick, (max(spent["page"]), yardstick)


# ---------------------------------------------------------------------------------------------------- each lab


def test_nothing_but_one_script_and_a_sheet_is_loaded_before_a_lab_is_touched(browser: Any, page_of_labs: str) -> None:
    with opened(browser, page_of_labs) as seen:
        seen.page.wait_for_timeout(300)
        assert sorted(url.rsplit("/", 1)[1] for url in seen.asked) == ["index.html", "lab.js"]
        assert len(gzip.compress((LAB / "lab.js").read_bytes())) < 1_450
        seen.open("maze")
        loaded = {url.rsplit("/", 1)[1] for url in seen.asked}
        assert "tabular.js" in loaded and not loaded & {"weights.js", "network.js", "ppo.js"}


def test_the_maze_is_solved_and_its_equation_shows_the_numbers(browser: Any, page_of_labs: str) -> None:
    with opened(browser, page_of_labs) as seen:
        assert seen.run("maze") == pytest.approx(8.1, abs=1e-4)  # two discounted moves before the one that is paid
        lab = seen.lab("maze")
        assert "0.90 × 9.00 [B]) = 8.10" in lab.locator(".lab-equation").inner_text()
        lab.get_by_label("The backup takes").select_option("equal chances")
        assert "0.25 × (7.29 + 6.56 + 7.29 + 8.10) = 7.31" in lab.locator(".lab-equation").inner_text()
        lab.get_by_role("button", name="One backup").click()
        assert "was 8.10 and is now 7.31" in seen.status("maze")
        lab.get_by_label("The backup takes").select_option("the best action")
        lab.get_by_role("button", name="Forget the values").click()
        for sweeps, worth in ((1, 0), (2, 0), (3, 8.1)):
            lab.get_by_role("button", name="One sweep").click()
            assert float(lab.get_attribute("data-score")) == pytest.approx(worth)
            assert f"Sweep {sweeps}:" in seen.status("maze")
        lab.get_by_label("Slip").select_option("0.2")
        lab.locator("svg.lab-maze").first.focus()
        seen.page.keyboard.press("ArrowLeft")
        equation = lab.locator(".lab-equation").inner_text()  # up from A, or a slip to its left, is up against the edge
        assert "up    0.90 (0.00 + 0.90 × 8.10 [A]) + 0.10 (0.00 + 0.90 × 9.00 [B]) = 7.37" in equation
        lab.get_by_label("Slip").select_option("0")
        lab.get_by_role("button", name="Forget the values").click()
        seen.run("maze")
        assert "Sweep 5 changes nothing: the values stood after 4, counted from zeros." in seen.status("maze")
        lab.get_by_role("button", name="Forget the values").click()
        for _ in range(8):
            lab.get_by_role("button", name="One round of policy iteration").click()
        assert "Round 8: the values of the arrows that stood there." in seen.status("maze")
        assert "optimal" in seen.status("maze") and lab.get_attribute("data-score") == "8.1"


def test_the_maze_is_painted_by_mouse_touch_and_keyboard(browser: Any, page_of_labs: str) -> None:
    with opened(browser, page_of_labs, viewport=NARROW, has_touch=True) as seen:
        assert seen.run("maze") == pytest.approx(8.1, abs=1e-4)
        lab, picture = seen.lab("maze"), seen.lab("maze").locator("svg.lab-maze").first
        lab.get_by_text("The maze", exact=True).tap()  # the settings are folded on a phone
        box = picture.bounding_box()
        cell = lambda s: {"x": box["width"] * (s % 3 + 0.5) / 3, "y": box["height"] * (s // 3 + 0.5) / 2}
        lab.get_by_role("button", name="builds a wall").click()
        picture.tap(position=cell(1))
        assert seen.status("maze").startswith("B is now wall")
        lab.get_by_role("button", name="clears it").click()
        picture.click(position=cell(4))
        assert seen.status("maze").startswith("E is now free")
        assert seen.run("maze") == pytest.approx(8.1, abs=1e-4)  # around the wall: down, right, right
        lab.get_by_text("The maze", exact=True).tap()
        lab.get_by_label("Reward to set").select_option("-1")
        lab.get_by_role("button", name="sets its reward to").click()
        picture.focus()
        for key in ("ArrowUp", "ArrowLeft", "ArrowDown", "Enter"):  # E, then to D over B and A
            seen.page.keyboard.press(key)
        assert "D is now free, and entering it pays -1" in seen.status("maze")
        assert seen.run("maze") == pytest.approx(7.1, abs=1e-4)
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]


def test_four_learners_find_the_value_side_by_side(browser: Any, page_of_labs: str) -> None:
    with opened(browser, page_of_labs) as seen:
        lab = seen.open("maze")
        lab.get_by_label("Speed").select_option("very quick")
        script = (
            "() => [...document.querySelectorAll('.lab-four .lab-small')].every(p => parseInt(p.textContent) > 200)"
        )

        def learn() -> None:
            lab.get_by_role("button", name="Let all four learn").click()
            seen.page.wait_for_function(script, timeout=WAIT, polling=100)

        spent = processor_ms(browser, seen, learn)
        is_free(browser, seen, spent)
        # three of them explore at a constant step size, so that each swings for ever: what counts is its middle
        found: dict[str, list[float]] = {}
        for _ in range(15):
            words = lab.locator("svg.lab-curves").get_attribute("aria-label")
            for name, value in re.findall(r"(Q-learning|SARSA|Monte Carlo|SARSA\(λ\)) (-?[\d.]+) after", words):
                found.setdefault(name, []).append(float(value))
            seen.page.wait_for_timeout(100)
        lab.get_by_role("button", name="Pause the learners").click()
        middle = {name: statistics.median(values) for name, values in found.items()}
        assert len(middle) == 4 and middle["Q-learning"] == pytest.approx(
            8.1, abs=0.05
        )  # no slip: it comes to V* itself
        assert all(3 < value < 8.11 for value in middle.values()), found
        before = lab.locator(".lab-four").inner_text()
        seen.page.wait_for_timeout(300)
        assert lab.locator(".lab-four").inner_text() == before  # paused


def test_cartpole_is_solved_in_a_worker_that_leaves_the_page_free(browser: Any, page_of_labs: str) -> None:
    with opened(browser, page_of_labs) as seen:
        lab = seen.open("cartpole")
        lab.get_by_label("Seeds", exact=True).select_option("1")
        lab.get_by_label("epochs").nth(1).select_option("6")
        spent = processor_ms(browser, seen, lambda: seen.run("cartpole"))
        assert 475 <= float(lab.get_attribute("data-score")) <= 500
        assert sum(spent["page"]) < sum(spent["worker"]) / 2  # the work is the worker's
        assert "1 of 1 seeds solved" in seen.status("cartpole")
        steps = [int(n.replace(",", "")) for n in re.findall(r"after ([\d,]+) steps", seen.status("cartpole"))]
        assert len(steps) == 2 and all(
            8_000 < n < 150_000 for n in steps
        )  # nobody can solve it in fewer: 20 whole episodes
        again = processor_ms(browser, seen, lambda: seen.run("cartpole"))  # its seed makes the same run again
        is_free(browser, seen, spent, again)
        assert steps == [int(n.replace(",", "")) for n in re.findall(r"after ([\d,]+) steps", seen.status("cartpole"))]


def test_cartpole_pauses_steps_and_stops(browser: Any, page_of_labs: str) -> None:
    with opened(browser, page_of_labs) as seen:
        lab = seen.open("cartpole")
        lab.get_by_role("button", name="One round").click()
        line = lab.locator(".lab-pair .lab-small").first
        seen.page.wait_for_function(
            "() => document.querySelector('.lab-pair .lab-small').textContent.includes('1,024 steps')", timeout=WAIT
        )
        seen.page.wait_for_timeout(300)
        assert "1,024 steps" in line.inner_text()  # one update, and not a second
        lab.get_by_role("button", name="One round").click()
        seen.page.wait_for_function(
            "() => document.querySelector('.lab-pair .lab-small').textContent.includes('2,048 steps')", timeout=WAIT
        )
        lab.get_by_role("button", name="Stop").click()
        assert lab.get_attribute("data-state") == "stopped"
        for method in (
            "DQN",
            "TRPO",
            "plain direction",
            "plain step",
            "A2C",
            "REINFORCE with a baseline",
            "DQN without its memory",
            "DQN without its target network",
        ):
            lab.get_by_label("Method").first.select_option(method)
            lab.locator(".lab-run").click()
            seen.page.wait_for_function(
                "() => / [1-9],?\\d* episodes;/.test(document.querySelector('.lab-pair .lab-small').textContent)",
                timeout=WAIT,
            )
            lab.get_by_role("button", name="Stop").click()


# The score and the table of the update that solves a lab: a run that goes on may fall back before anybody looks.
KEEP = """root => new MutationObserver((_, observer) => {
  if (root.dataset.state !== "solved") return;
  observer.disconnect();
  root.kept = [+root.dataset.score, [...root.querySelectorAll("tbody tr")].map(row => [...row.children].map(cell => cell.textContent))];
}).observe(root, {attributeFilter: ["data-state"]})"""


def test_the_language_model_learns_to_write_its_work(browser: Any, page_of_labs: str) -> None:
    with opened(browser, page_of_labs) as seen:
        lab = seen.open("language")
        lab.evaluate(KEEP)
        spent = processor_ms(browser, seen, lambda: seen.run("language"))
        is_free(browser, seen, spent)
        score, rows = lab.evaluate("root => root.kept")
        assert 0.8 <= score <= 1
        assert sum(spent["page"]) < sum(spent["worker"]) / 2  # the work is the worker's
        assert len(rows) == 6
        assert (
            sum(len(row[1]) for row in rows) < 18 < 36 < sum(len(row[2]) for row in rows)
        )  # at once, then with its work
        assert sum(row[2] == row[5] for row in rows) >= 3


def test_a_rule_of_ones_own_is_followed_and_a_wrong_one_is_named(browser: Any, page_of_labs: str) -> None:
    with opened(browser, page_of_labs) as seen:
        lab = seen.open("language")
        lab.get_by_label("Rewarded is").select_option("one of your own")
        rule = lab.get_by_label("The rule, as an expression in JavaScript")
        rule.fill("right +")
        lab.locator(".lab-run").click()
        assert "cannot be read" in seen.status("language") and lab.get_attribute("data-state") == "stopped"
        rule.fill("nothing + 1")
        lab.locator(".lab-run").click()
        seen.page.wait_for_function(
            "() => document.querySelector('[data-lab=language] .lab-status').textContent.includes('broke off')",
            timeout=WAIT,
        )
        assert "nothing is not defined" in seen.status("language")
        rule.fill("text.length / 10")
        lab.locator(".lab-run").click()
        script = "() => [...document.querySelectorAll('[data-lab=language] tbody tr')].filter(r => r.children[2].textContent.length >= 10).length >= 5"
        seen.page.wait_for_function(script, timeout=WAIT, polling=100)
        assert float(lab.get_attribute("data-score")) < 0.3  # it gets what it is paid for
        lab.get_by_role("button", name="Stop").click()


def test_the_reader_walks_by_keys_swipes_and_buttons_and_is_remembered_until_told_to_forget(
    browser: Any, page_of_labs: str
) -> None:
    with opened(browser, page_of_labs, viewport=NARROW, has_touch=True) as seen:
        lab = seen.open("agent")
        picture = lab.locator("svg.lab-maze").first
        assert "15 of 16 cells are unknown" in picture.get_attribute(
            "aria-label"
        )  # real fog: no picture shows this maze
        lab.get_by_text("The maze", exact=True).click()
        lab.get_by_label("Maze", exact=True).select_option("six cells")
        lab.get_by_text("The maze", exact=True).click()
        picture.focus()
        assert "5 of 6 cells are unknown" in picture.get_attribute("aria-label")
        assert "not walked here yet" in lab.inner_text()
        seen.page.keyboard.press("ArrowRight")  # the maze has the keys as soon as the lab is open
        assert "you are now in B" in seen.status("agent")
        lab.get_by_role("button", name="right").click()
        seen.page.keyboard.press("ArrowLeft")  # and after a click
        seen.page.keyboard.press("ArrowRight")
        lab.get_by_role("button", name="Back to the start").click()
        for _ in range(2):
            lab.get_by_role("button", name="right").click()
        box = picture.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + 30
        seen.page.mouse.move(x, y)
        seen.page.mouse.down()
        seen.page.mouse.move(x, y + 90)
        seen.page.mouse.up()  # a swipe down, from C to the goal
        assert float(lab.get_attribute("data-score")) == pytest.approx(8.1, abs=1e-4)
        assert lab.get_attribute("data-state") == "solved" and "Your walks so far: 1." in lab.inner_text()
        assert "seems worth" not in lab.inner_text()
        lab.get_by_text("The maze", exact=True).click()
        for unknown in (2, 0, 2):  # one walks on in fog; the map is shown when it is asked for
            assert f"{unknown} of 6 cells are unknown" in picture.get_attribute("aria-label")
            lab.get_by_role("button", name="Lift the fog").click()
        lab.get_by_role("button", name="Lift the fog").click()
        for key in ("ArrowDown", "ArrowRight"):
            picture.press(key)
        assert float(lab.get_attribute("data-score")) == pytest.approx(-9.0, abs=1e-4)  # the trap, one discount later
        lab.get_by_text("What do the walks say").click()
        assert "seems worth" not in lab.inner_text()  # a guess first
        lab.get_by_role("button", name="Monte Carlo").click()
        lab.get_by_text("seems worth").first.wait_for()
        start = [float(x) for x in re.findall(r"The start seems worth (-?[\d.]+\d)", lab.inner_text())]
        higher = "TD" if start[1] > start[0] else "Monte Carlo"
        assert start[0] != start[1] and f"You guessed: Monte Carlo. It is: {higher}." in lab.inner_text()
        assert "The start seems worth -0.45." in lab.inner_text()  # Monte Carlo: the mean of 8.1 and -9
        seen.page.reload()
        seen.open("agent")
        assert "Your walks so far: 2." in lab.inner_text()  # where one walked last, there one stands
        assert seen.page.evaluate("Object.keys(localStorage)") == ["rlbook-walks"]
        lab.get_by_text("The maze", exact=True).click()
        lab.get_by_role("button", name="Forget my walks").click()
        assert seen.page.evaluate("localStorage.length") == 0 and "not walked here yet" in lab.inner_text()


def test_someone_else_walks_to_the_goal_and_is_not_taken_for_the_reader(browser: Any, page_of_labs: str) -> None:
    with opened(browser, page_of_labs) as seen:
        assert 0 < seen.run("agent") <= 8.1
        assert "The walks that you watched so far" in seen.lab("agent").inner_text()
        assert "not walked here yet" not in seen.lab("agent").inner_text()
        assert seen.page.evaluate("localStorage.length") == 0


def test_every_mode_does_its_part(browser: Any, page_of_modes: str) -> None:
    with opened(browser, page_of_modes, reduced_motion="reduce") as seen:

        def lab(name: str, mode: str) -> Any:
            return seen.page.locator(f'[data-lab="{name}"][data-mode="{mode}"]')

        def solved(name: str, mode: str) -> float:
            lab(name, mode).locator(".lab-run").click()
            script = "([n, m]) => document.querySelector(`[data-lab=${n}][data-mode=${m}]`).dataset.state === 'solved'"
            seen.page.wait_for_function(script, arg=[name, mode], timeout=WAIT, polling=100)
            return float(lab(name, mode).get_attribute("data-score"))

        world = Maze("L1").to_mdp(0.9)
        random_walker = policy_evaluation(world, np.full((6, 4), 0.25))
        assert solved("maze", "backup") == pytest.approx(random_walker[0], abs=1e-4)
        assert lab("maze", "backup").get_by_role("button", name="policy iteration").count() == 0
        assert solved("maze", "plan") == pytest.approx(8.1, abs=1e-4)
        assert solved("maze", "learn") == pytest.approx(8.1, rel=0.05)
        assert lab("maze", "learn").get_by_role("button", name="One sweep").count() == 0

        walker = lab("agent", "walk")
        walker.locator(".lab-open").click()
        seen.ready(walker)
        walker.get_by_label("Maze", exact=True).select_option("six cells")
        for move in ("right", "right", "down"):
            walker.get_by_role("button", name=move).click()
        assert "The shortest way to the goal took 3 steps." in walker.inner_text()
        assert "shortest way there is" not in walker.inner_text()
        walker.get_by_text("Is there a shorter way?").click()
        walker.get_by_text("The shortest way there is takes 3 steps.").wait_for()
        assert "worth" not in walker.inner_text()
        walker.get_by_role("button", name="Forget my walks").click()

        walks = lab("agent", "learn")
        mean = solved("agent", "learn")  # a stranger's walks, always the same
        hidden = walks.locator("svg.lab-maze").nth(0).get_attribute("aria-label")
        assert "Guess first, above" in walks.inner_text() and "after your guess" in hidden
        walks.get_by_role("button", name="TD").click()
        start = re.search(r"The start: (-?[\d.]+) says Monte Carlo, (-?[\d.]+) says TD", walks.inner_text())
        higher = "TD" if float(start[2]) > float(start[1]) else "Monte Carlo"
        assert f"You guessed: TD. It is: {higher}." in walks.inner_text()
        assert "Six walks of a stranger" in walks.inner_text() and -9 < mean < 8.1
        for _ in range(2):  # the start, and then B: what its numbers were made of
            walks.locator("svg.lab-maze").nth(0).press("ArrowRight")
        made = walks.inner_text()
        returns = [float(G) for G in re.findall(r"walk \d: (-?[\d.]+\d)", made)]
        shown = re.search(r"B (-?[\d.]+),", walks.locator("svg.lab-maze").nth(0).get_attribute("aria-label"))
        assert "Cell B. Monte Carlo: the mean of" in made and float(shown[1]) == pytest.approx(
            np.mean(returns), abs=0.02
        )
        assert sum(int(share) for share in re.findall(r"(\d+) %", made)) == pytest.approx(100, abs=2)
        before = walks.locator("svg.lab-maze").nth(0).get_attribute("aria-label")
        once = walks.locator("svg.lab-maze").nth(1).get_attribute("aria-label")
        assert solved("agent", "learn") == mean  # the same walks again: Monte Carlo stays, TD goes on
        assert walks.locator("svg.lab-maze").nth(0).get_attribute("aria-label") == before
        assert walks.locator("svg.lab-maze").nth(1).get_attribute("aria-label") != once
        assert 0.9 * 8.1 < solved("agent", "pull") < 8.1

        judge = lab("language", "judge")  # thumbs for the longer answer make a judge that pays for length
        judge.locator(".lab-open").click()
        seen.ready(judge)
        for _ in range(6):
            judge.locator(".lab-answer").evaluate_all(
                "([a, b]) => (a.textContent.length > b.textContent.length ? a : b).click()"
            )
        assert re.search(r"After 6 thumbs your judge pays for length 0\.[3-9]", judge.inner_text())
        judge.locator(".lab-run").click()
        judge.get_by_text("Under your judge, 55 updates").wait_for()
        before, after = re.search(r"right (\d+) % -> (\d+) %", judge.inner_text()).groups()
        assert int(before) > 60 and int(after) < 50  # it was taught what is right first

        # one walk of the reader's own takes their place: right, right, down
        step = lambda state, action, after, pays: (
            f'{{"state":{state},"action":{action},"reward":{pays},"nextState":{after},"terminated":{str(pays > 0).lower()},"truncated":false}}'
        )
        walk = ",".join((step(0, 3, 1, 0), step(1, 3, 2, 0), step(2, 1, 5, 10)))
        seen.page.evaluate(
            "walk => localStorage.setItem('rlbook-walks', walk)", f'{{"six cells":[[{walk}],[{{"state":99}}]]}}'
        )
        seen.page.reload()
        assert (
            solved("agent", "learn") == pytest.approx(8.1)
            and "One walk of yours, in the maze of six cells" in walks.inner_text()
        )
        pull = lab("agent", "pull")
        pull.locator(".lab-open").click()
        seen.ready(pull)
        pull.get_by_role("button", name="One walk").click()
        assert "A B C F. The first choice, right in A: 8.10 × (1 − 0.25) = 6.07" in pull.inner_text()
        pull.get_by_role("button", name="Forget my walks").click()
        assert "stranger" in pull.inner_text() and seen.page.evaluate("localStorage.length") == 0


def test_choices_make_strengths_and_can_be_taken_back(browser: Any, page_of_labs: str) -> None:
    with opened(browser, page_of_labs) as seen:
        lab = seen.open("people")
        assert "Nobody has chosen yet" in seen.status("people")
        lab.locator(".lab-answer").first.click()
        assert "1 choice so far" in lab.inner_text() and "No largest likelihood yet" in seen.status("people")
        lab.get_by_role("button", name="Take back").click()
        assert "0 choices so far" in lab.inner_text()
        lab.locator(".lab-run").click()
        assert "100 choices so far" in lab.inner_text() and re.search(r"\w leads \w by r = ", seen.status("people"))
        for row in lab.locator("tbody tr").all():  # at the maximum as many wins as the strengths expect
            *_, wins, expected = row.locator("td").all_inner_texts()
            assert float(expected) == pytest.approx(float(wins), abs=1e-3)


@pytest.mark.parametrize("mode", [(name, mode) for name in LABS for mode in LABS[name]], ids="-".join)
def test_on_a_phone_run_shows_what_it_does(browser: Any, tmp_path: Path, mode: tuple[str, str]) -> None:
    """Without scrolling: the button and the first result below it, with the settings between them folded."""
    address = write_page(tmp_path, [(mode[0], {"mode": mode[1]} if mode[1] else {})])
    with opened(browser, address, viewport=NARROW, has_touch=True) as seen:
        seen.page.add_style_tag(content="h2 { margin-top: 400px } main { padding-bottom: 1500px }")
        lab = seen.lab(mode[0])
        lab.locator(".lab-run").tap()
        seen.ready(lab)
        seen.page.wait_for_timeout(300)
        assert lab.locator(".lab-fold[open]").count() == 0
        lab.evaluate("node => node.querySelectorAll('.lab-fold').forEach(fold => { fold.open = true; })")
        low = (
            "nodes => nodes.filter(n => n.offsetParent && n.getBoundingClientRect().height < 40).map(n => n.outerHTML)"
        )
        assert lab.locator("button, select, summary, input").evaluate_all(low) == []  # for a finger
        lab.evaluate("node => node.querySelectorAll('.lab-fold').forEach(fold => { fold.open = false; })")
        wide = "nodes => nodes.filter(n => n.scrollWidth > n.clientWidth).length"
        assert lab.locator(".lab-scroll").evaluate_all(wide) == 0
        for part in (".lab-run", ".lab-status", ".lab-maze, .lab-pair svg, .lab-scroll"):
            box = lab.locator(part).locator("visible=true").first.bounding_box()
            assert 0 <= box["y"] and box["y"] + box["height"] <= NARROW["height"], (part, box)


def test_the_focus_stays_where_enter_was_pressed(browser: Any, page_of_labs: str, page_of_modes: str) -> None:
    for address in (page_of_labs, page_of_modes):
        with opened(browser, address) as seen:
            for k in range(seen.page.locator("[data-lab]").count()):
                lab = seen.page.locator("[data-lab]").nth(k)
                lab.locator(".lab-open").press("Enter")
                seen.ready(lab)
                assert lab.evaluate("node => node.contains(document.activeElement)")
                for button in lab.get_by_role("button").element_handles():
                    if button.is_visible() and button.is_enabled():
                        button.press("Enter")
                        assert button.evaluate("node => node === document.activeElement"), button.inner_text()


def test_the_mazes_of_the_walks_are_sound(browser: Any, page_of_labs: str) -> None:
    """Sixteen cells, three walls, a trap, and a way to the goal of at least five moves: by breadth first, not by values."""
    with opened(browser, page_of_labs) as seen:
        seen.open("agent")
        worlds = seen.page.evaluate("lab.use('walks').WORLDS")
    assert len(worlds) == 9 and len({"/".join(rows) for rows in worlds.values()}) == 9
    for name, rows in worlds.items():
        world = {(i, j): kind for i, row in enumerate(rows) for j, kind in enumerate(row)}
        if name == "six cells":
            continue
        assert sorted(world.values()) == sorted("###.......STG" + "...")
        reached = [next(cell for cell, kind in world.items() if kind == "S")]
        moves = {reached[0]: 0}
        for i, j in reached:
            for there in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
                if world.get(there, "#") in ".G" and there not in moves:
                    moves[there] = moves[(i, j)] + 1
                    if world[there] == ".":
                        reached.append(there)
        goal = next(cell for cell, kind in world.items() if kind == "G")
        assert moves.get(goal, 0) >= 5, name


def test_a_link_opens_a_lab_sets_it_and_runs_it(browser: Any, page_of_labs: str) -> None:
    cells = "cells=S../.TG 0:-20 1:-20 2:-20 3:-20"
    with opened(browser, f"{page_of_labs}#lab-maze:{cells}&discount=0.9&run") as seen:
        assert seen.wait("maze") == pytest.approx(-29, abs=1e-4)  # into the trap: a price, then ten, discounted
        lab = seen.lab("maze")
        lab.get_by_label("Slip").select_option("0.2")
        lab.get_by_text("A link to these settings").click()
        link = seen.page.url
        assert (
            "slip=0.2" in link and "cells=" in link and "discount" not in link
        )  # only what differs from the page's own
        seen.page.goto("about:blank")
        seen.page.goto(link)
        seen.page.wait_for_function("() => document.querySelector('[data-lab=maze] [data-key=slip]')?.value === '0.2'")
        seen.page.evaluate("location.hash = '#lab-maze:slip=7&layout=nowhere&cells=S<b>&run'")  # what nobody can choose
        assert seen.wait("maze") == pytest.approx(8.1, abs=1e-4)
        assert lab.get_by_label("Slip").input_value() == "0"


def test_a_link_may_start_the_learners(browser: Any, page_of_labs: str) -> None:
    with opened(browser, f"{page_of_labs}#lab-maze:exploration=0.5&run=learners") as seen:
        lab = seen.lab("maze")
        lab.get_by_role("button", name="Pause the learners").wait_for()
        assert lab.get_by_label("Exploration").input_value() == "0.5"
        walked = "() => [...document.querySelectorAll('.lab-four .lab-small')].every(p => parseInt(p.textContent) > 3)"
        seen.page.wait_for_function(walked, timeout=WAIT)
        assert 0 <= lab.get_by_role("button", name="Pause the learners").bounding_box()["y"] < WIDE["height"] / 2
        lab.get_by_role("button", name="Pause the learners").click()


def test_a_change_counts_at_once_and_the_run_before_stays_in_gray(browser: Any, page_of_labs: str) -> None:
    with opened(browser, page_of_labs) as seen:
        lab = seen.open("cartpole")
        lab.get_by_label("Seeds", exact=True).select_option("1")
        lab.get_by_label("epochs").nth(1).select_option("6")
        lab.get_by_label("clip ε").nth(1).select_option("0.3")  # now both sides are the same
        lab.get_by_role("button", name="One round").click()
        steps = "n => [...document.querySelectorAll('.lab-pair .lab-small')].filter(p => p.textContent.includes(n)).length > 1"
        seen.page.wait_for_function(steps, arg="1,024 steps", timeout=WAIT)
        lengths = lambda: [float(kl) for kl in re.findall(r"KL ([\d.]+),", lab.inner_text())]
        assert len(lengths()) == 2 and len(set(lengths())) == 1
        lab.get_by_label("learning rate", exact=True).first.select_option("0.1")
        assert "Left: learning rate 0.1 from here on" in lab.inner_text()
        lab.get_by_role("button", name="One round").click()
        seen.page.wait_for_function(steps, arg="2,048 steps", timeout=WAIT)
        assert len(kl := lengths()) == 2 and kl[0] > 1.1 * kl[1]  # the left side's rate was fourteen times the right's
        assert lab.locator(".lab-curves .lab-gray").count() == 0
        lab.get_by_role("button", name="Stop").click()
        lab.get_by_role("button", name="One round").click()
        lab.get_by_text("before, left: PPO, then learning rate 0.1").wait_for()
        assert lab.locator(".lab-curves .lab-gray").count() == 2
        lab.get_by_role("button", name="Stop").click()

        lab = seen.open("language")
        lab.get_by_role("button", name="Five updates").click()
        lab.get_by_label("Rewarded is").select_option("minus its length")
        assert "From update 0 on: minus its length." in lab.inner_text()
        for _ in range(5):
            lab.get_by_role("button", name="Five updates").click()
            seen.page.wait_for_timeout(400)
        seen.page.wait_for_function(
            "() => [...document.querySelectorAll('[data-lab=language] tbody tr')].filter(r => r.children[2].textContent.length <= 3).length >= 5",
            timeout=WAIT,
        )
        lab.get_by_role("button", name="Stop").click()


def test_learners_go_on_in_a_maze_that_changes(browser: Any, page_of_labs: str) -> None:
    with opened(browser, page_of_labs) as seen:
        lab = seen.open("maze")
        lab.get_by_label("Speed").select_option("very quick")
        lab.get_by_role("button", name="Let all four learn").click()
        found = "x => Math.abs(+document.querySelector('[data-lab=maze]').dataset.score - x) < 0.05"
        seen.page.wait_for_function(found, arg=8.1, timeout=WAIT)
        picture = lab.locator("svg.lab-maze").first
        box = picture.bounding_box()
        lab.get_by_role("button", name="sets a goal").click()
        picture.click(position={"x": box["width"] / 2, "y": box["height"] / 4})  # B, next to the start
        seen.page.wait_for_function(found, arg=10, timeout=WAIT)
        assert lab.get_by_role("button", name="Pause the learners").count() == 1
        lab.get_by_role("button", name="Pause the learners").click()


PRESS_ANYTHING = """([name, seed]) => {
  const root = document.querySelector(`[data-lab=${name}]`), rng = lab.use("random").generator(seed);
  const pick = list => list[Math.floor(rng() * list.length)];
  const control = pick([...root.querySelectorAll("button, select, input")].filter(node => node.offsetParent));
  if (control.tagName === "BUTTON") { control.click(); return control.textContent; }
  if (control.tagName === "SELECT") control.value = pick([...control.options]).value;
  else control.value = pick([control.min, control.max, "", "7", control.defaultValue]);
  control.dispatchEvent(new Event("change"));
  return control.parentNode.textContent + control.value;
}"""


@pytest.mark.parametrize("name", LABS)
def test_presses_in_any_order_leave_a_lab_that_works(browser: Any, page_of_labs: str, name: str) -> None:
    with opened(browser, page_of_labs) as seen:
        lab = seen.open(name)
        for seed in range(60):
            seen.page.evaluate(PRESS_ANYTHING, [name, seed])
            seen.page.wait_for_timeout(30)
            assert lab.get_attribute("data-state") in {"running", "stopped", "solved"} and seen.faults == []
        for text in ("NaN", "undefined", "Infinity"):
            assert text not in lab.inner_text()


# ----------------------------------------------------------------------------------------- where things are missing


def test_without_a_worker_the_page_works_itself_in_slices(browser: Any, page_of_labs: str) -> None:
    with opened(browser, page_of_labs) as seen:
        seen.page.evaluate("window.Worker = undefined")
        lab = seen.open("cartpole")
        lab.get_by_label("Seeds", exact=True).select_option("1")
        lab.get_by_label("epochs").nth(1).select_option("6")
        assert 475 <= seen.run("cartpole") <= 500


def test_a_lab_out_of_sight_waits(browser: Any, page_of_labs: str) -> None:
    with opened(browser, page_of_labs) as seen:
        lab = seen.open("language")
        lab.get_by_label("Rewarded is").select_option("minus its length")
        lab.locator(".lab-run").click()
        lab.evaluate(
            "node => { node.after(Object.assign(document.createElement('div'), { style: 'height: 5000px', id: 'far' })); }"
        )
        seen.page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        seen.page.wait_for_timeout(800)
        before = seen.status("language")
        seen.page.wait_for_timeout(1500)
        assert seen.status("language") == before and lab.get_attribute("data-state") == "running"
        lab.scroll_into_view_if_needed()
        seen.page.wait_for_function(
            "text => document.querySelector('[data-lab=language] .lab-status').textContent !== text",
            arg=before,
            timeout=WAIT,
        )


def test_with_less_motion_the_maze_is_swept_at_once_and_carts_stand_still(browser: Any, page_of_labs: str) -> None:
    with opened(browser, page_of_labs, reduced_motion="reduce") as seen:
        assert seen.run("maze") == pytest.approx(8.1, abs=1e-4)
        lab = seen.open("cartpole")
        cart = lab.locator(".lab-pair svg g").first
        before = cart.get_attribute("transform")
        lab.locator(".lab-run").click()
        seen.page.wait_for_function(
            "() => document.querySelector('.lab-pair .lab-small').textContent.includes('episodes')", timeout=WAIT
        )
        seen.page.wait_for_timeout(400)
        assert cart.get_attribute("transform") == before
        lab.get_by_role("button", name="Stop").click()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_lab_is_open_to_assistive_technology(
    browser: Any, page_of_labs: str, page_of_modes: str, theme: Any
) -> None:
    axe = (Path(__file__).parent / "vendor" / "axe.min.js").read_text("utf-8")
    # the theme changes colors and nothing else
    rules = {} if theme == "light" else {"runOnly": {"type": "rule", "values": COLOR_RULES}}
    places = [(page_of_labs, WIDE), (page_of_labs, NARROW), (page_of_modes, NARROW)]
    for address, viewport in places if theme == "light" else places[1:]:
        with opened(browser, address, color_scheme=theme, viewport=viewport) as seen:
            colors = "#14181e;color:#ced6dd" if theme == "dark" else "#fff;color:#222"
            seen.page.add_style_tag(content=f"body{{background:{colors}}}")
            while seen.page.locator(".lab-open").count():
                lab = seen.page.locator("[data-lab]:has(.lab-open)").first
                run = lab.locator(".lab-open").element_handle()
                lab.locator(".lab-open").click()
                seen.page.wait_for_function(
                    "node => !node.isConnected && !document.querySelector('[aria-busy]')", arg=run
                )
            seen.page.evaluate("document.querySelectorAll('.lab-fold').forEach(fold => { fold.open = true; })")
            seen.page.evaluate(axe)
            found = seen.page.evaluate(
                "rules => axe.run(document, { preload: false, ...rules }).then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html.slice(0, 120))]))",
                rules,
            )
            assert found == []
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


# ---------------------------------------------------------------------------------- the same numbers, in each browser


class Asking(Engine):
    """The engine in V8, which writes down what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[Any]] = []

    def __call__(self, name: str, *arguments: Any) -> Any:
        plain = json.loads(json.dumps(arguments, default=lambda x: x.tolist() if hasattr(x, "tolist") else list(x)))
        self.asked.append([name, plain])
        return super().__call__(name, *plain)


def all_questions() -> list[list[Any]]:
    """What the parity tests ask; in a thread of its own, because V8 in Python would wait for the browser's event loop."""
    with Asking() as engine:
        for check in CHECKS.values():
            check(engine)
    return engine.asked


@pytest.fixture(scope="module")
def parity() -> str:
    """A page that computes all that the parity tests ask of the engine; `answers` are its numbers."""
    asked = ThreadPoolExecutor(1).submit(all_questions).result(timeout=600)
    scripts = [(LAB / f"{name}.js").read_text("utf-8") for name in ("lab", *MODULES, "weights")]
    ask = f"const asked = {json.dumps(asked)};\nconst answers = JSON.stringify(asked.map(([name, values]) => calls[name](...values)));"
    parts = "".join(f"<script>{text}</script>" for text in (*scripts, CALLS, ask))
    return f'<!doctype html><meta charset="utf-8"><title>Parity</title>{parts}'


def agree(answers: str) -> None:
    """What a browser computed is what the library computes, by the very same checks."""
    given = iter(json.loads(answers))
    for check in CHECKS.values():
        check(lambda *_: next(given))  # type: ignore[arg-type]
    assert next(given, None) is None


def test_the_engine_computes_the_same_in_chromium(browser: Any, parity: str, tmp_path: Path) -> None:
    (tmp_path / "parity.html").write_text(parity, "utf-8")
    with opened(browser, (tmp_path / "parity.html").as_uri()) as seen:
        agree(seen.page.evaluate("answers"))


# ------------------------------------------------------------------------------------------------- another browser


PRESS = """<script>
addEventListener("load", async () => {
  const found = {};
  for (const root of document.querySelectorAll("[data-lab]")) {
    root.scrollIntoView();
    const solved = new Promise(done => new MutationObserver(() => {
      if (root.dataset.state === "solved") done(+root.dataset.score);  // now: a run that goes on may fall back
    }).observe(root, {attributeFilter: ["data-state"]}));
    root.querySelector(".lab-run").click();
    found[root.dataset.lab] = await solved;
  }
  const frame = Object.assign(document.createElement("iframe"), {src: "parity.html"});
  frame.onload = () => tell([found, frame.contentWindow.answers]);
  document.body.append(frame);
});
</script>"""


def test_firefox_solves_every_lab_and_computes_the_same(tmp_path: Path, parity: str) -> None:
    """A page presses every run button itself; a second one computes."""
    shutil.copytree(LAB, tmp_path / "lab")
    (tmp_path / "parity.html").write_text(f"{parity}<script>window.answers = answers;</script>", "utf-8")
    page = f"<title>Labs</title><body>{loading('lab/')}{''.join(opening(name) for name in LABS)}{PRESS}"
    found, answers = told_by_firefox(tmp_path, page, tmp_path / "profile")
    assert set(found) == set(LABS), found
    assert found["maze"] == pytest.approx(8.1, abs=1e-4) and 0 < found["agent"] <= 8.1
    assert 475 <= found["cartpole"] <= 500 and 0.8 <= found["language"] <= 1
    agree(answers)


# -------------------------------------------------------------------------------------------------- the built book


@pytest.mark.site
def test_the_page_of_the_book_holds_every_lab_and_runs_it(browser: Any, site: Path) -> None:
    with opened(browser, (site / "chapters" / "laboratory.html").as_uri()) as seen:
        held = seen.page.locator("[data-lab]").evaluate_all("nodes => nodes.map(node => node.dataset.lab)")
        assert set(held) == set(LABS)
        assert seen.run("maze") == pytest.approx(8.1, abs=1e-4)


@pytest.mark.site
def test_every_lab_in_a_lesson_opens_with_its_settings(browser: Any, site: Path) -> None:
    """No fault, no sentence about one, and the settings that the directive names stand in the controls."""
    pages = [path for path in sorted((site / "chapters").glob("*.html")) if 'data-lab="' in path.read_text("utf-8")]
    for path in pages:
        with opened(browser, path.as_uri()) as seen:
            for k in range(seen.page.locator("[data-lab]").count()):
                lab = seen.page.locator("[data-lab]").nth(k)
                lab.locator(".lab-open").click()
                seen.ready(lab)
                assert "did not start" not in lab.inner_text()
                sides = [lab.get_attribute(f"data-{side}") for side in ("left", "right")]
                chosen = lab.get_by_label("Method", exact=True).evaluate_all("nodes => nodes.map(node => node.value)")
                assert chosen in ([(side or "").split(",")[0] for side in sides], ["PPO", "PPO"], [])


@pytest.mark.site
def test_pages_without_a_lab_load_nothing_of_it(site: Path) -> None:
    holders = [
        path.stem
        for path in site.rglob("*.html")
        if "_static/lab/" in path.read_text("utf-8") and "_static" not in path.parts
    ]
    lessons = [path.stem for path in (ROOT / "chapters").glob("*.ipynb") if "```{lab}" in path.read_text("utf-8")]
    assert sorted(holders) == sorted([*lessons, "laboratory"]) and len(lessons) >= 9
    assert "lab-maze" not in "".join(path.read_text("utf-8") for path in (site / "_static").glob("*.css"))
