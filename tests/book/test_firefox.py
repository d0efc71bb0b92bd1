"""A sample of the pages, and slides, in Firefox: no errors, nothing stands out, every control moves its picture, every answer opens."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from firefox import told_by_firefox
from conftest import ROOT
from page_visit import CLICK_ANSWERS, CONTROLS, FIGURES, PATIENCE_MS, PLACES, STANDING_OUT, UNFOLD, USE_CONTROLS

sys.path.insert(0, str(ROOT / "tools"))
import slides
from test_slides import HIGH

pytestmark = [pytest.mark.browser, pytest.mark.site]

# slides; the map and a hook; drags and films; lists and radio buttons; the longest formulas; code of the library
DECK = "slides/04_mc_and_td"
SAMPLE = [
    DECK,
    "index",
    "chapters/02_mdps",
    "chapters/04_mc_and_td",
    "chapters/08_entropy_kl",
    "chapters/13_grpo_deeper",
]

# Each page in a frame of its own, at two widths. Times are not looked at: a frame is drawn with the page around it.
LOOK = """<body><script>
const sleep = milliseconds => new Promise(done => setTimeout(done, milliseconds));
async function look(address) {
  const frame = document.createElement("iframe"), seen = {errors: []};
  frame.style = "width: 1280px; height: 900px";
  frame.src = address;
  document.body.append(frame);
  await new Promise(done => frame.onload = done);
  const page = frame.contentWindow;
  // a slide is fitted again while its picture is: Firefox says so, once more than it draws, and nothing is lost
  const told = message => address.includes(DECK) && message.startsWith("ResizeObserver loop");
  page.addEventListener("error", event => told(event.message) || seen.errors.push(event.message));
  page.console.error = page.console.warn = (...words) => seen.errors.push(words.join(" "));
  await page.document.fonts.ready;
  seen.formulas = [...page.document.fonts].filter(font => font.family.includes("KaTeX") && font.status === "error").length;
  const run = (script, ...rest) => page.eval(script)(...rest), press = key => page.document.body.dispatchEvent(new page.KeyboardEvent("keydown", {key, bubbles: true}));
  if (address.includes(DECK)) {
    press("ArrowRight");
    seen.moved = page.location.hash === "#2" ? 0 : page.location.hash;
    press("Home");
    seen.high = run(HIGH);
  }
  seen.wide = run(STANDING_OUT);
  [seen.quizzes, seen.quizFaults] = run(CLICK_ANSWERS);
  run(UNFOLD);
  const used = await run(USE_CONTROLS, CHOICE);
  seen.controls = used.length;
  seen.dead = used.flatMap(one => one.faults.map(fault => `figure ${one.number + 1}, ${one.name}: ${fault}`));
  frame.style.width = "390px";
  await sleep(100);
  seen.narrow = run(STANDING_OUT);
  frame.remove();
  return seen;
}
addEventListener("load", async () => {
  const found = {};
  for (const address of SAMPLE) found[address] = await look(`/${address}.html`);
  tell(found);
});
</script>"""


def test_pages_work_in_firefox(site: Path, tmp_path: Path) -> None:
    root = tmp_path / "site"
    (root / "slides").mkdir(parents=True)
    for part in site.iterdir():
        (root / part.name).symlink_to(part)
    (root / f"{DECK}.html").write_text(slides.deck(site, Path(DECK).name, 1)[0], "utf-8")
    values = {
        "STANDING_OUT": STANDING_OUT,
        "CLICK_ANSWERS": CLICK_ANSWERS,
        "UNFOLD": UNFOLD,
        "USE_CONTROLS": USE_CONTROLS,
        "CHOICE": [FIGURES, CONTROLS, PATIENCE_MS, 1e9, PLACES],
        "SAMPLE": SAMPLE,
        "DECK": DECK,
        "HIGH": HIGH,
    }
    constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())
    script = constants.replace("</", "<\\/")  # no end of a script inside a string
    page = f"<script>{script}</script>{LOOK}"
    found = told_by_firefox(root, page, tmp_path / "profile")
    assert list(found) == SAMPLE, found
    for name, seen in found.items():
        faults = ("errors", "formulas", "wide", "narrow", "quizFaults", "dead", "moved", "high")
        assert {fault: seen[fault] for fault in faults if seen.get(fault)} == {}, name
    assert sum(seen["controls"] for seen in found.values()) > 20
    assert sum(seen["quizzes"] for seen in found.values()) > 5
