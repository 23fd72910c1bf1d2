"""Checks of single lines: each must be `field: value`, with a field that some crawler reads."""

from __future__ import annotations

import re
from collections.abc import Iterator

from robots_guard.protocol.lines import lines_seen
from robots_guard.protocol.lint.finding import CheckTable, Note, Severity
from robots_guard.protocol.lint.page import KNOWN, RULES, Item, LintedFile, quoted

TABLE = CheckTable()

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
