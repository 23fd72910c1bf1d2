"""Reasons: why a request is passed, dropped or deferred, and what follows from that alone.

What follows from a reason is stated here only. The command line, the console and the proxy's
responses show its sentence; exports and replays use its codes. A new one also needs the place that
decides it, and a case in tests/simulation/invariants.py.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from robots_guard.decisions.pacing import DelaySource


class Party(StrEnum):
    """The party whose rule, setting or mistake is the cause of a refusal."""

    SITE = "site"
    OPERATOR = "operator"
    GUARD = "guard"
    CLIENT = "client"
    NONE = "-"  # nothing is ever refused for this reason


class Comparison(StrEnum):
    """What `audit replay` compares with the record."""

    VERDICT = "verdict"
    DELAY = "delay"  # the rules allow the request, which had to wait for its turn
    NOTHING = "nothing"  # the decision does not depend on a robots.txt


class ErrorResponse(NamedTuple):
    """The proxy's response to a refused request: an HTTP status, and an error type of RFC 9209
    section 2.3."""

    status: int
    error: str


BAD_REQUEST = ErrorResponse(400, "http_request_error")
FORBIDDEN = ErrorResponse(403, "http_request_denied")
PROHIBITED = ErrorResponse(403, "destination_ip_prohibited")
TOO_MANY = ErrorResponse(429, "http_request_denied")
BAD_GATEWAY = ErrorResponse(502, "http_request_denied")  # of mitmproxy, for a closed connection
NOT_NOW = ErrorResponse(503, "destination_unavailable")
FAILED = ErrorResponse(503, "proxy_internal_error")

# Heritrix's fetch status codes (its class FetchStatusCodes) for URLs that were not fetched.
PRECLUDED = -9998
PREREQUISITE_FAILED = -61
DEFERRED = -50
UNFETCHABLE = -7
RUNTIME_EXCEPTION = -5


class Meaning(msgspec.Struct, frozen=True):
    """What follows from a reason.

    `sentence` explains it to a person, whatever the action. `refusal` is the proxy's response, and
    `heritrix` the code in that export.
    """

    sentence: str
    fault: Party = Party.NONE
    refusal: ErrorResponse = FORBIDDEN
    heritrix: int = DEFERRED
    replay: Comparison = Comparison.VERDICT

    def response(self, action: str) -> ErrorResponse:
        """The proxy's response. A 403 is final, so that a deferred request gets a 503 instead."""
        if action == "defer" and self.refusal.status == FORBIDDEN.status:
            return NOT_NOW
        return self.refusal


class Reason(StrEnum):
    """The reason for an action. A closed list; each has a row in `MEANINGS`."""

    ALLOWED = "allowed"
    UNRESTRICTED = "unrestricted"
    ROBOTS_TXT = "robots-txt"  # RFC 9309 section 2.2.2
    NOT_GOVERNED = "not-governed"
    BYPASSED = "bypassed"
    BLOCKED = "blocked"
    DISALLOWED = "disallowed"
    MIRROR = "mirror"
    RESTRICTED = "restricted"
    UNREACHABLE = "unreachable"
    ROUTE_FAILED = "route-failed"
    FETCHER_FAILED = "fetcher-failed"
    CRAWL_DELAY = DelaySource.CRAWL_DELAY.value
    REQUEST_RATE = DelaySource.REQUEST_RATE.value
    VISIT_TIME = DelaySource.VISIT_TIME.value
    RETRY_AFTER = DelaySource.RETRY_AFTER.value
    MIN_DELAY = DelaySource.MIN_DELAY.value
    USAGE_RESERVED = "usage-reserved"
    LINK_NOFOLLOW = "link-nofollow"
    PAYMENT_REQUIRED = "payment-required"
    MALFORMED_TARGET = "malformed-target"
    AMBIGUOUS_AUTHORITY = "ambiguous-authority"
    DESTINATION_REFUSED = "destination-refused"
    NOT_INTERCEPTED = "not-intercepted"
    NOT_HTTP = "not-http"  # bytes in a tunnel
    NOT_JUDGED = "not-judged"  # stopped at the write
    UNRECORDED = "unrecorded"
    INTERNAL_ERROR = "internal-error"


MEANINGS: dict[str, Meaning] = {
    Reason.ALLOWED: Meaning("No rule that applies forbids the request."),
    Reason.UNRESTRICTED: Meaning("The site has no robots.txt and so restricts nothing."),
    Reason.ROBOTS_TXT: Meaning("/robots.txt itself is always allowed."),
    Reason.NOT_GOVERNED: Meaning(
        "robots.txt applies to http and https only.",
        replay=Comparison.NOTHING,
    ),
    Reason.BYPASSED: Meaning(
        "The operator has exempted the request from the site's rules.",
    ),
    Reason.BLOCKED: Meaning(
        "The operator has blocked the site.",
        Party.OPERATOR,
        heritrix=UNFETCHABLE,
        replay=Comparison.NOTHING,
    ),
    Reason.DISALLOWED: Meaning(
        "A rule of the site's robots.txt forbids the request.",
        Party.SITE,
        heritrix=PRECLUDED,
    ),
    Reason.MIRROR: Meaning(
        "The site is a mirror: its robots.txt names another main host.",
        Party.SITE,
        heritrix=PRECLUDED,
    ),
    Reason.RESTRICTED: Meaning(
        "The site answers 401 or 403 for its robots.txt, which closes it to crawlers.",
        Party.SITE,
        heritrix=PRECLUDED,
    ),
    Reason.UNREACHABLE: Meaning(
        "The site's robots.txt cannot be fetched, so it is not known what it allows.",
        Party.SITE,
        heritrix=PREREQUISITE_FAILED,
    ),
    Reason.ROUTE_FAILED: Meaning(
        "The site's robots.txt cannot be fetched by the route of this request (its parent proxy, its"
        " local address, or the network of this machine), so it is not known what it allows.",
        Party.OPERATOR,
        heritrix=PREREQUISITE_FAILED,
    ),
    Reason.FETCHER_FAILED: Meaning(
        "This process cannot fetch the site's robots.txt, because of its own settings, components or"
        " resources, so it is not known what it allows.",
        Party.OPERATOR,
        heritrix=PREREQUISITE_FAILED,
    ),
    Reason.CRAWL_DELAY: Meaning(
        "The site's robots.txt asks for a delay between two requests.",
        Party.SITE,
        TOO_MANY,
        replay=Comparison.DELAY,
    ),
    Reason.REQUEST_RATE: Meaning(
        "The site's robots.txt limits the rate of requests.",
        Party.SITE,
        TOO_MANY,
        replay=Comparison.DELAY,
    ),
    Reason.VISIT_TIME: Meaning(
        "The site's robots.txt asks crawlers to visit at other times of the day.",
        Party.SITE,
        NOT_NOW,
    ),
    Reason.RETRY_AFTER: Meaning(
        "The site has asked for a pause (Retry-After).",
        Party.SITE,
        TOO_MANY,
        replay=Comparison.DELAY,
    ),
    Reason.MIN_DELAY: Meaning(
        "The operator requires a delay between two requests to a site.",
        Party.OPERATOR,
        TOO_MANY,
        replay=Comparison.DELAY,
    ),
    Reason.USAGE_RESERVED: Meaning(
        "The site does not permit a use that the operator has declared for its content.",
        Party.SITE,
        heritrix=PRECLUDED,
    ),
    Reason.LINK_NOFOLLOW: Meaning(
        "The page that links to this URL asks crawlers not to follow the link.",
        Party.SITE,
        heritrix=PRECLUDED,
        replay=Comparison.NOTHING,
    ),
    Reason.PAYMENT_REQUIRED: Meaning(
        "The site asks for a payment or a licence, and the guard never pays.",
        Party.SITE,
        heritrix=PRECLUDED,
    ),
    Reason.MALFORMED_TARGET: Meaning(
        "The request is malformed: two servers could interpret it differently.",
        Party.CLIENT,
        BAD_REQUEST,
        heritrix=UNFETCHABLE,
        replay=Comparison.NOTHING,
    ),
    Reason.AMBIGUOUS_AUTHORITY: Meaning(
        "The request names more than one site, so it is not clear whose robots.txt applies.",
        Party.CLIENT,
        heritrix=UNFETCHABLE,
        replay=Comparison.NOTHING,
    ),
    Reason.DESTINATION_REFUSED: Meaning(
        "The operator has not allowed requests to this address or port.",
        Party.OPERATOR,
        PROHIBITED,
        heritrix=UNFETCHABLE,
        replay=Comparison.NOTHING,
    ),
    Reason.NOT_INTERCEPTED: Meaning(
        "The client does not trust the proxy's certificate, so its requests cannot be judged.",
        Party.CLIENT,
        heritrix=UNFETCHABLE,
        replay=Comparison.NOTHING,
    ),
    Reason.NOT_HTTP: Meaning(
        "What the client sent is not an HTTP request.",
        Party.CLIENT,
        BAD_GATEWAY,
        heritrix=UNFETCHABLE,
        replay=Comparison.NOTHING,
    ),
    Reason.NOT_JUDGED: Meaning(
        "The request was changed after it had been permitted, or was never judged.",
        Party.OPERATOR,
        BAD_GATEWAY,
        heritrix=UNFETCHABLE,
        replay=Comparison.NOTHING,
    ),
    Reason.UNRECORDED: Meaning(
        "The request is allowed, but the audit log that must record it cannot be written.",
        Party.GUARD,
        FAILED,
        heritrix=RUNTIME_EXCEPTION,
        replay=Comparison.NOTHING,
    ),
    Reason.INTERNAL_ERROR: Meaning(
        "The guard failed, and it refuses every request that it cannot judge.",
        Party.GUARD,
        FAILED,
        heritrix=RUNTIME_EXCEPTION,
        replay=Comparison.NOTHING,
    ),
}


_UNKNOWN = Meaning("")


def meaning_of(reason: str) -> Meaning:
    """What follows from a reason. A later version may have recorded one that this one lacks."""
    return MEANINGS.get(reason, _UNKNOWN)
