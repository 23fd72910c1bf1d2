"""The reader of trees: finds markup in the tree of selectolax (lexbor), which is the tree that
browsers build without scripts."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from robots_guard.protocol.html.markup import Element, Markup

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

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
    metas = [_element(node) for node in tree.css(_METAS)]
    if is_cut:
        name = end.decode()
        count = len(metas)
        metas = [meta for meta in metas if meta.attributes.get("name") != name]
        if len(metas) == count:
            return None
    licenses = [_element(node) for node in tree.css(_LICENSES)]
    base = tree.css_first("base[href]") if licenses else None
    return Markup(metas, licenses, _withheld(tree), base.attributes["href"] if base else None)


def _unused_name(document: bytes) -> bytes:
    name = b"end-of-the-document"
    while document.rfind(name) >= 0:  # faster than `in`
        name += b"-"
    return name


def _element(node: LexborNode) -> Element:
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
