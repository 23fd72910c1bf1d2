"""Access: what the fetch of a /robots.txt means (RFC 9309 section 2.3.1).

A fetcher brings one hop's outcome, an answer or a failure, and judges nothing. What a status means differs
by dialect and is data there; this file only looks it up.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum

import msgspec

from robots_guard.rep.dialect import Dialect

MAX_BODY = 512_000  # RFC 9309 section 2.5: at least 500 KiB (512,000 octets)
REDIRECTS = frozenset((301, 302, 303, 307, 308))


class Access(Enum):
    """What a crawler may take from an origin."""

    RULES = "rules"  # section 2.3.1.1: the file was read
    UNRESTRICTED = "unrestricted"  # section 2.3.1.3: there is none
    RESTRICTED = "restricted"  # 401, 403: the site keeps crawlers out (draft-koster-robots-00 section 3.1)
    UNREACHABLE = "unreachable"  # section 2.3.1.4: complete disallow, for now


class Failure(StrEnum):
    """Why a fetch brought no answer that can be used."""

    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    RESET = "reset"
    PROTOCOL = "protocol"  # not HTTP, cut short, undecodable
    REFUSED = "refused"  # we would not connect: address policy, a gate, another component of the host
    STATUS = "status"  # an answer, but one that says "not now"
    REDIRECT_LOOP = "redirect-loop"
    REDIRECT_LIMIT = "redirect-limit"
    REDIRECT_REFUSED = "redirect-refused"  # to another scheme, to no URL at all, to a port no web server has
    REDIRECT_DISALLOWED = "redirect-disallowed"  # to a page of another site whose rules forbid it
    INTERNAL = "internal"


#: Troubles that concern only this process: the CAs it trusts, the addresses it may not connect to, its agent and
#: overrides, its own faults. They say nothing to other processes.
OURS = frozenset((Failure.TLS, Failure.REFUSED, Failure.REDIRECT_DISALLOWED, Failure.INTERNAL))
REDIRECT_LIMITS = frozenset((Failure.REDIRECT_LOOP, Failure.REDIRECT_LIMIT))  # RFC 9309 section 2.3.1.2


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one fetch may cost. Seconds on the monotonic clock; octets of decoded body."""

    connect: float = 5.0
    first_byte: float = 10.0
    total: float = 30.0
    max_body: int = MAX_BODY


class Get(msgspec.Struct, frozen=True, kw_only=True):
    """One GET to make: no redirect is followed, no credential of the origin is sent.

    With `public_only` it is made to a public address or not at all, because a public site redirected there. With
    `verbatim` the target is sent exactly as it is written here or not at all, because that is how it was judged.
    `elsewhere` says that it is made to another origin than the one whose robots.txt it is for: a redirect led there.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    limits: Limits = Limits()
    public_only: bool = False
    verbatim: bool = False
    elsewhere: bool = False


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. `headers` has lower-case names, repeated fields joined with ", "; `body` is decoded.

    `public` says of the address it came from whether it is a public one; None where that is not known, as behind
    another proxy. With `was_followed`, it is a redirect that the fetcher has followed by itself already. `queued` is
    how many seconds the fetch waited in the crawler before it was sent.
    """

    status: int
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    truncated: bool = False
    tls_verified: bool = False
    public: bool | None = None
    was_followed: bool = False
    queued: float = 0.0


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """No answer. `detail` is for people and names no secret; `queued` as in `Fetched`."""

    failure: Failure
    detail: str = ""
    queued: float = 0.0


FetchOutcome = Fetched | Failed


#: 2xx that carry a part of the file or a change to it (RFC 9110 section 15.3.7, RFC 3229 section 10.4.1). No fetcher
#: asks for either, and the rest of the file may forbid what the part does not.
PARTIAL = frozenset((206, 226))
#: 4xx that speak of the connection, the moment or a proxy on our own way, not of the site's wishes (RFC 9110
#: sections 15.5.8, 15.5.9 and 15.5.20, RFC 8470 section 5.2).
NOT_THE_SITES_WORD = frozenset((407, 408, 421, 425))


def is_trouble(status: int) -> bool:
    """Whether an answer says nothing of the site's wishes: 429, 5xx, what is not the whole file, and what is no final
    status at all."""
    if status == 429 or status in NOT_THE_SITES_WORD or status in PARTIAL:
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
    return Access.RULES if 200 <= status < 300 else Access.UNRESTRICTED


def access_of_failure(failure: Failure, dialect: Dialect) -> Access:
    """What a failure means in a dialect: only for redirects do they differ (RFC 9309 section 2.3.1.2)."""
    if failure in REDIRECT_LIMITS:
        return Access(dialect.on_redirect_limit)
    return Access.UNREACHABLE
