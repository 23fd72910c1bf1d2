"""A renewal: the state machine that fetches a new policy for an origin, shared by all waiting
callers.

It uses no clock, socket or framework. All transitions are in this module:

    begin      -> Fetching      /robots.txt of the origin itself
    Fetching   -> Fetching      a redirect to a /robots.txt, or one of a /robots.txt within its own
                                origin: the next hop, at most 5, http and https only, across hosts,
                                and from a public address to public addresses only
    Fetching   -> Redirected    a redirect to any other page of another origin: it is judged first,
                                like a request
    Fetching   -> Settled       a document, a 304 that renews the stored one, or trouble
    Redirected -> Fetching      that origin's rules allow the page: the next hop
    Redirected -> Settled       they forbid it, or cannot be fetched: trouble

Rules belong to the first origin, wherever redirects led (RFC 9309 section 2.3.1.2). That section
has redirects followed across authorities, but does not permit fetching what the other authority
forbids: otherwise any site could make the guard fetch any page of any other. A /robots.txt is open
to all crawlers (section 2.2.2). An origin may keep its rules wherever it likes, so a redirect of
its /robots.txt to another of its pages is followed, until a redirect leaves the origin.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from dataclasses import dataclass, replace
from urllib.parse import urljoin

import msgspec

from robots_guard.core.access import (
    MAX_BODY,
    REDIRECTS,
    Failed,
    Failure,
    Fetched,
    FetchOutcome,
    is_trouble,
)
from robots_guard.core.addresses import BAD_PORTS
from robots_guard.core.freshness import RETRY_MAX, backoff, retry_after, stated_lifetime
from robots_guard.core.policy import Document, FetchTrouble, Policy
from robots_guard.core.verdict import Action, Verdict
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import ROBOTS_TXT, Origin, split_url

MAX_REDIRECTS = 5  # RFC 9309 section 2.3.1.2: at least five
#: Not valid in URLs, and clients interpret them differently.
_DOUBTFUL = re.compile(r"[\x00-\x1f\x7f\\]")
_UNENCODED = re.compile(r"[^!-~]")  # not valid in a request line (RFC 9112 section 3.2)


@dataclass(frozen=True, slots=True)
class Settled:
    """Final state: the policy to store."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class Fetching:
    """Needs the outcome of one GET of `url`, with `conditions` as its header fields.

    `judged`: the URL is judged like a request, exactly as written, because a redirect led to a page
    of another origin.
    """

    origin: Origin
    url: str
    cached: Policy | None
    via: str
    passed: tuple[str, ...] = ()
    tls_verified: bool = True  # of the hops so far
    public_only: bool = False  # some hop so far was public, or may have been
    judged: bool = False

    @property
    def conditions(self) -> tuple[tuple[str, str], ...]:
        """The validators (RFC 9110 section 8.8) of the stored document, if it came from this exact
        URL.

        Unprintable ones are omitted: stored values are untrusted and must not inject header fields.
        """
        document = self.cached.document if self.cached else None
        if document is None or document.url != self.url or document.status != 200:
            return ()
        pairs = (("If-None-Match", document.etag), ("If-Modified-Since", document.last_modified))
        return tuple((name, value) for name, value in pairs if value and value.isprintable())

    def next(self, outcome: FetchOutcome, now: float) -> Fetching | Redirected | Settled:
        """Follow a redirect, ask for a verdict on it, or settle on a document or trouble."""
        if isinstance(outcome, Failed):
            return self.in_trouble(now, outcome.failure, outcome.detail)
        if outcome.status in REDIRECTS and outcome.headers.get("location"):
            return self._follow(outcome, now)
        if outcome.status == 304 and self.conditions:
            return self._revalidated(outcome, now)
        if is_trouble(outcome.status):
            return self._not_now(outcome, now)
        return Settled(Policy(origin=self.origin, document=self._document(outcome, now)))

    def _follow(self, outcome: Fetched, now: float) -> Fetching | Redirected | Settled:
        passed = (*self.passed, self.url)
        location = outcome.headers["location"].strip(" \t")
        if _DOUBTFUL.search(location):
            return self.in_trouble(now, Failure.REDIRECT_REFUSED, "its Location is not a URL")
        try:
            origin, target = split_url(urljoin(self.url, location))
        except (NotGoverned, MalformedURL, ValueError) as error:
            return self.in_trouble(now, Failure.REDIRECT_REFUSED, str(error))
        # Encode it here, so that every fetcher sends what is judged.
        target = _UNENCODED.sub(_percent, target)
        url = f"{origin}{target}"
        if origin.port in BAD_PORTS:
            return self.in_trouble(
                now, Failure.REDIRECT_REFUSED, f"port {origin.port} is not a web port"
            )
        if url in passed:
            return self.in_trouble(now, Failure.REDIRECT_LOOP, f"back to {url}", answer=outcome)
        if len(passed) > MAX_REDIRECTS:
            return self.in_trouble(
                now, Failure.REDIRECT_LIMIT, f"more than {MAX_REDIRECTS} hops", answer=outcome
            )
        following = replace(
            self,
            url=url,
            passed=passed,
            tls_verified=self._verified(outcome),
            public_only=self.public_only or outcome.public is not False,
            judged=not self._is_free(origin, target),
        )
        if not following.judged:
            return following
        return Redirected(following, origin, target, was_followed=outcome.was_followed)

    def _is_free(self, origin: Origin, target: str) -> bool:
        """Whether a redirect may be followed without a verdict by the rules of its target.

        A page that was judged is not a /robots.txt: its redirects do not say where an origin keeps
        its rules, even within that origin. An open redirector must not bypass the rules.
        """
        if target == ROBOTS_TXT:
            return True
        return not self.judged and origin == split_url(self.url)[0]

    def _verified(self, outcome: Fetched) -> bool:
        return self.tls_verified and (outcome.tls_verified or not self.url.startswith("https:"))

    def _document(self, outcome: Fetched, now: float) -> Document:
        body = b""
        if 200 <= outcome.status < 300:
            body = outcome.body[:MAX_BODY]
        truncated = outcome.truncated or len(outcome.body) > len(body) > 0
        if truncated:
            body = _whole_lines(body)
        return Document(
            status=outcome.status,
            url=self.url,
            sha256=hashlib.sha256(body).hexdigest(),
            body=body,
            truncated=truncated,
            content_type=outcome.headers.get("content-type", "")[:128],
            etag=outcome.headers.get("etag", "")[:256],
            last_modified=outcome.headers.get("last-modified", "")[:64],
            stated_lifetime=stated_lifetime(outcome.headers, now),
            redirects=self.passed,
            fetched_at=now,
            via=self.via,
            tls_verified=self._verified(outcome),
        )

    def _revalidated(self, outcome: Fetched, now: float) -> Settled:
        """The stored document, freshened by a 304, whose omitted fields keep their value (RFC 9111
        section 4.3.4)."""
        assert self.cached is not None
        assert self.cached.document is not None
        stated = stated_lifetime(outcome.headers, now)
        document = msgspec.structs.replace(
            self.cached.document,
            stated_lifetime=self.cached.document.stated_lifetime if stated is None else stated,
            fetched_at=now,
            redirects=self.passed,
            via=self.via,
            tls_verified=self._verified(outcome),
        )
        return Settled(Policy(origin=self.origin, document=document))

    def _not_now(self, outcome: Fetched, now: float) -> Settled:
        wait = retry_after(outcome.headers, now)
        return self.in_trouble(
            now,
            Failure.STATUS,
            f"status {outcome.status}",
            status=outcome.status,
            wait=wait,
            answer=outcome,
        )

    def in_trouble(
        self,
        now: float,
        failure: Failure,
        detail: str,
        *,
        status: int | None = None,
        wait: float = 0.0,
        answer: Fetched | None = None,
    ) -> Settled:
        """Settle on trouble, together with the stored document, if there is one."""
        attempts, since = self._attempts(now)
        trouble = FetchTrouble(
            failure=failure,
            detail=detail[:200],
            status=status,
            since=since,
            at=now,
            attempts=attempts,
            tls_verified=self.tls_verified if answer is None else self._verified(answer),
            retry_at=now + max(wait, backoff(attempts, self._spread(attempts))),
        )
        return Settled(
            Policy(
                origin=self.origin,
                document=self.cached.document if self.cached else None,
                trouble=trouble,
            )
        )

    def _attempts(self, now: float) -> tuple[int, float]:
        """How often in succession the fetch has failed, this time included, and since when."""
        before = self.cached.trouble if self.cached else None
        if before is None or not before.continues(now):
            return 1, now
        return before.attempts + 1, min(before.since, now)  # a clock may have jumped backwards

    def _spread(self, attempts: int) -> float:
        """A number in 0..1 by origin and attempt, so that origins that failed together are not
        retried together."""
        return zlib.crc32(f"{self.origin} {attempts}".encode()) / 2**32


@dataclass(frozen=True, slots=True)
class Redirected:
    """Needs the verdict on `target` of `origin`, which is not the origin whose robots.txt redirects
    there.

    `following` is the next hop if the verdict is PASS. `was_followed`: the fetcher has already made
    it.
    """

    following: Fetching
    origin: Origin
    target: str
    was_followed: bool = False

    def next(self, verdict: Verdict, now: float) -> Fetching | Settled:
        """Follow on a PASS. Otherwise the origin is unreachable, if possible until the page may be
        fetched."""
        if verdict.action is Action.PASS:
            return self.following
        wait = min(RETRY_MAX, verdict.until - now) if verdict.until is not None else 0.0
        why = f"{verdict.reason} at {self.following.url}"
        if verdict.detail:
            why = f"{why}: {verdict.detail}"
        return self.following.in_trouble(now, Failure.REDIRECT_DISALLOWED, why, wait=wait)


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("latin-1"))


def _whole_lines(body: bytes) -> bytes:
    """The body without a truncated last line: a truncated Allow would allow more than the whole
    one."""
    end = max(body.rfind(b"\n"), body.rfind(b"\r")) + 1
    if end:
        return body[:end]
    return body


State = Fetching | Redirected | Settled


def begin(
    origin: Origin, cached: Policy | None, via: str, *, public_only: bool = False
) -> Fetching:
    """The first state of an origin's renewal by the fetcher named `via`.

    `public_only`: fetch from a public address only.
    """
    return Fetching(origin, origin.robots_url, cached, via, public_only=public_only)
