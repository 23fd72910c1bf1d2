"""The meaning of each reason in one sentence for users, independent of the action."""

from __future__ import annotations

from robots_guard.core.reasons import Reason

MEANINGS = {
    Reason.ALLOWED: "No rule that applies forbids it.",
    Reason.UNRESTRICTED: "The site has no robots.txt and so restricts nothing.",
    Reason.ROBOTS_TXT: "/robots.txt itself is always allowed.",
    Reason.NOT_GOVERNED: "robots.txt applies to http and https only.",
    Reason.BYPASSED: "The operator has exempted it with an override.",
    Reason.BLOCKED: "The operator has blocked this site.",
    Reason.DISALLOWED: "A rule of the site forbids it.",
    Reason.MIRROR: "This site is a mirror: its robots.txt names another main host.",
    Reason.RESTRICTED: "The site answers 401 or 403 for its robots.txt, which closes it to crawlers.",
    Reason.UNREACHABLE: "The site's robots.txt could not be fetched, so the URL may be forbidden.",
    Reason.CRAWL_DELAY: "The site asks for a delay between two requests.",
    Reason.REQUEST_RATE: "The site limits the rate of requests.",
    Reason.VISIT_TIME: "The site asks to be visited at other hours of the day.",
    Reason.RETRY_AFTER: "The site has asked for a pause (Retry-After).",
    Reason.MIN_DELAY: "The operator requires a delay between two requests.",
    Reason.MALFORMED_TARGET: "Servers could read this URL in different ways.",
    Reason.AMBIGUOUS_AUTHORITY: "It is not clear which host it is addressed to.",
    Reason.DESTINATION_REFUSED: "The operator has not allowed its address or port.",
    Reason.NOT_INTERCEPTED: "The proxy cannot see what the client requests in this connection.",
    Reason.NOT_HTTP: "It is not an HTTP request.",
    Reason.NOT_JUDGED: "It was changed after it had been permitted, or was never judged.",
    Reason.UNRECORDED: "The audit log could not be written.",
    Reason.INTERNAL_ERROR: "The guard itself failed and could not judge it.",
}
