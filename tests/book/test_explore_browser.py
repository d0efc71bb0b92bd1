"""Interactive figures in Chromium, from a file on disk: mouse, keyboard, play, speed, several on one page."""

import matplotlib
import numpy as np
import pytest

matplotlib.use("agg")

from matplotlib import pyplot as plt  # noqa: E402

from rlbook_lib.explore import dressing, explore  # noqa: E402
from rlbook_lib.figures import show  # noqa: E402
from page_visit import step_ms  # noqa: E402

pytestmark = pytest.mark.browser


def setup_wave():
    _, (left, right) = plt.subplots(1, 2, figsize=(6.4, 2.8))
    bars = left.bar(range(10), np.ones(10), color="#0072b2")
    left.set_ylim(0, 1.1)
    x = np.linspace(0, 5, 60)
    (line,) = right.plot(x, 0 * x, color="#d55e00")
    right.set(xlim=(0, 5), ylim=(-1.2, 1.2))
    return bars, line, right.text(0.2, -1, ""), x


def update_wave(artists, gamma, lam, kind):
    bars, line, text, x = artists
    for step, bar in enumerate(bars):
        bar.set_height((gamma * lam) ** step)
    line.set_ydata(lam * (np.sin if kind == "sine" else np.cos)(2 * gamma * x))
    text.set_text(f"{kind} {gamma:.1f}" if lam > 0.5 else "")
    return f"The product is {gamma * lam:.2f}."


@pytest.fixture(scope="module")
def figures():
    """A figure with sliders and words, one that plays, and a static one."""
    two = explore(
        setup_wave,
        update_wave,
        gamma=(0.5, 1.0, 0.1),
        lam=(0.0, 1.0, 0.1),
        kind=["sine", "cosine"],
        alt="Bars and a wave",
        labels={"gamma": "discount γ", "lam": "trace λ"},
        handle={"lam": ("x", 1)},
    )

    def setup():
        _, ax = plt.subplots(figsize=(5, 2.5))
        ax.set(xlim=(0, 12), ylim=(0, 12))
        return ax.plot([], [], "o-")[0]

    def update(line, sweep, law):
        power = {name: 1 + index / 7 for index, name in enumerate(LAWS)}[law]
        line.set_data(range(sweep + 1), [index**power / 12 ** (power - 1) for index in range(sweep + 1)])
        return f"Sweep {sweep}"

    film = explore(setup, update, sweep=(0, 12), law=LAWS, play="sweep", initial={"sweep": 0}, alt="A growing line")
    still, ax = plt.subplots(figsize=(4, 2), layout="constrained")
    ax.plot([0, 1], [0, 1], color="black")
    return two, film, show(still, "A rising line")


PACE = 8000 // 13  # milliseconds a picture of a film of 13
LAWS = ["linear", "a bit more", "more", "nearly squared", "squared", "steep", "very steep"]


@pytest.fixture(scope="module")
def address(figures, tmp_path_factory):
    """A page on disk with all figures, the first of them twice."""
    two, film, still = figures
    body = "".join(f"<section>{figure.html}</section>" for figure in (two, film, two, still))
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Figures</title>{dressing()}</head>'
        f'<body style="font-family: sans-serif; max-width: 46rem">{body}</body></html>'
    )
    file = tmp_path_factory.mktemp("page") / "figures.html"
    file.write_text(page, encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def page(browser, address):
    with open_page(browser, address) as opened:
        yield opened


@pytest.fixture
def stopped_page(browser, address):
    with open_page(browser, address, stop_clock=True) as opened:
        yield opened


class open_page:
    """A page that must stay silent: no console message, no error, no request but its own file."""

    def __init__(self, browser, address, stop_clock=False, **settings):
        self.context = browser.new_context(viewport={"width": 900, "height": 900}, **settings)
        self.address, self.stop_clock, self.faults = address, stop_clock, []

    def __enter__(self):
        page = self.context.new_page()
        if self.stop_clock:  # a film runs when the test says so
            page.clock.install(time=0)
            page.clock.pause_at(1)
        page.on("console", lambda message: self.faults.append(message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda request: request.url in (self.address,) or self.faults.append(request.url))
        page.goto(self.address)
        return page

    def __exit__(self, *failure):
        self.context.close()
        if failure[0] is None:
            assert self.faults == []


def figure(page, number):
    return page.locator(".rlx").nth(number)


def picture(page, number):
    return figure(page, number).locator(".rlx-picture > svg").inner_html()


def test_the_mouse_moves_every_slider(page):
    for number in (0, 1, 2):
        sliders = figure(page, number).locator('input[type="range"]')
        for index in range(sliders.count()):
            slider, before = sliders.nth(index), picture(page, number)
            slider.scroll_into_view_if_needed()
            box = slider.bounding_box()
            middle = box["y"] + box["height"] / 2
            page.mouse.move(box["x"] + box["width"] * 0.1, middle)
            page.mouse.down()
            page.mouse.move(box["x"] + box["width"] * 0.3, middle, steps=4)
            between = picture(page, number)
            page.mouse.move(box["x"] + box["width"] * 0.9, middle, steps=4)
            page.mouse.up()
            assert len({before, between, picture(page, number)}) == 3


def test_the_keyboard_moves_every_control(page):
    """Tab reaches each control in turn; arrows change it; focus is visible."""
    reached = []
    for _ in range(9):
        page.keyboard.press("Tab")
        kind = page.evaluate("document.activeElement.type")
        number = page.evaluate("[...document.querySelectorAll('.rlx')].indexOf(document.activeElement.closest('.rlx'))")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", kind
        reached.append((number, kind))
        if kind == "button":
            continue
        before = picture(page, number)
        page.keyboard.press("ArrowDown" if kind == "select-one" else "ArrowRight")
        assert picture(page, number) != before, (number, kind)
    kinds = ["range", "range", "radio", "range", "button", "select-one", "range", "range", "radio"]
    assert reached == list(zip([0, 0, 0, 1, 1, 1, 2, 2, 2], kinds, strict=True))


def test_keys_step_and_jump_and_the_value_is_spoken(page):
    slider = figure(page, 0).get_by_label("discount γ")
    slider.focus()
    page.keyboard.press("Home")
    assert slider.get_attribute("aria-valuetext") == "0.5"
    assert figure(page, 0).locator("output").first.inner_text() == "0.5"
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "0.6"
    page.keyboard.press("End")
    assert slider.get_attribute("aria-valuetext") == "1.0"
    assert figure(page, 0).locator(".rlx-readout").inner_text() == "The product is 0.50."


def test_the_picture_is_a_function_of_the_controls(page):
    """There and back again gives the same picture, also through states with other structure."""
    slider = figure(page, 0).get_by_label("trace λ")
    before = picture(page, 0)
    slider.focus()
    for key in ["End", "Home", "End", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft"]:
        page.keyboard.press(key)
    assert picture(page, 0) == before


def test_accessible_names(page):
    for name, role in [("discount γ", "slider"), ("trace λ", "slider"), ("sine", "radio"), ("kind", "radiogroup")]:
        assert figure(page, 0).get_by_role(role, name=name, exact=True).count() == 1, name
    assert figure(page, 1).get_by_role("combobox", name="law", exact=True).count() == 1
    assert figure(page, 1).get_by_role("button", name="Play sweep", exact=True).count() == 1
    assert figure(page, 0).get_by_role("img", name="Bars and a wave").count() == 1
    assert figure(page, 3).get_by_role("img", name="A rising line").count() == 1


def test_two_figures_do_not_touch_each_other(page):
    others = [picture(page, number) for number in (1, 2, 3)]
    slider = figure(page, 0).get_by_label("trace λ")
    slider.focus()
    page.keyboard.press("End")
    figure(page, 0).get_by_label("cosine").check()
    assert [picture(page, number) for number in (1, 2, 3)] == others
    assert figure(page, 2).get_by_label("sine", exact=True).is_checked()
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(element => element.id)")
    assert len(ids) == len(set(ids)) and ids
    used = page.evaluate(
        "[...document.querySelectorAll('[clip-path]')].map(e => e.getAttribute('clip-path').slice(5, -1))"
    )
    assert used and set(used) <= set(ids)


def test_play_runs_to_the_end_and_starts_again(stopped_page):
    page = stopped_page
    film = figure(page, 1)
    button = film.locator("button")
    slider = film.get_by_label("sweep", exact=True)
    seen = {picture(page, 1)}
    button.click()
    assert button.inner_text().startswith("Pause")
    assert film.locator(".rlx-readout").get_attribute("aria-live") == "off"
    while button.inner_text().startswith("Pause"):
        seen.add(picture(page, 1))
        page.clock.run_for(50)
    seen.add(picture(page, 1))
    assert slider.get_attribute("aria-valuetext") == "12"
    assert film.locator(".rlx-readout").get_attribute("aria-live") == "polite"
    assert len(seen) == 13
    button.click()
    page.clock.run_for(PACE)
    button.click()
    page.clock.run_for(3 * PACE)
    assert slider.get_attribute("aria-valuetext") == "1"
    assert button.inner_text().startswith("Play")


def test_a_hand_on_the_slider_stops_the_film(stopped_page):
    page = stopped_page
    film = figure(page, 1)
    film.locator("button").click()
    film.get_by_label("sweep", exact=True).focus()
    page.keyboard.press("End")
    page.clock.run_for(3 * PACE)
    assert film.get_by_label("sweep", exact=True).get_attribute("aria-valuetext") == "12"
    assert film.locator("button").inner_text().startswith("Play")


def test_with_reduced_motion_a_press_is_one_step(browser, address):
    with open_page(browser, address, stop_clock=True, reduced_motion="reduce") as page:
        film = figure(page, 1)
        button = film.get_by_role("button", name="Step sweep")
        slider = film.get_by_label("sweep", exact=True)
        for expected in ("1", "2"):
            button.click()
            assert slider.get_attribute("aria-valuetext") == expected
        page.clock.run_for(3 * PACE)
        assert slider.get_attribute("aria-valuetext") == "2"
        assert film.locator(".rlx-readout").get_attribute("aria-live") == "polite"
        slider.focus()
        page.keyboard.press("End")
        button.click()
        assert slider.get_attribute("aria-valuetext") == "0"


def test_a_step_takes_less_than_a_frame(page):
    """Attribute changes and the layout they force, by the processor's time: a busy machine does not count."""
    slider = page.locator(".rlx input").first
    times = [step_ms(page, slider, value) for value in range(6)]
    assert max(times) < 8, [round(time, 2) for time in times]


SMALLEST = """() => [...document.querySelectorAll(".rlx-picture > svg")].map(svg => Math.min(
  ...[...svg.querySelectorAll("text")].filter(word => word.textContent.trim())
    .map(word => parseFloat(getComputedStyle(word).fontSize) * svg.getScreenCTM().a)))"""


def test_panels_stack_on_a_phone_and_can_be_pulled_there(page):
    """No letter below 10 pixels, nothing wider than the screen, and back again."""
    wide = [picture(page, number) for number in range(4)]
    page.set_viewport_size({"width": 390, "height": 1600})
    page.wait_for_function("document.querySelector('.rlx svg g[transform]')")
    assert min(page.evaluate(SMALLEST)) > 9.9
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    widest = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.rlx :not(svg :not(text))')].map(e => e.getBoundingClientRect().right))"
    )
    assert widest <= 391
    slider, area = figure(page, 0).get_by_label("trace λ"), figure(page, 0).locator(".rlx-handle").bounding_box()
    upper = figure(page, 0).locator(".rlx-picture > svg").bounding_box()
    assert area["y"] > upper["y"] + upper["height"] / 2  # the second panel is the lower one
    for value in ("0.1", "0.6", "1.0"):  # of an axis that ends at 5
        page.mouse.click(area["x"] + float(value) / 5 * area["width"], area["y"] + area["height"] / 2)
        assert slider.get_attribute("aria-valuetext") == value
    slider.focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    page.set_viewport_size({"width": 900, "height": 900})
    page.wait_for_function("!document.querySelector('.rlx svg [transform^=translate]')")
    assert [picture(page, number) for number in range(4)] == wide


def test_paper_shows_values_and_no_controls(page):
    page.emulate_media(media="print")
    assert page.locator(".rlx :is(input, select, button, output)").locator("visible=true").count() == 0
    shown = "control => [control.innerText, getComputedStyle(control, '::after').content]"
    said = [control.evaluate(shown) for control in page.locator(".rlx-control").all()[:3]]
    assert [[name.strip(), value] for name, value in said] == [
        ["discount γ", '"0.8"'],
        ["trace λ", '"0.5"'],
        ["kind", '"sine"'],
    ]


def test_text_stays_inside_the_picture(page):
    """The reader's font is not the one that was measured."""
    outside = page.evaluate(
        """() => [...document.querySelectorAll('.rlx-picture > svg')].flatMap(svg => {
          const frame = svg.getBoundingClientRect();
          return [...svg.querySelectorAll('text')].filter(text => {
            const box = text.getBoundingClientRect();
            return box.width && (box.left < frame.left - 1 || box.right > frame.right + 1
              || box.top < frame.top - 1 || box.bottom > frame.bottom + 1);
          }).map(text => text.textContent);
        })"""
    )
    assert outside == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_lines_follow_the_page(browser, address, theme):
    ground, ink = {"light": ("#ffffff", "rgb(34, 40, 50)"), "dark": ("#14181e", "rgb(206, 214, 221)")}[theme]
    with open_page(browser, address) as page:
        page.evaluate(
            "([theme, ground, ink]) => { const root = document.documentElement; root.dataset.theme = theme;"
            "root.style.setProperty('--color-background-primary', ground);"
            "document.body.style.background = ground;"
            "document.body.style.color = ink; }",
            [theme, ground, ink],
        )
        colors = page.evaluate("[...document.querySelectorAll('.rlx text')].map(e => getComputedStyle(e).fill)")
        assert set(colors) == {ink}
        lines = page.evaluate(
            "[...document.querySelectorAll('.rlx [stroke^=\"var(--rlx-red\"]')].map(e => getComputedStyle(e).stroke)"
        )
        assert set(lines) == {{"light": "rgb(213, 94, 0)", "dark": "rgb(240, 122, 42)"}[theme]}
        pixel = page.evaluate("getComputedStyle(document.querySelector('.rlx')).backgroundColor")
        assert pixel in ("rgba(0, 0, 0, 0)", "transparent")


def test_without_scripts_the_picture_is_still_there(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator(".rlx-picture > svg path").count() > 10
    assert page.locator('input[type="range"]').first.is_disabled()
    context.close()


def test_of_two_handles_in_one_panel_the_nearer_one_is_pulled(browser, tmp_path):
    def setup():
        _, ax = plt.subplots(figsize=(4, 2))
        ax.set(xlim=(0, 10), ylim=(-1, 2))
        return ax.plot([0], [0], "D")[0], ax.plot([0], [1], "D")[0]

    def update(marks, low, high):
        for mark, value in zip(marks, (low, high)):
            mark.set_xdata([value])

    steps = list(range(11))
    handle = {"low": [(x, 0) for x in steps], "high": [(x, 1) for x in steps]}
    two = explore(setup, update, low=steps, high=steps, initial={"low": 2, "high": 8}, handle=handle, alt="Two marks")
    (tmp_path / "index.html").write_text(f"<!doctype html><title>Two</title>{dressing()}{two.html}", "utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "index.html").as_uri())
    area = page.locator(".rlx-handle").bounding_box()
    place = lambda x, y: (area["x"] + area["width"] * x / 10, area["y"] + area["height"] * (2 - y) / 3)
    values = lambda: [page.get_by_label(name).get_attribute("aria-valuetext") for name in ("low", "high")]
    page.mouse.click(*place(6, 0.1))
    assert values() == ["6", "8"]
    page.mouse.move(*place(7, 0.9))  # once held, it stays held, wherever the pointer goes
    page.mouse.down()
    page.mouse.move(*place(1, 0.1))
    page.mouse.up()
    assert values() == ["6", "1"]
    page.close()
