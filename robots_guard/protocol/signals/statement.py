"""Statements: what a site says about the use of its content, in the site's own words.

The readers of this package and of `protocol.html` turn bytes into statements. What a statement denies or
allows is decided in `decisions.uses`, because that depends on the operator's settings and on the time.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

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
