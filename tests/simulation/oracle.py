"""The oracle: what a site's answers permit, by an implementation that shares no code with the
guard.

The documents of a plan have one group and plain prefixes, so the longest rule decides, and an Allow
wins over a Disallow of the same length (RFC 9309 section 2.2.2).
"""

from __future__ import annotations

from simulation.plan import Answer

OPEN, CLOSED, SILENT = "open", "closed", "silent"


def reads(answer: Answer, target: str) -> str:
    """Return what an answer to /robots.txt means for a target: OPEN, CLOSED, or SILENT if it is
    unreachable (section 2.3.1.4).
    """
    if target == "/robots.txt":
        return OPEN
    if answer.failure or answer.status in (429, 500, 503):
        return SILENT
    if answer.status in (401, 403):
        return CLOSED
    if answer.status != 200:
        return OPEN
    return CLOSED if _is_disallowed(answer.body.decode(), target) else OPEN


def is_reserved(tdmrep: str, target: str) -> bool:
    """Whether the tdmrep.json of a site, once it was obtained, reserves a target."""
    return tdmrep in ("reserved", "moved") and target.startswith("/a/")


def delay_of(answer: Answer) -> float:
    """Return the Crawl-delay of an answer, in seconds; 0 for none."""
    lines = answer.body.decode().splitlines() if answer.status == 200 else []
    return max(
        (float(line.partition(": ")[2]) for line in lines if line.startswith("Crawl-delay: ")),
        default=0.0,
    )


def usable_for(answer: Answer) -> float:
    """Return the seconds for which an answer may be used while the site is reachable.

    That is its lifetime, at least 5 minutes and at most a day, plus an hour within that day
    (section 2.4; RFC 9111 section 4.2; RFC 5861 section 3).
    """
    stated = 86_400.0 if answer.max_age is None else float(answer.max_age)
    return min(max(300.0, min(stated, 86_400.0)) + 3600.0, 86_400.0)


def fresh_for(answer: Answer) -> float:
    """Return the seconds for which an answer need not be fetched again."""
    stated = 86_400.0 if answer.max_age is None else float(answer.max_age)
    return max(300.0, min(stated, 86_400.0))


def _is_disallowed(text: str, target: str) -> bool:
    longest, disallowed = -1, False
    for line in text.splitlines():
        name, _, path = line.partition(": ")
        if name not in ("Allow", "Disallow") or not target.startswith(path):
            continue
        if len(path) > longest or (len(path) == longest and name == "Allow"):
            longest, disallowed = len(path), name == "Disallow"
    return disallowed
