"""The parts of a page's markup that can state something, and two readers that find them.

`read_tree` finds exactly what a browser without scripts sees, in the tree of selectolax (lexbor).
It is used if selectolax is installed and the cost of a tree is bounded. Otherwise `read_tags` reads
the page without a tree, and may find more.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, overload

from robots_guard.protocol.html.tokenizer import Tag, Tokenizer
from robots_guard.protocol.signals.statement import RAW_CAP

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode


class Element(NamedTuple):
    """An element: its attributes by their names in lower case, and its start tag as text.

    If `is_certain` is False, a browser may not see the element. It can then deny, but not permit.
    """

    attributes: Mapping[str, str | None]
    tag: str
    is_certain: bool = True

    def get(self, name: str) -> str:
        """Return an attribute without surrounding blanks, or an empty string if it is missing."""
        return (self.attributes.get(name) or "").strip()


class Markup(NamedTuple):
    """The elements of a page that can state something."""

    metas: list[Element]  # with a name or an http-equiv
    licenses: list[Element]  # LINK elements, not all of which link to a licence
    withheld: list[str]  # the texts of elements with data-nosnippet
    base: str | None  # href of the first BASE that has one
    is_incomplete: bool = False


NO_MARKUP = Markup([], [], [], None)


_NAMES = frozenset({b"meta", b"link", b"base"})
WITHHELD = frozenset({b"span", b"div", b"section"})


@overload
def read_tags(document: bytes, *, is_xml: bool = False) -> Markup: ...
@overload
def read_tags(document: bytes, *, is_cut: Literal[True]) -> Markup | None: ...
def read_tags(document: bytes, *, is_xml: bool = False, is_cut: bool = False) -> Markup | None:
    """Return the markup of a document.

    Returns None if the document was cut and the cut may be within a tag.
    """
    text = document.lower()
    has_withheld = b"nosnippet" in text
    tokenizer = Tokenizer(document, None if has_withheld else _NAMES, is_xml=is_xml)
    withheld = _WithheldTexts(document)
    metas: list[Element] = []
    licenses: list[Element] = []
    base = None
    for tag in tokenizer.tags():
        if has_withheld:
            withheld.add(tag)
        if tag.is_end:
            continue
        if tag.name == b"meta":
            metas.append(_tag_element(document, tag))
        elif tag.name == b"link":
            licenses.append(_tag_element(document, tag))
        elif tag.name == b"base" and base is None:
            base = tag.attributes().get("href")
    if is_cut and not tokenizer.is_between_tags:
        return None
    if b"<frameset" in text:  # a frameset replaces a body before it
        metas = [meta._replace(is_certain=False) for meta in metas]
    return Markup(metas, licenses, withheld.texts(), base, tokenizer.is_exhausted)


def _tag_element(document: bytes, tag: Tag) -> Element:
    text = document[tag.start : min(tag.end, tag.start + 4 * RAW_CAP)]
    return Element(tag.attributes(), text.decode("utf-8", "replace"), tag.is_certain)


class _WithheldTexts:
    """Collects the texts of the outermost elements with data-nosnippet."""

    def __init__(self, document: bytes) -> None:
        self._document = document
        self._texts: list[str] = []
        self._pieces: list[bytes] = []
        self._name = b""  # the open element
        self._depth = 0
        self._at = 0  # where its text continues

    def add(self, tag: Tag) -> None:
        """Take the next tag."""
        if tag.start < self._at:
            return  # a tag of another reading
        if self._depth:
            if not (tag.is_end and tag.name in (b"script", b"style")):
                self._pieces.append(self._document[self._at : tag.start])
            if tag.name == self._name:
                self._depth += -1 if tag.is_end else 1
            if not self._depth:
                self._close()
        elif not tag.is_end and tag.name in WITHHELD and "data-nosnippet" in tag.attributes():
            self._name, self._depth = tag.name, 1
        self._at = tag.end

    def texts(self) -> list[str]:
        """Return the texts. An element that is not closed extends to the end of the document."""
        if self._depth:
            self._pieces.append(self._document[self._at :])
            self._close()
        return self._texts

    def _close(self) -> None:
        self._texts.append(b"".join(self._pieces).decode("utf-8", "replace"))
        self._pieces, self._depth = [], 0


_METAS = "meta[name],meta[http-equiv]"
_LICENSES = "link[rel*=license i][href]"
_WITHHELD = "span[data-nosnippet],div[data-nosnippet],section[data-nosnippet]"


@cache
def tree_type() -> type[LexborHTMLParser] | None:
    """Return the class of trees, or None if the extra `signals` is not installed."""
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        return None
    return LexborHTMLParser


def read_tree(
    tree_of: type[LexborHTMLParser], document: bytes, *, is_cut: bool = False
) -> Markup | None:
    """Return the markup of a whole document, or of a document that was cut after a tag.

    Returns None if the cut is within a tag, a comment or an element that contains only text. To
    find that out, a META is added at the cut: it is in the tree unless it was read as text.
    """
    end = _unused_name(document) if is_cut else b""
    tree = tree_of(document + b'<meta name="' + end + b'">' if is_cut else document)
    metas = [_node_element(node) for node in tree.css(_METAS)]
    if is_cut:
        name = end.decode()
        count = len(metas)
        metas = [meta for meta in metas if meta.attributes.get("name") != name]
        if len(metas) == count:
            return None
    licenses = [_node_element(node) for node in tree.css(_LICENSES)]
    base = tree.css_first("base[href]") if licenses else None
    return Markup(metas, licenses, _withheld(tree), base.attributes["href"] if base else None)


def _unused_name(document: bytes) -> bytes:
    name = b"end-of-the-document"
    while document.rfind(name) >= 0:  # faster than `in`
        name += b"-"
    return name


def _node_element(node: LexborNode) -> Element:
    return Element(node.attributes, node.html or "")


def _withheld(tree: LexborHTMLParser) -> list[str]:
    """Return the texts of the outermost elements with data-nosnippet."""
    texts: list[str] = []
    inner: set[int] = set()
    for node in tree.css(_WITHHELD):
        if node.mem_id not in inner:
            inner.update(each.mem_id for each in node.css(_WITHHELD))
            texts.append(node.text())
    return texts
