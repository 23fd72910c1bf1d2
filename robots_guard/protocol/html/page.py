"""A page: what its METAs, licence links and data-nosnippet elements state, and its links."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from robots_guard.protocol.html.charset import documents
from robots_guard.protocol.html.limits import is_small_tree, relevant_length, text_end
from robots_guard.protocol.html.links import (
    absolute_url,
    base_url,
    has_keyword,
    link_permissions,
    resolved,
)
from robots_guard.protocol.html.markup import NO_MARKUP, Element, Markup
from robots_guard.protocol.html.meta_tags import meta_statements
from robots_guard.protocol.html.tag_reader import read_tags
from robots_guard.protocol.html.tokenizer import Tokenizer
from robots_guard.protocol.html.tree_reader import read_tree, tree_type
from robots_guard.protocol.signals.bounds import bounded
from robots_guard.protocol.signals.statement import RAW_CAP, Flag, Place, Signal, Statement

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser

HTML = "text/html"
XHTML = "application/xhtml+xml"
RSL = "application/rsl+xml"
WITHHELD = 100  # recorded texts of data-nosnippet elements

_LINKS = frozenset({b"a", b"area", b"base"})
_WORD = r"[!#$%&'*+.^_`|~0-9a-z-]+"
_TYPE = re.compile(rf"\s*+[\"']?({_WORD}/{_WORD})(?=[\s;,:/\"']|\Z)")
_UNKNOWN = frozenset({"*/*", "unknown/unknown", "application/unknown"})  # browsers sniff these
_START = re.compile(rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?[\x00\t\n\f\r ]*+<")


class Page:
    """The statements and links of a page. It keeps the document until the links are read."""

    def __init__(
        self,
        statements: tuple[Statement, ...] = (),
        *,
        is_incomplete: bool = False,
        document: bytes = b"",
        is_xml: bool = False,
        url: str = "",
    ) -> None:
        self.statements = statements
        self.is_incomplete = is_incomplete  # a part of the page was not read
        self._document = document
        self._is_xml = is_xml
        self._url = url

    @cached_property
    def links(self) -> Mapping[str, bool]:
        """The URLs that the page links to, without fragments, each with whether it may be followed:
        False if every link to it has rel=nofollow.

        The first access reads the page once more.
        """
        base = None
        found: list[tuple[str, str]] = []
        for tag in Tokenizer(self._document, _LINKS, is_xml=self._is_xml).tags():
            attributes = tag.attributes()
            href = attributes.get("href")
            if href is None:
                continue
            if tag.name != b"base":
                found.append((href, attributes.get("rel", "")))
            elif base is None:
                base = href
        self._document = b""
        return link_permissions(base_url(self._url, base), found)

    def may_follow(self, url: str) -> bool:
        """Whether the page's links to a URL may be followed, as far as rel=nofollow says.

        A URL that the page does not link to may be requested.
        """
        if not self._may_have_nofollow:
            return True
        address = absolute_url(url)
        return address is None or self.links.get(address, True)

    @cached_property
    def _may_have_nofollow(self) -> bool:
        """Whether the links have to be read: a keyword can contain character references, too."""
        if "links" in vars(self):
            return True
        document = self._document.lower()
        return b"nofollow" in document or b"&#" in document


def read_page(body: bytes, content_type: str, url: str, *, is_whole: bool = True) -> Page:
    """Read a page. It never raises, and the time is linear in the length of the body.

    `content_type` is the value of the Content-Type field, or empty. `is_whole` is False if the body
    is only the beginning of the page. A body that is not HTML states nothing.
    """
    essence = _html_type(body, content_type)
    if not essence:
        return Page()
    is_xml = essence == XHTML
    readings = documents(body, content_type)
    markups = [markup for each in readings for markup in _markups(each, is_xml=is_xml)]
    return Page(
        bounded(_statements(markups, url)),
        is_incomplete=not is_whole or any(markup.is_incomplete for markup in markups),
        document=readings[0],
        is_xml=is_xml,
        url=url,
    )


def may_be_html(content_type: str) -> bool:
    """Whether a body of this Content-Type can be a page: its type is HTML, or not known."""
    types = media_types(content_type)
    return not types or HTML in types or XHTML in types


def media_types(content_type: str) -> frozenset[str]:
    """The types that the members of a Content-Type name, in lower case.

    They are read as far as they are readable: `text/html charset=utf-8` is HTML for browsers, too.
    Without any, a browser decides by the content.
    """
    members = content_type.lower().split(",")
    found = frozenset(match[1] for match in map(_TYPE.match, members) if match)
    return found - _UNKNOWN


def _html_type(body: bytes, content_type: str) -> str:
    """Return the HTML media type of a body, or an empty string if it is not HTML."""
    types = media_types(content_type)
    for known in (XHTML, HTML):
        if known in types:
            return known
    return HTML if not types and _START.match(body) else ""


def _markups(document: bytes, *, is_xml: bool) -> Iterator[Markup]:
    """Yield the markup of a document. XHTML is read as HTML too, in case a crawler does so."""
    if is_xml:
        yield read_tags(document, is_xml=True)
    yield _html_markup(document)


def _html_markup(document: bytes) -> Markup:
    end = relevant_length(document)
    if not end:
        return NO_MARKUP
    tree_of = tree_type()
    found = None
    if tree_of is not None and is_small_tree(document[:end]):
        found = _tree_markup(tree_of, document, end)
    elif end < len(document):
        found = read_tags(document[:end], is_cut=True)
    return found or read_tags(document)


def _tree_markup(tree_of: type[LexborHTMLParser], document: bytes, end: int) -> Markup | None:
    """Return the markup of the first part of a document that a tree shows to end between tags; None
    if a tree of none of them is small."""
    for length in _lengths(document, end):
        part = document[:length]
        if not is_small_tree(part):
            return None
        found = read_tree(tree_of, part, is_cut=length < len(document))
        if found is not None:
            return found
    return None


def _lengths(document: bytes, end: int) -> Iterator[int]:
    """Yield where a document may be cut. Nearly always the first place is the one."""
    yield end
    beyond = text_end(document, end)
    if end < beyond < len(document):
        yield beyond
    if end < len(document):
        yield len(document)


def _statements(markups: Sequence[Markup], url: str) -> Iterator[Statement]:
    """Yield the statements of a page from its markups, of which the first is what browsers see."""
    metas: list[Element] = []
    for place, markup in enumerate(markups):
        if place == 0:
            metas += markup.metas
        else:
            metas += (meta._replace(is_certain=False) for meta in markup.metas)
    yield from meta_statements(metas)
    for markup in markups[:1]:
        base = base_url(url, markup.base)
        for link in markup.licenses:
            if has_keyword(link.get("rel"), "license"):
                yield from _license(link, base)
        for text in markup.withheld[:WITHHELD]:
            yield _withheld(text)


def _license(link: Element, base: str) -> Iterator[Statement]:
    href = link.get("href")
    address = resolved(base, href) if href else None
    if address is None:
        return
    is_rsl = link.get("type").partition(";")[0].strip().lower() == RSL
    yield Statement(
        signal=Signal.LICENSE,
        place=Place.PAGE,
        rule="license" if is_rsl else "license-other",
        value=address,
        raw=link.tag[:RAW_CAP],
    )


def _withheld(text: str) -> Statement:
    value = " ".join(text[: 4 * RAW_CAP].split())[:RAW_CAP]
    return Statement(
        signal=Signal.DATA_NOSNIPPET,
        place=Place.PAGE,
        rule="data-nosnippet",
        value=value,
        raw=value,
        flags=() if value else (Flag.MALFORMED,),
    )
