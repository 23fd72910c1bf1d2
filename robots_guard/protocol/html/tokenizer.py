"""A tokenizer: finds the tags of an HTML document as the HTML standard does (WHATWG HTML, section
13.2.5).

It builds no tree, so the time is linear in the length of the document, however deep its elements
are nested. Some tags are ambiguous without a tree: `<title>` contains only text in HTML, but can
contain tags in SVG. From such a tag on, the tokenizer follows both readings.

Invariant: each META, link and anchor that a browser sees in the document is found. Others may be
found too, such as those that a browser drops within `<select>` or before `<frameset>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from html.entities import html5
from typing import NamedTuple

WORK = 32  # times that a document may be read because of its ambiguous tags

_SPACE = rb"[\t\n\f\r ]"
_VALUE = rb"(?:\"[^\"]*+\"|'[^']*+'|[^\t\n\f\r >\"'][^\t\n\f\r >]*+|(?=>))"
_ATTRIBUTE_NAME = rb"(?:=[^\t\n\f\r />=]*+|[^\t\n\f\r />=]++)"
_ATTRIBUTES = (
    rb"(?:[\t\n\f\r /]++|"
    + _ATTRIBUTE_NAME
    + rb"(?:" + _SPACE + rb"*+=" + _SPACE + rb"*+" + _VALUE
    + rb"|(?!" + _SPACE + rb"*+=)))*+"
)  # fmt: skip
#: A whole start or end tag: slash, name, attributes. A tag without its `>` does not match.
TAG = re.compile(rb"<(/?)([a-zA-Z][^\t\n\f\r />]*+)(" + _ATTRIBUTES + rb")>")
_ATTRIBUTE = re.compile(
    rb"(" + _ATTRIBUTE_NAME + rb")(?:" + _SPACE + rb"*+=" + _SPACE
    + rb"*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\t\n\f\r >\"'][^\t\n\f\r >]*+)|\Z))?+"
)  # fmt: skip
_COMMENT_END = re.compile(rb"--!?>")
_BOGUS_END = re.compile(rb">")
_CDATA_END = re.compile(rb"\]\]>")
_SCRIPT_PART = re.compile(rb"<!--|-->|<(/?)script[\t\n\f\r />]", re.IGNORECASE)
_REFERENCE = re.compile(r"&(?:#[xX][0-9a-fA-F]+;?|#[0-9]+;?|[a-zA-Z][a-zA-Z0-9]*;?)")
_DIGITS = 7  # the most digits of a character's number

#: Elements that contain only text, up to their end tag. In SVG and MathML they can contain tags.
_TEXT_ELEMENTS = frozenset(
    {b"title", b"textarea", b"style", b"xmp", b"iframe", b"noembed", b"noframes"}
)
_TEXT_END = {
    name: re.compile(rb"(?=</" + name + rb"[\t\n\f\r />])", re.IGNORECASE)
    for name in _TEXT_ELEMENTS
}
#: After one of these, only a tree shows what a start tag means, and whether a browser drops it.
_DOUBTFUL = frozenset({b"svg", b"math", b"select", b"frameset"})
_MARKED = _TEXT_ELEMENTS | _DOUBTFUL | {b"script", b"plaintext", b"template"}


@cache
def _run(names: frozenset[bytes]) -> re.Pattern[bytes]:
    """Return a pattern that skips text and irrelevant tags: those that have none of the names and
    do not change how the rest of the document is read."""
    stops = b"|".join(sorted(names | _MARKED))
    end = _SPACE[:-1] + b"/>]"
    return re.compile(
        rb"(?:[^<]++|</(?!(?:template)" + end + rb")[a-z][^\t\n\f\r />]*+" + _ATTRIBUTES
        + rb">|<(?!(?:" + stops + rb")" + end + rb")[a-z][^\t\n\f\r />]*+" + _ATTRIBUTES + rb">)++",
        re.IGNORECASE,
    )  # fmt: skip


class Tag(NamedTuple):
    """A start or end tag with its position in the document. `name` is in lower case."""

    start: int
    end: int
    name: bytes
    is_end: bool
    text: bytes  # the attributes as they are written
    is_certain: bool  # a browser sees the tag, too

    def attributes(self) -> dict[str, str]:
        """Return the attributes by their names in lower case. Of a repeated name the first counts."""
        found: dict[str, str] = {}
        for name, *values in _ATTRIBUTE.findall(self.text):
            key = name.lower().decode("utf-8", "replace")
            if key not in found:
                value = next(filter(None, values), b"")
                found[key] = _unescaped(value.decode("utf-8", "replace"))
        return found

    @property
    def is_self_closing(self) -> bool:
        return self.text.endswith(b"/")


class Tokenizer:
    """Finds the tags of one document: the start tags with one of `names`, or all tags.

    A reading is a position outside any tag, from which the tokenizer continues. In XML every
    element can contain tags, and a self-closing element is empty.
    """

    def __init__(
        self, document: bytes, names: frozenset[bytes] | None = None, *, is_xml: bool = False
    ) -> None:
        self.is_exhausted = False  # there were too many readings to follow them all
        self.is_between_tags = False  # the document ends after a tag, and has one reading only
        self._document = document
        self._names = names
        self._run = _run(names) if names and not is_xml else None
        self._is_xml = is_xml
        self._is_doubtful = False
        self._readings = [0]
        self._seen: set[int] = set()
        self._absent: dict[re.Pattern[bytes], int] = {}  # from where on a pattern has no match
        self._work = WORK * len(document)

    def tags(self) -> Iterator[Tag]:
        """Yield the tags of the first reading in their order, then those of the other readings.

        Tags within `<template>` are left out.
        """
        while self._readings:
            begin = self._readings.pop()
            if self._work < 0:
                self.is_exhausted = True
                return
            yield from self._reading(begin)

    def _reading(self, begin: int) -> Iterator[Tag]:
        document = self._document
        seen = self._seen
        templates = 0
        at = last = begin
        while 0 <= at < len(document):
            at = self._next(at)
            if at < 0 or at in seen:
                break
            seen.add(at)
            last = at
            found = TAG.match(document, at)
            if found is None:
                at = self._after_other(at)
                continue
            slash, name, text = found.groups()
            is_certain = not self._is_doubtful
            tag = Tag(at, found.end(), self._name(name), slash == b"/", text, is_certain)
            if tag.name == b"template":
                templates = self._templates(tag, templates)
            elif (templates == 0 or self._is_doubtful) and self._is_wanted(tag):
                yield tag
            at = tag.end if tag.is_end else self._after_start(tag)
        self.is_between_tags = at == len(document) and not self._is_doubtful
        self._work -= last - begin

    def _next(self, at: int) -> int:
        """Return where the next tag that may be wanted begins, or -1."""
        if self._run and (run := self._run.match(self._document, at)):
            at = run.end()
        return self._document.find(b"<", at)

    def _is_wanted(self, tag: Tag) -> bool:
        return self._names is None or (not tag.is_end and tag.name in self._names)

    def _name(self, name: bytes) -> bytes:
        if self._is_xml:
            name = name.rpartition(b":")[2]
        return name.lower()

    def _templates(self, tag: Tag, depth: int) -> int:
        """Return how many templates are open after the tag of a template."""
        if tag.is_end:
            return max(0, depth - 1)
        return depth if self._is_xml and tag.is_self_closing else depth + 1

    def _after_start(self, tag: Tag) -> int:
        """Return where a reading continues after a start tag, or -1 at the end of the document."""
        if self._is_xml:
            return tag.end
        if tag.name in _DOUBTFUL:
            self._is_doubtful = True
            return tag.end
        if tag.name == b"script":
            after = self._script_end(tag.end)
        elif tag.name in _TEXT_ELEMENTS:
            after = self._after(_TEXT_END[tag.name], tag.end)
        elif tag.name == b"plaintext":
            after = -1
        else:
            return tag.end
        if self._is_doubtful:
            self._readings.append(tag.end)
        return after

    def _after_other(self, at: int) -> int:
        """Return where a reading continues after a `<` that does not begin a whole tag, or -1."""
        document = self._document
        following = document[at + 1 : at + 3]
        if following[:1] == b"!":
            return self._after_declaration(at)
        if following == b"/>":
            return at + 3
        if following[:1].isalpha() or (following[:1] == b"/" and following[1:].isalpha()):
            self._work -= len(document) - at
            return -1  # a tag that is cut off by the end of the document
        if following[:1] in (b"?", b"/"):
            return self._after(_BOGUS_END, at)
        return at + 1

    def _after_declaration(self, at: int) -> int:
        document = self._document
        if document.startswith(b"<!--", at):
            for abrupt in (b">", b"->"):
                if document.startswith(abrupt, at + 4) and not self._is_xml:
                    return at + 4 + len(abrupt)
            return self._after(_COMMENT_END, at + 4)
        if document.startswith(b"<![CDATA[", at):
            after = self._after(_CDATA_END, at)
            if self._is_xml:
                return after
            if self._is_doubtful and after >= 0:
                self._readings.append(after)
        return self._after(_BOGUS_END, at)

    def _after(self, pattern: re.Pattern[bytes], at: int) -> int:
        """Return where a reading continues after the next match of a pattern, or -1."""
        absent = self._absent.get(pattern)
        if absent is not None and at >= absent:
            return -1
        found = pattern.search(self._document, at)
        if found is None:
            self._work -= len(self._document) - at
            self._absent[pattern] = at
            return -1
        return found.end()

    def _script_end(self, begin: int) -> int:
        """Return where the end tag of a script begins (section 13.2.5.15 and following), or -1."""
        at = begin
        is_escaped = is_doubly_escaped = False
        while part := _SCRIPT_PART.search(self._document, at):
            at = part.end()
            if part[0] == b"<!--":
                at = part.start() + 2  # its hyphens can belong to `-->`
                is_escaped = True
            elif part[0] == b"-->":
                is_escaped = is_doubly_escaped = False
            elif part[1]:
                if not is_doubly_escaped:
                    return part.start()
                is_doubly_escaped = False
            elif is_escaped:
                is_doubly_escaped = True
        self._work -= len(self._document) - begin
        return -1


def _unescaped(value: str) -> str:
    return _REFERENCE.sub(_character, value) if "&" in value else value


def _character(reference: re.Match[str]) -> str:
    """Return the text for a character reference in an attribute (section 13.2.5.73)."""
    text = reference[0]
    if text[1] == "#":
        is_hexadecimal = text[2] in "xX"
        digits = text[3 if is_hexadecimal else 2 :].rstrip(";").lstrip("0") or "0"
        if len(digits) > _DIGITS:
            return "\ufffd"
        return unescape(f"&#x{digits};" if is_hexadecimal else f"&#{digits};")
    if not text.endswith(";") and reference.string[reference.end() : reference.end() + 1] == "=":
        return text
    return html5.get(text[1:], text)
