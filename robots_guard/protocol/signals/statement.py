"""Statements: what a site says about the use of its content, in the site's own words.

The readers of this package and of `protocol.html` turn bytes into statements. What a statement denies or
allows is decided in `decisions.uses`, because that depends on the operator's settings and on the time.

Invariant: the number of statements of one response, page or file is limited. No restrictive
statement is lost beyond the limit, but its agent may be. It then binds every crawler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec
from msgspec.structs import replace

RAW_CAP = 512  # characters of the original text that are kept


class Place(StrEnum):
    """Where a statement was found. The place determines when a statement can first be known."""

    ROBOTS_TXT = "robots.txt"  # known before the request
    TDMREP_FILE = "tdmrep.json"  # /.well-known/tdmrep.json, known before the request
    HEADER = "header"
    PAGE = "page"


class Signal(StrEnum):
    """The kind of a statement."""

    X_ROBOTS_TAG = "x-robots-tag"
    ROBOTS_TAG = "robots-tag"  # draft-illyes-repext
    META_ROBOTS = "meta-robots"
    CONTENT_USAGE = "content-usage"  # draft-ietf-aipref-attach
    CONTENT_SIGNAL = "content-signal"  # contentsignals.org
    AI_TRAINING = "disallow-ai-training"  # draft-canel-robots-ai-control
    NOINDEX = "robots-noindex"  # Noindex lines of robots.txt
    PURPOSE_TOKEN = "purpose-token"  # noqa: S105  (a product token, such as Google-Extended)
    TDM = "tdm-reservation"  # TDMRep, final report of 10 May 2024
    LICENSE = "license"  # RSL 1.0, and other licence links
    PAYMENT = "payment"  # crawler-price, WWW-Authenticate: License
    DOCUMENT_STATE = "document-state"  # Alikberov 1996
    META_URL = "meta-url"  # Alikberov 1996
    REVISIT_AFTER = "revisit-after"
    DATA_NOSNIPPET = "data-nosnippet"


class Flag(StrEnum):
    """What is unusual about a statement."""

    MALFORMED = "malformed"
    LENIENT = "lenient"  # it deviates from its grammar, but can be understood
    UNKNOWN_RULE = "unknown-rule"
    LEGACY = "legacy"  # a word of an earlier draft
    CROSS_VOCABULARY = "cross-vocabulary"  # a word of another signal
    NONSTANDARD = "nonstandard"  # a place that no document defines for the signal
    UNGROUPED = "ungrouped"  # before the first User-agent line of a robots.txt
    ASSUMED_UTC = "assumed-utc"
    UNREADABLE_DATE = "unreadable-date"
    INDEXIFEMBEDDED = "indexifembedded"
    ROBOTS_NOINDEX = "robots-noindex"


class Statement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One statement.

    `rule` is the deciding word, in lower case: a rule of the robots meta tag (`noindex`), a label
    (`train-ai`), or the name of the signal; empty if none could be read. `value` is what follows
    the word: a number, a word, or seconds since 1970 for `unavailable_after`. It is True if nothing
    follows the word, and empty if the value cannot be read. `raw` is the original text of the
    field, tag or line, at most RAW_CAP characters. `agent` is the product token that the statement
    is for, in lower case, or `*`. `line` is the number of its line in the robots.txt.
    """

    signal: Signal
    place: Place
    rule: str = ""
    value: str | int | float | bool = True
    raw: str = ""
    agent: str = "*"
    line: int | None = None
    flags: tuple[Flag, ...] = ()


STATEMENTS = 1_000
RECORDED = 100  # statements of each signal that is only recorded: licences have long addresses

_RULES = frozenset((Signal.X_ROBOTS_TAG, Signal.ROBOTS_TAG, Signal.META_ROBOTS))
_PERMISSIONS = frozenset(
    [
        "all",
        "index",
        "follow",
        "archive",
        "snippet",
        "imageindex",
        "translate",
        "allowaitraining",
        "indexifembedded",
    ]
)
#: Rules of services that have ended.
_INERT = frozenset(["noodp", "noydir", "noyaca", "nositelinkssearchbox"])
#: The signals that are only recorded.
RECORDED_ONLY = frozenset(
    (
        Signal.LICENSE,
        Signal.DOCUMENT_STATE,
        Signal.META_URL,
        Signal.REVISIT_AFTER,
        Signal.DATA_NOSNIPPET,
    )
)


def is_restrictive(statement: Statement) -> bool:
    """Whether a statement denies or limits something, under any settings."""
    value = statement.value
    if value == "" or not statement.rule or Flag.UNKNOWN_RULE in statement.flags:
        return False
    if statement.signal in _RULES:
        has_no_limit = value == -1 and value is not True
        return statement.rule not in _PERMISSIONS | _INERT and not has_no_limit
    if statement.signal is Signal.TDM:
        return statement.rule == "tdm-reservation" and value == 1
    if statement.signal is Signal.AI_TRAINING:
        return statement.rule == "disallowaitraining"
    if statement.signal in (Signal.CONTENT_USAGE, Signal.CONTENT_SIGNAL):
        return statement.rule == "use" or value in ("n", "no")
    return statement.signal not in RECORDED_ONLY


def bounded(statements: Iterable[Statement], limit: int = STATEMENTS) -> tuple[Statement, ...]:
    """The statements without repetitions. Beyond `limit`, only restrictive statements count. Of a
    signal that is only recorded, the first RECORDED are kept.

    Those are merged: for each signal and rule the strictest remains, for every crawler. The last
    statement then says that others were left out.
    """
    kept: dict[tuple[object, ...], Statement] = {}
    rest = _without_surplus(statements)
    for statement in rest:
        kept.setdefault(_identity(statement), statement)
        if len(kept) > limit:
            break
    else:
        return tuple(kept.values())
    merged = _merged(rest)
    marker = Statement(
        signal=statement.signal,
        place=statement.place,
        value="",
        raw=f"more than {limit} statements",
        flags=(Flag.MALFORMED,),
    )
    # The statement that exceeded the limit is kept: it is one of `kept`.
    return (*kept.values(), *merged, marker)


def _without_surplus(statements: Iterable[Statement]) -> Iterator[Statement]:
    """The statements, but of each signal that is only recorded the first ones."""
    counts: Counter[Signal] = Counter()
    for statement in statements:
        if statement.signal in RECORDED_ONLY:
            counts[statement.signal] += 1
            if counts[statement.signal] > RECORDED:
                continue
        yield statement


def _identity(statement: Statement) -> tuple[object, ...]:
    return (
        statement.signal,
        statement.place,
        statement.rule,
        statement.agent,
        statement.value,
        type(statement.value),  # 1 and True are equal, but are different values
        statement.flags,
        statement.line,
    )


def _merged(statements: Iterator[Statement]) -> list[Statement]:
    strictest: dict[tuple[object, ...], Statement] = {}
    for statement in statements:
        if not is_restrictive(statement):
            continue
        value = statement.value
        is_number = isinstance(value, int | float) and value is not True
        # The first price is the one that counts, and there are any number of others.
        has_any_value = is_number or statement.signal is Signal.PAYMENT
        key = (statement.signal, statement.place, statement.rule, None if has_any_value else value)
        found = strictest.get(key)
        if found is None or (is_number and value < found.value):  # type: ignore[operator]  # one type for each key
            flags = dict.fromkeys((*statement.flags, Flag.MALFORMED))
            strictest[key] = replace(statement, agent="*", flags=tuple(flags))
    return list(strictest.values())
