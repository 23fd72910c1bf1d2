"""Checks of the text of a file: its encoding and size, whether it is a robots.txt at all, and whether
each line is `field: value`, with a field that some crawler reads."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from robots_guard.protocol.dialect import Dialect
from robots_guard.protocol.lines import BODY_CAP, LINE_CAP, kind_of_binary, lines_seen, records
from robots_guard.protocol.lint.finding import Ask, CheckTable, Note, Severity
from robots_guard.protocol.lint.page import BASE, KNOWN, RULES, Item, LintedFile, quoted

TABLE = CheckTable()

_WIDE = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@TABLE.file("RG001", "html", Severity.ERROR, "The file is a web page, not a robots.txt.")
def _html(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    if page.is_html:
        yield Note(
            1, "this is a web page: serve a text file, or 404 if there is none", _count_rules(page)
        )


@TABLE.file(
    "RG002", "wide-encoding", Severity.ERROR, "The file is in UTF-16 or UTF-32; it must be UTF-8."
)
def _wide(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    if page.body.startswith(_WIDE):
        yield Note(
            1, "the file is in UTF-16 or UTF-32, which many crawlers cannot read: save it as UTF-8"
        )
    elif page.is_wide:
        yield Note(
            1,
            "the file seems to be in UTF-16 without a byte order mark: save it as UTF-8",
            _count_rules(page),
        )


@TABLE.file(
    "RG003", "byte-order-mark", Severity.NOTE, "The file begins with a UTF-8 byte order mark."
)
def _mark(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    if page.body.startswith(codecs.BOM_UTF8):
        yield Note(
            1,
            "the file begins with a byte order mark: crawlers that do not skip it misread the first line",
            lambda _: None,
        )


@TABLE.file(
    "RG004",
    "control-character",
    Severity.ERROR,
    "A line contains NUL or another control character.",
)
def _control(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    if page.is_wide or not _CONTROL.search(page.text):
        return
    for number, raw in enumerate(page.raws, 1):
        found = _CONTROL.search(raw.partition(b"#")[0])
        if found:
            message = f"byte 0x{found[0][0]:02x} is not text"
            yield Note(
                number, f"{message}: parsers truncate the line there, drop the byte or keep it"
            )


@TABLE.file("RG005", "long-line", Severity.WARNING, f"A line is longer than {LINE_CAP} bytes.")
def _long(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    for number, raw in enumerate(page.raws, 1):
        if len(raw) > LINE_CAP:
            message = f"the line has {len(raw)} bytes"
            yield Note(number, f"{message}; many crawlers read only the first {LINE_CAP}")


@TABLE.file(
    "RG006",
    "too-large",
    Severity.ERROR,
    f"The file is larger than {BODY_CAP} bytes; the rest is not read.",
)
def _large(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    if len(page.body) > BODY_CAP:
        lost = page.body[page.body.find(page.text[-64:], len(page.text) - 64) + 64 :]
        rules = sum(field in RULES for _, field, _ in records(lost, BASE))
        size = f"the file has {len(page.body)} bytes; crawlers need not read more than {BODY_CAP}"
        message = f"{size}: everything after this line is cut off, including {rules} rules"
        yield Note(len(page.raws), message, lambda _: None)
    elif page.truncated:
        size = f"the file is larger than {BODY_CAP} bytes, and crawlers need not read more"
        yield Note(len(page.raws), f"{size}: everything after this line is cut off", lambda _: None)


@TABLE.file(
    "RG007", "no-group", Severity.WARNING, "The file has no User-agent line, so it forbids nothing."
)
def _no_group(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    if not page.robots.groups and not page.is_html:
        message = "the file has no User-agent line: everything is allowed to every crawler"
        yield Note(0, message, lambda _: None)


@TABLE.file(
    "RG008",
    "invisible-character",
    Severity.ERROR,
    "A field or value has non-ASCII white space, or an invisible character.",
)
def _invisible(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    for number, raw in enumerate(page.raws, 1):
        if raw.isascii() or page.is_wide:
            continue
        seen = lines_seen(raw)
        if len(seen) == 1 and seen[0].translate(None, b" \t") != raw.translate(None, b" \t"):
            yield Note(
                number,
                "the line has a character that an editor does not show, such as a no-break space or a"
                " byte order mark: many crawlers do not read the line. Type it again",
            )


@TABLE.file("RG009", "no-text", Severity.ERROR, "The file is binary: an archive, an image, ...")
def _no_text(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    kind = kind_of_binary(page.body)
    if kind and not page.is_wide:
        message = (
            f"this is {kind}, not text: serve a text file, and name its coding in Content-Encoding"
        )
        yield Note(1, message, lambda _: None)


def _count_rules(page: LintedFile) -> Ask:
    def ask(dialect: Dialect) -> str:
        rules = sum(len(group.rules) for group in page.readings[dialect.name].robots.groups)
        return f"reads {rules} rules"

    return ask


_GRAVE = (b"user-agent", *RULES)  # ignoring a line with one of these changes what is allowed
_READ_LENIENTLY = (*_GRAVE, b"sitemap")
_IN_META = (b"noindex", b"nofollow", b"noarchive")

# Fields in use that few crawlers support, and which ones do.
_SELDOM_READ = {
    b"crawl-delay": "Bing and others support Crawl-delay; Google never did, and Yandex stopped in February 2018",
    b"request-rate": "few crawlers support Request-rate (Seznam does)",
    b"visit-time": "few crawlers support Visit-time",
    b"clean-param": "only Yandex supports Clean-param",
    b"host": "only Yandex supported Host: use redirects or a canonical link instead",
    b"robot-version": "Robot-version was only ever proposed",
    b"comment": "Comment was only ever proposed: begin comments with #",
}


@TABLE.line(
    "RG101",
    "misspelt-field",
    Severity.ERROR,
    "User-agent, Allow or Disallow is misspelt; only some crawlers read it.",
)
def _misspelt(item: Item, page: LintedFile) -> Iterator[Note]:
    meant = _intended_field(item, page)
    if meant in _GRAVE:
        yield Note(item.number, _spelling(item, meant))


@TABLE.line("RG102", "misspelt-other-field", Severity.WARNING, "Another known field is misspelt.")
def _misspelt_other(item: Item, page: LintedFile) -> Iterator[Note]:
    meant = _intended_field(item, page)
    if meant is not None and meant not in _GRAVE:
        yield Note(item.number, _spelling(item, meant))


@TABLE.line(
    "RG103",
    "no-colon",
    Severity.ERROR,
    "The colon after the field is missing; only some crawlers read the line.",
)
def _no_colon(item: Item, page: LintedFile) -> Iterator[Note]:
    if not item.written and (field := _first_word(item, page)):
        yield Note(item.number, f"there is no colon after {quoted(field)}")


@TABLE.line(
    "RG104",
    "no-directive",
    Severity.WARNING,
    "The line is not a directive. A comment begins with #.",
)
def _no_directive(item: Item, page: LintedFile) -> Iterator[Note]:
    if not item.written and not page.is_html and not page.is_wide and not _first_word(item, page):
        yield Note(item.number, "this is not a directive: begin comments with #")


@TABLE.line(
    "RG105", "unknown-field", Severity.WARNING, "No known crawler reads this field.", once=True
)
def _unknown(item: Item, page: LintedFile) -> Iterator[Note]:
    name = item.written
    if not name or name in KNOWN or page.is_html or _intended_field(item, page):
        return
    if name in (b"http", b"https") and item.value.startswith(b"//"):
        yield Note(
            item.number,
            "this is a URL without a field; if it is a sitemap, write Sitemap: before it",
        )
    elif name.startswith(b"/"):
        yield Note(item.number, "this is a path without a field: write Disallow: before it")
    else:
        yield Note(item.number, f"no known crawler reads {quoted(name)}")


@TABLE.line(
    "RG106", "seldom-read", Severity.NOTE, "Few crawlers read the field.", *_SELDOM_READ, once=True
)
def _seldom(item: Item, _: LintedFile) -> Iterator[Note]:
    yield Note(item.number, _SELDOM_READ[item.field], lambda _: None)


@TABLE.line(
    "RG107",
    "meta-only",
    Severity.WARNING,
    "The field works in pages and headers only.",
    *_IN_META,
    once=True,
)
def _meta_only(item: Item, _: LintedFile) -> Iterator[Note]:
    message = f"{quoted(item.field)} has no effect here (Google stopped on 1 September 2019)"
    remedy = "use a robots meta tag or X-Robots-Tag, on pages that are not disallowed"
    yield Note(item.number, f"{message}: {remedy}", lambda _: None)


@TABLE.line(
    "RG108",
    "comment-in-value",
    Severity.WARNING,
    "A # without a space before it ends the value.",
    *RULES,
)
def _comment_in_value(item: Item, _: LintedFile) -> Iterator[Note]:
    if re.search(rb":.*[^\s#:]#", item.raw):
        yield Note(
            item.number,
            "everything from # on is a comment, so the path ends there; write %23 for the character",
        )


@TABLE.file(
    "RG109",
    "lines-in-line",
    Severity.ERROR,
    "A line is several in one, separated by tags, a byte order mark, or a spelled-out `\\n`.",
)
def _lines_in_line(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    for number, raw in enumerate(page.raws, 1):
        seen = lines_seen(raw)
        head = raw.partition(b"#")[0]
        has_breaks = (b"<" in head or b"\\n" in head) and seen[0] != raw
        if len(seen) > 1 or (has_breaks and b":" in seen[0]):
            yield Note(number, "write one field a line, without tags, and end it with a line feed")


def _intended_field(item: Item, page: LintedFile) -> bytes | None:
    """The known field of which the field of this line is a misspelling, or None."""
    if not item.written or item.written in KNOWN:
        return None
    if item.field in _READ_LENIENTLY:
        return item.field
    return page.guess(item.written)


def _spelling(item: Item, meant: bytes) -> str:
    return f"{quoted(item.written)} is a misspelling of {quoted(meant).capitalize()} that not every crawler accepts"


def _first_word(item: Item, page: LintedFile) -> bytes | None:
    """The field with which a line without a colon begins, or None."""
    if item.field in KNOWN:
        return item.field
    words = item.raw.partition(b"#")[0].split(maxsplit=1)
    word = words[0].lower() if words else b""
    if word in _READ_LENIENTLY or page.guess(word) in _READ_LENIENTLY:
        return word
    return None
