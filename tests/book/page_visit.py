"""Open a page in Chromium once and note everything that the tests ask about it.

``visit`` returns a ``Visit``: plain facts, no judgement. The tests in ``test_pages.py`` judge them, and ``test_guards.py``
shows with broken pages that the same functions notice.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import http.server
import re
import statistics
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Locator, Page

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
# What depends on colors is checked again on the dark page; the rest of axe's rules see no theme.
COLOR_RULES = ["color-contrast", "link-in-text-block"]
CODE_BLOCKS = 8
PICTURE_HEIGHT = 5000  # of a very long page, the first part is kept as a picture


@dataclass
class Visit:
    """What was seen on one page."""

    page: str
    console: list[str] = field(default_factory=list)  # errors and warnings of the console, uncaught exceptions
    failed: list[str] = field(default_factory=list)  # requests without an answer, or answered with 400 or more
    outside: list[str] = field(default_factory=list)  # requests to another host; none of them is let through
    overflow: dict[int, list[str]] = field(default_factory=dict)  # width of the window -> what stands out of it
    axe: dict[str, list[str]] = field(default_factory=dict)  # theme -> serious and critical findings
    controls: int = 0
    dead: list[str] = field(default_factory=list)  # controls that did not move their picture, and how
    step_ms: list[float] = field(default_factory=list)  # time of every step of every range
    quizzes: int = 0
    quiz_faults: list[str] = field(default_factory=list)
    raw_kb: float = 0.0  # all that the first visit loads
    gzip_kb: float = 0.0
    requests: int = 0


# ---------------------------------------------------------------- serving and opening


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        """Say nothing; the tests say what went wrong."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a loopback server for the folder."""
    handler = functools.partial(QuietHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def is_local(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in {"data", "blob", "about", "file"} or parts.hostname in {"127.0.0.1", "localhost"}


@contextlib.contextmanager
def opened(browser: Browser, url: str, seen: Visit) -> Iterator[Page]:
    """The page, loaded in a fresh profile; what it loads and says is noted in ``seen``."""
    context: BrowserContext = browser.new_context(viewport=WIDE, color_scheme="light")
    context.set_default_timeout(15_000)
    context.route(lambda address: not is_local(address), lambda route: route.abort())
    page = context.new_page()
    page.on("console", lambda message: note_console(seen, message.type, message.text))
    page.on("pageerror", lambda error: seen.console.append(f"exception: {error}"))
    page.on("request", lambda request: None if is_local(request.url) else seen.outside.append(request.url))
    page.on("requestfailed", lambda request: seen.failed.append(request.url) if is_local(request.url) else None)
    responses: list[Any] = []
    page.on("response", lambda response: responses.append(response))
    try:
        page.goto(url, wait_until="load")
        page.evaluate("document.fonts.ready")
        for response in responses:
            weigh(seen, response)
        yield page
    finally:
        context.close()


def note_console(seen: Visit, kind: str, text: str) -> None:
    if kind in {"error", "warning"}:
        seen.console.append(f"{kind}: {text}")


def weigh(seen: Visit, response: Any) -> None:
    """Add an answer to the page's weight; fonts and pictures are compressed already."""
    if response.status >= 400:
        seen.failed.append(f"{response.status} {response.url}")
    if not response.url.startswith("http"):
        return
    body = response.body()
    compressed = re.search(r"\.(woff2?|png|jpe?g)$", urlsplit(response.url).path)
    seen.requests += 1
    seen.raw_kb += len(body) / 1000
    seen.gzip_kb += len(body if compressed else gzip.compress(body)) / 1000


# ---------------------------------------------------------------- the whole visit


def visit(browser: Browser, base: str, name: str, pictures: Path | None = None) -> Visit:
    """Load the page once and go through all that a reader can do with it."""
    seen = Visit(name)
    with opened(browser, base + name, seen) as page:
        picture(page, pictures, name, "light-1280")
        seen.overflow[WIDE["width"]] = standing_out(page)
        use_quizzes(page, seen)
        unfold(page)
        move_controls(page, seen)
        seen.axe["light"] = axe(page, None)
        page.emulate_media(color_scheme="dark")
        page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
        page.wait_for_timeout(500)  # colors of buttons fade
        seen.axe["dark"] = axe(page, COLOR_RULES)
        picture(page, pictures, name, "dark-1280")
        page.set_viewport_size(NARROW)
        seen.overflow[NARROW["width"]] = standing_out(page)
        picture(page, pictures, name, "dark-390")
    return seen


def picture(page: Page, folder: Path | None, name: str, variant: str) -> None:
    """Keep a picture of the page, or of its first part if it is very long."""
    if folder is None or name.startswith("_modules/"):
        return
    page.evaluate("scrollTo(0, 0)")
    stem = re.sub(r"\W+", "-", name.removesuffix(".html"))
    size = page.evaluate("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
    area: Any = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], PICTURE_HEIGHT)}
    page.screenshot(path=folder / f"{stem}-{variant}.jpg", type="jpeg", quality=70, full_page=True, clip=area, timeout=60_000)


def unfold(page: Page) -> None:
    """Open everything that can be opened, so that all of the page is looked at."""
    page.evaluate(
        """() => {
          for (const box of document.querySelectorAll("details")) { box.removeAttribute("name"); box.open = true; }
          for (const box of document.querySelectorAll(".toggle-hidden")) box.classList.remove("toggle-hidden");
        }"""
    )


def standing_out(page: Page) -> list[str]:
    """What is wider than the window, if the page can be scrolled sideways."""
    found: list[str] = page.evaluate(
        """() => {
          const width = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= width) return [];
          const inBox = element => {
            for (let box = element.parentElement; box; box = box.parentElement)
              if (["auto", "scroll", "hidden"].includes(getComputedStyle(box).overflowX)) return true;
            return false;
          };
          const wide = [...document.querySelectorAll("main *")].filter(element =>
            element.getBoundingClientRect().right > width + 1 && !inBox(element));
          const say = element => `${element.tagName.toLowerCase()}.${element.className}: ${element.textContent.slice(0, 60)}`;
          return wide.length ? wide.slice(0, 5).map(say) : [`the page is ${document.documentElement.scrollWidth} wide`];
        }"""
    )
    return found


# axe needs minutes for the tens of thousands of small elements in formulas and code. The visible half of a formula is hidden
# from screen readers and has the color of the text around it; the colors of code repeat, so the first blocks (and no whole
# modules) stand for all. The others are plain text while axe looks, and are put back.
AXE_RUN = """async ([blocks, options]) => {
  const plain = document.createElement("style");
  plain.textContent = ".katex-html { display: none !important; }";
  document.head.append(plain);
  const code = [...document.querySelectorAll(".highlight pre")]
    .filter((block, index) => index >= blocks || block.childNodes.length > 2000)
    .map(block => [block, [...block.childNodes]]);
  for (const [block] of code) block.textContent = block.textContent;
  const result = await axe.run(document, options);
  for (const [block, children] of code) block.replaceChildren(...children);
  plain.remove();
  return result.violations;
}"""


def axe(page: Page, rules: list[str] | None) -> list[str]:
    """Serious and critical findings of axe-core: rule, help, places."""
    if not page.evaluate("typeof axe !== 'undefined'"):
        page.evaluate(AXE.read_text("utf-8"))
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": rules}
    return [
        f"{finding['id']}: {finding['help']}: {node['target']}"
        for finding in page.evaluate(AXE_RUN, [CODE_BLOCKS, options])
        if finding["impact"] in {"serious", "critical"}
        for node in finding["nodes"]
    ]


# ---------------------------------------------------------------- quizzes


# Opens every answer as a click does, and says what is wrong.
CLICK_ANSWERS = """() => {
  const faults = [];
  const quizzes = [...document.querySelectorAll("div.admonition.quiz")];
  for (const quiz of quizzes) {
    const title = quiz.querySelector(".admonition-title")?.innerText;
    const answers = [...quiz.querySelectorAll("details.quiz-right, details.quiz-wrong")];
    if (!answers.some(answer => answer.classList.contains("quiz-right"))) faults.push(`${title}: no right answer`);
    if (answers.length < 2) faults.push(`${title}: fewer than two answers`);
    for (const answer of answers) {
      const summary = answer.querySelector("summary"), verdict = answer.querySelector(".sd-summary-content");
      if (answer.open || verdict.checkVisibility({contentVisibilityAuto: true}) && verdict.offsetHeight > 0)
        faults.push(`${title}: the verdict of "${summary.innerText}" shows before a click`);
      if (answer.querySelector("details")) faults.push(`${title}: an answer inside an answer`);
      summary.click();
      if (!answer.open || !verdict.offsetHeight || !verdict.innerText.trim())
        faults.push(`${title}: no verdict for "${summary.innerText}"`);
      if (!verdict.querySelector("strong")) faults.push(`${title}: no verdict in words for "${summary.innerText}"`);
      if (quiz.querySelectorAll("details[open]").length > 1) faults.push(`${title}: several answers stay open`);
    }
  }
  return [quizzes.length, faults];
}"""


def use_quizzes(page: Page, seen: Visit) -> None:
    """Open every answer: its verdict shows, and the answer opened before closes."""
    seen.quizzes, seen.quiz_faults = page.evaluate(CLICK_ANSWERS)


# ---------------------------------------------------------------- interactive figures

# Steps through all values of a range and times each step, layout included; the best of three rounds, so that a busy
# machine does not count.
TIME_STEPS = """range => {
  const svg = range.closest(".rlx").querySelector("svg");
  const times = [];
  for (let round = 0; round < 3; round++)
    for (let value = +range.min, index = 0; value <= +range.max; value += +range.step || 1, index++) {
      const began = performance.now();
      range.value = value;
      range.dispatchEvent(new Event("input", {bubbles: true}));
      svg.getBoundingClientRect();
      const took = performance.now() - began;
      times[index] = Math.min(took, times[index] ?? Infinity);
    }
  return times;
}"""


# The picture's markup as a number (FNV-1a): the markup itself would be slow to hand over.
PICTURE_NUMBER = """figure => {
  const text = figure.querySelector(".rlx-picture").innerHTML;
  let number = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) number = Math.imul(number ^ text.charCodeAt(index), 0x01000193) >>> 0;
  return number;
}"""


def move_controls(page: Page, seen: Visit) -> None:
    """Move every control of every figure by mouse and by keyboard; note those that leave their picture as it was."""
    for number, figure in enumerate(page.locator(".rlx:has(input, select, button)").all(), start=1):
        boxes = figure.locator("input[type=range], select, input[type=radio]:checked, button.rlx-play")
        for index in range(boxes.count()):
            control = boxes.nth(index)
            kind = control.evaluate("e => e.type")
            name = f"figure {number}, {control_name(control)}"
            seen.controls += 1
            for way in ("mouse", "keyboard"):
                if not moves(page, figure, control, kind, way):
                    seen.dead.append(f"{name}: dead by {way}")
            if kind == "range":
                seen.step_ms += control.evaluate(TIME_STEPS)


def control_name(control: Locator) -> str:
    return str(control.evaluate("e => (e.labels?.[0]?.innerText || e.innerText || e.name || e.type).trim().slice(0, 40)"))


def drawn(figure: Locator) -> int:
    """A number that stands for the picture as it is now."""
    return int(figure.evaluate(PICTURE_NUMBER))


def moves(page: Page, figure: Locator, control: Locator, kind: str, way: str) -> bool:
    """Whether the control changes the picture; the other ranges stand at their ends if it does nothing where they are."""
    if operate(page, figure, control, kind, way):
        return True
    for end in ("max", "min"):
        for other in figure.locator("input[type=range]").all():
            other.evaluate(
                "(e, end) => { e.value = e[end]; e.dispatchEvent(new Event('input', {bubbles: true})); }", end
            )
        if operate(page, figure, control, kind, way):
            return True
    return False


def operate(page: Page, figure: Locator, control: Locator, kind: str, way: str) -> bool:
    if kind == "range":
        return use_range(page, figure, control, way)
    if kind == "radio":
        return use_radios(page, figure, control, way)
    if kind == "select-one":
        return use_select(page, figure, control, way)
    return use_button(page, figure, control, way)


def use_range(page: Page, figure: Locator, control: Locator, way: str) -> bool:
    """From one end to the other, and by single steps."""
    control.scroll_into_view_if_needed()
    pictures = set()
    if way == "keyboard":
        control.focus()
        for key in ("Home", "End", "ArrowLeft", "ArrowLeft"):
            page.keyboard.press(key)
            pictures.add(drawn(figure))
    else:
        box = control.bounding_box()
        assert box is not None
        for share in (0.1, 0.5, 0.9):
            page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
            pictures.add(drawn(figure))
    return len(pictures) > 1


def use_radios(page: Page, figure: Locator, control: Locator, way: str) -> bool:
    group = control.get_attribute("name")
    pictures = {drawn(figure)}
    options = figure.locator(f"input[type=radio][name='{group}']")
    for index in range(options.count()):
        if way == "keyboard":
            options.nth(index).focus() if index == 0 else None
            page.keyboard.press("ArrowDown")
        else:
            options.nth(index).click()
        pictures.add(drawn(figure))
    return len(pictures) > 1


def use_select(page: Page, figure: Locator, control: Locator, way: str) -> bool:
    """A list of words: the mouse uses the browser's own menu, which a test can only imitate."""
    pictures = {drawn(figure)}
    for index in range(control.locator("option").count()):
        if way == "keyboard":
            control.focus()
            page.keyboard.press("ArrowDown" if index else "Home")
        else:
            control.select_option(index=index)
        pictures.add(drawn(figure))
    return len(pictures) > 1


def use_button(page: Page, figure: Locator, control: Locator, way: str) -> bool:
    """Play moves the picture within two seconds; a second press stops it."""
    before = drawn(figure)
    control.scroll_into_view_if_needed()
    press = control.click if way == "mouse" else lambda: (control.focus(), page.keyboard.press("Enter"))
    press()
    changed = False
    for _ in range(40):
        if drawn(figure) != before:
            changed = True
            break
        page.wait_for_timeout(50)
    press()
    return changed


def worst_step(times: list[float]) -> tuple[float, float]:
    """Median and largest time of a step in milliseconds."""
    return (statistics.median(times), max(times)) if times else (0.0, 0.0)
