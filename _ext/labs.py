"""The labs that compute in the page: one directive, and nothing on pages without a lab.

    ```{lab} maze
    :mode: plan
    What one can do here, for readers before they press, on paper, and without scripts.
    ```

The engine and the pages of the labs lie in ``_static/lab``. A page with a lab loads one small script at first; it brings
the rest when the lab is touched. ``LABS`` names the labs, their modes and first buttons; ``OPTIONS`` what can be set,
which the lab finds as ``data-`` attributes; ``:picture:`` shows the closed lab's picture of ``PICTURES``. In JupyterLab ``tools/lab_copy.py`` says where the lab is.

Cells tagged ``runs`` are edited and run in the page, by MicroPython (``_ext/micropython``) and the Python of ``_static/lab/python``.
"""

from __future__ import annotations

import base64
import html
import json
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.docutils import SphinxDirective

FOLDER = "lab/"  # below _static
MICROPYTHON = Path(__file__).parent / "micropython"
LABS = {  # each lab's modes: title, the button that runs it, and the one that only opens it; the first is the whole lab
    "maze": {
        "": ("Own the maze", "Sweep to the end", "Look first"),
        "backup": ("One equation a cell", "Sweep to the end", "Look first"),
        "plan": ("Own the maze", "Sweep to the end", "Look first"),
        "learn": ("Four learners in a maze of yours", "Let all four learn", "Look first"),
    },
    "cartpole": {"": ("Train it", "Train both", "Look first")},
    "language": {
        "": ("Teach it to write its work", "Train", "Look first"),
        "judge": ("Your thumbs make a judge", "Train it to please the judge", "Look first"),
    },
    "people": {"": ("You are the people", "100 others press", "Press yourself")},
    "agent": {
        "": ("You are the agent", "Let someone else walk", "Walk yourself"),
        "walk": ("You are the agent", "Let someone else walk", "Walk yourself"),
        "learn": ("Learning from your walks", "Learn from the walks", "Look first"),
        "pull": ("Your choices pull", "Let the walks pull", "Look first"),
    },
}
OPTIONS = {
    "maze": {"mode", "layout", "slip", "gamma"},
    "cartpole": {"left", "right", "seeds"},
    "language": {"digits", "mode", "price", "rule"},
    "people": set(),
    "agent": {"mode"},
}
# On the laboratory's own page a closed lab shows a still picture and what one gets to see, where a lesson has its story.
SIX_CELLS = "M1 1h118v78h-118zM40 1v78M80 1v78M1 40h118"
PICTURES = {
    ("agent", ""): (
        "Find the goal in the fog. Then see what your own walks say each cell is worth.",
        f'<path fill="currentColor" fill-opacity=".2" stroke="none" d="M80 1h39v78h-39zM40 40h40v39h-40z"/><path d="{SIX_CELLS}"/><circle cx="60" cy="20" r="9" fill="#2f8fd6"/><path stroke="#2f8fd6" stroke-width="3" d="M20 20h28"/><text x="100" y="27">?</text><text x="100" y="66">?</text><text x="60" y="66">?</text>',
    ),
    ("maze", ""): (
        "Paint a maze and watch the goal's worth run back to the start, number by number.",
        f'<path fill="#0a9a74" fill-opacity=".5" stroke="none" d="M80 40h39v39h-39z"/><path fill="#e0702a" fill-opacity=".5" stroke="none" d="M40 40h40v39h-40z"/><path d="{SIX_CELLS}"/><text x="20" y="26">8.1</text><text x="60" y="26">9</text><text x="100" y="26">10</text><text x="20" y="66">7.3</text><text x="60" y="66">−10</text><text x="100" y="66">+10</text>',
    ),
    ("cartpole", ""): (
        "A cart learns to balance before your eyes: two settings race, and you turn the knobs.",
        '<path d="M1 70h118"/><path fill="currentColor" fill-opacity=".4" d="M42 56h36v14h-36z"/><path stroke="#2f8fd6" stroke-width="5" d="M60 56l9-48"/><path stroke="#e0702a" stroke-width="3" d="M84 30h28m-9-7l9 7-9 7"/>',
    ),
    ("language", ""): (
        "A small language model starts to write out its work, though nobody asks for it.",
        '<text x="60" y="18">28517:</text><text x="60" y="44" fill="#e0702a">=4 ✗</text><text x="60" y="72" fill="#0a9a74">64901=9 ✓</text>',
    ),
    ("people", ""): (
        "Press the better answer a few times: bars grow, and you see when the matter is settled.",
        '<path stroke="none" fill="#2f8fd6" d="M34 8h80v14h-80z"/><path stroke="none" fill="#2f8fd6" fill-opacity=".6" d="M34 33h46v14h-46zM34 58h18v14h-18z"/><text x="16" y="21">C</text><text x="16" y="46">A</text><text x="16" y="71">B</text>',
    ),
    ("language", "judge"): (
        "Ten presses make a judge. Watch a model learn to please it: what becomes of what is right?",
        '<path d="M1 79h118M1 79v-78"/><path stroke="#0a9a74" stroke-width="3" d="M2 60q40 -4 116 -50"/><path stroke="#2f8fd6" stroke-width="3" d="M2 22q50 -8 70 20t46 30"/>',
    ),
}
# how a lab looks before it is touched; lab.css comes with the touch
CLOSED = """<style>.lab{margin:.5rem 0;scroll-margin-top:3.5rem}.lab-bar{display:flex;flex-wrap:wrap;gap:.4rem .8rem;align-items:center;margin:0;max-width:none;border:1px solid color-mix(in srgb,currentColor 22%,transparent);border-radius:6px;padding:.5rem .8rem}
.lab-bar button{font:inherit;color:inherit;background:none;border:1px solid;border-radius:4px;padding:.15rem .6rem;min-height:2.5rem;cursor:pointer}.lab-bar+.lab-status{margin:0}.lab-bar svg{width:8rem;flex:none;fill:none;stroke:currentColor}.lab-bar text:not([fill]){fill:currentColor}.lab-bar text{stroke:none;font-size:17px;text-anchor:middle}.lab-bar svg+span{flex:1;min-width:calc(100% - 9rem)}@media print{.lab button{display:none}}</style>"""


def opening(name: str, options: dict[str, str] | None = None, number: int = 1) -> str:
    """The frame of a lab before it is touched; ``number`` counts those of its kind on the page, for links."""
    pictured = "picture" in (options or {})
    options = {key: value for key, value in (options or {}).items() if key != "picture"}
    title, run, look = LABS[name][options.get("mode", "")]
    sides = [options[side] for side in ("left", "right") if side in options]
    place = "-".join(["lab", name, *filter(None, [options.get("mode")]), *([str(number)] if number > 1 else [])])
    # of several labs on a page each has its name
    named = html.escape(": ".join(["Lab", title, *([" and ".join(sides)] if sides else [])]))
    settings = "".join(f' data-{key}="{html.escape(value)}"' for key, value in sorted(options.items()))
    head = f"<b>Lab: {html.escape(title)}</b>"
    if pictured:
        promise, picture = PICTURES[name, options.get("mode", "")]
        head = f'<svg viewBox="0 0 120 80" aria-hidden="true">{picture}</svg><span>{head}<br>{promise}</span>'
    return (
        f'<section class="lab" id="{place}" data-lab="{name}"{settings} data-state="stopped" aria-label="{named}">'
        f'<p class="lab-bar">{head} <button type="button" class="lab-run">{html.escape(run)}</button> '
        f'<button type="button" class="lab-open">{look}</button></p>'
        '<p class="lab-status" role="status"></p>'
        "<noscript><p>This lab computes in the page and needs JavaScript, which is switched off here.</p></noscript>"
        "</section>"
    )


def loading(folder: str) -> str:
    """What a page with a lab loads at first."""
    return f'{CLOSED}<script src="{folder}lab.js" defer></script>'


class lab(nodes.General, nodes.Element):
    """A lab's place on a page."""


class LabDirective(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec = {option: directives.unchanged_required for option in sorted(set().union(*OPTIONS.values()))} | {
        "picture": directives.flag
    }

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in LABS:
            raise self.error(f"lab is {name!r}; expected one of {sorted(LABS)}")
        if unknown := set(self.options) - OPTIONS[name] - {"picture"}:
            raise self.error(f"lab {name} has no option {sorted(unknown)[0]}; expected one of {sorted(OPTIONS[name])}")
        if (mode := self.options.get("mode", "")) not in LABS[name]:
            raise self.error(f"mode is {mode!r}; expected one of {sorted(LABS[name])[1:]}")
        kinds = self.env.temp_data.setdefault("labs", [])
        kinds.append((name, mode))
        return [
            *self.parse_content_to_nodes(),
            lab("", name=name, options=self.options, number=kinds.count((name, mode))),
        ]


def visit_html(self: Any, node: lab) -> None:
    self.body.append(opening(node["name"], node["options"], node["number"]))
    raise nodes.SkipNode


def visit_elsewhere(self: Any, node: lab) -> None:
    raise nodes.SkipNode


def leave_out(app: Sphinx, config: Config) -> None:
    """Jupyter Book lists every script and sheet below ``_static`` for every page: the labs' are no page's, but for one."""
    for option in ("html_css_files", "html_js_files"):
        names = lambda file: file if isinstance(file, str) else file[0]
        setattr(config, option, [file for file in getattr(config, option) if not names(file).startswith(FOLDER)])


def add_script(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """A page with a lab gets its few rules and its one script, at the end of the text."""
    body = context.get("body") or ""
    if 'data-lab="' in body:
        context["body"] = body + loading("../" * (len(PurePosixPath(page).parts) - 1) + "_static/" + FOLDER)


def copy_files(app: Sphinx, error: Exception | None) -> None:
    """The labs' files, which Sphinx leaves out: what ``exclude_patterns`` says of the folder ``lab`` it takes for this one, too."""
    if not error and app.builder.format == "html":
        copy_lab(Path(app.srcdir, "_static", FOLDER), Path(app.outdir, "_static", FOLDER))


def copy_lab(source: Path, target: Path) -> None:
    """The folder as a site has it: MicroPython and the Python of the page are one script, which works from a disk, too."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("python"), dirs_exist_ok=True)
    # inside a function instead of in a module: no exports, and no address of its own
    script = (MICROPYTHON / "micropython.mjs").read_text("utf-8").replace("import.meta.url", '""')
    script = script.replace("export default _createMicroPythonModule;export async function", "async function")
    parts = {
        "script": script,
        "wasm": base64.b64encode((MICROPYTHON / "micropython.wasm").read_bytes()).decode(),
        "python": "".join(
            (source / "python" / f"page_{name}.py").read_text("utf-8") for name in ("numpy", "worlds", "pictures")
        ),
    }
    (target / "micropython.js").write_text(f"self.MICROPYTHON = {json.dumps(parts)};\n", "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(lab, html=(visit_html, None), **{name: (visit_elsewhere, None) for name in ("latex", "text", "epub")})
    app.add_directive("lab", LabDirective)
    app.connect("config-inited", leave_out, priority=600)
    app.connect("html-page-context", add_script, priority=980)
    app.connect("build-finished", copy_files)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
