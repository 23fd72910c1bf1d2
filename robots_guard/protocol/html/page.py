"""A page: what its METAs, licence links and data-nosnippet elements state, and its links.

A META with robots rules has the name `robots` or the name of a crawler. Any word can be a crawler's
name, so a META with any other name counts only if its content has one of the known rules.

A parser that builds a tree compares the attributes of a tag with each other, walks up the open
elements, and repeats unclosed formatting elements in each paragraph. The time and memory for this
grow with the square of the number of tags or attributes (measured with lexbor 2.5: 24 KB become
540 MB). So such a parser gets only documents with few tags, and only the part that can contain
statements. Of most pages that is the head.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from robots_guard.protocol.html.charset import documents
from robots_guard.protocol.html.links import (
    absolute_url,
    base_url,
    has_keyword,
    link_permissions,
    resolved,
)
from robots_guard.protocol.html.markup import (
    NO_MARKUP,
    Element,
    Markup,
    read_tags,
    read_tree,
    tree_type,
)
from robots_guard.protocol.html.tokenizer import TAG, Tokenizer
from robots_guard.protocol.signals import tdmrep
from robots_guard.protocol.signals.rules import FIELD_CAP, agent_name, read_rules, unread_rules
from robots_guard.protocol.signals.statement import (
    RAW_CAP,
    Flag,
    Place,
    Signal,
    Statement,
    bounded,
    is_restrictive,
)
from robots_guard.protocol.signals.usage import read_signal, read_usage

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser


TREE_BYTES = 512 * 1024
TREE_TAGS = 1_000
TAG_BYTES = 2048

#: A META that states nothing: it has neither `name` nor `http-equiv`. No value may contain `<`, so
#: that matching takes linear time.
_SILENT_META = re.compile(
    rb"<meta(?:[\t\n\f\r ]++(?:property|itemprop|charset|content|id|class|lang)[\t\n\f\r ]*+="
    rb"[\t\n\f\r ]*+(?:\"[^\"<]*+\"|'[^'<]*+'|[^\t\n\f\r \"'<>=`]++))++[\t\n\f\r ]*+/?>"
)
#: The end of what can show a META that is none.
_TEXT_END = re.compile(
    rb"</(?:script|style|textarea|title|template|iframe|xmp|noembed|noframes)[\t\n\f\r ]*+>|-->",
    re.IGNORECASE,
)


def relevant_length(document: bytes) -> int:
    """Return the length of the part of a document that can contain statements, or 0."""
    text = document.lower()
    if text.rfind(b"data-nosnippet") >= 0:
        return len(text)
    end = _meta_end(text)
    if text.rfind(b"license") >= 0:
        end = max(end, _license_end(text))
    return end


def text_end(document: bytes, begin: int) -> int:
    """Return where an element or comment that holds text, such as a script, may end after a place;
    the length of the document if nothing does."""
    found = _TEXT_END.search(document, begin)
    return found.end() if found else len(document)


def is_small_tree(document: bytes) -> bool:
    """Whether a tree of a document takes little time and memory, whatever its content."""
    if len(document) > TREE_BYTES:
        return False
    pieces = document.split(b"<", TREE_TAGS + 1)
    if len(pieces) > TREE_TAGS + 1:
        return False
    return all(_begins_with_short_tag(piece) for piece in pieces if len(piece) > TAG_BYTES)


def _begins_with_short_tag(piece: bytes) -> bool:
    """Whether the tag at the beginning of a piece, without its `<`, is short and thus has few
    attributes."""
    tag = TAG.match(b"<" + piece)
    return tag is not None and tag.end() <= TAG_BYTES


def _meta_end(text: bytes) -> int:
    at = text.rfind(b"<meta")
    while at >= 0 and _SILENT_META.match(text, at):
        at = text.rfind(b"<meta", 0, at)
    if at < 0:
        return 0
    tag = TAG.match(text, at)
    return tag.end() if tag else len(text)


def _license_end(text: bytes) -> int:
    at = text.rfind(b"<link")
    while at >= 0:
        tag = TAG.match(text, at, at + TAG_BYTES)
        if tag and b"license" in tag[3]:
            return tag.end()
        at = text.rfind(b"<link", 0, at)
    return 0


#: Names that do not name a crawler (HTML section 4.2.5.1, and the registry MetaExtensions).
_NOT_AGENTS = frozenset(
    {
        "abstract", "apple-mobile-web-app-capable", "apple-mobile-web-app-title", "application-name",
        "author", "classification", "color-scheme", "copyright", "coverage", "csrf-param",
        "csrf-token", "date", "description", "designer", "distribution", "format-detection",
        "generator", "geo.placename", "geo.position", "geo.region", "google-site-verification",
        "handheldfriendly", "icbm", "keywords", "language", "mobileoptimized", "msapplication-config",
        "msapplication-tilecolor", "msapplication-tileimage", "news_keywords", "owner", "pagename",
        "parsely-tags", "publisher", "rating", "referrer", "resource-type", "subject", "subtitle",
        "summary", "tags", "target", "theme-color", "thumbnail", "title", "topic", "viewport",
        "yandex-verification", tdmrep.RESERVATION, tdmrep.POLICY,
    }
)  # fmt: skip
_AGENT = re.compile(r"(?=[0-9._-]*[a-z])[a-z0-9_.-]+(?:/.*)?|\*", re.DOTALL)
_SEPARATORS = re.compile(r"[\s,;]+")
_ROBOTS = "robots"
_FIELD = "x-robots-tag"


def meta_statements(metas: Iterable[Element]) -> Iterator[Statement]:
    """Yield the statements of the METAs of one page."""
    reservations: list[Element] = []
    policies: list[str] = []
    for meta in metas:
        for statement in _statements_of_meta(meta):
            if meta.is_certain or is_restrictive(statement) or statement.signal in _RECORDED:
                yield statement
        name = (meta.get("name") or meta.get("http-equiv")).lower()
        if name == tdmrep.RESERVATION:
            may_grant = meta.is_certain and meta.get("name") != ""
            if may_grant or meta.get("content") != "0":
                reservations.append(meta)
        elif name == tdmrep.POLICY:
            policies.append(meta.get("content"))
    yield from tdmrep.read_values(
        [meta.get("content") for meta in reservations],
        policies,
        place=Place.PAGE,
        raws=[meta.tag for meta in reservations],
    )


def _statements_of_meta(meta: Element) -> Iterator[Statement]:
    name = meta.get("name").lower()
    field = meta.get("http-equiv").lower()
    if name == _ROBOTS:
        yield from _rules(meta, "*", ())
    elif name in _READERS:
        yield from _READERS[name](meta)
    elif name and name not in _NOT_AGENTS:
        yield from _named_rules(meta, name)
    if field in (_ROBOTS, _FIELD):
        yield from _rules(meta, "*", (Flag.NONSTANDARD,))
    elif field in _FIELDS:
        yield from _FIELDS[field](meta)


def _rules(meta: Element, agent: str, flags: tuple[Flag, ...]) -> tuple[Statement, ...]:
    content = meta.get("content")
    if len(content) > FIELD_CAP:
        return unread_rules(meta.tag, signal=Signal.META_ROBOTS, place=Place.PAGE, agent=agent)
    return read_rules(
        content,
        signal=Signal.META_ROBOTS,
        place=Place.PAGE,
        agent=agent,
        flags=flags,
        raw=meta.tag,
    )


def _named_rules(meta: Element, names: str) -> Iterator[Statement]:
    """Yield the rules of a META for each crawler in its name. No document defines a list of names
    there."""
    agents = [name for name in _SEPARATORS.split(names) if _AGENT.fullmatch(name)]
    flags: tuple[Flag, ...] = (Flag.LENIENT,) if _SEPARATORS.search(names) else ()
    for name in dict.fromkeys(agents):
        if name in _NOT_AGENTS:
            continue
        is_general = name in (_ROBOTS, _FIELD)
        more: tuple[Flag, ...] = (Flag.NONSTANDARD,) if name == _FIELD else ()
        agent = "*" if is_general else agent_name(name)
        found = _rules(meta, agent, (*flags, *more))
        if is_general or any(Flag.UNKNOWN_RULE not in each.flags for each in found):
            yield from found


def _document_state(meta: Element) -> Iterator[Statement]:
    word = meta.get("content").upper()
    yield _recorded(meta, Signal.DOCUMENT_STATE, word if word in ("STATIC", "DYNAMIC") else "")


def _url(meta: Element) -> Iterator[Statement]:
    content = meta.get("content")
    yield _recorded(meta, Signal.META_URL, content if absolute_url(content) else "")


def _revisit_after(meta: Element) -> Iterator[Statement]:
    yield _recorded(meta, Signal.REVISIT_AFTER, meta.get("content")[:RAW_CAP])


def _recorded(meta: Element, signal: Signal, value: str) -> Statement:
    return Statement(
        signal=signal,
        place=Place.PAGE,
        rule="url" if signal is Signal.META_URL else signal.value,
        value=value,
        raw=meta.tag[:RAW_CAP],
        flags=() if value else (Flag.MALFORMED,),
    )


def _content_usage(meta: Element) -> Iterator[Statement]:
    yield from read_usage(
        meta.get("content"), place=Place.PAGE, flags=(Flag.NONSTANDARD,), raw=meta.tag
    )


def _content_signal(meta: Element) -> Iterator[Statement]:
    yield from read_signal(
        meta.get("content"), place=Place.PAGE, flags=(Flag.NONSTANDARD,), raw=meta.tag
    )


_Reader = Callable[[Element], Iterator[Statement]]

#: No document defines a META for these two fields (draft-ietf-aipref-attach-05,
#: contentsignals.org).
_FIELDS: dict[str, _Reader] = {
    "content-usage": _content_usage,
    "content-signal": _content_signal,
}
_READERS: dict[str, _Reader] = {
    "document-state": _document_state,
    "url": _url,
    "revisit-after": _revisit_after,
    **_FIELDS,
}
_RECORDED = frozenset({Signal.DOCUMENT_STATE, Signal.META_URL, Signal.REVISIT_AFTER})


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
