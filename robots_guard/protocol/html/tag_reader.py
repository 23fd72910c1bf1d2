"""The reader of tags: finds markup without a tree and without an extra."""

from __future__ import annotations

from typing import Literal, overload

from robots_guard.protocol.html.markup import Element, Markup
from robots_guard.protocol.html.tokenizer import Tag, Tokenizer
from robots_guard.protocol.signals.statement import RAW_CAP

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
            metas.append(_element(document, tag))
        elif tag.name == b"link":
            licenses.append(_element(document, tag))
        elif tag.name == b"base" and base is None:
            base = tag.attributes().get("href")
    if is_cut and not tokenizer.is_between_tags:
        return None
    if b"<frameset" in text:  # a frameset replaces a body before it
        metas = [meta._replace(is_certain=False) for meta in metas]
    return Markup(metas, licenses, withheld.texts(), base, tokenizer.is_exhausted)


def _element(document: bytes, tag: Tag) -> Element:
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
