"""Which rules of a style sheet the pages of a book can ever meet.

The pages become one tree: elements of the same tag, classes and id at the same place count once. A selector stays if the
tree holds what it asks for: an element for its last part, elements around that for the parts before it. What cannot be
told from the pages counts as met: states (``:hover``), attributes, neighbors, and classes that a script sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import tinycss2

TAG = re.compile(r"<(/?)([a-zA-Z][\w-]*)((?:[^>\"']|\"[^\"]*\"|'[^']*')*)>")
NAMES = re.compile(r"""\b(class|id)=["']([^"']*)["']""")
# pictures have rules of their own: their insides are looked through once, not placed in the tree
INSIDE = re.compile(r"<(svg|math|script|style|template|noscript)\b.*?</\1>", re.DOTALL)
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
MADE_BY_SCRIPTS = re.compile(r"createElement\(\"(\w+)\"\)|<([a-z]\w*)")
SPELLED = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|`[^`]*`")


class Pages:
    """The elements of all pages as one tree. ``scripts`` may set any of the classes that they spell out."""

    def __init__(self, pages: Iterable[str], scripts: str, ids: set[str]):
        self.parents: list[int] = [-1]
        self.named: dict[str, set[int]] = {}  # "tag", ".class" or "#id" -> places
        self.known: dict[tuple[int, str, str], int] = {}
        self.ids = ids  # those with a rule
        self.spelled = set(re.findall(r"[\w-]+", " ".join(SPELLED.findall(scripts))))
        self.tags = {"tbody"} | {tag for pair in MADE_BY_SCRIPTS.findall(scripts) for tag in pair if tag}
        self.below: dict[frozenset[str], set[int]] = {}
        self.loose: set[str] = set()  # names inside formulas and pictures
        for page in pages:
            self.read(page)

    def read(self, page: str) -> None:
        for inside in {match[0] for match in INSIDE.finditer(page)}:
            for _, tag, attributes in TAG.findall(inside):
                self.loose.update(self.names(tag, attributes))
        stack: list[tuple[int, str, bool]] = [(0, "", False)]  # place, tag, inside a formula
        for close, tag, attributes in TAG.findall(INSIDE.sub(r"<\1></\1>", page)):
            if close:
                ends = [number for number, (_, name, _) in enumerate(stack) if name == tag]
                del stack[ends[-1] if ends else len(stack) :]
                continue
            names = self.names(tag, attributes)
            above, _, formula = stack[-1]
            if formula:
                self.loose.update(names)
            else:
                above = self.place(above, names)
            if tag not in VOID and not attributes.endswith("/"):
                stack.append((above, tag, formula or ".katex-html" in names))

    def names(self, tag: str, attributes: str) -> list[str]:
        found = [
            ("." if kind == "class" else "#") + name
            for kind, names in NAMES.findall(attributes)
            for name in names.split()
        ]
        return [tag, *sorted({name for name in found if name[0] == "." or name[1:] in self.ids})]

    def place(self, parent: int, names: list[str]) -> int:
        key = (parent, names[0], " ".join(names[1:]))
        if key not in self.known:
            self.known[key] = len(self.parents)
            self.parents.append(parent)
            for name in names:
                self.named.setdefault(name, set()).add(self.known[key])
        return self.known[key]

    def matching(self, part: frozenset[str]) -> set[int] | None:
        """The places that a part of a selector fits; None where it may be any."""
        asked = [name for name in part if (name[1:] not in self.spelled if name[0] in ".#" else name not in self.tags)]
        if not asked or all(name in self.loose for name in asked):
            return None
        places = [self.named.get(name, set()) for name in asked]
        return set.intersection(*places)

    def inside(self, part: frozenset[str]) -> set[int] | None:
        """The places below those that a part fits."""
        if part not in self.below:
            around = self.matching(part)
            if around is None:
                return None
            found: set[int] = set()
            for place, parent in enumerate(self.parents):  # parents come first
                if parent in around or parent in found:
                    found.add(place)
            self.below[part] = found
        return self.below[part]

    def meet(self, selector: list[Any]) -> bool:
        """Whether the pages may hold what a selector asks for."""
        *before, last = parts_of(selector)
        found = self.matching(last[0])
        for part, follows in before:
            here = self.matching(part) if follows in "+~" else self.inside(part)
            if here is not None and not here:
                return False
            if found is not None and here is not None and follows not in "+~":
                found = found & here
        return found is None or bool(found)


def parts_of(selector: list[Any]) -> list[tuple[frozenset[str], str]]:
    """The parts of a selector as (names, sign that follows): ``ul.a > li`` is [({"ul", ".a"}, ">"), ({"li"}, "")]."""
    parts: list[tuple[set[str], str]] = [(set(), "")]
    previous = None
    for token in selector:
        if token.type == "whitespace" or token.type == "literal" and token.value in {">", "+", "~"}:
            sign = " " if token.type == "whitespace" else token.value
            if parts[-1][0] or previous:
                names, kept = parts.pop()
                parts.append((names, sign if kept in {"", " "} else kept))
            previous = None
            continue
        if parts[-1][1]:
            parts.append((set(), ""))
        if token.type == "ident" and previous != ":":
            parts[-1][0].add(("." if previous == "." else "") + (token.value if previous == "." else token.lower_value))
        elif token.type == "hash":
            parts[-1][0].add("#" + token.value)
        previous = token.value if token.type == "literal" else "x"
    names, _ = parts.pop()
    return [(frozenset(found), sign) for found, sign in parts] + [(frozenset(names), "")]


def kept_rules(rules: Iterable[Any], pages: Pages) -> Iterator[str]:
    """The rules as text, without selectors that no page can meet, and without rules that have none left."""
    for rule in rules:
        if rule.type == "error":
            raise ValueError(f"style sheet, line {rule.source_line}: {rule.message}")
        if rule.type == "qualified-rule":
            selectors = [one for one in split_at_commas(rule.prelude) if pages.meet(stripped(one))]
            if selectors:
                heads = ",".join(tinycss2.serialize(one).strip() for one in selectors)
                yield f"{heads}{{{short(tinycss2.serialize(rule.content))}}}"
        elif rule.lower_at_keyword in {"media", "supports", "layer", "container"} and rule.content is not None:
            inner = tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True)
            if kept := "".join(kept_rules(inner, pages)):
                yield f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude).rstrip()}{{{kept}}}"
        elif rule.lower_at_keyword != "charset":
            yield rule.serialize()


def short(declarations: str) -> str:
    """Without remarks and needless space; what stands in quotes or parentheses stays."""
    text = re.sub(r"/\*.*?\*/", " ", declarations, flags=re.DOTALL)
    whole = re.compile(r"(\"[^\"]*\"|'[^']*'|\([^()]*\))|\s*([;:])\s*|\s+")
    return whole.sub(lambda match: match[1] or match[2] or " ", text).strip(" ;")


def stripped(selector: list[Any]) -> list[Any]:
    """Without space around it."""
    while selector and selector[0].type == "whitespace":
        selector = selector[1:]
    while selector and selector[-1].type == "whitespace":
        selector = selector[:-1]
    return selector


def split_at_commas(tokens: list[Any]) -> list[list[Any]]:
    parts: list[list[Any]] = [[]]
    for token in tokens:
        if token.type == "literal" and token.value == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


PROPERTY = re.compile(r"(?<=[{;])\s*(--[\w-]+):((?:[^;{}\"']|\"[^\"]*\"|'[^']*')*)(;|(?=}))")


def without_unused_properties(text: str, elsewhere: str) -> str:
    """Leave out custom properties that nobody reads, neither the sheet nor a page's own styles and scripts."""
    outside = set(re.findall(r"--[\w-]+", elsewhere))
    while True:
        read = outside | set(re.findall(r"var\(\s*(--[\w-]+)", text))
        shorter = PROPERTY.sub(lambda match, read=read: match[0] if match[1] in read else "", text)
        shorter = re.sub(r"(?<=[}])[^{}@]+\{\s*\}", "", shorter)
        if shorter == text:
            return text
        text = shorter
