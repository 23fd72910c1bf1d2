"""Bytes to lines: byte order marks, CR, LF and CRLF, comments, and size limits.

Invariant: a body is untrusted. No function raises on any bytes. If a limit or a control character
truncates a line, the result is more restrictive: a Disallow gets shorter and so broader, an Allow
is dropped.

`records` yields the parsed lines, `lines` the same with each line's text, for people.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

from robots_guard.rep.dialect import Dialect

BODY_CAP = 512_000  # bytes; RFC 9309 section 2.5: at least 500 KiB
#: Bytes; the limit of Google's library: eight times the longest URL of old browsers.
LINE_CAP = 16_663
TEXT_CAP = 512  # characters of a text for people
COMMENT = b"#"  # the field of a line with only a comment, which is skipped and ends nothing
HASH = ord("#")

#: Line number, field in lower case, value; a blank line has no field.
Record = tuple[int, bytes, bytes]


class Line(NamedTuple):
    """One line of a file. `text` is the original line, stripped, without its comment."""

    number: int
    field: str
    value: str
    text: str


# The longer marks first: UTF-32 LE begins with the mark of UTF-16 LE.
_WIDE = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_FIRST_OF_MARKS = frozenset((b"\xef", b"\xff", b"\xfe", b"\0"))
_CONTROLS = bytes(byte for byte in [*range(0x20), 0x7F] if byte not in b"\t\n\r")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CONTROL_AND_REST = re.compile(_CONTROL.pattern + rb"[^ \t]*")
_BEFORE_VALUE = re.compile(rb"(?<=:)[\x00-\x20\x7f]+")

# Looking up the usual spellings saves strip() and lower() on most lines.
SPELLINGS = {
    spelling.encode(): spelling.lower().encode()
    for name in ("User-agent", "Disallow", "Allow", "Sitemap", "Crawl-delay")
    for spelling in (name, name.lower(), name.upper(), name.title())
}

# Fields, and the spellings that Google's library accepts for them.
_MISSPELT = (
    (b"user-agent", (b"user-agent", b"useragent", b"user agent")),
    (b"allow", (b"allow",)),
    (b"disallow", (b"disallow", b"dissallow", b"dissalow", b"disalow", b"diasllow", b"disallaw")),
    (b"sitemap", (b"sitemap", b"site-map")),
)

_FIELDS = frozenset(field for field, _ in _MISSPELT)

# Fields of draft-canel-robots-ai-control, which Google's library reads as Allow and Disallow because
# they begin so. They are about AI training, and must not permit or forbid the request.
_NOT_MISSPELT = frozenset((b"allowaitraining", b"disallowaitraining"))


def clean(body: bytes) -> bytes:
    """The body in UTF-8 without a byte order mark, truncated after the last whole line within
    BODY_CAP."""
    if len(body) > BODY_CAP:
        body = _capped(body)
    if body[:1] not in _FIRST_OF_MARKS:
        return body
    for mark, encoding in _WIDE:
        if body.startswith(mark):
            return body.decode(encoding, "replace").encode("utf-8", "replace")
    return _unmarked(body)


def _capped(body: bytes) -> bytes:
    head = body[:BODY_CAP]
    end = max(head.rfind(b"\n"), head.rfind(b"\r")) + 1
    if end:
        return head[:end]
    return head


def _unmarked(body: bytes) -> bytes:
    """The body without a UTF-8 mark. A partial mark is removed as well, as Google's library
    does."""
    for length in (3, 2, 1):
        if body.startswith(codecs.BOM_UTF8[:length]):
            return body[length:]
    return body


def records(text: bytes, dialect: Dialect) -> Iterator[Record]:
    """Field and value of each line that has them, and an empty field for each blank line."""
    for number, raw in enumerate(tame_lines(text, dialect), 1):
        field, value = field_and_value(raw, dialect)
        if field != COMMENT:
            yield number, field, value


def field_and_value(raw: bytes, dialect: Dialect) -> tuple[bytes, bytes]:
    """The field of a line, in lower case, and its value.

    Both are empty for a blank line; a line with only a comment has the field COMMENT.
    """
    # Searching for the byte by number is ten times faster than for b"#".
    if HASH in raw:
        raw = raw.partition(b"#")[0]
        if not raw or raw.isspace():
            return COMMENT, b""
    key, colon, value = raw.partition(b":")
    if colon and key in SPELLINGS:
        return SPELLINGS[key], value.strip()
    name = key.strip().lower()
    if not colon:
        if not name:
            return b"", b""
        if not dialect.lenient_fields:
            return b"?", key.strip()
        return _two_words(key)
    if dialect.lenient_fields:
        name = _respelt(name)
    return name or b"?", value.strip()


def _two_words(raw: bytes) -> tuple[bytes, bytes]:
    """Field and value of a line without a colon. The field is "?" unless the line is a known field
    and one word."""
    words = raw.split()
    field = _respelt(words[0].lower())
    if len(words) == 2 and field in _FIELDS:
        return field, words[1]
    return b"?", raw.strip()


def _respelt(name: bytes) -> bytes:
    if name in _NOT_MISSPELT:
        return name
    for field, spellings in _MISSPELT:
        if name.startswith(spellings):
            return field
    return name


def tame_lines(text: bytes, dialect: Dialect) -> list[bytes]:
    """The lines of a text, truncated where they have control characters or are too long."""
    # bytes.splitlines splits at CR, LF and CRLF only; str.splitlines at ten more characters.
    raws = text.splitlines()
    has_controls = len(text.translate(None, _CONTROLS)) != len(text)
    if not has_controls and len(text) <= LINE_CAP:
        return raws
    if dialect.c_strings:
        truncate = _truncate_like_c
    elif dialect.paths_per_line == "many":
        truncate = _truncate_values
    else:
        truncate = _truncate

    def tame(raw: bytes) -> bytes:
        if len(raw) > LINE_CAP or (has_controls and _CONTROL.search(raw)):
            return truncate(raw)
        return raw

    return [tame(raw) for raw in raws]


def _truncate_like_c(raw: bytes) -> bytes:
    return raw[:LINE_CAP].partition(b"\0")[0]


def _truncate(raw: bytes) -> bytes:
    """Truncate a line at LINE_CAP or its first control character.

    A truncated Allow would allow more, so it is dropped.
    """
    whole = _trimmed(raw)
    cut = whole[:LINE_CAP]
    control = _CONTROL.search(cut)
    if control:
        cut = cut[: control.start()]
    if len(cut) < len(whole) and whole[:5].lower() == b"allow":
        return COMMENT
    return cut or COMMENT


def _truncate_values(raw: bytes) -> bytes:
    """Truncate each of several values at its first control character.

    Truncating the line would lose the values after it. For the same reason the line is not
    truncated at LINE_CAP: the grammar of kollar1996 does not limit the length of a line.
    """
    return _CONTROL_AND_REST.sub(b"", _trimmed(raw)) or COMMENT


def _trimmed(raw: bytes) -> bytes:
    """The line without its comment and without controls around the field or before the value.

    Such controls hide nothing, so they are removed like white space.
    """
    return _BEFORE_VALUE.sub(b"", raw.partition(b"#")[0].strip(_CONTROLS + b" \t"), count=1)


def lines(body: bytes, dialect: Dialect) -> Iterator[Line]:
    """Every line with a field, as text for people. A line without a colon has the field "?"."""
    text = clean(body)
    raws = text.splitlines()
    for number, name, value in records(text, dialect):
        if name:
            yield Line(number, shown(name), shown(value), shown_line(raws[number - 1]))


def shown_line(raw: bytes) -> str:
    """A raw line without its comment, as text to display and record."""
    return shown(raw.partition(b"#")[0].strip())


def shown(raw: bytes) -> str:
    """Bytes of a line as text of at most TEXT_CAP characters."""
    return raw[: 4 * TEXT_CAP].decode("utf-8", "replace")[:TEXT_CAP]


def excerpt(body: bytes, line: int, around: int = 3) -> list[tuple[int, str]]:
    """The lines around a line of a file as text to display, with their numbers."""
    lines = clean(body).splitlines()
    first, last = max(1, line - around), min(len(lines), line + around)
    return [(number, shown(lines[number - 1])) for number in range(first, last + 1)]
