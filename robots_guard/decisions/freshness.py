"""How long a copy of robots.txt may be used (RFC 9309 section 2.4, RFC 9111 section 4.2).

The origin's clock is used only for the difference between its Expires and its Date; everything else
is measured by the local clock, which is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from robots_guard.protocol.dialect import Dialect

CLOCK_SKEW = 300.0  # seconds; a copy from further in the future means that a clock has jumped
STALE_WHILE_REVALIDATE = 3600.0  # RFC 5861 section 3, within the dialect's cap
STALE_IF_ERROR = 30 * 86400.0  # RFC 9309 section 2.3.1.4 suggests 30 days
RETRY_MIN, RETRY_MAX = 1.0, 3600.0
ROUTE_RETRY_MIN = 0.05  # seconds until another route is tried at the earliest
LONGEST_BACKOFF = RETRY_MAX * 1.25  # see `backoff`
UNTRIED = 900.0  # seconds an overdue retry may be late before a failure counts as a new trouble
_OVERFLOW = 2.0**31  # RFC 9111 section 1.2.2


class Freshness(StrEnum):
    """Fresh: use the copy. Stale: use it while it is renewed. Expired: renew it first."""

    FRESH = "fresh"
    STALE = "stale"
    EXPIRED = "expired"


def stated_lifetime(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds of freshness that a response states, counted from its arrival at `now`; None if it
    states none.

    no-cache, no-store and unreadable values give 0, so that the dialect's minimum applies.
    """
    directives = _directives(headers.get("cache-control", ""))
    if "no-cache" in directives or "no-store" in directives:
        return 0.0
    if "max-age" in directives:
        return max(0.0, _seconds(directives["max-age"]) - _seconds(_first(headers.get("age", "0"))))
    if "expires" in headers:
        # Without a Date field, the arrival counts (RFC 9110 section 6.6.1).
        sent = _moment(headers.get("date", "")) or now
        return min(max(0.0, _moment(headers["expires"]) - sent), _OVERFLOW)
    return None


def lifetime(stated: float | None, dialect: Dialect) -> float:
    """The lifetime of a copy in a dialect: the stated one, clamped between the dialect's minimum
    and cap."""
    seconds = dialect.lifetime if stated is None else stated
    if dialect.lifetime_cap is not None:
        seconds = min(seconds, dialect.lifetime_cap)
    return max(seconds, dialect.lifetime_floor)


def freshness(age: float, stated: float | None, dialect: Dialect) -> Freshness:
    """The freshness of a copy that is `age` seconds old."""
    fresh_for = lifetime(stated, dialect)
    if age < -CLOCK_SKEW:
        return Freshness.EXPIRED
    if age < fresh_for:
        return Freshness.FRESH
    usable_for = fresh_for + STALE_WHILE_REVALIDATE
    if dialect.lifetime_cap is not None:
        usable_for = min(usable_for, dialect.lifetime_cap)
    if age < usable_for:
        return Freshness.STALE
    return Freshness.EXPIRED


def backoff(attempts: int, spread: float) -> float:
    """Seconds until the next try after `attempts` failures, whatever they are about.

    1 s, because most failures are short, doubling up to 1 h, times 1 to 1.25 by `spread` in 0..1.
    """
    return min(RETRY_MAX, RETRY_MIN * 2.0 ** min(attempts - 1, 16)) * (1 + spread / 4)


def until_other_route(failing: float) -> float:
    """Seconds until another route is tried, after routes have failed for `failing` seconds.

    A crawl that picks a parent proxy at random meets one that works after a few tries, so the tries
    begin close together. A sixteenth of the time that has passed makes them a geometric series, of
    about 150 in an hour if no route works.
    """
    return max(ROUTE_RETRY_MIN, failing / 16)


def retry_after(headers: Mapping[str, str], now: float) -> float:
    """Seconds that Retry-After requests (RFC 9110 section 10.2.3), at most 1 h; 0 if absent or
    unreadable."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return 0.0
    wait = _moment(text) - now
    first = _first(text)  # a date also contains a comma, but no number before it
    if first.isascii() and first.isdigit():
        wait = _seconds(first)
    return min(max(0.0, wait), RETRY_MAX)


#: The statuses whose Retry-After is a pause. A site that asks for payment is not paid, so that
#: nothing changes until then.
PAUSE_STATUSES = frozenset((402, 429, 503))


def asked_to_wait(status: int, headers: Mapping[str, str], now: float) -> float:
    """Seconds of the pause that a response requests, or 0 (RFC 9110 section 10.2.3, RFC 6585
    section 4).

    `headers` has lower-case names.
    """
    if status in PAUSE_STATUSES:
        return retry_after(headers, now)
    return 0.0


def _directives(text: str) -> dict[str, str]:
    """The directives by name; the first of a repeated one counts (RFC 9111 section 4.2.1)."""
    parts = (part.partition("=") for part in reversed(text.split(",")))
    return {name.strip().lower(): value.strip().strip('"') for name, _, value in parts}


def _first(text: str) -> str:
    """The first value of a repeated field (RFC 9111 section 5.1)."""
    return text.partition(",")[0].strip()


def _seconds(text: str) -> float:
    if not (text.isascii() and text.isdigit()):
        return 0.0
    return min(float(text[:20]), _OVERFLOW)


def _moment(text: str) -> float:
    """An HTTP date as seconds since 1970; 0 if unreadable, so that it makes nothing fresh."""
    from email.utils import parsedate_to_datetime  # takes long to import, and few responses need it

    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):
        return 0.0
