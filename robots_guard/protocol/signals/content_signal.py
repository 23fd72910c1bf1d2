"""Content-Signal: pairs such as `search=yes, ai-train=no, use=reference` (contentsignals.org).

No grammar is published. Letter case and blanks are ignored. `use` is the level of use that the site
accepts (Cloudflare, 1 July 2026).

Invariant: text that deviates from the published examples can deny, but never permits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, get_args

from robots_guard.protocol.signals.labels import (
    LABEL_CAP,
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

ContentUse = Literal["immediate", "reference", "full"]
LEVELS = get_args(ContentUse)

_MEMBER = re.compile(r"[^,;]+(;?)")
_PAIR = re.compile(r"\s*+([\w*.-]++)\s*+=\s*+([\w.-]++)\s*+")


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
    `raw` is the text of the header or line, if it is not `text`.
    """
    shown = text if raw is None else raw
    source = FieldSource(place, flags, agent, line, shown)
    return statements_of(_entries(text), Signal.CONTENT_SIGNAL, source)


def _entries(text: str) -> Iterator[LabelValue]:
    is_lenient = ";" in text
    for member in _MEMBER.finditer(text):
        written = member[0].removesuffix(";")
        pair = _PAIR.fullmatch(written)
        if pair:
            yield _entry(pair[1], pair[2], is_lenient=is_lenient)
        elif written.strip():
            yield from _scanned(written)


def _scanned(member: str) -> Iterator[LabelValue]:
    """The pairs in a member that is not exactly one pair."""
    pieces = PIECE.findall(member)
    for label, value in pieces:
        yield _entry(label, value, is_lenient=True)
    if not pieces:
        yield LabelValue(canonical_label(member.strip()[:LABEL_CAP]), "", (Flag.MALFORMED,))


def _entry(label: str, value: str, *, is_lenient: bool) -> LabelValue:
    name, word = canonical_label(label), value.lower()
    flags: tuple[Flag, ...] = ()
    if is_lenient or name != label.lower():
        flags = (Flag.LENIENT,)
    if name == "use":
        return _level(word, flags)
    if name in (USAGE_LABELS | LEGACY_LABELS) - SIGNAL_LABELS:
        flags = (*flags, Flag.CROSS_VOCABULARY)
    elif name not in SIGNAL_LABELS:
        return LabelValue(name, "", (*flags, Flag.UNKNOWN_RULE))
    if word in ("yes", "no"):
        return LabelValue(name, word, flags)
    if is_no(word):
        return LabelValue(name, "no", (*flags, Flag.LENIENT))
    return LabelValue(name, "", (*flags, Flag.MALFORMED))


def _level(word: str, flags: tuple[Flag, ...]) -> LabelValue:
    if word in LEVELS:
        return LabelValue("use", word, flags)
    return LabelValue("use", "", (*flags, Flag.MALFORMED))
