"""Join PDFs that one browser printed from one document: pages, and all that leads through them.

A joiner of pages alone would lose the bookmarks, the names that links lead to, and the structure that screen readers follow.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from pikepdf import Array, Dictionary, Name, ObjectStreamMode, Pdf


def join(parts: list[bytes], title: str) -> Pdf:
    """One PDF of several tagged ones. The names of their destinations and nodes must differ, as they do in one document.

    Args:
        parts: the PDFs in order.
        title: what a reader's window calls the whole.

    Returns:
        The whole, to be saved with ``packed``.
    """
    book = Pdf.new()
    tree = book.make_indirect(Dictionary(Type=Name.StructTreeRoot, K=Array(), ParentTree=Dictionary(Nums=Array())))
    outlines = book.make_indirect(Dictionary(Type=Name.Outlines))
    destinations, nodes, bookmarks, language = Dictionary(), {}, [], None
    next_key = 0
    for data in parts:
        part = Pdf.open(io.BytesIO(data))
        first, catalog = len(book.pages), part.make_indirect(without_pages(part))
        for page in part.pages:  # one by one: copied together, names that lead to another part would be dropped
            book.pages.append(page)
        root = book.copy_foreign(catalog)
        for name, target in root.get("/Dests", Dictionary()).items():
            destinations[name] = target
        bookmarks += list(chain(root.get("/Outlines", Dictionary()).get("/First")))
        structure = root.StructTreeRoot
        structure.K.P = tree
        tree.K.append(structure.K)
        nodes |= dict(leaves(structure.get("/IDTree"), "/Names"))
        for key, elements in leaves(structure.ParentTree, "/Nums"):
            tree.ParentTree.Nums.extend([int(key) + next_key, elements])
        for page in book.pages[first:]:
            renumber(page.obj, next_key)
        next_key += int(structure.ParentTreeNextKey)
        language = root.get("/Lang", language)
    tree.ParentTreeNextKey = next_key
    if nodes:
        pairs = [value for name in sorted(nodes) for value in (name, nodes[name])]
        tree.IDTree = Dictionary(Names=Array(pairs), Limits=Array([pairs[0], pairs[-2]]))
    link_bookmarks(outlines, bookmarks)
    book.Root.update(
        {
            "/StructTreeRoot": tree,
            "/Outlines": outlines,
            "/Dests": book.make_indirect(destinations),
            "/PageMode": Name.UseOutlines,
        }
    )
    book.Root.update({"/MarkInfo": Dictionary(Marked=True), "/ViewerPreferences": Dictionary(DisplayDocTitle=True)})
    if language is not None:
        book.Root.Lang = language
    book.docinfo["/Title"] = title
    return book


def without_pages(part: Pdf) -> Dictionary:
    """What the catalog of a part holds beside its pages, which are copied by themselves."""
    return Dictionary({key: value for key, value in part.Root.items() if key not in {"/Pages", "/Type"}})


def chain(first: Dictionary | None) -> Iterator[Dictionary]:
    """A bookmark and those after it on its level."""
    while first is not None:
        yield first
        first = first.get("/Next")


def leaves(node: Dictionary | None, kind: str) -> Iterator[tuple[object, object]]:
    """The pairs of a name tree or a number tree."""
    if node is None:
        return
    pairs = list(node.get(kind, Array()))
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        yield (int(key) if kind == "/Nums" else str(key)), value
    for kid in node.get("/Kids", Array()):
        yield from leaves(kid, kind)


def renumber(page: Dictionary, more: int) -> None:
    """A page and its links name their structure by numbers that count on from part to part."""
    if "/StructParents" in page:
        page.StructParents = int(page.StructParents) + more
    for link in page.get("/Annots", Array()):
        if "/StructParent" in link:
            link.StructParent = int(link.StructParent) + more


def link_bookmarks(outlines: Dictionary, bookmarks: list[Dictionary]) -> None:
    """The bookmarks of all parts, one after the other, closed below the first level."""
    for before, after in zip(bookmarks, bookmarks[1:], strict=False):
        before.Next, after.Prev = after, before
    for bookmark in bookmarks:
        bookmark.Parent = outlines
        if "/Count" in bookmark:
            bookmark.Count = -abs(int(bookmark.Count))
    if bookmarks:
        outlines.update({"/First": bookmarks[0], "/Last": bookmarks[-1], "/Count": len(bookmarks)})


def name_bookmarks(book: Pdf, titles: list[str]) -> None:
    """Give bookmarks the spaces of their headings: the browser drops one where a heading goes on in a second line."""
    spaced = {"".join(title.split()): title for title in titles}
    waiting = list(chain(book.Root.Outlines.get("/First")))
    while waiting:
        bookmark = waiting.pop()
        title = str(bookmark.Title)
        bookmark.Title = spaced.get("".join(title.split()), title)
        waiting += chain(bookmark.get("/First"))


def packed(book: Pdf) -> bytes:
    """The bytes of a PDF: its many small parts share packets, and the same parts give the same bytes."""
    buffer = io.BytesIO()
    book.save(buffer, object_stream_mode=ObjectStreamMode.generate, deterministic_id=True)
    return buffer.getvalue()
