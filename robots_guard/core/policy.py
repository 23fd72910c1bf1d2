"""A policy: what is held for an origin. The document, not its interpretation.

One policy serves every crawler and every dialect: rules are compiled from its document, access and lifetime
looked up by dialect when somebody asks. A document is what the site last said (its file, or that it has
none, or that crawlers are not wanted); trouble is that it cannot be asked just now. Both may be held at once:
then the document is used, at most 30 days old (RFC 9309 section 2.3.1.4).
"""

from __future__ import annotations

import msgspec

from robots_guard.core.access import Access, Failure, access_of, access_of_failure, is_trouble
from robots_guard.core.freshness import (
    CLOCK_SKEW,
    LONGEST_BACKOFF,
    STALE_IF_ERROR,
    UNTRIED,
    Freshness,
    freshness,
    lifetime,
)
from robots_guard.origin import Origin
from robots_guard.rep.dialect import Dialect


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What a site last said on its /robots.txt. Times are seconds since 1970."""

    status: int
    url: str  # where the answer came from, after redirects
    sha256: str  # of `body`
    body: bytes = b""  # decoded, at most 500 KiB; empty unless the status is 2xx
    truncated: bool = False
    content_type: str = ""
    etag: str = ""
    last_modified: str = ""
    stated_lifetime: float | None = None
    redirects: tuple[str, ...] = ()  # the URLs passed through, first to last, without `url`
    fetched_at: float
    via: str  # the fetcher: scrapy, mitmproxy or direct
    tls_verified: bool = False


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """The site cannot be asked just now: since when, how often tried, when next."""

    failure: Failure
    detail: str = ""
    status: int | None = None
    since: float
    at: float  # the last try
    attempts: int
    retry_at: float
    tls_verified: bool = True  # of the answer that says so, as in a document

    @property
    def says(self) -> str:
        """What it is, for people."""
        told = self.failure is Failure.STATUS and self.detail  # "status 503"
        return self.detail if told else ": ".join(filter(None, (self.failure.value, self.detail)))

    @property
    def next_try(self) -> float:
        """`retry_at`, if a guard can have set it: a store may hold anything."""
        latest = self.at + LONGEST_BACKOFF
        bounded = self.retry_at <= latest  # false for a NaN, too
        return self.retry_at if bounded else latest

    def continues(self, now: float) -> bool:
        """Whether a failure at `now` belongs to this trouble. If the origin was not asked for long when it was due,
        it may have been well in between, and nothing has waited for it."""
        return now - self.next_try <= UNTRIED


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What is held for an origin. At least one of `document` and `trouble` is there."""

    origin: Origin
    document: Document | None = None
    trouble: Trouble | None = None

    def freshness(self, now: float, dialect: Dialect) -> Freshness:
        """Whether this may be used at `now`, and whether it must be renewed."""
        if self.trouble is None:
            return self._document_freshness(now, dialect)
        if self.trouble.at - CLOCK_SKEW <= now < self.trouble.next_try:
            return Freshness.FRESH
        return Freshness.STALE if self.last_good(now) else Freshness.EXPIRED

    def _document_freshness(self, now: float, dialect: Dialect) -> Freshness:
        if self.document is None:
            return Freshness.EXPIRED
        return freshness(now - self.document.fetched_at, self.document.stated_lifetime, dialect)

    def last_good(self, now: float) -> Document | None:
        """The document, while trouble lasts, if it may stand in for a new one."""
        held = self.document
        if held is None or not -CLOCK_SKEW <= now - held.fetched_at <= STALE_IF_ERROR:
            return None
        return held

    def access(self, now: float, dialect: Dialect) -> tuple[Access, Document | None]:
        """What this policy means at `now`, and the document it rests on (None: on none, or on a failure)."""
        if self.trouble is None and self.document is not None:
            return access_of(self.document.status, dialect), self.document
        meaning = self._meaning_of_trouble(dialect)
        if meaning is not Access.UNREACHABLE:
            return meaning, None
        held = self.last_good(now)
        return (access_of(held.status, dialect), held) if held else (Access.UNREACHABLE, None)

    def _meaning_of_trouble(self, dialect: Dialect) -> Access:
        if self.trouble is None:
            return Access.UNREACHABLE
        if self.trouble.status is not None and is_trouble(self.trouble.status):
            return access_of(self.trouble.status, dialect)
        return access_of_failure(self.trouble.failure, dialect)

    def expires_at(self, dialect: Dialect) -> float:
        """When this stops being fresh, in seconds since 1970."""
        if self.trouble is not None:
            return self.trouble.next_try
        if self.document is None:
            return 0.0
        return self.document.fetched_at + lifetime(self.document.stated_lifetime, dialect)

    def beside(self, held: Policy | None, now: float) -> Policy:
        """This trouble beside the document held, if that is later than our own and not from the future; else this."""
        theirs = held.document if held and self.trouble else None
        if theirs is None or theirs.fetched_at > now + CLOCK_SKEW:
            return self
        if self.document is not None and self.document.fetched_at >= theirs.fetched_at:
            return self
        return msgspec.structs.replace(self, document=theirs)

    @property
    def settled_at(self) -> float:
        """When the origin was last asked, in seconds since 1970."""
        if self.trouble is not None:
            return self.trouble.at
        return self.document.fetched_at if self.document else 0.0

    def gives_way_to(self, other: Policy, now: float) -> bool:
        """Whether `other` may replace this: an earlier one never replaces a later one.

        Unless the later one is from the future: then a clock has jumped, and it would stand in the way until then.
        """
        return self.settled_at <= other.settled_at or self.settled_at > now + CLOCK_SKEW

    @property
    def size(self) -> int:
        """About how many octets this costs in memory."""
        return 1024 + (len(self.document.body) if self.document else 0)
