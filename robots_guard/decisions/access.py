"""Access: what the outcome of fetching /robots.txt means (RFC 9309 section 2.3.1).

A fetcher reports the outcome of one hop, a response or a failure, and does not interpret it.
The meaning of a status is data of the dialect; this module looks it up.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec

from robots_guard.protocol.dialect import Dialect

MAX_BODY = 512_000  # bytes; RFC 9309 section 2.5: at least 500 KiB (512,000 octets)
MAX_RESERVATIONS = 256 * 1024  # bytes of a tdmrep.json; a longer one is not read
REDIRECTS = frozenset((301, 302, 303, 307, 308))


#: The files of an origin that make up its policy.
File = Literal["robots.txt", "tdmrep.json"]


class Access(StrEnum):
    """What a crawler may request from an origin."""

    RULES = "rules"  # section 2.3.1.1: whatever the rules of the file allow
    UNRESTRICTED = "unrestricted"  # section 2.3.1.3: everything, because there is no file
    RESTRICTED = "restricted"  # nothing: 401 or 403 (draft-koster-robots-00 section 3.1)
    UNREACHABLE = "unreachable"  # section 2.3.1.4: nothing for now (complete disallow)


class Failure(StrEnum):
    """Why a fetch produced no usable response."""

    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    RESET = "reset"
    PROTOCOL = "protocol"  # not HTTP, incomplete, or undecodable
    REFUSED = "refused"  # not sent: by address policy, a gate or another component of the process
    STATUS = "status"  # a response whose status means "not now"
    REDIRECT_LOOP = "redirect-loop"
    REDIRECT_LIMIT = "redirect-limit"
    REDIRECT_REFUSED = "redirect-refused"  # to another scheme, a non-URL or a non-web port
    REDIRECT_DISALLOWED = "redirect-disallowed"  # to a page that its own site's rules forbid
    INTERNAL = "internal"


class Scope(StrEnum):
    """What a failure is about, and so which requests wait until robots.txt is tried again.

    Invariant: a scope only says which requests wait. No failure permits more than another.
    """

    SITE = "site"  # all requests, of every process that shares the store
    ROUTE = "route"  # those of this process by the same parent proxy, local address or network
    FETCHER = "fetcher"  # those of this process: its settings, hooks or resources are the cause


#: Failures that depend on this process: on the CAs it trusts, the addresses it may connect to, its
#: agent and overrides, or its own bugs.
_FETCHER_FAILURES = frozenset(
    (Failure.TLS, Failure.REFUSED, Failure.REDIRECT_DISALLOWED, Failure.INTERNAL)
)
#: Statuses that a proxy sends for a site that it cannot reach, or about itself (RFC 9110
#: sections 15.5.8, 15.6.3 to 15.6.5).
PROXY_STATUSES = frozenset((407, 502, 503, 504))


def usual_scope(failure: Failure) -> Scope:
    """What a failure of this kind is about if nothing else is known."""
    return Scope.FETCHER if failure in _FETCHER_FAILURES else Scope.SITE


#: RFC 9309 section 2.3.1.2.
REDIRECT_LIMITS = frozenset((Failure.REDIRECT_LOOP, Failure.REDIRECT_LIMIT))


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one fetch: seconds on the monotonic clock, bytes of decoded body."""

    connect: float = 5.0
    first_byte: float = 10.0
    total: float = 30.0
    max_body: int = MAX_BODY


class Get(msgspec.Struct, frozen=True, kw_only=True):
    """One GET request. No redirect is followed and no credential of the origin is sent.

    `public_only`: connect to a public address or fail, because a public site redirected here.
    `verbatim`: send the target exactly as written or fail, because it was judged in that form.
    `elsewhere`: a redirect led to an origin other than the one whose robots.txt is being fetched.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    limits: Limits = Limits()
    public_only: bool = False
    verbatim: bool = False
    elsewhere: bool = False


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """A response. `headers` has lower-case names, repeated fields joined with ", "; `body` is
    decoded.

    `public`: whether the server's address is public; None if unknown, as behind another proxy.
    `was_followed`: the response is a redirect that the fetcher has already followed by itself.
    `queued`: seconds the fetch waited in the crawler before it was sent.
    `relay`: the parent proxy that received the request as plain HTTP, so that the response may be
    its own.
    """

    status: int
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    truncated: bool = False
    tls_verified: bool = False
    public: bool | None = None
    was_followed: bool = False
    queued: float = 0.0
    relay: str = ""


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """No usable response. `detail` is for people and contains no secret; `queued` as in `Fetched`.

    `about` is the scope, if it is not the usual one of the failure. `route` names the parent proxy
    or local address that was used, and is empty for the direct route. `is_chosen_anew`: the project
    chooses a route for each fetch, so that the next one may take another.
    """

    failure: Failure
    detail: str = ""
    queued: float = 0.0
    about: Scope | None = None
    route: str = ""
    is_chosen_anew: bool = False

    @property
    def scope(self) -> Scope:
        """What the failure is about."""
        return self.about or usual_scope(self.failure)

    def on_route(self, route: str, *, is_chosen_anew: bool = False) -> Failed:
        """This failure of a fetch by a route. Unless that is the direct route, the failure is charged
        to the route and not to the site: nothing shows which of them failed."""
        is_of_fetcher = self.scope is Scope.FETCHER and self.failure is not Failure.TLS
        if not route or is_of_fetcher or self.about is Scope.FETCHER:
            return self
        return msgspec.structs.replace(
            self, about=Scope.ROUTE, route=route, is_chosen_anew=is_chosen_anew
        )


FetchOutcome = Fetched | Failed


#: 2xx that carry a part of the file or a delta (RFC 9110 section 15.3.7, RFC 3229 section 10.4.1).
#: No fetcher requests either, and the missing part may forbid what this part does not.
PARTIAL = frozenset((206, 226))
#: 4xx that are about the connection, the timing or an outbound proxy rather than the site's policy
#: (RFC 9110 sections 15.5.8, 15.5.9 and 15.5.20, RFC 8470 section 5.2).
CONNECTION_STATUSES = frozenset((407, 408, 421, 425))


def is_trouble(status: int) -> bool:
    """Whether a status says nothing about the site's policy.

    That is 429, 5xx, an incomplete file, and any status that is not final.
    """
    if status == 429 or status in CONNECTION_STATUSES or status in PARTIAL:
        return True
    return not (200 <= status < 300 or 400 <= status < 500)


def access_of(status: int, dialect: Dialect) -> Access:
    """What a final status of /robots.txt means in a dialect (standards table 2)."""
    if status in (401, 403):
        return Access(dialect.on_forbidden)
    if status == 429:
        return Access(dialect.on_too_many)
    if is_trouble(status):
        return Access.UNREACHABLE
    if 200 <= status < 300:
        return Access.RULES
    return Access.UNRESTRICTED


def access_of_failure(failure: Failure, dialect: Dialect) -> Access:
    """What a failure means in a dialect. Dialects differ only on redirect limits (RFC 9309 section
    2.3.1.2)."""
    if failure in REDIRECT_LIMITS:
        return Access(dialect.on_redirect_limit)
    return Access.UNREACHABLE
