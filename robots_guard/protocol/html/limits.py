"""The limits on parsing: which part of an HTML document is parsed, and whether into a tree.

A parser that builds a tree compares the attributes of a tag with each other, walks up the open
elements, and repeats unclosed formatting elements in each paragraph. The time and memory for this
grow with the square of the number of tags or attributes (measured with lexbor 2.5: 24 KB become
540 MB). So such a parser gets only documents with few tags, and only the part that can contain
statements. Of most pages that is the head.
"""

from __future__ import annotations

import re

from robots_guard.protocol.html.tokenizer import TAG

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
