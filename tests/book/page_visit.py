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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Locator, Page, TimeoutError

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
WIDE, NARROW, SLIM = {"width": 1280, "height": 900}, {"width": 390, "height": 844}, {"width": 320, "height": 640}
BROAD = {"width": 1366, "height": 768}  # from here on a line of text does not fill its room
# What depends on colors is checked again on the dark page; the rest of axe's rules see no theme.
COLOR_RULES = ["color-contrast", "link-in-text-block"]
FAST_MS = 4  # a step that takes less is timed once
STEP_MS = 16  # one frame; a step that seems to take longer is measured again, against a yardstick
PICTURE_HEIGHT = 5000  # of a very long page, the first part is kept as a picture


@dataclass
class Visit:
    """What was seen on one page."""

    page: str
    console: list[str] = field(default_factory=list)  # errors and warnings of the console, uncaught exceptions
    failed: list[str] = field(default_factory=list)  # requests without an answer, or answered with 400 or more
    outside: list[str] = field(default_factory=list)  # requests to another host; none of them is let through
    overflow: dict[int, list[str]] = field(default_factory=dict)  # width of the window -> what stands out of it
    ragged: list[str] = field(default_factory=list)  # what ends further right than the text
    axe: dict[str, list[str]] = field(default_factory=dict)  # theme -> findings
    elements: int = 0
    stops: int = 0  # of the Tab key between the start of the text and its last quiz, nothing opened
    controls: int = 0
    by_hand: list[str] = field(
        default_factory=list
    )  # kinds of controls that the browser's own mouse and keyboard moved
    dead: list[str] = field(default_factory=list)  # controls that did not move their picture, and how
    step_ms: list[float] = field(default_factory=list)  # time of every step of every range; see ``processor_ms``
    quizzes: int = 0
    quiz_faults: list[str] = field(default_factory=list)
    live: list[dict[str, Any]] = field(default_factory=list)  # formulas whose symbols light up, and what is wrong
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


# An address of another host. A pattern, so that the browser asks back about no other request.
OUTSIDE = re.compile(r"^(?!data:|blob:|about:|file:|https?://(127\.0\.0\.1|localhost)[:/])")


def is_local(url: str) -> bool:
    return OUTSIDE.search(url) is None


@contextlib.contextmanager
def opened(browser: Browser, url: str, seen: Visit) -> Iterator[Page]:
    """The page, loaded in a fresh profile; what it loads and says is noted in ``seen``."""
    context: BrowserContext = browser.new_context(viewport=WIDE, color_scheme="light")
    context.set_default_timeout(60_000)
    context.route(OUTSIDE, lambda route: route.abort())
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
    if response.url not in weights:
        body = response.body()
        compressed = re.search(r"\.(woff2?|png|jpe?g)$", urlsplit(response.url).path)
        weights[response.url] = len(body) / 1000, len(body if compressed else gzip.compress(body)) / 1000
    raw_kb, gzip_kb = weights[response.url]
    seen.requests += 1
    seen.raw_kb += raw_kb
    seen.gzip_kb += gzip_kb


weights: dict[
    str, tuple[float, float]
] = {}  # address -> KB raw and compressed: pages share their style sheet and fonts


# ---------------------------------------------------------------- the whole visit


def visit(
    browser: Browser,
    base: str,
    name: str,
    pictures: Path | None = None,
    by_hand: bool = True,
    first: Callable[[Page], None] | None = None,
) -> Visit:
    """Load the page once and go through all that a reader can do with it; see ``move_controls`` for ``by_hand``.

    ``first`` looks at the page before anything is touched, in a window of ``WIDE`` that it leaves at ``BROAD``.
    """
    seen = Visit(name)
    with opened(browser, base + name, seen) as page:
        picture(page, pictures, name, "light-1280")
        seen.elements, seen.stops = page.evaluate(COUNT)
        seen.overflow[WIDE["width"]] = standing_out(page)
        if first:
            first(page)
        page.set_viewport_size(BROAD)
        seen.ragged = page.evaluate(RAGGED)
        page.set_viewport_size(WIDE)
        use_quizzes(page, seen)
        use_formulas(page, seen)
        page.evaluate(UNFOLD)
        move_controls(page, seen, by_hand)
        if pictures:
            switch_theme(page, "dark")
        picture(page, pictures, name, "dark-1280")
        page.set_viewport_size(NARROW)
        seen.overflow[NARROW["width"]] = standing_out(page)
        page.set_viewport_size(SLIM)
        seen.overflow[SLIM["width"]] = standing_out(page)
        if pictures:
            page.set_viewport_size(NARROW)
        picture(page, pictures, name, "dark-390")
        check_axe(page, seen)
    return seen


def check_axe(page: Page, seen: Visit) -> None:
    """What axe finds in both themes, on the wide page. Comes last, because the page is not whole afterwards."""
    page.evaluate(DRAWN)
    shorten(page)
    page.set_viewport_size(WIDE)
    page.add_style_tag(
        content="* { transition: none !important; animation: none !important; }"
    )  # no color on its way to another
    switch_theme(page, "dark")
    seen.axe["dark"] = axe(page, COLOR_RULES)
    switch_theme(page, "light")
    seen.axe["light"] = axe(page, None)


def switch_theme(page: Page, theme: Any) -> None:
    """As a reader's system does it."""
    page.emulate_media(color_scheme=theme)
    page.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=theme)


def picture(page: Page, folder: Path | None, name: str, variant: str) -> None:
    """Keep a picture of the page, or of its first part if it is very long."""
    if folder is None or name.startswith("_modules/"):
        return
    page.evaluate("scrollTo(0, 0)")
    stem = re.sub(r"\W+", "-", name.removesuffix(".html"))
    size = page.evaluate("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
    area: Any = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], PICTURE_HEIGHT)}
    page.screenshot(
        path=folder / f"{stem}-{variant}.jpg", type="jpeg", quality=70, full_page=True, clip=area, timeout=60_000
    )


# Open everything that can be opened, so that all of the page is looked at.
UNFOLD = """() => {
  for (const box of document.querySelectorAll("details")) { box.removeAttribute("name"); box.open = true; }
}"""

COUNT = """() => {
  const text = document.querySelector("article"), last = [...text.querySelectorAll(".quiz")].pop();
  const stops = last ? [...text.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")].filter(element =>
    element.tabIndex >= 0 && !element.disabled && element.checkVisibility() &&
    last.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_PRECEDING) : [];
  return [document.querySelectorAll("*").length, stops.length];
}"""

# The right edge of a line of text is that of a paragraph's box; what it scrolls inside its own box does not count.
RAGGED = """() => {
  const line = document.querySelector("article > section > p");
  if (!line) return [];
  const edge = line.getBoundingClientRect().right + 1;
  const boxes = [...document.querySelectorAll("article > section > *, article > section > section > *, article .rlx, article .admonition")];
  return boxes.filter(box => box.getBoundingClientRect().right > edge)
    .map(box => `${box.tagName.toLowerCase()}.${box.className}: ${Math.round(box.getBoundingClientRect().right - edge + 1)} px`).slice(0, 5);
}"""


# What is wider than the window, if the page can be scrolled sideways.
STANDING_OUT = """() => {
  const width = document.documentElement.clientWidth;
  const left = element => element.getBoundingClientRect().left, right = element => element.getBoundingClientRect().right;
  const covering = [...document.querySelectorAll(".katex-scroll + .eqno")].filter(number => left(number) < right(number.previousElementSibling) - 1);
  if (covering.length) return covering.map(number => `${number.textContent} stands on its formula`);
  if (document.documentElement.scrollWidth <= width) return [];
  const inBox = element => {
    for (let box = element.parentElement; box; box = box.parentElement)
      if (["auto", "scroll", "hidden"].includes(getComputedStyle(box).overflowX)) return true;
    return false;
  };
  const wide = [...document.querySelectorAll("main *")].filter(element =>
    right(element) > width + 1 && !inBox(element));
  const say = element => `${element.tagName.toLowerCase()}.${element.className}: ${element.textContent.slice(0, 60)}`;
  return wide.length ? wide.slice(0, 5).map(say) : [`the page is ${document.documentElement.scrollWidth} wide`];
}"""


def standing_out(page: Page) -> list[str]:
    found: list[str] = page.evaluate(STANDING_OUT)
    return found


# axe's time grows with the number of elements, and nine of ten stand in formulas, pictures and colored words of code. So it
# looks at the first few of each kind, where a kind is an element's tag, class and style and those of all elements around it:
# * of words in a color or a face of their own (a class and nothing else), and of formulas, the rest is shortened to its text;
#   but for the code in a table, which breaks where its text would not, so that the table would be another one;
# * of all other elements, the rest is left out of the search for pale colors, and of no other;
# * a picture is one image with a name for screen readers: of its lines only those stay that have a meaning of their own.
# The work is done on a copy that takes the page's place at once: each change of the shown page would be laid out anew.
SHORTEN = """kept => {
  const body = document.body.cloneNode(true);
  [...body.querySelectorAll(".katex")].slice(kept).forEach(formula => {
    formula.replaceWith(formula.closest(".math")?.dataset.tex ?? "");
  });
  const means = "title, desc, a, [role], [tabindex], [aria-label], [aria-labelledby], [aria-hidden]";
  for (const part of body.querySelectorAll("svg *"))
    if (!part.matches(means) && !part.querySelector(means) && !part.closest("title, desc, a")) part.remove();

  const kinds = new Map([[body, ""]]), counts = {}, rest = new Set();
  for (const element of body.querySelectorAll("*")) {
    const kind = `${kinds.get(element.parentElement)} ${element.tagName}.${element.className}.${element.getAttribute("style")}`;
    kinds.set(element, kind);
    counts[kind] = (counts[kind] ?? 0) + 1;
    if (counts[kind] > kept) rest.add(element);
  }
  for (const element of [...rest].reverse()) {
    const plain = !element.firstElementChild && [...element.attributes].every(attribute => attribute.name === "class");
    if (plain && element.matches("span, em, strong, code:not(td code)")) element.replaceWith(element.textContent);
    else element.dataset.alike = "";
  }
  body.normalize();
  document.body.replaceWith(body);
}"""
# The page says what can be scrolled when it draws a picture of itself, which a busy machine may put off: the second picture from now.
DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
KEPT = 2  # such as the even and the odd row of a table


def shorten(page: Page) -> None:
    page.evaluate(SHORTEN, KEPT)


def axe(page: Page, rules: list[str] | None) -> list[str]:
    """Findings of axe-core of any weight: rule, help, places."""
    if not page.evaluate("typeof axe !== 'undefined'"):
        page.evaluate(AXE.read_text("utf-8"))
        page.evaluate("axe.configure({rules: [{id: 'color-contrast', selector: ':not([data-alike])'}]})")
    # no rule that runs asks for the style sheets, which axe would fetch and read again
    options: dict[str, Any] = {"resultTypes": ["violations"], "preload": {"assets": ["media"]}}
    if rules:
        options["runOnly"] = {"type": "rule", "values": rules}
    return [
        f"{finding['id']}: {finding['help']}: {node['target']}"
        for finding in page.evaluate("async options => (await axe.run(document, options)).violations", options)
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
      const summary = answer.querySelector("summary"), verdict = answer.querySelector(".folded");
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


# ---------------------------------------------------------------- live formulas


# Points at every symbol by the name beside its formula, moves the explorer, and switches to letters and back.
LIGHT = """box => {
  const formula = box.previousElementSibling, lit = where => document.querySelectorAll(where + " .lit").length;
  const faults = [], found = {label: formula.id, faults, picture: 0, code: 0, numbers: 0};
  for (const button of box.querySelectorAll("button")) {
    button.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
    const key = button.dataset.live;
    if (!formula.querySelector(`[data-live="${key}"].lit`)) faults.push(`${key} is dark in its formula`);
    if (!box.querySelector("output").textContent.startsWith(button.lastChild.data)) faults.push(`${key} is not named`);
    found.picture += lit(".rlx-picture");
    found.code += lit(".highlight");
  }
  document.body.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
  if (lit("body")) faults.push("a symbol stays lit");
  const line = box.figure?.querySelector(".live-line"), slots = line ? [...line.querySelectorAll("[data-term]")] : [];
  const values = () => slots.map(slot => box.figure.getAttribute("data-term-" + slot.dataset.term)), written = () => slots.map(slot => slot.textContent);
  if (!line) return found;
  found.numbers = slots.length;
  const before = String(written());
  if (before !== String(values())) faults.push("the numbers are not those of the explorer");
  for (const range of box.figure.querySelectorAll("input[type=range]")) {
    range.value = +range.value === +range.max ? range.min : range.max;
    range.dispatchEvent(new Event("input", {bubbles: true}));
  }
  return new Promise(done => setTimeout(() => {
    if (before === String(written()) || String(written()) !== String(values())) faults.push("the numbers do not follow");
    line.querySelector("button").click();
    if (String(written()) === String(values())) faults.push("no letters");
    line.querySelector("button").click();
    box.figure.querySelector("form").reset();
    box.figure.querySelectorAll("input").forEach(input => input.dispatchEvent(new Event("input", {bubbles: true})));
    done(found);
  }));
}"""


def use_formulas(page: Page, seen: Visit) -> None:
    """Every symbol is lit by its name; the first one of a page by the mouse and by the keyboard, too."""
    seen.live = [box.evaluate(LIGHT) for box in page.locator(".live-names").all()]
    if not seen.live:
        return
    first, names = page.locator("div.math [data-live]").first, page.locator(".live-names").first
    key = first.get_attribute("data-live")
    first.hover()
    if not page.locator(f"div.math [data-live='{key}'].lit").count():
        seen.live[0]["faults"].append("dark under the mouse")
    page.mouse.move(0, 0)
    names.locator("summary").press("Enter")
    page.keyboard.press("Tab")
    if names.locator("button:focus.lit").count() != 1:
        seen.live[0]["faults"].append("dark under the keyboard")
    names.locator("summary").press("Enter")


# ---------------------------------------------------------------- interactive figures

FIGURES = ".rlx:has(input, select, button)"
CONTROLS = "input[type=range], select, input[type=radio]:checked, button.rlx-play"
PATIENCE_MS = 20_000  # for a film's next picture, which a busy machine may draw late

# A figure's controls as the page came, or all at their first or last values: a control may do nothing beside some values of others.
STAND = """(figure, place) => {
  figure.querySelector("form")?.reset();
  for (const control of figure.querySelectorAll("input, select")) {
    const first = place === "first";
    if (place === "start") ;
    else if (control.type === "range") control.value = first ? control.min : control.max;
    else if (control.type === "select-one") control.selectedIndex = first ? 0 : control.length - 1;
    else [...figure.querySelectorAll(`input[name="${control.name}"]`)].at(first ? 0 : -1).checked = true;
    control.dispatchEvent(new Event("input", {bubbles: true}));
  }
}"""
PLACES = ["start", "last", "first"]

# Inside the page: for every control, whether the events of a hand move its picture, whether the mouse and the keyboard reach
# it, and the time of each step of a range with its layout, the best of three where it is slow.
USE_CONTROLS = """async ([figures, controls, patience, fast, places]) => {
  const stand = STAND;
  const tell = element => ["input", "change"].forEach(name => element.dispatchEvent(new Event(name, {bubbles: true})));
  const put = (range, value) => { range.value = value; tell(range); };
  const soon = async done => {
    for (const end = performance.now() + patience; !done() && performance.now() < end;)
      await new Promise(go => setTimeout(go, 5));
    return done();
  };
  const group = control => control.type === "radio"
    ? [...control.closest(".rlx").querySelectorAll(`input[name="${control.name}"]`)] : [control];

  async function changes(control, shown) {
    const pictures = new Set([shown()]), note = () => pictures.add(shown());
    if (control.type === "range") {
      const low = +control.min, high = +control.max, step = +control.step || 1;
      pictures.clear();
      for (const value of [low, (low + high) / 2, high, high - step]) { put(control, value); note(); }
    } else if (control.type === "radio") {
      for (const option of group(control)) { option.click(); note(); }
    } else if (control.type === "select-one") {
      for (let index = 0; index < control.length; index++) { control.selectedIndex = index; tell(control); note(); }
    } else {
      control.click();
      const changed = await soon(() => !pictures.has(shown()));
      control.click();
      return changed;
    }
    return pictures.size > 1;
  }

  async function moves(control, figure, shown) {
    for (const place of places) {
      stand(figure, place);
      if (await changes(control, shown)) return true;
    }
    return false;
  }

  function hit(control) {
    control.scrollIntoView({block: "center", behavior: "instant"});
    const box = control.getBoundingClientRect();
    const found = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    return control.contains(found) || found?.closest("label")?.control === control;
  }

  function focused(control) {
    control.focus({preventScroll: true});
    return document.activeElement === control && control.tabIndex >= 0;
  }

  function times(range) {
    const svg = range.closest(".rlx").querySelector("svg"), found = [];
    for (let value = +range.min; value <= +range.max; value += +range.step || 1) {
      let best = Infinity;
      for (let round = 0; round < 3 && best > fast; round++) {
        if (round) put(range, value === +range.min ? range.max : range.min);
        const began = performance.now();
        range.value = value;
        range.dispatchEvent(new Event("input", {bubbles: true}));
        svg.getBoundingClientRect();
        best = Math.min(best, performance.now() - began);
      }
      found.push([value, best]);
    }
    return found;
  }

  const seen = [];
  document.querySelectorAll(".rlx-guess > button:last-child").forEach(pass => pass.click());  // no guess: the controls at once
  for (const [number, figure] of [...document.querySelectorAll(figures)].entries()) {
    const shown = () => figure.querySelector(".rlx-picture").innerHTML;
    for (const [index, control] of [...figure.querySelectorAll(controls)].entries()) {
      const faults = [];
      if (!await moves(control, figure, shown)) faults.push("dead by events");
      if (!group(control).every(hit)) faults.push("out of the mouse's reach");
      if (!group(control).some(focused)) faults.push("out of the keyboard's reach");
      const name = (control.labels?.[0]?.innerText || control.innerText || control.name || control.type).trim();
      seen.push({number, index, kind: control.type, name: name.slice(0, 40), faults,
                 times: control.type === "range" ? times(control) : []});
    }
  }
  return seen;
}""".replace("STAND", STAND)


# Three steps of a range there and three back, each with its layout, at one go: between two calls the browser would draw a frame.
STEPS = """(range, [from, to]) => {
  const svg = range.closest(".rlx").querySelector("svg");
  for (let round = 0; round < 6; round++) {
    range.value = round % 2 ? from : to;
    range.dispatchEvent(new Event("input", {bubbles: true}));
    svg.getBoundingClientRect();
  }
}"""
# What took STEP_MS of the processor on the machine on which the figures were made: a yardstick that goes with a slower one.
YARDSTICK = "() => { let x = 0; for (let i = 0; i < 15e6; i++) x += i % 7; return x; }"


def processor_ms(page: Page, act: Callable[[], Any]) -> float:
    """The processor's time of the page's own thread while ``act`` runs: what a clock says depends on how busy the machine is."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        return next(
            one["value"] for one in session.send("Performance.getMetrics")["metrics"] if one["name"] == "ThreadTime"
        )

    before = spent()
    act()
    found = 1000 * (spent() - before)
    session.detach()
    return found


def step_ms(page: Page, control: Locator, value: float) -> float:
    """What a step of a range to this value and one back to the far end cost on average, the processor measured beside them."""
    low, high = (float(control.get_attribute(name) or 0) for name in ("min", "max"))
    there = [high if value == low else low, value]
    best = float("inf")
    for _ in range(3):
        spent = processor_ms(page, lambda: control.evaluate(STEPS, there)) / 6
        best = min(best, spent * STEP_MS / processor_ms(page, lambda: page.evaluate(YARDSTICK)))
        if best < STEP_MS / 2:
            break
    return best


# The picture's markup as a number (FNV-1a): the markup itself would be slow to hand over.
PICTURE_NUMBER = """figure => {
  const text = figure.querySelector(".rlx-picture").innerHTML;
  let number = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) number = Math.imul(number ^ text.charCodeAt(index), 0x01000193) >>> 0;
  return number;
}"""


def move_controls(page: Page, seen: Visit, by_hand: bool = True) -> None:
    """Move every control of every figure; note those that leave their picture as it was.

    All of them get the events of a hand, and it is looked whether a hand reaches them. With ``by_hand`` the first of each kind
    is moved by the browser's own mouse and keyboard as well.
    """
    for control in page.evaluate(USE_CONTROLS, [FIGURES, CONTROLS, PATIENCE_MS, FAST_MS, PLACES]):
        name, kind = f"figure {control['number'] + 1}, {control['name']}", control["kind"]
        figure = page.locator(FIGURES).nth(control["number"])
        box = figure.locator(CONTROLS).nth(control["index"])
        seen.controls += 1
        seen.step_ms += [step_ms(page, box, value) if ms >= STEP_MS else ms for value, ms in control["times"]]
        seen.dead += [f"{name}: {fault}" for fault in control["faults"]]
        if by_hand and kind not in seen.by_hand:
            seen.by_hand.append(kind)
            seen.dead += [
                f"{name}: dead by {way}" for way in ("mouse", "keyboard") if not moves(page, figure, box, kind, way)
            ]


def drawn(figure: Locator) -> int:
    """A number that stands for the picture as it is now."""
    return int(figure.evaluate(PICTURE_NUMBER))


def moves(page: Page, figure: Locator, control: Locator, kind: str, way: str) -> bool:
    """Whether the control changes the picture, beside some values of the others."""
    use = {"range": use_range, "radio": use_radios, "select-one": use_select}.get(kind, use_button)
    for place in PLACES:
        figure.evaluate(STAND, place)
        if use(page, figure, control, way):
            return True
    return False


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
    """Play moves the picture; a second press stops it."""
    before = drawn(figure)
    control.scroll_into_view_if_needed()
    press = control.click if way == "mouse" else lambda: (control.focus(), page.keyboard.press("Enter"))
    press()
    try:
        page.wait_for_function(
            f"([figure, before]) => ({PICTURE_NUMBER})(figure) !== before",
            arg=[figure.element_handle(), before],
            timeout=PATIENCE_MS,
        )
        changed = True
    except TimeoutError:
        changed = False
    press()
    return changed


def worst_step(times: list[float]) -> tuple[float, float]:
    """Median and largest time of a step in milliseconds."""
    return (statistics.median(times), max(times)) if times else (0.0, 0.0)
