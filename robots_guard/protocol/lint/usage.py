"""Checks of the lines of a robots.txt that say how content may be used: Content-Usage and
Content-Signal. Their values are checked in the same way in header fields and pages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import NamedTuple

from robots_guard.protocol.lint.finding import CheckTable, Note, Severity
from robots_guard.protocol.lint.page import Item, LintedFile, cut
from robots_guard.protocol.signals import content_signal, content_usage
from robots_guard.protocol.signals.labels import PIECE, SIGNAL_LABELS, USAGE_LABELS
from robots_guard.protocol.signals.statement import Flag, Place, Statement

TABLE = CheckTable()

USAGE = "content-usage"
SIGNAL = "content-signal"

_PATH = re.compile(rb"[/*][^ \t=]*(?:[ \t]+|\Z)")
_WORDS = {
    USAGE: (("yes", "no", "true", "false", "allow", "deny", "disallow", "1", "0"), "y or n"),
    SIGNAL: (("y", "n", "true", "false", "allow", "deny", "disallow", "1", "0"), "yes or no"),
}
_LABELS = {USAGE: sorted(USAGE_LABELS), SIGNAL: sorted((*SIGNAL_LABELS, "use"))}
#: The label of the other vocabulary that means the same.
_COUNTERPARTS = {"ai-train": "train-ai", "train-ai": "ai-train", "ai-input": "ai-use"}
_FIELD_NAMES = {USAGE: "Content-Usage", SIGNAL: "Content-Signal"}


class ValueFault(NamedTuple):
    """A fault of a value: the code of its finding, and a message."""

    code: str
    message: str


def value_faults(field: str, text: str) -> Iterator[ValueFault]:
    """The faults of the value of a Content-Usage or Content-Signal field."""
    words, right = _WORDS[field]
    has_wrong_word = False
    for label, value in PIECE.findall(text):
        if value.lower() in words and label.lower() != "use":
            has_wrong_word = True
            message = f"{_FIELD_NAMES[field]} is written with {right}"
            yield ValueFault("RG603", f"{cut(f'{label}={value}')}: {message}")
    read = content_usage.read if field == USAGE else content_signal.read
    statements = read(text, place=Place.HEADER)
    for statement in statements:
        if fault := _label_fault(field, statement):
            yield ValueFault("RG605", fault)
    if not has_wrong_word and any(Flag.MALFORMED in each.flags for each in statements):
        yield ValueFault("RG604", _form_fault(field))


def _label_fault(field: str, statement: Statement) -> str | None:
    name, flags = statement.rule, statement.flags
    if Flag.CROSS_VOCABULARY in flags:
        counterpart = _COUNTERPARTS.get(name)
        remedy = f": write {counterpart}" if counterpart else ""
        return f"{cut(name)} is not a label of {_FIELD_NAMES[field]}{remedy}"
    if Flag.LEGACY in flags:
        return f"{cut(name)} is a label of an earlier draft, which only denies here"
    if Flag.UNKNOWN_RULE not in flags:
        return None
    near = difflib.get_close_matches(name, _LABELS[field], n=1)
    guess = f": did you mean {near[0]}?" if near else f": known are {', '.join(_LABELS[field])}"
    return f"{cut(name)} is not a label of {_FIELD_NAMES[field]}{guess}"


def _form_fault(field: str) -> str:
    if field == USAGE:
        return (
            "this is not a dictionary of RFC 9651, such as train-ai=n, search=y: by the letter,"
            " the whole field says nothing"
        )
    return "a value is not in the form name=yes or name=no, such as search=yes, ai-train=no"


@TABLE.line(
    "RG601",
    "plural-content-signals",
    Severity.ERROR,
    "Content-Signals is not the field that crawlers read.",
    b"content-signals",
)
def _plural(item: Item, _: LintedFile) -> Iterator[Note]:
    yield Note(item.number, "crawlers read Content-Signal, without the s", lambda _: None)


@TABLE.file(
    "RG602",
    "ungrouped-usage",
    Severity.WARNING,
    "Content-Usage or Content-Signal precedes the first User-agent line.",
)
def _ungrouped(page: LintedFile, _: LintedFile) -> Iterator[Note]:
    for number, field, _value in page.robots.loose.others:
        name = field.decode("latin-1")
        if name in _FIELD_NAMES:
            message = f"{_FIELD_NAMES[name]} precedes the first User-agent line"
            yield Note(
                number,
                f"{message}: it belongs into a group, and permits nothing here",
                lambda _: None,
            )


@TABLE.line(
    "RG603",
    "words-of-the-other-vocabulary",
    Severity.ERROR,
    "Content-Usage has the values y and n, Content-Signal yes and no.",
    USAGE.encode(),
    SIGNAL.encode(),
)
def _wrong_words(item: Item, page: LintedFile) -> Iterator[Note]:
    return _faults(item, page, "RG603")


@TABLE.line(
    "RG604",
    "malformed-usage",
    Severity.ERROR,
    "The value of Content-Usage or Content-Signal cannot be read.",
    USAGE.encode(),
    SIGNAL.encode(),
)
def _malformed(item: Item, page: LintedFile) -> Iterator[Note]:
    return _faults(item, page, "RG604")


@TABLE.line(
    "RG605",
    "unknown-label",
    Severity.WARNING,
    "Content-Usage or Content-Signal has a label that it does not define.",
    USAGE.encode(),
    SIGNAL.encode(),
)
def _unknown_label(item: Item, page: LintedFile) -> Iterator[Note]:
    return _faults(item, page, "RG605")


def _faults(item: Item, _: LintedFile, code: str) -> Iterator[Note]:
    path = _PATH.match(item.value)
    text = item.value[path.end() if path else 0 :].decode("utf-8", "replace")
    for fault in value_faults(item.field.decode(), text):
        if fault.code == code:
            yield Note(item.number, fault.message, lambda _: None)
