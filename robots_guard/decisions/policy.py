"""A policy: what is stored for an origin. The document, not its interpretation.

One policy serves every crawler and every dialect: rules are compiled from its document, and access
and lifetime are looked up by dialect when needed. A document is the site's last definite answer
(its file, that it has none, or that crawlers are forbidden); trouble means that no such answer can
be fetched at present. A policy may have both: then the document is used while it is at most 30 days
old (RFC 9309 section 2.3.1.4).

A policy that this process has settled on is valid by construction. One from a file may contain
anything that fits its fields: a body with another digest, a time in the future, a retry in a
hundred years. `objection` says why it must not be used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from math import isfinite

import msgspec

from robots_guard.decisions.access import (
    MAX_BODY,
    MAX_RESERVATIONS,
    Access,
    Failure,
    Scope,
    access_of,
    access_of_failure,
    is_trouble,
)
from robots_guard.decisions.freshness import (
    CLOCK_SKEW,
    LONGEST_BACKOFF,
    RETRY_MAX,
    STALE_IF_ERROR,
    UNTRIED,
    Freshness,
    freshness,
    lifetime,
)
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import Origin, origin_of, split_url
from robots_guard.protocol.dialect import Dialect
from robots_guard.protocol.signals.statement import Statement
from robots_guard.protocol.signals.tdmrep import TdmFile, read_file

#: In the place of the fetcher: the operator has pinned the document for the site (an override).
PINNED = "pinned"
COMPILED_SIZE = 25  # bytes of memory per byte of a tdmrep.json, once it is compiled


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The last definite response of a site for its /robots.txt. Times are seconds since 1970."""

    status: int
    url: str  # the final URL, after redirects
    sha256: str  # of `body`
    body: bytes = b""  # decoded, at most 500 KiB; empty unless the status is 2xx
    truncated: bool = False
    content_type: str = ""
    etag: str = ""
    last_modified: str = ""
    stated_lifetime: float | None = None
    redirects: tuple[str, ...] = ()  # the URLs that redirected, in order, without `url`
    fetched_at: float
    via: str  # the fetcher: scrapy, mitmproxy or direct; or PINNED
    tls_verified: bool = False


class FetchTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """robots.txt cannot be fetched at present: since when, how often it was tried, when to try
    next.

    `route` is the route that failed, if the scope is ROUTE.
    """

    failure: Failure
    detail: str = ""
    status: int | None = None
    since: float
    at: float  # the last try
    attempts: int
    retry_at: float
    tls_verified: bool = True  # of the response that caused it, as in a document
    scope: Scope = Scope.SITE
    route: str = ""

    @property
    def says(self) -> str:
        """A description for people."""
        if self.failure is Failure.STATUS and self.detail:
            return f"{self.detail}{self.by}"  # such as "status 503"
        return ": ".join(filter(None, (self.failure.value, self.detail))) + self.by

    @property
    def by(self) -> str:
        """The route that failed, as the end of a sentence."""
        if self.scope is not Scope.ROUTE:
            return ""
        return f" (through {self.route})" if self.route else " (on the direct route)"

    @property
    def next_try(self) -> float:
        """`retry_at`, limited to the longest backoff: a stored value is untrusted."""
        latest = self.at + LONGEST_BACKOFF
        if self.retry_at <= latest:  # false also for NaN
            return self.retry_at
        return latest

    def continues(self, now: float) -> bool:
        """Whether a failure at `now` belongs to this trouble.

        If the retry is long overdue, the origin may have recovered in between, and no request was
        waiting for it.
        """
        return now - self.next_try <= UNTRIED


class Reservations(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What an origin's /.well-known/tdmrep.json states (TDMRep, final report of 2024-05-10). Times
    are seconds since 1970.

    `attempted_at` is the time of the last attempt to fetch it, and `failure` says why that attempt
    had no usable answer. The other fields then describe the last usable answer, if it is recent
    enough. `failed_for` is the agent that the failure is limited to: the site may permit another
    agent what it forbids this one.
    """

    attempted_at: float
    failure: str = ""
    failed_for: str | None = None
    status: int | None = None  # of the last usable answer; None: there is none
    fetched_at: float = 0.0  # when that came
    body: bytes = b""  # decoded, at most 256 KiB; empty unless the status is 2xx
    etag: str = ""
    last_modified: str = ""

    @cached_property
    def sha256(self) -> str:
        """The digest of the body, in hex."""
        return hashlib.sha256(self.body).hexdigest()

    @cached_property
    def file(self) -> TdmFile | None:
        """The compiled entries of the body; None if there is no file. The first access compiles
        them."""
        if self.status is None or not 200 <= self.status < 300:
            return None
        return read_file(self.body)

    @property
    def is_compiled(self) -> bool:
        """Whether `file` has been compiled."""
        return "file" in vars(self)

    def may_still_hold(self, now: float) -> bool:
        """Whether the last usable answer may be used at `now`, although later attempts failed."""
        return self.status is not None and -CLOCK_SKEW <= now - self.fetched_at <= STALE_IF_ERROR


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored for an origin. At least one of `document` and `trouble` is set.

    `reservations` is None if no attempt was made to fetch them. `others` are troubles of other scopes
    that `trouble` hides; they are not stored.
    """

    origin: Origin
    document: Document | None = None
    trouble: FetchTrouble | None = None
    reservations: Reservations | None = None
    others: tuple[FetchTrouble, ...] = ()

    def freshness(
        self, now: float, dialect: Dialect, *, needs_reservations: bool = False
    ) -> Freshness:
        """Whether this policy may be used at `now`, and whether it must be renewed.

        With `needs_reservations`, a policy that lacks reservations has expired.
        """
        if needs_reservations and self.lacks_reservations:
            return Freshness.EXPIRED
        if self.trouble is None:
            return self._document_freshness(now, dialect)
        if self.trouble.at - CLOCK_SKEW <= now < self.trouble.next_try:
            return Freshness.FRESH
        if self.last_good(now):
            return Freshness.STALE
        return Freshness.EXPIRED

    @property
    def is_pinned(self) -> bool:
        """Whether the document is one that the operator has pinned."""
        return self.document is not None and self.document.via == PINNED

    def with_pinned(self, document: Document) -> Policy:
        """This policy with a pinned document instead of the site's own. What the site reserves in
        another file still holds."""
        return Policy(origin=self.origin, document=document, reservations=self.reservations)

    @property
    def lacks_reservations(self) -> bool:
        """Whether no attempt was made to fetch reservations since the document was fetched.

        False while there is trouble, because reservations are only fetched after a document.
        """
        if self.document is None or self.trouble is not None:
            return False
        return (
            self.reservations is None or self.reservations.attempted_at < self.document.fetched_at
        )

    def reservation_statements(
        self, target: str, matching: str = "standard"
    ) -> tuple[Statement, ...]:
        """What the reservations state about a target. `matching` selects its other forms."""
        if self.reservations is None or self.reservations.file is None:
            return ()
        return self.reservations.file.statements(target, matching)

    def as_read_by(self, agent: str) -> Policy:
        """This policy, as a process of `agent` may use it: it lacks reservations if the attempt to
        fetch them failed for another agent only."""
        reservations = self.reservations
        if reservations is None or reservations.failed_for in (None, agent):
            return self
        unattempted = msgspec.structs.replace(reservations, attempted_at=0.0)
        return msgspec.structs.replace(self, reservations=unattempted)

    def _document_freshness(self, now: float, dialect: Dialect) -> Freshness:
        if self.document is None:
            return Freshness.EXPIRED
        return freshness(now - self.document.fetched_at, self.document.stated_lifetime, dialect)

    def last_good(self, now: float) -> Document | None:
        """The document if it is recent enough to be used while trouble lasts."""
        document = self.document
        if document is None or not -CLOCK_SKEW <= now - document.fetched_at <= STALE_IF_ERROR:
            return None
        return document

    def access(self, now: float, dialect: Dialect) -> tuple[Access, Document | None]:
        """What this policy means at `now`, and the document that is the basis, or None if there is
        none."""
        if self.trouble is None and self.document is not None:
            return access_of(self.document.status, dialect), self.document
        meaning = self._meaning_of_trouble(dialect)
        if meaning is not Access.UNREACHABLE:
            return meaning, None
        document = self.last_good(now)
        if document is None:
            return Access.UNREACHABLE, None
        return access_of(document.status, dialect), document

    def _meaning_of_trouble(self, dialect: Dialect) -> Access:
        # What a proxy or this process answers says nothing about the site.
        if self.trouble is None or self.trouble.scope is not Scope.SITE:
            return Access.UNREACHABLE
        if self.trouble.status is not None and is_trouble(self.trouble.status):
            return access_of(self.trouble.status, dialect)
        return access_of_failure(self.trouble.failure, dialect)

    def expires_at(self, dialect: Dialect) -> float:
        """When this policy stops being fresh, in seconds since 1970."""
        if self.trouble is not None:
            return self.trouble.next_try
        if self.document is None:
            return 0.0
        return self.document.fetched_at + lifetime(self.document.stated_lifetime, dialect)

    def with_last_good_document(self, cached: Policy | None, now: float) -> Policy:
        """This policy's trouble with the document of `cached` and its reservations, if that
        document is later than its own.

        Without trouble, or if that document is from the future, this policy unchanged.
        """
        other = cached.document if cached and self.trouble else None
        if other is None or other.fetched_at > now + CLOCK_SKEW:
            return self
        if self.document is not None and self.document.fetched_at >= other.fetched_at:
            return self
        assert cached is not None
        return msgspec.structs.replace(self, document=other, reservations=cached.reservations)

    @property
    def is_local_failure(self) -> bool:
        """Whether this policy is only a failure that is not shared, so that another process may know
        more."""
        trouble = self.trouble
        return self.document is None and trouble is not None and trouble.scope is not Scope.SITE

    @property
    def settled_at(self) -> float:
        """When the origin was last fetched from, in seconds since 1970."""
        if self.trouble is not None:
            return self.trouble.at
        if self.document:
            return self.document.fetched_at
        return 0.0

    def may_be_replaced_by(self, other: Policy, now: float) -> bool:
        """Whether `other` may replace this policy: an earlier one never replaces a later one.

        A policy from the future is an exception: a clock has jumped, and it would block all others
        until then.
        """
        return self.settled_at <= other.settled_at or self.settled_at > now + CLOCK_SKEW

    @property
    def size(self) -> int:
        """The approximate memory use in bytes."""
        size = 1024
        if self.document is not None:
            size += len(self.document.body)
        if self.reservations is not None:
            size += COMPILED_SIZE * len(self.reservations.body)
        return size


MAX_TEXT = 8192  # characters per field
MAX_HOPS = 20
MAX_LIFETIME = 2.0**31  # RFC 9111 section 1.2.2
MAX_ATTEMPTS = 2**31


def objection(policy: Policy, now: float) -> str | None:
    """Why the policy must not be used, or None."""
    return next(_objections(policy, now), None)


def _objections(policy: Policy, now: float) -> Iterator[str]:
    if not _is_canonical(policy.origin):
        yield "its origin is not in canonical form"
    if policy.document is None and policy.trouble is None:
        yield "it contains neither a document nor trouble"
    if policy.document is not None:
        yield from _objections_to_document(policy.document, now)
    if policy.trouble is not None:
        yield from _objections_to_trouble(policy.trouble, now)
    if policy.reservations is not None:
        yield from _objections_to_reservations(policy.reservations, now)


def _is_canonical(origin: Origin) -> bool:
    try:
        return origin_of(str(origin)) == origin
    except (MalformedURL, NotGoverned, KeyError):
        return False


def _objections_to_document(document: Document, now: float) -> Iterator[str]:
    if len(document.body) > MAX_BODY:
        yield f"its body is longer than {MAX_BODY} bytes"
    elif hashlib.sha256(document.body).hexdigest() != document.sha256:
        yield "its body does not match its sha256"
    if not 200 <= document.status < 500 or (document.body and document.status >= 300):
        yield f"status {document.status} does not fit this document"
    if not 0 <= document.fetched_at <= now + CLOCK_SKEW:
        yield "its time of fetching is invalid or in the future"
    if document.stated_lifetime is not None and not 0 <= document.stated_lifetime <= MAX_LIFETIME:
        yield "its lifetime is out of range"
    texts = (
        document.url,
        document.content_type,
        document.etag,
        document.last_modified,
        document.via,
    )
    if len(document.redirects) > MAX_HOPS or any(
        len(text) > MAX_TEXT for text in (*texts, *document.redirects)
    ):
        yield "one of its fields is too long"
    if not all(map(_is_url, (document.url, *document.redirects))):
        yield "one of its URLs is not an http(s) URL"


def _objections_to_trouble(trouble: FetchTrouble, now: float) -> Iterator[str]:
    if not all(map(isfinite, (trouble.since, trouble.at, trouble.retry_at))):
        yield "a time of its trouble is not a number"
    elif not 0 <= trouble.since <= trouble.at <= now + CLOCK_SKEW:
        yield "a time of its trouble is invalid or in the future"
    elif not 0 <= trouble.retry_at - trouble.at <= 2 * RETRY_MAX:
        yield "the time of its next try is out of range"
    if not 1 <= trouble.attempts <= MAX_ATTEMPTS or len(trouble.detail) > MAX_TEXT:
        yield "its number of attempts or its detail is out of range"
    if trouble.status is not None and not 100 <= trouble.status <= 999:
        yield f"status {trouble.status} is not an HTTP status"


def _objections_to_reservations(reservations: Reservations, now: float) -> Iterator[str]:
    if len(reservations.body) > MAX_RESERVATIONS:
        yield f"its reservations are longer than {MAX_RESERVATIONS} bytes"
    status = reservations.status
    if reservations.body and (status is None or status >= 300):
        yield "its reservations have a body without a status of success"
    if status is not None and not 200 <= status < 500:
        yield f"status {status} does not fit these reservations"
    times = (reservations.fetched_at, reservations.attempted_at)
    if not all(0 <= at <= now + CLOCK_SKEW for at in times):
        yield "a time of its reservations is invalid or in the future"
    texts = (
        reservations.failure,
        reservations.failed_for or "",
        reservations.etag,
        reservations.last_modified,
    )
    if any(len(text) > MAX_TEXT for text in texts):
        yield "a field of its reservations is too long"


def _is_url(text: str) -> bool:
    try:
        split_url(text)
    except (MalformedURL, NotGoverned):
        return False
    return True
