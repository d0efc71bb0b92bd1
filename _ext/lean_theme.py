"""A light, accessible page from sphinx-book-theme 1.1.4 (above pydata-sphinx-theme 0.15.4), neither of them patched.

The theme as it comes loads 1.3 MB before the first word. This extension keeps its looks and drops the rest:

* one style sheet, ``_static/lean.css``: the sheets of the theme, of the extensions and of the book in order, without the
  rules that no page can meet, with a FontAwesome subset of the icons in use;
* KaTeX's fonts with only the letters that the book's formulas draw with them;
* one script, ``_static/book.js``, in the place of the theme's; boxes that fold are ``details``;
* citations as plain list items, and pictures without alternative text or notebooks with an error output as warnings.
"""

from __future__ import annotations

import base64
import functools
import html
import io
import json
import logging as python_logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import book_search as search_client
import lean_formula
import pybtex.plugin
import pydata_sphinx_theme
import tinycss2
from docutils import nodes
from fontTools import subset
from fontTools.ttLib import TTFont
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging
from used_rules import Pages, kept_rules, without_unused_properties

LOG = logging.getLogger(__name__)
python_logging.getLogger("fontTools").setLevel(python_logging.WARNING)

KATEX = Path(__file__).parent / "katex"
# Sheets that come before all others, in this order; "basic.css" must be first.
THEME_SHEETS = ["basic.css", "styles/bootstrap.css", "styles/pydata-sphinx-theme.css"]
# Scripts of the theme and of extensions, whose part in this book _static/book.js does, or that nothing here uses.
REPLACED = {
    "documentation_options.js",
    "doctools.js",
    "sphinx_highlight.js",
    "sphinx-book-theme.js",
    "pydata-sphinx-theme.js",
    "clipboard.min.js",
    "clipboard.js",
    "copybutton.js",
    "copybutton_funcs.js",
    "togglebutton.js",
}
REPLACED_INLINE = re.compile(r"DOCUMENTATION_OPTIONS|toggleHint|toggleOpenOnPrint|togglebuttonSelector")
NEEDED_BY = {"design-tabs.js": r"sd-tab-set"}  # a script and the pattern that a page must hold to need it
WORD = re.compile(r"-?[A-Za-z_][\w-]*")
SCRIPT = re.compile(r"<script\b[^>]*>(?=[^<\s{])(.*?)</script>", re.DOTALL)  # data of figures left out
STYLE = re.compile(r"<style>.*?</style>|style=\"[^\"]*--[^\"]*\"", re.DOTALL)


# ---------------------------------------------------------------- scripts and style sheets of a page


def drop_duplicates(app: Sphinx, config: Config) -> None:
    """Jupyter Book lists each file below ``_static`` once more than needed: keep the first of each."""
    for option in ("html_css_files", "html_js_files"):
        files = getattr(config, option)
        names = [file if isinstance(file, str) else file[0] for file in files]
        setattr(config, option, list(dict(zip(reversed(names), reversed(files), strict=True)).values())[::-1])


NO_SCRIPT = (
    '<noscript><p class="book-noscript">The sliders of this page need JavaScript, which is switched off here. Each picture shows its '
    "first state; text, formulas, quizzes and solutions are complete.</p></noscript>"
)


def lighten_page(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Keep the scripts this page needs, once and deferred; take its style sheets over into the one sheet."""
    body = mended(context.get("body") or "")
    body = context["body"] = (NO_SCRIPT if '<form class="rlx-controls"' in body else "") + body
    if "generate_toctree_html" in context:
        context["generate_toctree_html"] = with_names(context["generate_toctree_html"])
    kept = {}  # some are listed twice
    for script in context["script_files"]:
        name, code = str(script.filename or ""), script.attributes.get("body") or ""
        file = re.sub(r"[?].*", "", name.rsplit("/", 1)[-1])
        if file in REPLACED or not name and REPLACED_INLINE.search(code):
            continue
        if re.search(NEEDED_BY.get(file, ""), body):
            attributes = {**script.attributes, "defer": "defer"} if name else script.attributes
            kept[name or code] = type(script)(script.filename, priority=script.priority, **attributes)
    context["script_files"][:] = kept.values()
    local = [str(sheet.filename) for sheet in context["css_files"] if "://" not in str(sheet.filename)]
    app.lean_sheets.update(dict.fromkeys(local))  # type: ignore[attr-defined]
    context["css_files"][:] = [sheet for sheet in context["css_files"] if "://" in str(sheet.filename)]


SIGNATURE_LINES = re.compile(r"<dl>\n((?:<dd>.*</dd>\n)+)</dl>")
# words of code in the color of the text around them: names, points, space; and operators, whose color says nothing
PLAIN_CODE = re.compile(r'<span class="(?:n|p|w|nn|o)">([^<]*)</span>')
STRINGS = re.compile(r'(?<=<span class=")(?:sa|si|s1|se)(?=">)')  # all parts of a string have one color
NEIGHBORS = re.compile(r'(<span class="s2">[^<]*)</span>(?=<span class="s2">)<span class="s2">')
FOLDED = re.compile(
    r'<div class="([^"]*\b(?:dropdown|toggle)\b[^"]*\badmonition\b[^"]*)"([^>]*)>\s*<p class="admonition-title">(.*?)</p>',
    re.DOTALL,
)
LINK = re.compile(r"</?a\b[^>]*>")  # what is clicked to unfold must not lead elsewhere
EMPTY_HEAD = re.compile(r"<th\b([^>]*)>(?:\s|<p>|</p>)*</th>")
DIV = re.compile(r"<div\b|</div>")


def mended(body: str) -> str:
    """What readers of a page's structure stumble over, and elements that change nothing on the screen."""
    # a folded cell's label contradicts its visible text
    body = body.replace(' aria-label="Toggle hidden content"', "")
    body = folded(lighter_code(body))
    # the sign that links a heading to itself is no stop for the Tab key: the contents at the side have the same links
    body = body.replace('<a class="headerlink" ', '<a class="headerlink" tabindex="-1" ')
    body = EMPTY_HEAD.sub(r"<td\1></td>", body)  # the corner of a table heads nothing
    # a signature of several lines is written as a list of descriptions that describe nothing
    return SIGNATURE_LINES.sub(
        lambda match: match[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>"), body
    )


def lighter_code(body: str) -> str:
    """Code with an element for a word only where it changes the color: a third of what the highlighter writes."""
    body = STRINGS.sub("s2", PLAIN_CODE.sub(r"\1", body).replace("<pre><span></span>", "<pre>"))
    count = 1
    while count:
        body, count = NEIGHBORS.subn(r"\1", body)
    return body


def folded(body: str) -> str:
    """Boxes that fold become ``details``: they fold without a script, and the keyboard and screen readers know them."""
    while head := FOLDED.search(body):
        depth = 1
        for div in DIV.finditer(body, head.end()):
            depth += -1 if div[0] == "</div>" else 1
            if depth == 0:
                inside = body[head.end() : div.start()]
                box = f'<details class="{head[1]}"{head[2]}><summary class="admonition-title">{LINK.sub("", head[3])}</summary>{inside}</details>'
                body = body[: head.start()] + box + body[div.end() :]
                break
        else:
            raise ValueError(f"a folded box without an end: {head[0][:120]}")
    return body


def with_names(sidebar: Callable[..., Any]) -> Callable[..., str]:
    """The theme's tree of pages; the arrow that unfolds the pages under a chapter gets a name."""
    arrow, name = (
        '<summary><span class="toctree-toggle"',
        '<summary aria-label="Pages under this chapter"><span class="toctree-toggle"',
    )
    return lambda *arguments, **options: str(sidebar(*arguments, **options)).replace(arrow, name)


# ---------------------------------------------------------------- the one style sheet


def write_style_sheet(app: Sphinx, error: Exception | None) -> None:
    """Join, shorten and write ``lean.css``; write the fonts it names."""
    if error or app.builder.format != "html":
        return
    out, static = Path(app.outdir), Path(app.outdir, "_static")
    pages = [path.read_text("utf-8") for path in out.rglob("*.html") if "_static" not in path.parts]
    own_scripts = [
        path.read_text("utf-8")
        for path in [*Path(app.srcdir, "_static").glob("*.js"), search_client.FOLDER / "search.js"]
    ]
    scripts = "".join([*own_scripts, *{script for page in pages for script in SCRIPT.findall(page)}])
    words = set(WORD.findall("".join([*pages, *own_scripts])))

    names = [re.sub(r"^_static/|[?].*", "", name) for name in app.lean_sheets]  # type: ignore[attr-defined]
    names = [name for name in dict.fromkeys(THEME_SHEETS + names) if (static / name).is_file()]
    own = [name for name in names if Path(app.srcdir, "_static", name).is_file()]
    others = [read_sheet(static, name) for name in names if name not in own]
    # the book's own sheets have the last word
    sheet = "\n".join([*others, formula_sheet(), *(read_sheet(static, name) for name in own)])

    rules = tinycss2.parse_stylesheet(sheet, skip_comments=True, skip_whitespace=True)
    text = icon_rules(words, sheet) + "".join(
        kept_rules(rules, Pages(pages, scripts, set(re.findall(r"#([\w-]+)", sheet))))
    )
    styles = "".join({style for page in pages for style in STYLE.findall(page)})
    text = '@charset "utf-8";' + without_unused_properties(text, styles + scripts)
    (static / "lean.css").write_text(text, "utf-8")
    for path in Path(app.srcdir, "_static").glob("*.js"):  # readers load no remarks and no indents
        (static / path.name).write_text(
            re.sub(r"(?m)^\s*(//.*)?\n|^\s+|\s+// .*$", "", path.read_text("utf-8")), "utf-8"
        )
    LOG.info("lean.css: %d KB, of %d KB of style sheets", len(text) // 1024, len(sheet) // 1024)
    write_formula_fonts(static / "katex", letters_by_font(pages))
    shutil.rmtree(static / "vendor" / "fontawesome", ignore_errors=True)
    for leftover in static.rglob("*.map"):
        leftover.unlink()


def read_sheet(static: Path, name: str) -> str:
    """A style sheet, its relative addresses made relative to ``_static``."""
    text = (static / name).read_text("utf-8")
    folder = Path(name).parent.as_posix()
    if folder != ".":
        text = re.sub(r"url\((?!data:|https?:|#|[\"']?data:)([\"']?)", rf"url(\g<1>{folder}/", text)
    return re.sub(r"/\*# sourceMappingURL.*?\*/", "", text)


def formula_sheet() -> str:
    """KaTeX's style sheet with its fonts in one format, which every browser of today reads."""
    text = (KATEX / "katex.min.css").read_text("utf-8").replace("url(fonts/", "url(katex/") + lean_formula.RULES
    return re.sub(r",url\([^)]*\) format\(\"(?:woff|truetype)\"\)", "", text)


# ---------------------------------------------------------------- icons and fonts

ICON_BASE = """
:root{--fa-style-family-classic:'Font Awesome 6 Free';--fa-font-solid:normal 900 1em/1 'Font Awesome 6 Free';
--fa-font-regular:normal 400 1em/1 'Font Awesome 6 Free';--fa-font-brands:normal 400 1em/1 'Font Awesome 6 Brands'}
.fa,.fas,.fa-solid,.far,.fa-regular{font:normal 900 1em/1 'Font Awesome 6 Free';display:inline-block;
-webkit-font-smoothing:antialiased;text-rendering:auto}.fa-lg{font-size:1.25em;line-height:.05em;vertical-align:-.075em}
"""


def icon_rules(words: set[str], sheet: str) -> str:
    """The FontAwesome glyphs that pages and style sheets use: a small font inside the sheet, and their classes."""
    root = next(Path(pydata_sphinx_theme.__file__).parent.rglob("fontawesome/*/css/all.min.css"))
    codes: dict[str, int] = {}
    for selectors, code in re.findall(r'([^{}]*)\{content:"\\([0-9a-f]+)"\}', root.read_text("utf-8")):
        codes.update((name, int(code, 16)) for name in re.findall(r"\.(fa-[\w-]+):before", selectors))
    used = {name: code for name, code in sorted(codes.items()) if name in words}
    wanted = set(used.values()) | {int(code, 16) for code in re.findall(r'"\\(f[0-9a-f]{3})"', sheet)}
    font = TTFont(root.parent.parent / "webfonts" / "fa-solid-900.ttf", recalcTimestamp=False)
    data = base64.b64encode(subset_font(font, wanted & set(font.getBestCmap()))).decode()
    face = (
        "@font-face{font-family:'Font Awesome 6 Free';font-style:normal;font-weight:900;font-display:block;"
        f"src:url(data:font/woff2;base64,{data}) format('woff2')}}"
    )
    # the empty text after the slash keeps screen readers from reading the glyph
    glyphs = "".join(f'.{name}:before{{content:"\\{code:x}";content:"\\{code:x}"/""}}' for name, code in used.items())
    return ICON_BASE.replace("\n", "") + face + glyphs


# Which letters of a formula are set in which of KaTeX's fonts, by the tag or class of the element around them; the others are upright.
DRAWN = re.compile(r'<span class="katex-html"[^>]*>')
PIECE = re.compile(r'<(/?)(\w+)(?:[^>]*? class="([^"]*)")?[^>]*?(/?)>|([^<]+)')
UPRIGHT = "Main-Regular"
FACES = {
    "var": "Math-Italic",
    "mathnormal": "Math-Italic",
    "mathit": "Main-Italic",
    "textit": "Main-Italic",
    "mathbf": "Main-Bold",
    "textbf": "Main-Bold",
    "boldsymbol": "Math-BoldItalic",
    "mathbb": "AMS-Regular",
    "textbb": "AMS-Regular",
    "amsrm": "AMS-Regular",
    "mathcal": "Caligraphic-Regular",
    "mathfrak": "Fraktur-Regular",
    "mathscr": "Script-Regular",
    "texttt": "Typewriter-Regular",
    "mathtt": "Typewriter-Regular",
    "mathsf": "SansSerif-Regular",
    "textsf": "SansSerif-Regular",
}
SIZES = ["Size1-Regular", "Size2-Regular", "Size3-Regular", "Size4-Regular"]


def letters_by_font(pages: list[str]) -> dict[str, set[str]]:
    """The characters that each font of the formulas has to draw."""
    wanted: dict[str, set[str]] = {UPRIGHT: set()}
    for formula in {formula for page in pages for formula in DRAWN.split(page)[1:]}:
        around: list[list[str]] = [[]]  # the fonts of the text in each open element
        for closes, tag, classes, empty, letters in PIECE.findall(formula):
            if letters:
                for font in around[-1] or [UPRIGHT]:
                    wanted.setdefault(font, set()).update(html.unescape(letters))
            elif closes:
                around.pop()
                if not around:
                    break
            elif not empty:
                around.append(fonts_of([tag, *classes.split()]) or around[-1])
    return wanted


def fonts_of(names: list[str]) -> list[str]:
    """What an element's tag and classes choose; large signs and their pieces take one of four sizes."""
    large = [UPRIGHT, *SIZES] if any("delim" in name or name == "op-symbol" for name in names) else []
    return [FACES[name] for name in names if name in FACES] or large


def write_formula_fonts(folder: Path, wanted: dict[str, set[str]]) -> None:
    """KaTeX's fonts, cut down to the letters that the book's formulas draw with them."""
    folder.mkdir(parents=True, exist_ok=True)
    fonts = {
        path.stem.removeprefix("KaTeX_"): TTFont(path, recalcTimestamp=False)
        for path in sorted((KATEX / "fonts").glob("*.woff2"))
    }
    known = {name: set(map(chr, font.getBestCmap())) for name, font in fonts.items()}
    for name, letters in wanted.items():  # what a face lacks is drawn upright
        wanted[UPRIGHT] |= letters - known[name]
    wanted.setdefault("AMS-Regular", set()).update(wanted[UPRIGHT] - known[UPRIGHT])
    for name, font in fonts.items():
        letters = {ord(letter) for letter in wanted.get(name, set()) & known[name]}
        (folder / f"KaTeX_{name}.woff2").write_bytes(subset_font(font, letters | {32}, notdef_outline=True))


def subset_font(font: TTFont, unicodes: set[int], **options: Any) -> bytes:
    settings = subset.Options(hinting=False, desubroutinize=True, **{"layout_features": [], **options})
    cutter = subset.Subsetter(settings)
    cutter.populate(unicodes=unicodes)
    cutter.subset(font)
    font.flavor = "woff2"
    buffer = io.BytesIO()
    font.save(buffer)
    return buffer.getvalue()


# ---------------------------------------------------------------- accessibility and strictness


def visit_citation(self: Any, node: nodes.citation) -> None:
    """As the writer's own, but a list item: a role of its kind may only stand inside a bibliography list."""
    before = len(self.body)
    type(self).visit_citation(self, node)
    self.body[before:] = [part.replace(' role="doc-biblioentry"', ' role="listitem"') for part in self.body[before:]]


def depart_citation(self: Any, node: nodes.citation) -> None:
    type(self).depart_citation(self, node)


def check_pictures(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for image in doctree.findall(nodes.image):
        if not image.get("alt"):
            LOG.warning("picture without alternative text: %s", image.get("uri"), location=image, type="lean")


def check_notebooks(app: Sphinx, docname: str, source: list[str]) -> None:
    """Error outputs and missing outputs of a notebook are warnings, with the number of the cell."""
    path = Path(app.env.doc2path(docname))
    if path.suffix != ".ipynb":
        return
    for number, cell in enumerate(json.loads(path.read_text("utf-8"))["cells"], start=1):
        where = f"{path}:{number}"
        if any(output["output_type"] == "error" for output in cell.get("outputs", [])):
            LOG.warning("cell %d holds an error output", number, location=where, type="lean")
        if cell["cell_type"] == "code" and cell["execution_count"] is None and "".join(cell["source"]).strip():
            LOG.warning("cell %d was never executed: run `make execute`", number, location=where, type="lean")


def start(app: Sphinx) -> None:
    app.lean_sheets = {}  # type: ignore[attr-defined]
    # asked for the style of every citation, pybtex reads the lists of all installed packages anew each time
    pybtex.plugin._load_entry_point = functools.cache(pybtex.plugin._load_entry_point)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("comments_config", {}, "html")  # Jupyter Book sets it; sphinx_comments itself is left out
    app.connect("config-inited", drop_duplicates, priority=700)
    app.connect("builder-inited", start)
    app.connect("source-read", check_notebooks)
    app.connect("doctree-resolved", check_pictures)
    app.connect("html-page-context", lighten_page, priority=990)
    app.connect("build-finished", write_style_sheet, priority=900)
    app.add_node(nodes.citation, override=True, html=(visit_citation, depart_citation))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
