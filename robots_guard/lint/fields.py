"""Checks of single lines: is each `field: value`, with a field that somebody knows?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from robots_guard.lint.finding import Note, Severity, Table
from robots_guard.lint.page import KNOWN, RULES, Item, Page, quoted

TABLE = Table()

_GRAVE = (b"user-agent", *RULES)  # a line of these that is not read changes who may take what
_READ_LENIENTLY = (*_GRAVE, b"sitemap")
_IN_META = (b"noindex", b"nofollow", b"noarchive")

# Fields in use that few crawlers act on, with what is known of them.
_SELDOM_READ = {
    b"crawl-delay": "Bing and others keep to Crawl-delay; Google never did, and Yandex does not since February 2018",
    b"request-rate": "few crawlers read Request-rate (Seznam does)",
    b"visit-time": "few crawlers read Visit-time",
    b"clean-param": "Clean-param is Yandex's own",
    b"host": "Host was Yandex's own: redirect, or name a canonical address, instead",
    b"robot-version": "Robot-version was only ever proposed",
    b"comment": "Comment was only ever proposed: begin comments with #",
}


@TABLE.line("RG101", "misspelt-field", Severity.ERROR, "User-agent, Allow or Disallow is misspelt; only some read it.")
def _misspelt(item: Item, page: Page) -> Iterator[Note]:
    meant = _meant(item, page)
    if meant in _GRAVE:
        yield Note(item.number, _spelling(item, meant))


@TABLE.line("RG102", "misspelt-other-field", Severity.WARNING, "Another known field is misspelt.")
def _misspelt_other(item: Item, page: Page) -> Iterator[Note]:
    meant = _meant(item, page)
    if meant is not None and meant not in _GRAVE:
        yield Note(item.number, _spelling(item, meant))


@TABLE.line("RG103", "no-colon", Severity.ERROR, "The colon after the field is missing; only some read the line.")
def _no_colon(item: Item, page: Page) -> Iterator[Note]:
    if not item.written and (field := _first_word(item, page)):
        yield Note(item.number, f"there is no colon after {quoted(field)}")


@TABLE.line("RG104", "no-directive", Severity.WARNING, "The line is no directive at all. A comment begins with #.")
def _no_directive(item: Item, page: Page) -> Iterator[Note]:
    if not item.written and not page.is_html and not page.is_wide and not _first_word(item, page):
        yield Note(item.number, "this is no directive: begin comments with #")


@TABLE.line("RG105", "unknown-field", Severity.WARNING, "No crawler we know of reads this field.", once=True)
def _unknown(item: Item, page: Page) -> Iterator[Note]:
    name = item.written
    if not name or name in KNOWN or page.is_html or _meant(item, page):
        return
    if name in (b"http", b"https") and item.value.startswith(b"//"):
        yield Note(item.number, "this is an address without a field; for a sitemap, write Sitemap: before it")
    elif name.startswith(b"/"):
        yield Note(item.number, "this is a path without a field: write Disallow: before it")
    else:
        yield Note(item.number, f"no crawler we know of reads {quoted(name)}")


@TABLE.line("RG106", "seldom-read", Severity.NOTE, "The field is read by few crawlers.", *_SELDOM_READ, once=True)
def _seldom(item: Item, _: Page) -> Iterator[Note]:
    yield Note(item.number, _SELDOM_READ[item.field], lambda _: None)


@TABLE.line(
    "RG107", "meta-only", Severity.WARNING, "The field works in pages and headers, never here.", *_IN_META, once=True
)
def _meta_only(item: Item, _: Page) -> Iterator[Note]:
    message = f"{quoted(item.field)} does nothing here (Google stopped on 1 September 2019): use a robots meta tag or"
    yield Note(item.number, f"{message} X-Robots-Tag, on pages that are not disallowed", lambda _: None)


@TABLE.line("RG108", "comment-in-value", Severity.WARNING, "A # without a space before it cuts the value.", *RULES)
def _comment_in_value(item: Item, _: Page) -> Iterator[Note]:
    if re.search(rb":.*[^\s#:]#", item.raw):
        yield Note(
            item.number, "everything from # on is a comment: the path ends before it; write %23 for the character"
        )


def _meant(item: Item, page: Page) -> bytes | None:
    """The known field that a written one stands for, if it is not in its own spelling."""
    if not item.written or item.written in KNOWN:
        return None
    return item.field if item.field in _READ_LENIENTLY else page.guess(item.written)


def _spelling(item: Item, meant: bytes) -> str:
    return f"{quoted(item.written)} is not the field {quoted(meant).capitalize()}: not everybody reads it as that"


def _first_word(item: Item, page: Page) -> bytes | None:
    """The field that a line without a colon begins with."""
    if item.field in KNOWN:
        return item.field
    words = item.raw.partition(b"#")[0].split(maxsplit=1)
    word = words[0].lower() if words else b""
    return word if word in _READ_LENIENTLY or page.guess(word) in _READ_LENIENTLY else None
