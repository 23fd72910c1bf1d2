"""A renewal: the state machine that fetches a new policy for an origin, shared by all waiting
callers.

It uses no clock, socket or framework. All transitions are in this module:

    begin -> Fetching
        /robots.txt of the origin itself
    Fetching -> Fetching
        a redirect to a /robots.txt, or one of a /robots.txt within its own origin: the next hop.
        At most 5, http and https only, across hosts, and from a public address only to public ones
    Fetching -> Redirected
        a redirect to any other page of another origin: it is judged first, like a request
    Fetching -> Settled
        a document, a 304 that renews the stored one, or trouble
    Fetching -> JudgingReservations
        a document or a 304, if the renewal includes reservations
    Redirected -> Fetching
        that origin's rules allow the page: the next hop
    Redirected -> Settled
        they forbid it, or cannot be fetched: trouble
    JudgingReservations -> FetchingReservations
        the new document allows /.well-known/tdmrep.json: the next hop
    JudgingReservations -> Settled
        the new document forbids it, or the origin's turn comes too late: no reservations
    FetchingReservations -> JudgingReservations
        a redirect within the origin, at most 5
    FetchingReservations -> Settled
        the reservations, or the reason why they are not available

Rules belong to the first origin, wherever redirects led (RFC 9309 section 2.3.1.2). That section
has redirects followed across authorities, but does not permit fetching what the other authority
forbids: otherwise any site could make the guard fetch any page of any other. A /robots.txt is open
to all crawlers (section 2.2.2). An origin may keep its rules wherever it likes, so a redirect of
its /robots.txt to another of its pages is followed, until a redirect leaves the origin.

Reservations are the content of a site's tdmrep.json. The guard requests that file as it requests a
page: the request obeys the policy just fetched, and takes a turn. A failure to fetch it never
invalidates the document: the renewal then settles on the document, the reason of the failure, and
the last usable reservations, for at most 30 days.
Invariant: a renewal that includes reservations ends with an attempt to fetch them that is no older
than its document, or with trouble.
"""

from __future__ import annotations

import hashlib
import zlib

import msgspec

from robots_guard.decisions.access import (
    MAX_BODY,
    MAX_RESERVATIONS,
    PROXY_STATUSES,
    REDIRECTS,
    Failed,
    Failure,
    Fetched,
    FetchOutcome,
    File,
    Scope,
    is_trouble,
    usual_scope,
)
from robots_guard.decisions.addresses import UnusableLocation, resolve
from robots_guard.decisions.freshness import (
    RETRY_MAX,
    backoff,
    retry_after,
    stated_lifetime,
    until_other_route,
)
from robots_guard.decisions.policy import Document, FetchTrouble, Policy, Reservations
from robots_guard.decisions.verdict import Action, Verdict
from robots_guard.origin import ROBOTS_TXT, TDMREP_JSON, Origin, split_url
from robots_guard.protocol.lines import kind_of_binary

MAX_REDIRECTS = 5  # RFC 9309 section 2.3.1.2: at least five
MAX_FAILURE = 200  # characters

Headers = tuple[tuple[str, str], ...]


class Settled(msgspec.Struct, frozen=True):
    """Final state: the policy to store."""

    policy: Policy


class Fetching(msgspec.Struct, frozen=True):
    """Needs the outcome of one GET of `url`, with `conditions` as its header fields.

    `judged`: the URL is judged like a request, exactly as written, because a redirect led to a page
    of another origin. `reservations_for` is the agent for which reservations are fetched after the
    document; None: they are not fetched.
    """

    origin: Origin
    url: str
    cached: Policy | None
    via: str
    passed: tuple[str, ...] = ()
    tls_verified: bool = True  # of the hops so far
    public_only: bool = False  # some hop so far was public, or may have been
    judged: bool = False
    reservations_for: str | None = None

    @property
    def file(self) -> File:
        """The file that is fetched."""
        return "robots.txt"

    @property
    def max_body(self) -> int:
        """The longest body that is used, in bytes."""
        return MAX_BODY

    @property
    def conditions(self) -> Headers:
        """The validators of the stored document, if it came from this exact URL."""
        document = self.cached.document if self.cached else None
        if document is None or document.url != self.url or document.status != 200:
            return ()
        return _conditions(document)

    def next(
        self, outcome: FetchOutcome, now: float
    ) -> Fetching | Redirected | JudgingReservations | Settled:
        """Follow a redirect, ask for a verdict on it, or end with a document or trouble."""
        if isinstance(outcome, Failed):
            return self.in_trouble(
                now,
                outcome.failure,
                outcome.detail,
                scope=outcome.scope,
                route=outcome.route,
                is_chosen_anew=outcome.is_chosen_anew,
            )
        if outcome.status in REDIRECTS and outcome.headers.get("location"):
            return self._follow(outcome, now)
        if outcome.status == 304 and self.conditions:
            return self._revalidated(outcome, now)
        if is_trouble(outcome.status):
            return self._not_now(outcome, now)
        if 200 <= outcome.status < 300 and (kind := kind_of_binary(outcome.body)):
            return self.in_trouble(
                now, Failure.PROTOCOL, f"the body is {kind}, not text", answer=outcome
            )
        return self._answered(self._document(outcome, now))

    def _answered(self, document: Document) -> JudgingReservations | Settled:
        """Go on to the reservations if the renewal includes them, or settle on the document."""
        reservations = self.cached.reservations if self.cached else None
        policy = Policy(origin=self.origin, document=document, reservations=reservations)
        if self.reservations_for is None:
            return Settled(policy)
        url = f"{self.origin}{TDMREP_JSON}"
        return JudgingReservations(policy, url, self.reservations_for, public_only=self.public_only)

    def _follow(self, outcome: Fetched, now: float) -> Fetching | Redirected | Settled:
        passed = (*self.passed, self.url)
        try:
            origin, target = resolve(outcome.headers["location"], self.url)
        except UnusableLocation as error:
            return self.in_trouble(now, Failure.REDIRECT_REFUSED, str(error))
        url = f"{origin}{target}"
        if url in passed:
            return self.in_trouble(now, Failure.REDIRECT_LOOP, f"back to {url}", answer=outcome)
        if len(passed) > MAX_REDIRECTS:
            return self.in_trouble(
                now, Failure.REDIRECT_LIMIT, f"more than {MAX_REDIRECTS} hops", answer=outcome
            )
        following = msgspec.structs.replace(
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

    def _revalidated(self, outcome: Fetched, now: float) -> JudgingReservations | Settled:
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
        return self._answered(document)

    def _not_now(self, outcome: Fetched, now: float) -> Settled:
        wait = retry_after(outcome.headers, now)
        # A proxy that cannot reach a site answers with these, without Retry-After.
        is_by_relay = bool(outcome.relay) and outcome.status in PROXY_STATUSES and not wait
        return self.in_trouble(
            now,
            Failure.STATUS,
            f"status {outcome.status}",
            scope=Scope.ROUTE if is_by_relay else Scope.SITE,
            route=outcome.relay,
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
        scope: Scope | None = None,
        route: str = "",
        is_chosen_anew: bool = False,
        status: int | None = None,
        wait: float = 0.0,
        answer: Fetched | None = None,
    ) -> Settled:
        """Settle on trouble, together with the stored document, if there is one."""
        scope = scope or usual_scope(failure)
        before = self._before(now, scope)
        attempts, since = 1, now
        if before is not None:
            # A clock may have jumped backwards.
            attempts, since = before.attempts + 1, min(before.since, now)
        pause = backoff(attempts, self._spread(attempts))
        if is_chosen_anew:
            pause = min(pause, until_other_route(now - since))
        trouble = FetchTrouble(
            failure=failure,
            detail=detail[:MAX_FAILURE],
            status=status,
            since=since,
            at=now,
            attempts=attempts,
            tls_verified=self.tls_verified if answer is None else self._verified(answer),
            retry_at=now + max(wait, pause),
            scope=scope,
            route=route,
        )
        return Settled(
            Policy(
                origin=self.origin,
                document=self.cached.document if self.cached else None,
                trouble=trouble,
                reservations=self.cached.reservations if self.cached else None,
            )
        )

    def _before(self, now: float, scope: Scope) -> FetchTrouble | None:
        """The trouble that a failure continues, if there is one. One of another scope in between does
        not end it: a site that fails in two ways in turn is asked ever later, too."""
        if self.cached is None:
            return None
        for before in (self.cached.trouble, *self.cached.others):
            if before is not None and before.scope is scope and before.continues(now):
                return before
        return None

    def _spread(self, attempts: int) -> float:
        """A number in 0..1 by origin and attempt, so that origins that failed together are not
        retried together."""
        return zlib.crc32(f"{self.origin} {attempts}".encode()) / 2**32


class Redirected(msgspec.Struct, frozen=True):
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


class JudgingReservations(msgspec.Struct, frozen=True):
    """Needs the verdict on a request of `agent` for `url`, by `policy`, whose document was just
    fetched.

    `url` is the tdmrep.json of the policy's origin, or a page of that origin to which it redirects.
    """

    policy: Policy
    url: str
    agent: str
    passed: tuple[str, ...] = ()
    public_only: bool = False
    was_followed: bool = False

    @property
    def target(self) -> str:
        """The target to be judged."""
        return split_url(self.url)[1]

    def next(self, verdict: Verdict, now: float) -> FetchingReservations | Settled:
        """Request the URL on a PASS. Otherwise settle without reservations."""
        fetching = FetchingReservations(
            self.policy, self.url, self.agent, self.passed, self.public_only
        )
        if verdict.action is Action.PASS:
            return fetching
        why = ": ".join(filter(None, (verdict.reason.value, verdict.detail)))
        return fetching.failed(now, why, is_local=True)


class FetchingReservations(msgspec.Struct, frozen=True):
    """Needs the outcome of one GET of `url`, with `conditions` as its header fields."""

    policy: Policy
    url: str
    agent: str
    passed: tuple[str, ...] = ()
    public_only: bool = False

    @property
    def origin(self) -> Origin:
        """The origin whose reservations are fetched."""
        return self.policy.origin

    @property
    def judged(self) -> bool:
        """The URL was judged, exactly as written."""
        return True

    @property
    def file(self) -> File:
        """The file that is fetched."""
        return "tdmrep.json"

    @property
    def max_body(self) -> int:
        """The longest body that is used, in bytes."""
        return MAX_RESERVATIONS

    @property
    def conditions(self) -> Headers:
        """The validators of the stored reservations, if no redirect led here."""
        stored = self.policy.reservations
        if stored is None or stored.status != 200 or self.passed:
            return ()
        return _conditions(stored)

    def next(self, outcome: FetchOutcome, now: float) -> JudgingReservations | Settled:
        """Follow a redirect, or settle on the answer or the reason why there is none."""
        if isinstance(outcome, Failed):
            why = ": ".join(filter(None, (outcome.failure, outcome.detail)))
            return self.failed(now, why, is_local=outcome.scope is not Scope.SITE)
        if outcome.status in REDIRECTS and outcome.headers.get("location"):
            return self._follow(outcome, now)
        if outcome.status == 304 and self.conditions:
            assert self.policy.reservations is not None
            return self._settled(
                msgspec.structs.replace(
                    self.policy.reservations,
                    attempted_at=now,
                    failure="",
                    failed_for=None,
                    fetched_at=now,
                )
            )
        if is_trouble(outcome.status) or outcome.status in (401, 403):
            return self.failed(now, f"status {outcome.status}")
        if outcome.truncated or len(outcome.body) > MAX_RESERVATIONS:
            return self.failed(now, f"longer than {MAX_RESERVATIONS} bytes")
        return self._settled(self._reservations(outcome, now))

    def _follow(self, outcome: Fetched, now: float) -> JudgingReservations | Settled:
        passed = (*self.passed, self.url)
        try:
            origin, target = resolve(outcome.headers["location"], self.url)
        except UnusableLocation as error:
            return self.failed(now, f"{Failure.REDIRECT_REFUSED}: {error}")
        url = f"{origin}{target}"
        if origin != self.origin:
            return self.failed(now, f"{Failure.REDIRECT_REFUSED}: to {origin}")
        if url in passed:
            return self.failed(now, Failure.REDIRECT_LOOP)
        if len(passed) > MAX_REDIRECTS:
            return self.failed(now, Failure.REDIRECT_LIMIT)
        public_only = self.public_only or outcome.public is not False
        return JudgingReservations(
            self.policy, url, self.agent, passed, public_only, outcome.was_followed
        )

    def _reservations(self, outcome: Fetched, now: float) -> Reservations:
        body = b""
        if 200 <= outcome.status < 300:
            body = outcome.body
        return Reservations(
            attempted_at=now,
            status=outcome.status,
            fetched_at=now,
            body=body,
            # Validators belong to one URL, and the next renewal begins at the first.
            etag="" if self.passed else outcome.headers.get("etag", "")[:256],
            last_modified="" if self.passed else outcome.headers.get("last-modified", "")[:64],
        )

    def failed(self, now: float, why: str, *, is_local: bool = False) -> Settled:
        """Settle on the reason of a failure, and on the last usable answer if it is recent enough.

        `is_local`: the failure depends on this process and its agent.
        """
        last = self.policy.reservations
        if last is None or not last.may_still_hold(now):
            last = Reservations(attempted_at=now)
        return self._settled(
            msgspec.structs.replace(
                last,
                attempted_at=now,
                failure=why[:MAX_FAILURE],
                failed_for=self.agent if is_local else None,
            )
        )

    def _settled(self, reservations: Reservations) -> Settled:
        """Settle on reservations. Their attempt is dated no earlier than the document, even if the
        clock was set back in between."""
        assert self.policy.document is not None
        attempted_at = max(reservations.attempted_at, self.policy.document.fetched_at)
        reservations = msgspec.structs.replace(reservations, attempted_at=attempted_at)
        return Settled(msgspec.structs.replace(self.policy, reservations=reservations))


def _conditions(stored: Document | Reservations) -> Headers:
    """Return the validators (RFC 9110 section 8.8) of a stored file as header fields.

    Unprintable ones are omitted: stored values are untrusted and must not inject header fields.
    """
    pairs = (("If-None-Match", stored.etag), ("If-Modified-Since", stored.last_modified))
    return tuple((name, value) for name, value in pairs if value and value.isprintable())


def _whole_lines(body: bytes) -> bytes:
    """The body without a truncated last line: a truncated Allow would allow more than the whole
    one."""
    end = max(body.rfind(b"\n"), body.rfind(b"\r")) + 1
    if end:
        return body[:end]
    return body


State = Fetching | Redirected | JudgingReservations | FetchingReservations | Settled


def begin(
    origin: Origin,
    cached: Policy | None,
    via: str,
    *,
    public_only: bool = False,
    reservations_for: str | None = None,
) -> Fetching:
    """The first state of an origin's renewal by the fetcher named `via`.

    `public_only`: fetch from a public address only. `reservations_for`: the agent for which
    reservations are fetched too.
    """
    return Fetching(
        origin,
        origin.robots_url,
        cached,
        via,
        public_only=public_only,
        reservations_for=reservations_for,
    )


def policy_of_text(origin: Origin, body: bytes, via: str, now: float) -> Policy:
    """The policy of an origin whose robots.txt has this content."""
    settled = begin(origin, None, via).next(Fetched(status=200, body=body, tls_verified=True), now)
    assert isinstance(settled, Settled)
    return settled.policy
