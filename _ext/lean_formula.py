"""The same formula in half the elements: what KaTeX writes, without the boxes that draw nothing.

KaTeX wraps every sign in an element that says what it is (``mord``, ``mrel``, ...), though only some of these have a rule; spaces are
elements of their own, and a superscript takes seven. ``lighter`` rewrites its HTML so that every sign stays where it was:

* a script without fractions or other tall parts is one shifted element, two scripts of one sign are a small grid;
* a space is a margin of what stands before it, and so are the empty delimiters around a fraction;
* the struts that give lines their heights are drawn by their parents' ``::before``, from ``--h`` and ``--v``;
* elements without a rule go, and the most frequent face is a ``var``;
* MathML, which only screen readers meet, loses what says how to draw it.

The few rules that this needs are ``RULES``.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from html import escape
from xml.etree import ElementTree

RULES = (
    ".katex .katex-base::before,.katex .vlist>span::before{content:'';display:inline-block;height:var(--h)}"
    ".katex .katex-base::before{vertical-align:var(--v,0)}"
    ".katex :is(.script,.script2,.script3){position:relative}.katex .script{font-size:.7em}.katex .script2{font-size:.7142857143em}"
    ".katex var{font-family:KaTeX_Math;font-style:italic}.katex .scripts{display:inline-grid;align-items:baseline;text-align:left}.katex .scripts>span{grid-area:1/1}"
)
# Classes that no rule of KaTeX's style sheet names alone.
PLAIN = set("enclosing mord mbin mrel mopen mclose mpunct minner mop mtight text".split())
FACES = set("mathnormal mathrm mathbb mathcal mathbf mathit amsrm textbf textit textrm".split())
# Rules that look at what stands directly below these: their children, and children of those, stay as they are.
PARENTS = set(
    "vlist-t vlist-r vlist mfrac clap llap rlap delim-size1 delim-size4 scripts katex-inner katex-fix "
    "katex-vbox katex-thinbox katex-html".split()
)
# The classes of a script's size, the class that says the same, and its factor. A script of a script of a script is no smaller.
SIZES = [
    ({"katex-sizing", "reset-size6", "size3"}, "script", 0.7),
    ({"katex-sizing", "reset-size3", "size1"}, "script2", 5 / 7),
    (set(), "script3", 1.0),
]
FACTORS = {name: factor for _, name, factor in SIZES}
SHIFTS = {"top", "margin-left", "margin-right"}
DRAWING_ONLY = set(
    "stretchy lspace rspace minsize maxsize fence separator rowspacing columnspacing columnalign "
    "columnlines rowlines scriptlevel displaystyle".split()
)
# Elements that lay their children out side by side, and those whose children have fixed parts.
ROWS = set("math mrow mtd mstyle msqrt mpadded mphantom".split())
PARTS = {"msub": 2, "msup": 2, "mfrac": 2, "mover": 2, "munder": 2, "mroot": 2, "msubsup": 3, "munderover": 3}
APPLY = "\u2061"  # the sign between the name of a function and its argument, which nobody sees


@dataclass
class Box:
    """One element of the drawn formula: a ``span``, or a piece of markup that is left alone."""

    classes: list[str] = field(default_factory=list)
    style: dict[str, str] = field(default_factory=dict)
    children: list[Box | str] = field(default_factory=list)
    markup: str = ""
    other: str = ""  # other attributes
    tag: str = "span"

    def named(self, *classes: str) -> bool:
        return set(self.classes) == set(classes)

    @property
    def boxes(self) -> list[Box]:
        return [child for child in self.children if isinstance(child, Box)]


@functools.cache
def lighter(formula: str) -> str:
    """KaTeX's ``<span class="katex">``, with or without the span of a display around it, in fewer elements."""
    root = ElementTree.fromstring(formula.replace(' xmlns="http://www.w3.org/2000/svg"', ""))
    for math in root.iter("math"):
        lighten_mathml(math)
    return write(lightened(read(root)))


# ---------------------------------------------------------------- reading and writing


def read(element: ElementTree.Element) -> Box:
    if element.tag != "span":
        tail, element.tail = element.tail, None
        markup = ElementTree.tostring(element, encoding="unicode", method="html")
        element.tail = tail
        return Box(markup=markup)
    parts = [part.partition(":") for part in element.get("style", "").split(";") if part]
    box = Box(element.get("class", "").split(), {name.strip(): value.strip() for name, _, value in parts})
    box.other = "".join(
        f' {name}="{escape(value)}"' for name, value in element.items() if name not in {"class", "style"}
    )
    box.children = [element.text] if element.text else []
    for child in element:
        box.children += [read(child), *([child.tail] if child.tail else [])]
    return box


def write(box: Box | str) -> str:
    if isinstance(box, str):
        return escape(box, quote=False)
    if box.markup:
        return box.markup
    names = f' class="{" ".join(box.classes)}"' if box.classes else ""
    style = ";".join(f"{name}:{short(value)}" for name, value in box.style.items())
    styles = f' style="{style}"' if style else ""
    return f"<{box.tag}{names}{styles}{box.other}>{''.join(map(write, box.children))}</{box.tag}>"


def short(value: str) -> str:
    return re.sub(r"(?<![\d.])0(?=\.\d)", "", value)


def em(value: str) -> float:
    return float(value.removesuffix("em"))


def in_em(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".") + "em"


# ---------------------------------------------------------------- the drawn formula


def lightened(box: Box) -> Box:
    """The steps in order; each leaves a formula that draws the same."""
    join_scripts(box)
    join_spaces(box)
    join_struts(box)
    leave_out_plain(box, None)
    return box


def join_scripts(box: Box) -> None:
    """Inside out, so that a script of a script is flat when its parent asks."""
    for index, child in enumerate(box.children):
        if isinstance(child, Box):
            join_scripts(child)
            if child.named("msupsub") and (joined := scripts_of(child)):
                box.children[index] = joined


def scripts_of(box: Box) -> Box | None:
    """The scripts in a box of KaTeX as shifted elements; None where one of them is not flat or not of the usual size."""
    table = box.boxes[0]
    cells = [cell for row in table.boxes for cell in row.boxes if cell.named("vlist")]
    found = [script_of(one) for one in cells[0].boxes]
    whole = [one for one in found if one is not None]
    if len(whole) < len(found) or not whole:
        return None
    return whole[0] if len(whole) == 1 else Box(["scripts"], {}, [*whole])


def script_of(box: Box) -> Box | None:
    """``top`` and the height of ``pstrut`` say where the baseline of the script stands, both in the size of the text around."""
    strut, *rest = box.boxes
    if len(rest) != 1 or box.style.keys() - {"top", "margin-right", "margin-left"} or not strut.named("pstrut"):
        return None
    sized = rest[0]
    size = next(((name, factor) for names, name, factor in SIZES if set(sized.classes) - PLAIN == names), None)
    if size is None or sized.style or not all(flat(child) for child in sized.children):
        return None
    name, factor = size
    margins = {side: in_em(em(value) / factor) for side, value in box.style.items() if side != "top"}
    return Box(
        [name], {"top": in_em((em(box.style["top"]) + em(strut.style["height"])) / factor), **margins}, sized.children
    )


def flat(child: Box | str) -> bool:
    """Whether a part is a line of text with scripts, which is no higher than the text around the script."""
    if isinstance(child, str):
        return True
    if child.markup or child.style.keys() - {"margin-right", "margin-left", "top"}:
        return False
    return set(child.classes) <= PLAIN | FACES | {"mspace", "script2", "script3", "scripts"} and all(
        map(flat, child.children)
    )


def join_spaces(box: Box) -> None:
    """Spaces become margins."""
    kept: list[Box | str] = []
    for child in box.children:
        before = kept[-1] if kept else None
        if isinstance(child, Box):
            join_spaces(child)
            empty = not child.children and not child.markup
            if (
                empty
                and set(child.classes) <= {"mspace", "mtight"}
                and "mspace" in child.classes
                and child.style.keys() == {"margin-right"}
            ):
                if isinstance(before, Box) and add_space(before, em(child.style["margin-right"])):
                    continue
            elif empty and child.named("mclose", "nulldelimiter") and isinstance(before, Box) and before.named("mfrac"):
                opening = kept[-2] if len(kept) > 1 else None
                if isinstance(opening, Box) and opening.named("mopen", "nulldelimiter") and not before.style:
                    before.style = {"margin-left": ".12em", "margin-right": ".12em"}
                    del kept[-2]
                    continue
        kept.append(child)
    box.children = kept


def add_space(box: Box, width: float) -> bool:
    """Add to the right margin of what ends a box; False where that has a size or margins of its own."""
    last = box.children[-1] if box.children else None
    if isinstance(last, Box) and not box.style and not box.other and set(box.classes) <= PLAIN:
        return add_space(last, width)
    if box.markup or not set(box.classes) <= PLAIN | FACES | FACTORS.keys() | {
        "scripts",
        "mfrac",
        "op-symbol",
        "small-op",
        "large-op",
    }:
        return False
    factor = FACTORS.get(box.classes[0] if box.classes else "", 1.0)
    box.style["margin-right"] = in_em(em(box.style.get("margin-right", "0em")) + width / factor)
    return True


def join_struts(box: Box) -> None:
    """Two kinds of strut: one in each unbreakable part of a formula, one in each row of a stack."""
    for child in box.boxes:
        join_struts(child)
        first = child.children[0] if child.children else None
        if not isinstance(first, Box):
            continue
        in_line = child.named("katex-base") and first.named("katex-strut")
        if in_line or "vlist" in box.classes and first.named("pstrut"):
            if first.style.keys() <= {"height", "vertical-align"}:
                names = {"height": "--h", "vertical-align": "--v"}
                child.style |= {names[name]: value for name, value in first.style.items()}
                del child.children[0]


def leave_out_plain(box: Box, parent: Box | None) -> None:
    """Classes without a rule go, and elements that have nothing else, except where a rule counts children."""
    fixed = (
        bool(PARENTS & set(box.classes))
        or parent is not None
        and bool(PARENTS - {"scripts", "katex-html"} & set(parent.classes))
    )
    kept: list[Box | str] = []
    for child in box.children:
        if isinstance(child, Box) and not child.markup:
            leave_out_plain(child, box)
            child.classes = [name for name in child.classes if name not in PLAIN]
            child.style = {
                name: value for name, value in child.style.items() if not (name in SHIFTS and em(value) == 0)
            }
            if child.named("mathnormal") and not fixed:
                child.tag, child.classes = "var", []
            elif not child.classes and not child.style and not child.other:
                if not child.children and "vlist" in box.classes:
                    continue
                if not fixed:
                    kept += child.children
                    continue
        kept.append(child)
    box.children = kept


# ---------------------------------------------------------------- MathML


def lighten_mathml(element: ElementTree.Element) -> None:
    """Without attributes that only say how to draw, and without rows that hold one thing or are the whole formula."""
    for name in DRAWING_ONLY & element.attrib.keys():
        del element.attrib[name]
    if element.tag == "mo":
        element.attrib.pop("mathvariant", None)
    children: list[ElementTree.Element] = []
    crowded = len(element) > PARTS.get(
        element.tag, len(element)
    )  # KaTeX writes a name and APPLY where one thing may stand
    for child in list(element):
        lighten_mathml(child)
        row = child.tag in {"mrow", "mstyle"} and not child.attrib
        alone = element.tag in ROWS and (len(element) == 1 or child.tag == "mstyle")
        children += list(child) if row and (len(child) == 1 or alone and not child.text) else [child]
        element.remove(child)
        if crowded and child.text == APPLY:
            named = ElementTree.Element("mrow")
            named.extend(children[-2:])
            children[-2:] = [named]
    element.extend(children)
