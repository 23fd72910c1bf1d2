"""Content-Usage and Content-Signal: the fields in which a site says which uses it allows, and their
labels, which sites confuse.

Content-Usage is an RFC 9651 dictionary such as `train-ai=n, search=y`. draft-ietf-aipref-vocab-07
defines the labels, and draft-ietf-aipref-attach-05 the places; earlier drafts had further labels.
By these drafts, only the tokens `y` and `n` are statements, and a field with a syntax error states
nothing. This module reads more than that, but only as denials. http_sf is imported when the first
dictionary is read: most robots.txt files have none, and the import would only delay short commands.

Content-Signal has pairs such as `search=yes, ai-train=no, use=reference` (contentsignals.org). No
grammar is published. Letter case and blanks are ignored. `use` is the level of use that the site
accepts (Cloudflare, 1 July 2026).

Invariant: a permission comes only from a well-formed dictionary, in a place that the draft defines,
from a label of the current draft whose value is the token `y`; or from a Content-Signal in the form
of the published examples. Any other text, and a word of another vocabulary or of an earlier draft,
can deny, but never permits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, get_args

from robots_guard.protocol.signals.statement import RAW_CAP, Flag, Place, Signal, Statement, bounded

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


#: The most characters of a dictionary. A longer text is malformed: only its denials count.
DICTIONARY_CAP = 65_536


def read_usage(
    text: str,
    *,
    place: Place,
    flags: tuple[Flag, ...] = (),
    agent: str = "*",
    line: int | None = None,
    raw: str | None = None,
) -> tuple[Statement, ...]:
    """The statements of one Content-Usage value. Never raises.

    `flags` say what is doubtful about the place of the text. With any flag, nothing is permitted.
    `raw` is the text of the header, tag or line, if it is not `text`.
    """
    if not text.strip():
        return ()
    shown = text if raw is None else raw
    source = FieldSource(place, flags, agent, line, shown)
    return statements_of(_usage_entries(text), Signal.CONTENT_USAGE, source)


def _usage_entries(text: str) -> Iterator[LabelValue]:
    members = _dictionary(text)
    if members is None:
        return _usage_scanned(text)
    return (_usage_entry(label, value) for label, value in members.items())


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


def _usage_entry(label: str, value: object) -> LabelValue:
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


def _usage_scanned(text: str) -> Iterator[LabelValue]:
    """The denials in a text that is not a dictionary, then an entry that marks it as malformed."""
    for label, value in PIECE.findall(text):
        name, flags = _known(label)
        if name is not None and is_no(value):
            others = (flag for flag in flags if flag is not Flag.LENIENT)
            yield LabelValue(name, "n", (*others, Flag.MALFORMED))
    yield LabelValue("", "", (Flag.MALFORMED,))


ContentUse = Literal["immediate", "reference", "full"]
LEVELS = get_args(ContentUse)

_MEMBER = re.compile(r"[^,;]+(;?)")
_PAIR = re.compile(r"\s*+([\w*.-]++)\s*+=\s*+([\w.-]++)\s*+")


def read_signal(
    text: str,
    *,
    place: Place,
    flags: tuple[Flag, ...] = (),
    agent: str = "*",
    line: int | None = None,
    raw: str | None = None,
) -> tuple[Statement, ...]:
    """The statements of one Content-Signal value. Never raises.

    `flags` say what is doubtful about the place of the text. With any flag, nothing is permitted.
    `raw` is the text of the header or line, if it is not `text`.
    """
    shown = text if raw is None else raw
    source = FieldSource(place, flags, agent, line, shown)
    return statements_of(_signal_entries(text), Signal.CONTENT_SIGNAL, source)


def _signal_entries(text: str) -> Iterator[LabelValue]:
    is_lenient = ";" in text
    for member in _MEMBER.finditer(text):
        written = member[0].removesuffix(";")
        pair = _PAIR.fullmatch(written)
        if pair:
            yield _signal_entry(pair[1], pair[2], is_lenient=is_lenient)
        elif written.strip():
            yield from _signal_scanned(written)


def _signal_scanned(member: str) -> Iterator[LabelValue]:
    """The pairs in a member that is not exactly one pair."""
    pieces = PIECE.findall(member)
    for label, value in pieces:
        yield _signal_entry(label, value, is_lenient=True)
    if not pieces:
        yield LabelValue(canonical_label(member.strip()[:LABEL_CAP]), "", (Flag.MALFORMED,))


def _signal_entry(label: str, value: str, *, is_lenient: bool) -> LabelValue:
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
