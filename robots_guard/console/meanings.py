"""What each reason means, in one sentence, whatever the action: for whoever did not write the code."""

from __future__ import annotations

from robots_guard.core.verdict import Reason

MEANINGS = {
    Reason.ALLOWED: "No rule that applies forbids it.",
    Reason.UNRESTRICTED: "The site has no robots.txt, so nothing is asked of crawlers.",
    Reason.ROBOTS_TXT: "/robots.txt itself is always open.",
    Reason.NOT_GOVERNED: "robots.txt speaks of http and https only.",
    Reason.BYPASSED: "The operator exempted it.",
    Reason.BLOCKED: "The operator wants nothing of this site.",
    Reason.DISALLOWED: "A rule of the site forbids it.",
    Reason.MIRROR: "The site names another host as its main one.",
    Reason.RESTRICTED: "The site answers 401 or 403 for its robots.txt: it wants no crawlers.",
    Reason.UNREACHABLE: "The site's rules could not be had; only the operator can let pass what they may forbid.",
    Reason.CRAWL_DELAY: "The site asks for a pause between two requests.",
    Reason.REQUEST_RATE: "The site asks for so many requests in a time and no more.",
    Reason.VISIT_TIME: "The site asks to be visited at other times of the day.",
    Reason.RETRY_AFTER: "The site has asked to be left alone for a while.",
    Reason.MIN_DELAY: "The operator wants a pause between two requests.",
    Reason.MALFORMED_TARGET: "Two servers could read this URL as two different ones.",
    Reason.AMBIGUOUS_AUTHORITY: "It is not certain which host it is meant for.",
    Reason.DESTINATION_REFUSED: "The operator has not allowed its address or port.",
    Reason.NOT_INTERCEPTED: "Its client lets nobody see what it asks for.",
    Reason.NOT_HTTP: "It is no HTTP request.",
    Reason.NOT_JUDGED: "It had been changed after it was let pass, or was never judged.",
    Reason.UNRECORDED: "The journal that must tell of it could not be written.",
    Reason.INTERNAL_ERROR: "The guard failed, and could not judge.",
}
