"""How long a copy of robots.txt may be used (RFC 9309 section 2.4, RFC 9111 section 4.2).

The origin's own clock is used for nothing but the differences it states; else our clock, which is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import Enum

from robots_guard.rep.dialect import Dialect

CLOCK_SKEW = 300.0  # a copy from further in the future than this was stamped by a clock that has since jumped
STALE_WHILE_REVALIDATE = 3600.0  # RFC 5861 section 3, inside the dialect's cap
STALE_IF_ERROR = 30 * 86400.0  # RFC 9309 section 2.3.1.4 speaks of 30 days
RETRY_MIN, RETRY_MAX = 30.0, 3600.0
LONGEST_BACKOFF = RETRY_MAX * 1.25  # see `backoff`
UNTRIED = 900.0  # seconds without a try that was due, after which a failure is the first of another trouble
_OVERFLOW = 2.0**31  # RFC 9111 section 1.2.2


class Freshness(Enum):
    """Fresh: use it. Stale: use it while it is renewed. Expired: renew it first."""

    FRESH = "fresh"
    STALE = "stale"
    EXPIRED = "expired"


def stated_lifetime(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds for which the answer says it is fresh, counted from its arrival at `now`; None if it says nothing.

    no-cache, no-store and whatever cannot be read are 0: the dialect's floor then holds.
    """
    directives = _directives(headers.get("cache-control", ""))
    if "no-cache" in directives or "no-store" in directives:
        return 0.0
    if "max-age" in directives:
        return max(0.0, _seconds(directives["max-age"]) - _seconds(_first(headers.get("age", "0"))))
    if "expires" in headers:
        sent = _moment(headers.get("date", "")) or now  # RFC 9110 section 6.6.1: without a Date, when it came
        return min(max(0.0, _moment(headers["expires"]) - sent), _OVERFLOW)
    return None


def lifetime(stated: float | None, dialect: Dialect) -> float:
    """The lifetime a dialect gives a copy, from what HTTP stated: clamped between its floor and its cap."""
    seconds = dialect.lifetime if stated is None else stated
    if dialect.lifetime_cap is not None:
        seconds = min(seconds, dialect.lifetime_cap)
    return max(seconds, dialect.lifetime_floor)


def freshness(age: float, stated: float | None, dialect: Dialect) -> Freshness:
    """Of a copy `age` seconds old."""
    fresh_for = lifetime(stated, dialect)
    if age < -CLOCK_SKEW:
        return Freshness.EXPIRED
    if age < fresh_for:
        return Freshness.FRESH
    usable_for = fresh_for + STALE_WHILE_REVALIDATE
    if dialect.lifetime_cap is not None:
        usable_for = min(usable_for, dialect.lifetime_cap)
    return Freshness.STALE if age < usable_for else Freshness.EXPIRED


def backoff(attempts: int, spread: float) -> float:
    """Seconds to the next try after `attempts` failures: 30 s doubling to 1 h, times 1 to 1.25 by `spread` in 0..1."""
    return min(RETRY_MAX, RETRY_MIN * 2.0 ** min(attempts - 1, 16)) * (1 + spread / 4)


def retry_after(headers: Mapping[str, str], now: float) -> float:
    """Seconds asked for by Retry-After (RFC 9110 section 10.2.3), at most 1 h; 0 if absent or unreadable."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return 0.0
    first = _first(text)  # a date has a comma, too, but no number before it
    wait = _seconds(first) if first.isascii() and first.isdigit() else _moment(text) - now
    return min(max(0.0, wait), RETRY_MAX)


def asked_to_wait(status: int, headers: Mapping[str, str], now: float) -> float:
    """Seconds for which an answer asks to be left alone (RFC 9110 section 10.2.3, RFC 6585 section 4); 0 if it does
    not. `headers` has lower-case names."""
    return retry_after(headers, now) if status in (429, 503) else 0.0


def _directives(text: str) -> dict[str, str]:
    """By name; of one said twice, what was said first (RFC 9111 section 4.2.1)."""
    parts = (part.partition("=") for part in reversed(text.split(",")))
    return {name.strip().lower(): value.strip().strip('"') for name, _, value in parts}


def _first(text: str) -> str:
    """Of a field that was sent twice, the first (RFC 9111 section 5.1)."""
    return text.partition(",")[0].strip()


def _seconds(text: str) -> float:
    if not (text.isascii() and text.isdigit()):
        return 0.0
    return min(float(text[:20]), _OVERFLOW)


def _moment(text: str) -> float:
    """An HTTP date as seconds since 1970; 0 when it cannot be read, so that nothing is fresh for its sake."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):
        return 0.0
