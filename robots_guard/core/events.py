"""Events: what the journal keeps beside decisions. Plain values; who writes them down is the journal's business.

`at` is in seconds since 1970, `elapsed` in seconds.
"""

from __future__ import annotations

import msgspec

from robots_guard.core.access import FetchOutcome, Get
from robots_guard.origin import Origin


class FetchMade(msgspec.Struct, frozen=True, kw_only=True):
    """One hop of fetching an origin's robots.txt, and what came of it."""

    at: float
    origin: Origin
    get: Get
    outcome: FetchOutcome
    via: str
    elapsed: float


class StoreBegunAnew(msgspec.Struct, frozen=True, kw_only=True):
    """The policy store was damaged and has been replaced by an empty one."""

    at: float
    detail: str


class FailedOpen(msgspec.Struct, frozen=True, kw_only=True):
    """Something was let through that nothing vouches for: so many times, by leave of this setting."""

    at: float
    setting: str
    count: int
    detail: str = ""


class OverridesLoaded(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's exceptions were read: how many are in force, and what is wrong with the others.

    `sha256` is of the file's octets.
    """

    at: float
    source: str
    count: int
    sha256: str = ""
    problems: tuple[str, ...] = ()


Event = FetchMade | StoreBegunAnew | FailedOpen | OverridesLoaded
