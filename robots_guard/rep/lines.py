"""Octets to lines: byte order marks, CR, LF and CRLF, comments, and the caps.

The law of this file: a body is the stranger's. Nothing here raises on any octets, and where a cap or a control
character cuts a line, it cuts in the restrictive direction: a Disallow gets shorter and so broader, an Allow goes.

`records` is what the lines say; `lines` is the same with each line's text, for people. The parser tames a text once
and reads of it what is asked for.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

from robots_guard.rep.dialect import Dialect

BODY_CAP = 512_000  # RFC 9309 section 2.5: at least 500 KiB
LINE_CAP = 16_663  # eight times the longest URL old browsers took; Google's library cuts here as well
TEXT_CAP = 512
COMMENT = b"#"  # the field of a line that has a comment and nothing else: it is no line at all, and no boundary
HASH = ord("#")

Record = tuple[int, bytes, bytes]  # line number, field in lower case, value; a blank line has no field


class Line(NamedTuple):
    """One line of a file. `text` is the line as it stood, stripped, without its comment."""

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
_CONTROLS = bytes(octet for octet in [*range(0x20), 0x7F] if octet not in b"\t\n\r")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CONTROL_AND_REST = re.compile(_CONTROL.pattern + rb"[^ \t]*")
_BEFORE_VALUE = re.compile(rb"(?<=:)[\x00-\x20\x7f]+")

# The usual spellings save most lines a strip and a lower.
SPELLINGS = {
    spelling.encode(): spelling.lower().encode()
    for name in ("User-agent", "Disallow", "Allow", "Sitemap", "Crawl-delay")
    for spelling in (name, name.lower(), name.upper(), name.title())
}

# Misspellings that Google's library takes, and the field each stands for.
_MISSPELT = (
    (b"user-agent", (b"user-agent", b"useragent", b"user agent")),
    (b"allow", (b"allow",)),
    (b"disallow", (b"disallow", b"dissallow", b"dissalow", b"disalow", b"diasllow", b"disallaw")),
    (b"sitemap", (b"sitemap", b"site-map")),
)

_FIELDS = frozenset(field for field, _ in _MISSPELT)


def clean(body: bytes) -> bytes:
    """The body as UTF-8 octets without a byte order mark, cut at the last whole line within the cap."""
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
    return head[:end] if end else head


def _unmarked(body: bytes) -> bytes:
    """Without the UTF-8 mark; a mark cut short is skipped as well, as Google's library does."""
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
    """What a line says: its field in lower case, and its value. A blank line says nothing, a comment is none."""
    # The octet is looked for by number: that is ten times quicker than by b"#".
    if HASH in raw:
        raw = raw.partition(b"#")[0]
        if not raw or raw.isspace():
            return COMMENT, b""
    key, colon, value = raw.partition(b":")
    if colon and key in SPELLINGS:
        return SPELLINGS[key], value.strip()
    name = key.strip().lower()
    if not colon:
        if not name or not dialect.lenient_fields:
            return (b"?", key.strip()) if name else (b"", b"")
        return _two_words(key)
    return (_respelt(name) if dialect.lenient_fields else name) or b"?", value.strip()


def _two_words(raw: bytes) -> tuple[bytes, bytes]:
    """A line without a colon, if it is a field and one more word."""
    words = raw.split()
    field = _respelt(words[0].lower())
    return (field, words[1]) if len(words) == 2 and field in _FIELDS else (b"?", raw.strip())


def _respelt(name: bytes) -> bytes:
    for field, spellings in _MISSPELT:
        if name.startswith(spellings):
            return field
    return name


def tame_lines(text: bytes, dialect: Dialect) -> list[bytes]:
    """The lines; control characters and over-long ones are dealt with."""
    # bytes.splitlines knows CR, LF and CRLF only; str.splitlines would split at ten more characters.
    raws = text.splitlines()
    hostile = len(text.translate(None, _CONTROLS)) != len(text)
    if hostile or len(text) > LINE_CAP:
        several = dialect.paths_per_line == "many"
        tame = _as_c_string if dialect.c_strings else _each_restricted if several else _restricted
        return [tame(raw) if len(raw) > LINE_CAP or (hostile and _CONTROL.search(raw)) else raw for raw in raws]
    return raws


def _as_c_string(raw: bytes) -> bytes:
    return raw[:LINE_CAP].partition(b"\0")[0]


def _restricted(raw: bytes) -> bytes:
    """The line cut at the cap or its first control character; an Allow so cut would admit more, so it goes."""
    whole = _trimmed(raw)
    control = _CONTROL.search(whole)
    cut = whole[: min(LINE_CAP, control.start() if control else LINE_CAP)]
    if len(cut) < len(whole) and whole[:5].lower() == b"allow":
        return COMMENT
    return cut or COMMENT


def _each_restricted(raw: bytes) -> bytes:
    """A line of several values, each cut at its first control character: to cut the line would lose the others.

    Nor is it cut at the cap: the grammar of kollar1996 leaves a line's length open.
    """
    return _CONTROL_AND_REST.sub(b"", _trimmed(raw)) or COMMENT


def _trimmed(raw: bytes) -> bytes:
    """Without comment; controls round the field or before the value hide nothing, so they go like white space."""
    return _BEFORE_VALUE.sub(b"", raw.partition(b"#")[0].strip(_CONTROLS + b" \t"), count=1)


def lines(body: bytes, dialect: Dialect) -> Iterator[Line]:
    """Every line with a field, as people read it. A line without a colon has the field "?"."""
    text = clean(body)
    raws = text.splitlines()
    for number, name, value in records(text, dialect):
        if name:
            yield Line(number, shown(name), shown(value), shown_line(raws[number - 1]))


def shown_line(raw: bytes) -> str:
    """A raw line without its comment, fit to be shown and recorded."""
    return shown(raw.partition(b"#")[0].strip())


def shown(octets: bytes) -> str:
    """Octets of a line as text, capped."""
    return octets[: 4 * TEXT_CAP].decode("utf-8", "replace")[:TEXT_CAP]
