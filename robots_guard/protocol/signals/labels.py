"""Labels: the vocabularies of Content-Usage and Content-Signal, which sites confuse.

A Content-Usage field (draft-ietf-aipref-vocab) says `train-ai=n`, and a Content-Signal field
(contentsignals.org) says `ai-train=no`. Earlier drafts of Content-Usage had further labels.

Invariant: a word of another vocabulary or of an earlier draft can deny, but never permits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from robots_guard.protocol.signals.bounds import bounded
from robots_guard.protocol.signals.statement import RAW_CAP, Flag, Place, Signal, Statement

LABEL_CAP = 100  # characters of a label that are kept

#: draft-ietf-aipref-vocab-07, and `ai-use` of -08.
USAGE_LABELS = frozenset(("train-ai", "ai-use", "search"))
#: draft-ietf-aipref-vocab-00 to -04.
LEGACY_LABELS = frozenset(
    ("all", "bots", "tdm", "ai", "genai", "train-genai", "inference", "ai-output")
)
#: contentsignals.org. `use` is not one of them, because its values are levels.
SIGNAL_LABELS = frozenset(("search", "ai-input", "ai-train"))

#: Values that mean no. RFC 9651 writes false as ?0.
_NO = frozenset(("n", "no", "not", "false", "f", "off", "0", "?0", "none", "never"))
_NO_AS_VERBS = frozenset(("deny", "denied", "disallow", "disallowed", "forbidden", "prohibited"))

#: A label and its value in a text that does not follow the grammar.
PIECE = re.compile(
    r"""(?<![\w*.-])([A-Za-z*][\w*.-]{0,99})(?![\w*.-])  # label
    [\s\x00-\x1f"']*+ [=:] [\s\x00-\x1f"':%]*+           # separators; %"n" is a display string
    (\??[A-Za-z0-9][A-Za-z0-9_-]*+)                      # value""",
    re.VERBOSE,
)


class LabelValue(NamedTuple):
    """A label with its value, which is empty if it cannot be read."""

    label: str
    value: str
    flags: tuple[Flag, ...] = ()


class FieldSource(NamedTuple):
    """The place, agent and text of a field value. `flags` say what is doubtful about the place."""

    place: Place
    flags: tuple[Flag, ...]
    agent: str
    line: int | None
    raw: str


def statements_of(
    entries: Iterable[LabelValue], signal: Signal, source: FieldSource
) -> tuple[Statement, ...]:
    """The statements that entries make. An entry with a flag permits nothing."""
    raw = source.raw.strip()[:RAW_CAP]

    def statement(entry: LabelValue) -> Statement:
        flags = tuple(dict.fromkeys((*source.flags, *entry.flags)))
        is_doubtful_permission = bool(flags) and entry.value in ("y", "yes")
        return Statement(
            signal=signal,
            place=source.place,
            rule=entry.label[:LABEL_CAP],
            value="" if is_doubtful_permission else entry.value,
            raw=raw,
            agent=source.agent,
            line=source.line,
            flags=flags,
        )

    return bounded(map(statement, entries))


def is_no(value: str) -> bool:
    """Whether a value means no."""
    word = value.strip(" \t.").lower()
    return word in _NO or word in _NO_AS_VERBS


def canonical_label(label: str) -> str:
    """A label in lower case, with hyphens."""
    return label.lower().replace("_", "-")
