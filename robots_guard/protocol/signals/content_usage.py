"""Content-Usage: an RFC 9651 dictionary such as `train-ai=n, search=y`.

draft-ietf-aipref-vocab-07 defines the labels, and draft-ietf-aipref-attach-05 the places. By these
drafts, only the tokens `y` and `n` are statements, and a field with a syntax error states nothing.
This module reads more than that, but only as denials.

http_sf is imported when the first dictionary is read: most robots.txt files have none, and the
import would only delay short commands.

Invariant: a permission comes only from a well-formed dictionary, in a place that the draft defines,
from a label of the current draft whose value is the token `y`.
"""

from __future__ import annotations

from collections.abc import Iterator

from robots_guard.protocol.signals.labels import (
    LEGACY_LABELS,
    PIECE,
    SIGNAL_LABELS,
    USAGE_LABELS,
    FieldSource,
    LabelValue,
    canonical_label,
    is_no,
    statements_of,
)
from robots_guard.protocol.signals.statement import Flag, Place, Signal, Statement

#: The most characters of a dictionary. A longer text is malformed: only its denials count.
DICTIONARY_CAP = 65_536


def read(
    text: str,
    *,
    place: Place,
    flags: tuple[Flag, ...] = (),
    agent: str = "*",
    line: int | None = None,
    raw: str | None = None,
) -> tuple[Statement, ...]:
    """The statements of one field value. Never raises.

    `flags` say what is doubtful about the place of the text. With any flag, nothing is permitted.
    `raw` is the text of the header, tag or line, if it is not `text`.
    """
    if not text.strip():
        return ()
    shown = text if raw is None else raw
    source = FieldSource(place, flags, agent, line, shown)
    return statements_of(_entries(text), Signal.CONTENT_USAGE, source)


def _entries(text: str) -> Iterator[LabelValue]:
    members = _dictionary(text)
    if members is None:
        return _scanned(text)
    return (_entry(label, value) for label, value in members.items())


def _dictionary(text: str) -> dict[str, object] | None:
    """The members of a dictionary by label, without parameters. None if there is a syntax error."""
    if len(text) > DICTIONARY_CAP:
        return None
    import http_sf

    try:
        found = http_sf.parse(text.encode("utf-8", "replace"), tltype="dictionary")
    except (ValueError, ArithmeticError):  # StructuredFieldError is a ValueError
        return None
    assert isinstance(found, dict)
    # A member is a pair of a value and its parameters.
    return {label: member[0] for label, member in found.items() if isinstance(member, tuple)}


def _entry(label: str, value: object) -> LabelValue:
    from http_sf import Token

    name, flags = _known(label)
    if name is None:
        return LabelValue(label, "", (Flag.UNKNOWN_RULE,))
    if isinstance(value, Token) and str(value) in ("y", "n"):
        return LabelValue(name, str(value), flags)
    if _reads_as_no(value):
        return LabelValue(name, "n", (*flags, Flag.LENIENT))
    return LabelValue(name, "", (*flags, Flag.MALFORMED))


def _reads_as_no(value: object) -> bool:
    if isinstance(value, list):
        return any(_reads_as_no(item) for item, _ in value)
    return value is False or is_no(str(value))


def _known(label: str) -> tuple[str | None, tuple[Flag, ...]]:
    """The canonical label, or None if it is unknown, and what is doubtful about it."""
    name = canonical_label(label)
    doubts = () if name == label else (Flag.LENIENT,)
    if name in USAGE_LABELS:
        return name, doubts
    if name in LEGACY_LABELS:
        return name, (*doubts, Flag.LEGACY)
    if name in SIGNAL_LABELS:
        return name, (*doubts, Flag.CROSS_VOCABULARY)
    return None, ()


def _scanned(text: str) -> Iterator[LabelValue]:
    """The denials in a text that is not a dictionary, then an entry that marks it as malformed."""
    for label, value in PIECE.findall(text):
        name, flags = _known(label)
        if name is not None and is_no(value):
            others = (flag for flag in flags if flag is not Flag.LENIENT)
            yield LabelValue(name, "n", (*others, Flag.MALFORMED))
    yield LabelValue("", "", (Flag.MALFORMED,))
