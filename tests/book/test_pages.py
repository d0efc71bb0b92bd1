"""Every page of the built book in a browser: loads clean, asks nobody else, fits, can be used by everyone, moves."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, SITE
from fontTools.ttLib import TTFont
from lesson_limits import CENTRAL, Lesson, beyond, chapter_of, measure_opened
from page_visit import STEP_MS, Visit, move_controls, opened, served, visit, worst_step
from test_search import INDEX_GZIP_KB

pytestmark = [pytest.mark.browser, pytest.mark.site]

PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in SITE.rglob("*.html")
    if not {"_static", "_sources"} & set(path.relative_to(SITE).parts)
) or ["index.html"]
# The library's sources are one template around one text each: the largest of them and their list stand for all.
SOURCES = sorted(
    (name for name in PAGES if name.startswith("_modules/rlbook_lib/")), key=lambda name: (SITE / name).stat().st_size
)
VISITED = [name for name in PAGES if name not in SOURCES[:-1]]
LESSONS = [f"chapters/{name}.html" for name in sorted(CENTRAL)]
# All controls of all pages get a hand's events; the browser's own mouse and keyboard, which are slow, move those of some lessons.
BY_HAND = LESSONS[::4]
# Measured budgets of a first visit, in KB: what every page loads, and what an interactive figure may add.
PAGE_GZIP_KB, FIGURE_GZIP_KB = 150, 10
REQUESTS = 14
ELEMENTS = 20_000
STOPS = 150  # of the Tab key, from the start of a lesson's text to its last quiz
# Faults that are the theme's own and cannot be mended from here: axe rule -> reason. None is known.
WAIVERS: dict[str, str] = {}


@pytest.fixture(scope="module")
def visits(site: Path, browser: Any, report: dict[str, Any]) -> Iterator[Callable[[str], Visit]]:
    """Pages by name, each loaded once and shared by the tests."""
    known: dict[str, Visit] = {}
    pictures = None
    if os.environ.get("RLBOOK_SCREENSHOTS") == "1":  # they take a fifth of a visit's time, and only people look at them
        pictures = ROOT / "_build" / "screenshots"
        pictures.mkdir(parents=True, exist_ok=True)
    with served(site) as base:

        def look(name: str) -> Visit:
            if name not in known:
                known[name] = Visit(name)
                known[name].console.append("the visit did not come to its end")  # unless the next line returns
                known[name] = visit(browser, base, name, pictures, name in BY_HAND, first=measuring(name))
                note(report, known[name])
            return known[name]

        yield look


measured: dict[str, Lesson] = {}  # lessons by their pages


def measuring(name: str) -> Callable[[Any], None] | None:
    """What a visit does first on a lesson's page."""
    lesson = chapter_of(name)
    if lesson is None:
        return None
    return lambda page: measured.update({name: measure_opened(page, CENTRAL[lesson])})


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_is_within_its_limits(visits: Callable[[str], Visit], report: dict[str, Any], name: str) -> None:
    """It can be read in one sitting."""
    seen = visits(name)
    lesson = replace(measured[name], gzip_kb=round(seen.gzip_kb, 1))
    report.setdefault("lessons", {})[chapter_of(name)] = vars(lesson)
    assert beyond(lesson) == []


def note(report: dict[str, Any], seen: Visit) -> None:
    middle, worst = worst_step(seen.step_ms)
    report.setdefault("pages", {})[seen.page] = {
        "raw_kb": round(seen.raw_kb, 1),
        "gzip_kb": round(seen.gzip_kb, 1),
        "requests": seen.requests,
        "elements": seen.elements,
        "stops": seen.stops,
        "controls": seen.controls,
        "quizzes": seen.quizzes,
        "step_ms_median": round(middle, 2),
        "step_ms_max": round(worst, 2),
    }


@pytest.mark.parametrize("name", VISITED)
class TestPage:
    def test_loads_clean(self, visits: Callable[[str], Visit], name: str) -> None:
        seen = visits(name)
        assert seen.console == []
        assert seen.failed == []

    def test_asks_no_other_host(self, visits: Callable[[str], Visit], name: str) -> None:
        assert visits(name).outside == []

    def test_fits_the_window(self, visits: Callable[[str], Visit], name: str) -> None:
        assert visits(name).overflow == {1280: [], 390: [], 320: []}

    def test_boxes_end_where_the_text_ends(self, visits: Callable[[str], Visit], name: str) -> None:
        assert visits(name).ragged == []

    @pytest.mark.parametrize("theme", ["light", "dark"])
    def test_accessible(self, visits: Callable[[str], Visit], name: str, theme: str) -> None:
        found = [finding for finding in visits(name).axe[theme] if finding.split(":")[0] not in WAIVERS]
        assert found == []

    def test_controls_move_their_pictures(self, visits: Callable[[str], Visit], name: str) -> None:
        assert visits(name).dead == []

    def test_steps_are_fast(self, visits: Callable[[str], Visit], name: str) -> None:
        assert worst_step(visits(name).step_ms)[1] < STEP_MS

    def test_quizzes_answer(self, visits: Callable[[str], Visit], name: str) -> None:
        assert visits(name).quiz_faults == []

    def test_symbols_light_up(self, visits: Callable[[str], Visit], name: str) -> None:
        """In each lesson's central formula, in the picture and in the code; nine lessons write their numbers into one."""
        seen, lesson = visits(name), chapter_of(name)
        assert [fault for formula in seen.live for fault in formula["faults"]] == []
        if lesson:
            label = f"equation-{CENTRAL[lesson]}" if CENTRAL[lesson] else ""
            assert [one for one in seen.live if one["label"] == label and one["picture"] and one["code"]]
            assert any(formula["numbers"] for formula in seen.live) == (int(lesson[:2]) in {2, *range(6, 14)})

    def test_weight(self, visits: Callable[[str], Visit], name: str) -> None:
        seen = visits(name)
        figures = (SITE / name).read_text("utf-8").count('class="rlx"')
        assert seen.gzip_kb < PAGE_GZIP_KB + FIGURE_GZIP_KB * figures + (INDEX_GZIP_KB if name == "search.html" else 0)
        assert seen.requests <= REQUESTS
        assert seen.elements <= ELEMENTS
        assert seen.stops <= STOPS


def test_every_kind_of_control_is_moved_by_hand(site: Path) -> None:
    def kinds(names: list[str]) -> set[str]:
        forms = re.findall(
            r'<form class="rlx-controls".*?</form>',
            "".join((site / name).read_text("utf-8") for name in names),
            re.DOTALL,
        )
        return set(re.findall(r'<select|rlx-play|type="\w+"', "".join(forms)))

    assert kinds(PAGES) == kinds(BY_HAND) >= {'type="range"', 'type="radio"', "<select", "rlx-play"}


def test_the_first_screen_moves(site: Path, browser: Any) -> None:
    """The landing page at 1280 x 800: three sentences and a whole picture with its controls, and the title once."""
    seen = Visit("index.html")
    with served(site) as base, opened(browser, base + "index.html", seen) as page:
        page.set_viewport_size({"width": 1280, "height": 800})
        figure = page.locator(".rlx:has(form)").first
        box = figure.bounding_box()
        assert box is not None and box["y"] + box["height"] <= 800
        sentences = page.locator("article section > p").first.inner_text()
        assert len(re.findall(r"[.!?](?:\s|$)", sentences)) == 3
        title = page.locator("article h1").inner_text().rstrip("#").strip()
        shown = [place.is_visible() for place in page.locator("h1, .sidebar-brand-text", has_text=title).all()]
        assert shown.count(True) == 1
        addresses = page.eval_on_selector_all(".chapter-map a", "links => links.map(link => link.getAttribute('href'))")
        minutes = page.locator(".chapter-map-time").all_text_contents()
    assert addresses == sorted(f"chapters/{name}.html" for name in CENTRAL)
    assert all(re.fullmatch(r"[1-9]\d{1,2} min", text) for text in minutes) and len(minutes) == len(CENTRAL)


def test_the_map_is_called_by_what_it_shows(site: Path, browser: Any) -> None:
    """A reader who speaks to the browser says what is seen: number, name and minutes are the link's name."""
    with served(site) as base, opened(browser, base + "index.html", Visit("index.html")) as page:
        names = page.locator(".chapter-map a").evaluate_all(
            "links => links.map(link => [link.ariaLabel, link.textContent])"
        )
    said = [" ".join(text.split()) for label, text in names if label is None]
    assert len(said) == len(CENTRAL) and re.fullmatch(r"2 Returns and values \d+ min", said[1])


def test_every_class_that_the_style_names_is_on_some_page(site: Path) -> None:
    """What no page has any more leaves the written sheet; states that a script sets are in the script."""
    sheet = re.sub(r"/\*.*?\*/", "", (ROOT / "_static" / "book.css").read_text("utf-8"), flags=re.DOTALL)
    named = set(re.findall(r"\.(-?[a-zA-Z_][\w-]*)", " ".join(re.findall(r"([^{}]*)\{", sheet))))
    texts = [path.read_text("utf-8") for path in site.rglob("*.html")]
    texts += [
        path.read_text("utf-8")
        for path in (*ROOT.glob("_static/*.js"), ROOT / "_ext/search/search.js", ROOT / "rlbook_lib/explore.js")
    ]
    assert {name for name in named if not any(name in text for text in texts)} == set()


@pytest.mark.parametrize("name", LESSONS)
def test_the_ways_on(site: Path, browser: Any, name: str) -> None:
    """A lesson leads to the next one and to its Deeper page; that leads back, and to the next lesson."""
    place, deeper = LESSONS.index(name), name.replace(".html", "_deeper.html")
    following = LESSONS[place + 1 : place + 2]

    def ways(page_name: str) -> list[tuple[str, str]]:
        text = (site / page_name).read_text("utf-8").partition('<nav class="ways-on"')[2].partition("</nav>")[0]
        links = re.findall(r'<a href="([^"]*)"[^>]*><span>(.*?):?</span>', text)
        return [(said, f"chapters/{address}") for address, said in links]

    assert ways(name) == [("Next lesson", one) for one in following] + [("Deeper on this chapter", deeper)]
    assert ways(deeper) == [("Next lesson", one) for one in following] + [("Back to the lesson", name)]


def test_what_was_read_and_answered_is_remembered_until_it_is_forgotten(site: Path, browser: Any) -> None:
    """A quiz, a lesson read to its end, the place reached: on the next visit they are there, and one click forgets them."""
    seen = Visit("chapters/07_gae.html")
    sent: list[str] = []
    with served(site) as base, opened(browser, base + seen.page, seen) as page:
        page.on("request", lambda request: sent.append(request.method) if request.method != "GET" else None)
        page.locator(".quiz-wrong summary").first.click()
        page.evaluate("scrollTo({top: document.documentElement.scrollHeight, behavior: 'instant'})")
        page.wait_for_function("(localStorage.getItem('book') ?? '').includes('07_gae.html#')")
        page.reload()
        assert page.locator(".quiz details[open]").count() == 1
        assert page.locator(".quiz-wrong").first.evaluate("answer => answer.open")
        page.goto(base + "index.html")
        for place in (".emblem rect.read", ".sidebar-tree a.read", ".chapter-map a.read"):
            assert page.locator(place).count() == 1, place
        assert "07_gae.html#" in str(page.locator(".book-place a").get_attribute("href"))
        assert page.locator(".book-place a").inner_text().startswith("Go on in 7. ")
        page.locator(".book-place button").click()
        page.wait_for_function("!document.querySelector('.book-place')")
        assert page.evaluate("localStorage.getItem('book')") is None and page.locator(".read").count() == 0
    assert (seen.console, sent) == ([], [])


def test_a_reader_who_forbids_storage_loses_nothing_else(site: Path, browser: Any) -> None:
    seen = Visit("chapters/07_gae.html")
    with served(site) as base, opened(browser, base + seen.page, seen) as page:
        page.add_init_script("Storage.prototype.getItem = Storage.prototype.setItem = () => { throw new Error('no'); }")
        page.reload()
        page.locator(".theme-toggle:visible").first.click()
        assert page.evaluate("document.body.dataset.theme") == "dark"
        page.locator(".quiz-right summary").first.click()
        assert page.locator(".quiz-right .folded").first.is_visible()
        page.locator(".book-search-link").click()
        assert page.locator("dialog[open]").count() == 1


def test_a_phone_is_read_with_the_keyboard(site: Path, browser: Any) -> None:
    """The contents open and close again with keys, and say what they are."""
    seen = Visit("chapters/07_gae.html")
    with served(site) as base, opened(browser, base + seen.page, seen) as page:
        page.set_viewport_size({"width": 390, "height": 844})
        for name, panel in (("Contents of the book", ".sidebar-drawer"), ("Contents of this page", ".toc-drawer")):
            button = page.get_by_role("button", name=name).locator("visible=true")
            button.focus()
            page.keyboard.press("Enter")
            page.wait_for_function("panel => document.querySelector(panel).contains(document.activeElement)", arg=panel)
            page.keyboard.press("Escape")
            page.wait_for_function("() => document.activeElement.matches('label')")
            page.wait_for_function(
                "panel => { const box = document.querySelector(panel).getBoundingClientRect(); return box.right <= 1 || box.left >= innerWidth - 1; }",
                arg=panel,
            )


def test_the_tab_key_walks_from_the_top_to_the_first_control(site: Path, browser: Any) -> None:
    """The first stop leads past the sidebar; every stop shows where it is."""
    seen = Visit("chapters/04_mc_and_td.html")
    with served(site) as base, opened(browser, base + seen.page, seen) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.getAttribute('href')") == "#furo-main-content"
        page.keyboard.press("Enter")
        stops = []
        while len(stops) < 12 and not (stops and re.search("range|button", stops[-1])):  # a slider, or a guess
            page.keyboard.press("Tab")
            stops.append(
                page.evaluate(
                    """() => { const at = document.activeElement, style = getComputedStyle(at);
                      return [at.tagName, at.type ?? "", at.closest("article") ? "text" : "around", style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 ? "seen" : "unseen"].join(" "); }"""
                )
            )
        assert re.search("range|button", stops[-1]), stops
        assert [stop for stop in stops if "around" in stop or "unseen" in stop] == []


def test_one_page_on_paper_is_its_text(site: Path, browser: Any) -> None:
    """Printed from the browser: no frame, no sliders, no code that nobody can open; boxes are open, colors are light."""
    seen = Visit("chapters/07_gae.html")
    with served(site) as base, opened(browser, base + seen.page, seen) as page:
        page.emulate_media(color_scheme="dark")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print", color_scheme="dark")
        shown = page.evaluate(
            """names => names.filter(name => [...document.querySelectorAll(name)].some(one => one.checkVisibility() && one.getClientRects().length))""",
            [
                ".sidebar-drawer",
                ".toc-drawer",
                ".mobile-header",
                ".skip-to-content",
                ".rlx input",
                "details.hide",
                ".ways-on",
                ".theme-toggle",
                ".book-copy",
            ],
        )
        assert shown == []
        assert page.locator("details.fold:not([open])").count() == 0
        assert page.locator(".solution .folded").first.is_visible()
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        page.wait_for_function("document.querySelectorAll('details.fold[open]').length === 0")
        assert page.evaluate("JSON.parse(localStorage.getItem('book'))?.quiz ?? {}") == {}  # paper answers no quiz
        ink = page.locator("article p").first.evaluate("text => getComputedStyle(text).color")
        assert ink == "rgb(27, 31, 39)"


def test_without_scripts_nothing_is_out_of_reach(site: Path, browser: Any) -> None:
    """Solutions and answers open, pictures show their first state, and the page says why sliders do nothing."""
    context = browser.new_context(java_script_enabled=False, color_scheme="dark")  # its pictures are light ones
    try:
        page = context.new_page()
        page.goto((site / "chapters" / "07_gae.html").as_uri())
        assert page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor") == "rgb(255, 254, 252)"
        assert "need JavaScript" in page.locator(".book-noscript").inner_text()
        solution = page.locator("details.solution").first
        assert not solution.locator("p").first.is_visible()
        solution.locator("summary").click()
        assert solution.locator("p").first.is_visible()
        code = page.locator("details.hide").first
        code.locator("summary").click()
        assert code.locator("pre").first.is_visible()
        assert page.locator(".rlx-picture svg").first.is_visible()
        assert page.locator(".rlx input:enabled").count() == 0
    finally:
        context.close()


def test_a_link_into_a_folded_box_opens_it(site: Path, browser: Any) -> None:
    seen = Visit("chapters/07_gae.html")
    with served(site) as base, opened(browser, base + seen.page, seen) as page:
        name = page.locator("details.solution[id]").first.get_attribute("id")
        assert not page.evaluate("name => document.getElementById(name).open", name)
        page.evaluate("name => { location.hash = encodeURIComponent(name); }", name)
        page.wait_for_function("name => document.getElementById(name).open", arg=name)


def test_code_is_copied(site: Path, browser: Any) -> None:
    seen = Visit("chapters/07_gae.html")
    with served(site) as base, opened(browser, base + seen.page, seen) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        block = page.locator(".cell_input div.highlight:visible").first
        block.hover()
        block.locator("button").click()
        page.wait_for_function("document.querySelector('.book-copy:focus, .book-copy').isConnected")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == block.locator("pre").inner_text().rstrip()
        assert page.locator(".book-copy").first.evaluate("button => button.tabIndex") == -1


def test_colors_follow_the_button_and_stay(site: Path, browser: Any) -> None:
    seen = Visit("index.html")
    with served(site) as base, opened(browser, base + seen.page, seen) as page:
        theme = "document.documentElement.dataset.theme"
        button = page.locator(".theme-toggle:visible").first
        assert page.evaluate(theme) == "light"
        button.click()
        assert page.evaluate(theme) == "dark" and button.get_attribute("title") == "Colors: dark"
        page.goto(base + "chapters/07_gae.html")
        assert page.evaluate(theme) == "dark"


def test_the_contents_follow_the_reader(site: Path, browser: Any) -> None:
    """However long the contents at the side are, the mark of the section that is read is in sight."""
    seen = Visit("chapters/04_mc_and_td_deeper.html")
    with served(site) as base, opened(browser, base + seen.page, seen) as page:
        for share in (0.3, 0.6, 0.95):
            page.evaluate("share => scrollTo(0, share * document.documentElement.scrollHeight)", share)
            page.wait_for_function(
                """() => {
                  const mark = document.querySelector(".toc-tree a[aria-current]");
                  const box = mark?.getBoundingClientRect();
                  return box && box.top >= 0 && box.bottom <= innerHeight && box.right <= innerWidth;
                }"""
            )


def test_pictures_on_a_phone(site: Path, browser: Any) -> None:
    """Panels of a wide picture stand one below the other, with letters of 10 pixels; nothing scrolls, no words meet."""
    seen = Visit("chapters/06_policy_gradients.html")
    with served(site) as base, opened(browser, base + seen.page, seen) as page:
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_function("document.querySelector('.rlx svg > [transform]')")
        pictures = page.evaluate(
            """() => [...document.querySelectorAll(".rlx-picture > svg")].filter(svg => svg.clientWidth).map(svg => {
              const words = [...svg.querySelectorAll("text")].filter(word => word.textContent.trim());
              const letters = words.map(word => parseFloat(getComputedStyle(word).fontSize) * svg.getScreenCTM().a);
              return [svg.parentNode.scrollWidth <= svg.parentNode.clientWidth, !!svg.querySelector(":scope > [transform]"), Math.min(...letters)];
            })"""
        )
    assert len(pictures) > 5 and all(whole for whole, _, _ in pictures)
    assert sum(stacked for _, stacked, _ in pictures) > 1
    assert all(least > (9.9 if stacked else 6.9) for _, stacked, least in pictures)


def test_forced_colors_keep_controls_and_boxes(site: Path, browser: Any) -> None:
    """In a system's high contrast, boxes and controls still have an edge that the system colors."""
    seen = Visit("chapters/07_gae.html")
    with served(site) as base, opened(browser, base + seen.page, seen) as page:
        page.emulate_media(forced_colors="active")
        edges = page.evaluate(
            """() => [".quiz", "details.quiz-right", "details.solution", ".rlx-play", ".rlx select", ".book-search-link", "details.mistake", "details.hide summary"].map(name => {
              const box = document.querySelector(name), style = box && getComputedStyle(box);
              return box ? [name, style.borderTopStyle, parseFloat(style.borderTopWidth) > 0] : [name, "solid", true];
            })"""
        )
    assert [edge for edge in edges if edge[1:] != ["solid", True]] == []


def test_every_letter_of_a_formula_is_in_its_font(site: Path, browser: Any) -> None:
    """The fonts hold only the letters in use; none of those may be missing."""
    cut = {path.stem: set(TTFont(path).getBestCmap()) for path in (site / "_static" / "katex").glob("*.woff2")}
    whole = {path.stem: set(TTFont(path).getBestCmap()) for path in (ROOT / "_ext" / "katex" / "fonts").glob("*.woff2")}
    lost = set()
    for name in ("chapters/04_mc_and_td_deeper.html", "chapters/08_entropy_kl.html", "chapters/appendix_notation.html"):
        seen = Visit(name)
        with served(site) as base, opened(browser, base + name, seen) as page:
            for family, style, weight, letters in page.evaluate(LETTERS):
                face = {"normal400": "Regular", "italic400": "Italic", "normal700": "Bold", "italic700": "BoldItalic"}[
                    style + weight
                ]
                font = f"{family}-{face}"
                lost |= {
                    (font, letter) for letter in letters if ord(letter) in whole.get(font, set()) - cut.get(font, set())
                }
    assert lost == set()


LETTERS = """() => {
  const found = {};
  for (const element of document.querySelectorAll(".katex-html *")) {
    const text = [...element.childNodes].filter(node => node.nodeType === Node.TEXT_NODE).map(node => node.data).join("").trim();
    if (!text) continue;
    const {fontFamily, fontStyle, fontWeight} = getComputedStyle(element);
    const key = [fontFamily.split(",")[0].replaceAll('"', ""), fontStyle, fontWeight].join("/");
    found[key] = (found[key] ?? "") + text;
  }
  return Object.entries(found).map(([key, letters]) => [...key.split("/"), letters]);
}"""


def test_a_page_from_disk(site: Path, browser: Any) -> None:
    """Opened without any server, a chapter loads clean and its sliders move."""
    chapters = [name for name in PAGES if '<form class="rlx-controls"' in (site / name).read_text("utf-8")]
    assert chapters, "no page holds an interactive figure"
    seen = Visit(chapters[0])
    with opened(browser, (site / chapters[0]).as_uri(), seen) as page:
        move_controls(page, seen)
    assert seen.controls > 0
    assert (seen.dead, seen.console, seen.failed, seen.outside) == ([], [], [], [])


def test_copying_a_formula_gives_its_tex(site: Path, browser: Any) -> None:
    name = next(name for name in PAGES if 'class="katex' in (site / name).read_text("utf-8"))
    with served(site) as base, opened(browser, base + name, Visit(name)) as page:
        copied = page.evaluate(
            """() => {
              const formula = document.querySelector("article .math");
              getSelection().selectAllChildren(formula);
              const event = new ClipboardEvent("copy", {clipboardData: new DataTransfer(), bubbles: true, cancelable: true});
              formula.dispatchEvent(event);
              return [event.clipboardData.getData("text/plain"), formula.dataset.tex];
            }"""
        )
    assert copied[1] in copied[0] and copied[0].strip().startswith("$")


def test_every_formula_has_mathml(site: Path) -> None:
    for name in PAGES:
        text = (site / name).read_text("utf-8")
        assert text.count('class="katex-mathml"') == text.count('class="katex"'), name
