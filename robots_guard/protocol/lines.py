"""Bytes to lines: byte order marks, CR, LF and CRLF, comments, and size limits; and what an author
plainly meant where a line has invisible characters or tags.

Invariant: a body is untrusted. No function raises on any bytes. If a limit or a control character
truncates a line, the result is more restrictive: a Disallow gets shorter and so broader, an Allow
is dropped. In a file of plain ASCII without tags, every line is read as it is written.

`records` yields the parsed lines, `lines` the same with each line's text, for people.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from robots_guard.protocol.dialect import Dialect

BODY_CAP = 512_000  # bytes; RFC 9309 section 2.5: at least 500 KiB
#: Bytes; the limit of Google's library: eight times the longest URL of old browsers.
LINE_CAP = 16_663
TEXT_CAP = 512  # characters of a text for people
TAG, BACKSLASH = ord("<"), ord("\\")
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
#: Bytes that most files do not contain: controls, non-ASCII bytes, and those that begin a tag or an
#: escape.
_NOT_PLAIN = _CONTROLS + b"<\\" + bytes(range(0x80, 0x100))
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


# --- Bodies that are no text ---

# How binary files begin (WHATWG MIME Sniffing, section 6, and the specifications of the formats).
_SIGNATURES = (
    (b"\x1f\x8b", "gzip data"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PK\x05\x06", "a ZIP archive"),
    (b"%PDF-", "a PDF document"),
    (b"\x89PNG\r\n\x1a\n", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"GIF87a", "an image"),
    (b"GIF89a", "an image"),
    (b"\0\0\1\0", "an image"),
    (b"RIFF", "an image or a recording"),
    (b"II*\0", "an image"),
    (b"MM\0*", "an image"),
    (b"OggS\0", "a recording"),
    (b"\x1aE\xdf\xa3", "a recording"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"BZh91AY&SY", "bzip2 data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\7", "a RAR archive"),
    (b"x\x01", "zlib data"),
    (b"x\x9c", "zlib data"),
    (b"x\xda", "zlib data"),
    (b"\xd0\xcf\x11\xe0", "an office document"),
    (b"\x7fELF", "a program"),
    (b"\0asm", "a program"),
    (b"wOFF", "a font"),
    (b"wOF2", "a font"),
)


def kind_of_binary(body: bytes) -> str | None:
    """The kind of a binary body, in words; None if it may be text."""
    for signature, kind in _SIGNATURES:
        if body.startswith(signature):
            return kind
    # Two characters of ASCII, as in "Us" or "# ", each with a NUL.
    if len(body) >= 4 and (body[1] == body[3] == 0 or body[0] == body[2] == 0):
        return "UTF-16 or UTF-32 without a byte order mark"
    return None


# --- Lines ---


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
    raws, numbers = tame_lines(text, dialect)
    for number, raw in zip(numbers or range(1, len(raws) + 1), raws, strict=True):
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
        return _two_words(key, dialect)
    if dialect.lenient_fields:
        name = _respelt(name, dialect)
    return name or b"?", value.strip()


def _two_words(raw: bytes, dialect: Dialect) -> tuple[bytes, bytes]:
    """Field and value of a line without a colon. The field is "?" unless the line is a known field
    and one word."""
    words = raw.split()
    field = _respelt(words[0].lower(), dialect)
    if len(words) == 2 and field in _FIELDS:
        return field, words[1]
    return b"?", raw.strip()


def _respelt(name: bytes, dialect: Dialect) -> bytes:
    if name in _NOT_MISSPELT:
        return name
    for field, spellings in _MISSPELT:
        if name.startswith(spellings):
            return field
    if dialect.mends:
        for field in _CLOSING_FIELDS:
            if _is_one_slip_from(name, field):
                return field
    return name


# Fields that close something: a slip in one must not lose the line. A lost "Allow" opens nothing.
_CLOSING_FIELDS = (b"disallow", b"user-agent")


def may_be_mended(text: bytes, fields: Iterable[bytes]) -> bool:
    """Whether a text may have lines in a line, or a slip in one of its unknown fields."""
    if any(sign in text for sign in _SIGNS_OF_BREAKS) or b"?" in fields:
        return True
    return any(_is_one_slip_from(name, field) for name in fields for field in _CLOSING_FIELDS)


def _is_one_slip_from(name: bytes, field: bytes) -> bool:
    """Whether one character was left out, added, replaced, or exchanged with the next one."""
    more = len(name) - len(field)
    if not -1 <= more <= 1:
        return False
    at = 0
    while at < len(name) and at < len(field) and name[at] == field[at]:
        at += 1
    if more:
        return name[at + (more > 0) :] == field[at + (more < 0) :]
    exchanged = name[at + 1 : at + 2] + name[at : at + 1]
    return name[at + 1 :] == field[at + 1 :] or exchanged + name[at + 2 :] == field[at:]


def tame_lines(text: bytes, dialect: Dialect) -> tuple[list[bytes], list[int]]:
    """The lines of a text, truncated where they have control characters or are too long.

    The second list has their numbers; it is empty if they are 1, 2, 3, ... One line of the file may
    be several here, with one number.
    """
    # bytes.splitlines splits at CR, LF and CRLF only; str.splitlines at ten more characters.
    raws = text.splitlines()
    numbers: list[int] = []
    is_plain = len(text.translate(None, _NOT_PLAIN)) == len(text)
    if is_plain and len(text) <= LINE_CAP:
        return raws, numbers
    if not is_plain and dialect.plain_meaning:
        raws, numbers = _plain_lines(raws, text, mends=dialect.mends)
    has_controls = not is_plain and len(text.translate(None, _CONTROLS)) != len(text)
    if not has_controls and len(text) <= LINE_CAP:
        return raws, numbers
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

    return [tame(raw) for raw in raws], numbers


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


# --- What an author plainly meant ---

#: Non-ASCII white space and invisible characters: the categories Zs, Zl, Zp and Cf of Unicode, NEL,
#: and other characters that a font shows as nothing (Default_Ignorable_Code_Point).
INVISIBLE = "".join(
    chr(point)
    for first, last in (
        (0x85, 0x85),
        (0xA0, 0xA0),
        (0xAD, 0xAD),
        (0x34F, 0x34F),
        (0x600, 0x605),
        (0x61C, 0x61C),
        (0x6DD, 0x6DD),
        (0x70F, 0x70F),
        (0x890, 0x891),
        (0x8E2, 0x8E2),
        (0x115F, 0x1160),
        (0x1680, 0x1680),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2000, 0x200F),
        (0x2028, 0x202F),
        (0x205F, 0x206F),
        (0x3000, 0x3000),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFEFF, 0xFEFF),
        (0xFFA0, 0xFFA0),
        (0xFFF0, 0xFFFB),
        (0x110BD, 0x110BD),
        (0x110CD, 0x110CD),
        (0x13430, 0x1343F),
        (0x1BCA0, 0x1BCA3),
        (0x1D173, 0x1D17A),
        (0xE0001, 0xE0001),
        (0xE0020, 0xE007F),
        (0xE0100, 0xE01EF),
    )
    for point in range(first, last + 1)
)
_AROUND = INVISIBLE + " \t"
#: A byte order mark of UTF-8 that was read as Windows-1252 and written as UTF-8 once more.
_GARBLED_MARK = codecs.BOM_UTF8.decode("cp1252")
_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"), "-")
_IN_FIELD = {**dict.fromkeys(map(ord, INVISIBLE), None), **_DASHES}
_ANY_COLON = re.compile("\uff1a[:\uff1a]*|:")

# Where one line ends and the next begins, though there is no CR or LF: at a byte order mark, where two
# files were joined; at "\\n" as two characters; and at tags of HTML.
_BREAK = re.compile(
    rb"(?:\xef\xbb\xbf|\xc3\xaf\xc2\xbb\xc2\xbf|(?:\\r)?\\n)"
    rb"(?=[ \t]*(?:user.?agent|disallow|allow|sitemap|crawl-delay|content-\w+)[ \t]*:|[ \t]*(?:\\|\Z))"
    rb"|</?(?:blockquote|body|br|center|dd|div|dl|dt|h[1-6]|head|hr|html|li|meta|ol|p|pre|table|tbody"
    rb"|td|title|tr|ul)(?:[ \t/][^<>]*)?>",
    re.IGNORECASE,
)
_SIGNS_OF_BREAKS = (b"<", b"\\", b"&", codecs.BOM_UTF8, b"\xc3\xaf\xc2\xbb\xc2\xbf")
_INLINE = re.compile(
    rb"</?(?:a|b|big|code|em|font|i|small|span|strong|tt|u)(?:[ \t/][^<>]*)?>|&nbsp;", re.IGNORECASE
)


def _plain_lines(raws: list[bytes], text: bytes, *, mends: bool) -> tuple[list[bytes], list[int]]:
    """Lines as their author saw them, and their numbers if one was several."""
    places: list[int] = []
    if not text.isascii():
        places = [at for at, raw in enumerate(raws) if not raw.isascii() and raw[0] != HASH]
    for byte in (TAG, BACKSLASH):
        if mends and byte in text:
            places += [at for at, raw in enumerate(raws) if byte in raw and raw[0] != HASH]
    several: dict[int, list[bytes]] = {}
    for at in sorted(set(places)):
        pieces = lines_seen(raws[at], mends=mends)
        raws[at] = pieces[0]
        if len(pieces) > 1:
            several[at] = pieces
    if not several:
        return raws, []
    found: list[bytes] = []
    numbers: list[int] = []
    for at, raw in enumerate(raws):
        pieces = several.get(at, [raw])
        found += pieces
        numbers += [at + 1] * len(pieces)
    return found, numbers


def lines_seen(raw: bytes, *, mends: bool = True) -> list[bytes]:
    """The line as an author saw it, without what is not seen; with `mends`, all the lines that it
    was meant to be. The comment belongs to the last.

    An Allow after a break is dropped: in parsers that read one line, it allows nothing.
    """
    head, mark, comment = raw.partition(b"#")
    pieces = [head]
    if mends and TAG in head:
        pieces = [_INLINE.sub(b" ", head)]
    if mends and _BREAK.search(pieces[0]):
        pieces = [piece.strip() for piece in _BREAK.split(pieces[0]) if piece.strip()] or [b""]
        first, *behind = pieces
        pieces = [first, *(piece for piece in behind if piece[:5].lower() != b"allow")]
    pieces = [piece if _shows_all(piece) else _as_seen(piece) for piece in pieces]
    pieces[-1] += mark + comment
    return pieces


def _shows_all(line: bytes) -> bool:
    """Whether a line certainly has no invisible character in its field or around its value."""
    field, colon, value = line.partition(b":")
    value = value.strip()
    if not colon or field not in SPELLINGS or not value:
        return line.isascii()
    return value[0] < 0x80 and value[-1] < 0x80


def _as_seen(line: bytes) -> bytes:
    """A line without the invisible characters in its field and around its value."""
    encoding = "utf-8"
    try:
        text = line.decode()
    except UnicodeDecodeError:
        encoding = "latin-1"
        text = line.decode(encoding)
    colon = _ANY_COLON.search(text)
    if colon is None:
        return " ".join(text.strip(_AROUND).split()).encode(encoding)
    field = unicodedata.normalize("NFKC", text[: colon.start()].replace(_GARBLED_MARK, ""))
    value = text[colon.end() :].strip(_AROUND)
    # A full-width slash or star, as an input method for Chinese or Japanese writes it.
    if value and (first := unicodedata.normalize("NFKC", value[0])) in ("/", "*"):
        value = first + value[1:]
    return f"{field.translate(_IN_FIELD)}:{value}".encode(encoding, "replace")


def lines(body: bytes, dialect: Dialect) -> Iterator[Line]:
    """Every line with a field, as it was meant, as text for people. A line without a colon has the
    field "?"."""
    dialect = replace(dialect, mends=dialect.plain_meaning)
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
