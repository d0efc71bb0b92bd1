"""The interactive figures of one page, written for a page: what all of them carry stands once, and text stands near text.

A figure is whole in itself, so that a notebook or a single cell can show it. On a page, its rules and its script are needed once, its
ids may be short, and its table of states goes to the end: compression looks back 32 KB only, and finds more of what
it has seen when prose and formulas are not parted by tables of numbers.
"""

from __future__ import annotations

import re

STYLES = re.compile(r'(<div class="rlx[\w -]*">)((?:<style>(?:(?!</style>).)*</style>)+)', re.DOTALL)
ONE_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
SCRIPT = re.compile(r"(?<=</script>)<script>(?:(?!</script>).)*</script>(?=</div>)", re.DOTALL)
STATES = re.compile(r'<script type="application/json">(?:(?!</script>).)*</script>', re.DOTALL)
CONTROLS = '<form class="rlx-controls"'
NAME = re.compile(r"\brlx[0-9a-f]{8}-[a-z][0-9a-f]{8}\b")  # of a clip region or a hatch
PICTURE = re.compile(
    r'(<svg xmlns="http://www.w3.org/2000/svg"[^>]* fill="currentColor"[^>]*>)(.*?)(?=</svg>)', re.DOTALL
)
WIDTH = re.compile(r' width="([\d.]+)"')
WIDE = 560  # CSS pixels: on a phone it would shrink to half or less, and its text with it
SHORT_NAME = re.compile(r"\brlx(\d+)\b")
KEPT_STATES = re.compile(r'<div class="rlx-states" hidden>(.*?)</div>', re.DOTALL)
INK = re.compile(r'(<(?:path|text)\b[^>]*?) fill="currentColor"')
# Each table of states goes back into its figure, before the figures' script looks for it there.
PUT_BACK = (
    '<script>(()=>{const states=[...document.querySelectorAll(".rlx-states>script")];'
    'document.querySelectorAll(".rlx-controls").forEach((form,n)=>form.closest(".rlx").append(states[n]))})()</script>'
)


def lighter_figures(body: str) -> str:
    """A page's body with the figures' common parts once: rules at its start, tables of states and the script at its end."""
    styles = dict.fromkeys(style for _, found in STYLES.findall(body) for style in ONE_STYLE.findall(found))
    scripts = dict.fromkeys(SCRIPT.findall(body))
    body = shorter_names(SCRIPT.sub("", STYLES.sub(r"\1", body)))
    body = PICTURE.sub(lambda match: marked(match[1]) + INK.sub(r"\1", match[2]), body)
    states = STATES.findall(body)
    if not states:
        return "".join([*styles, body, *scripts])
    if len(states) != body.count(CONTROLS):
        raise ValueError(f"{len(states)} tables of states on a page with {body.count(CONTROLS)} interactive figures")
    return "".join(
        [*styles, STATES.sub("", body), '<div class="rlx-states" hidden>', *states, "</div>", PUT_BACK, *scripts]
    )


def shorter_names(body: str) -> str:
    """``rlx6002e64d-c2cc694d0`` is rlx0 on its page, where one name stands for one region."""
    short: dict[str, str] = {}
    return NAME.sub(lambda match: short.setdefault(match[0], f"rlx{len(short)}"), body)


def marked(start: str) -> str:
    """The start of a picture, with a class that says if it is wide (the style sheet lets such a one scroll on a phone)."""
    width = WIDTH.search(start)
    return start.replace("<svg ", '<svg class="rlx-wide" ', 1) if width and float(width[1]) >= WIDE else start


def whole_figures(body: str, page: str) -> str:
    """For a document of many pages: each table of states back in its figure, and names that no other page has."""
    states = iter(STATES.findall("".join(KEPT_STATES.findall(body))))
    parts = re.split(rf"(?={re.escape(CONTROLS)})", KEPT_STATES.sub("", body.replace(PUT_BACK, "")))
    body = parts[0] + "".join(part.replace("</form>", "</form>" + next(states), 1) for part in parts[1:])
    return SHORT_NAME.sub(lambda match: f"rlx-{page}-{match[1]}", body)
