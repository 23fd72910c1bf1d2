"""Checks of the whole file: its encoding, its size, and whether it is a robots.txt at all."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from robots_guard.protocol.dialect import Dialect
from robots_guard.protocol.lines import BODY_CAP, LINE_CAP, kind_of_binary, lines_seen, records
from robots_guard.protocol.lint.finding import Ask, CheckTable, Note, Severity
from robots_guard.protocol.lint.page import BASE, RULES, LintedFile

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
