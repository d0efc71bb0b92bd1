"""The one style sheet of a page, ``_static/style.css``, and the fonts that it names.

It joins the theme's sheet, KaTeX's and those of ``_static``. Of the theme's only those rules stay whose classes some page has, and
KaTeX's fonts keep the letters that the book's formulas draw with them. Sheets of extensions are not loaded: ``book.css`` does
their part.
"""

from __future__ import annotations

import html
import io
import logging as python_logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import book_search
import frame
import lean_formula
import tinycss2
from fontTools import subset
from fontTools.ttLib import TTFont
from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)
python_logging.getLogger("fontTools").setLevel(python_logging.WARNING)
KATEX = Path(__file__).parent / "katex"


# ---------------------------------------------------------------- the sheet


def classes_of(pages: Iterable[str], scripts: Iterable[str]) -> set[str]:
    """The classes of the elements of all pages, and every word of the scripts, which may set one."""
    values = {part.partition('"')[0] for page in pages for part in page.split(' class="')[1:]}
    return {name for value in values for name in value.split()} | set(re.findall(r"[\w-]+", " ".join(scripts)))


def met(selector: str, used: set[str]) -> bool:
    """Whether pages may hold what a selector asks for: every class that it asks for in any case is in use."""
    certain = re.sub(r":(not|is|where|has)\([^()]*\)", "", selector)
    return used.issuperset(re.findall(r"\.(-?[A-Za-z_][\w-]*)", certain))


def rules(nodes: Iterable[Any], used: set[str]) -> Iterator[str]:
    """The rules as text, without selectors that no page meets; the pages say themselves whether they are dark."""
    for node in nodes:
        if node.type == "error":
            raise ValueError(f"style sheet, line {node.source_line}: {node.message}")
        if node.type == "qualified-rule":
            heads: list[list[Any]] = [[]]
            for token in node.prelude:
                if token.type == "literal" and token.value == ",":
                    heads.append([])
                else:
                    heads[-1].append(token)
            kept = [head for head in map(tinycss2.serialize, heads) if met(head, used)]
            if kept:
                yield f"{','.join(kept)}{{{tinycss2.serialize(node.content)}}}"
        elif node.content is not None and node.lower_at_keyword in {"media", "supports"}:
            head = tinycss2.serialize(node.prelude)
            inner = "".join(
                rules(tinycss2.parse_rule_list(node.content, skip_comments=True, skip_whitespace=True), used)
            )
            if inner and "prefers-color-scheme" not in head:
                yield f"@{node.at_keyword}{head}{{{inner}}}"
        elif node.lower_at_keyword != "charset":
            yield node.serialize()


def pruned(sheet: str, used: set[str]) -> str:
    """A style sheet without rules that no page meets."""
    return "".join(rules(tinycss2.parse_stylesheet(sheet, skip_comments=True, skip_whitespace=True), used))


def without_idle_variables(sheet: str, elsewhere: str) -> str:
    """Leave out variables that nobody reads."""
    while True:
        read = set(re.findall(r"var\(\s*(--[\w-]+)", sheet + elsewhere))
        shorter = re.sub(
            r"(?<=[{;])(--[\w-]+):(?:[^;{}\"']|\"[^\"]*\"|'[^']*')*(?:;|(?=}))",
            lambda match, read=read: match[0] if match[1] in read else "",
            sheet,
        )
        if shorter == sheet:
            return sheet
        sheet = shorter


def short(sheet: str) -> str:
    """A written sheet without its remarks and indents."""
    return re.sub(r"\n\s*|\s*(?=\{)", "", re.sub(r"/\*.*?\*/", "", sheet, flags=re.DOTALL))


def short_script(script: str) -> str:
    """A written script without its remarks and indents."""
    return re.sub(r"(?m)^\s*(//.*)?\n|^\s+|\s+// .*$", "", script)


def formula_sheet() -> str:
    """KaTeX's style sheet with its fonts in one format, which every browser of today reads."""
    text = (KATEX / "katex.min.css").read_text("utf-8").replace("url(fonts/", "url(katex/") + lean_formula.RULES
    return re.sub(r",url\([^)]*\) format\(\"(?:woff|truetype)\"\)", "", text)


def write_style(app: Sphinx, error: Exception | None) -> None:
    """The sheet, the fonts, and the scripts of ``_static`` without their remarks."""
    if error or app.builder.format != "html":
        return
    out, static, own = Path(app.outdir), Path(app.outdir, "_static"), Path(app.srcdir, "_static")
    scripts = {path.name: path.read_text("utf-8") for path in sorted(own.glob("*.js"))}
    for name, script in scripts.items():
        (static / name).write_text(short_script(script), "utf-8")
    scripts["search"] = (book_search.FOLDER / "search.js").read_text("utf-8")
    pages = (path.read_text("utf-8") for path in out.rglob("*.html") if "_static" not in path.parts)
    used = classes_of(pages, scripts.values())
    ours = "".join(short(path.read_text("utf-8")) for path in sorted(own.glob("*.css")))
    formulas = pruned(formula_sheet(), used)
    theme = without_idle_variables(pruned(frame.sheets(static), used), ours + "".join(scripts.values()))
    (static / "style.css").write_text('@charset "utf-8";' + theme + formulas + ours, "utf-8")
    LOG.info("style.css: %d KB", (static / "style.css").stat().st_size // 1024)
    write_formula_fonts(static / "katex", letters_by_font(app.drawn))  # type: ignore[attr-defined]


# ---------------------------------------------------------------- the fonts of formulas

# Which letters of a formula are set in which of KaTeX's fonts, by the tag or class of the element around them; the others are upright.
PIECE = re.compile(r'<(/?)(\w+)(?:[^>]*? class="([^"]*)")?[^>]*?(/?)>|([^<]+)')
UPRIGHT = "Main-Regular"
FACES = {
    "Math-Italic": ("var", "mathnormal"),
    "Main-Italic": ("mathit", "textit"),
    "Main-Bold": ("mathbf", "textbf"),
    "Math-BoldItalic": ("boldsymbol",),
    "AMS-Regular": ("mathbb", "textbb", "amsrm"),
    "Caligraphic-Regular": ("mathcal",),
    "Fraktur-Regular": ("mathfrak",),
    "Script-Regular": ("mathscr",),
    "Typewriter-Regular": ("texttt", "mathtt"),
    "SansSerif-Regular": ("mathsf", "textsf"),
}
FACE_OF = {name: face for face, names in FACES.items() for name in names}
SIZES = ["Size1-Regular", "Size2-Regular", "Size3-Regular", "Size4-Regular"]


def letters_by_font(formulas: Iterable[str]) -> dict[str, set[str]]:
    """The characters that each font of the formulas has to draw."""
    wanted: dict[str, set[str]] = {UPRIGHT: set()}
    for formula in formulas:
        drawn = formula.partition('<span class="katex-html"')[2].partition(">")[2]
        around: list[list[str]] = [[]]  # the fonts of the text in each open element
        for closes, tag, classes, empty, letters in PIECE.findall(drawn):
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
    return [FACE_OF[name] for name in names if name in FACE_OF] or large


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
        cutter = subset.Subsetter(
            subset.Options(hinting=False, desubroutinize=True, layout_features=[], notdef_outline=True)
        )
        cutter.populate(unicodes=letters | {32})
        cutter.subset(font)
        font.flavor = "woff2"
        buffer = io.BytesIO()
        font.save(buffer)
        (folder / f"KaTeX_{name}.woff2").write_bytes(buffer.getvalue())


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", write_style, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
