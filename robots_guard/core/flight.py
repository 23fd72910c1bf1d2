"""A flight: one renewal an origin, among all the processes that share a store.

Knows no clock, no store, no host. The asker has looked and found nothing to go by; what follows is the
double-checked lease, because between looking and taking it another may have fetched:

    begin    -> Taking      a place among this guard's fetches, and the origin's lease
    Taking   -> Looking     whether it was got or not: what does the store hold now?
    Looking  -> Found       another process has renewed the policy
    Looking  -> Granted     it has not, and the lease is ours, or our patience at an end: fetch, put, release
    Looking  -> Waiting     it has not, and another holds the lease
    Waiting  -> Taking      the other may have ended, or died: a lease ends by itself

A lost or double lease costs one fetch too many, never a wrong verdict: a policy fetched earlier never replaces
one fetched later. So nobody waits for ever for a lease that does not end, because somebody has forged it, or
because holder after holder dies.
"""

from __future__ import annotations

from dataclasses import dataclass

from robots_guard.core.freshness import Freshness
from robots_guard.core.policy import Policy
from robots_guard.rep.dialect import Dialect

FIRST_PAUSE, LONGEST_PAUSE = 0.020, 0.250  # seconds between two looks at another's lease


@dataclass(frozen=True, slots=True)
class Found:
    """The end: this is what another process has put."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class Granted:
    """The end: ours to fetch. `held` is the latest policy known."""

    held: Policy | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Wants `pause` seconds to pass."""

    held: Policy | None
    dialect: Dialect
    patience: float
    pause: float

    def next(self) -> Taking:
        """Try again; the next pause is twice as long."""
        return Taking(self.held, self.dialect, self.patience - self.pause, min(2 * self.pause, LONGEST_PAUSE))


@dataclass(frozen=True, slots=True)
class Looking:
    """Wants the policy the store holds, or None."""

    held: Policy | None
    dialect: Dialect
    patience: float
    pause: float
    leased: bool

    def next(self, found: Policy | None, now: float) -> Found | Granted | Waiting:
        """Take what another has fetched since, else fetch, else wait."""
        if found is not None and self._renews(found, now):
            return Found(found)
        if not self.leased and self.patience > 0:
            return Waiting(self.held, self.dialect, self.patience, self.pause)
        return Granted(self.held if found is None or self._is_later_than(found) else found)

    def _renews(self, found: Policy, now: float) -> bool:
        """Whether it is fresh, and another than the one that was not good enough."""
        if found.freshness(now, self.dialect) is not Freshness.FRESH:
            return False
        held = self.held
        return held is None or held.freshness(now, self.dialect) is Freshness.EXPIRED or not self._is_later_than(found)

    def _is_later_than(self, found: Policy) -> bool:
        return self.held is not None and self.held.settled_at >= found.settled_at


@dataclass(frozen=True, slots=True)
class Taking:
    """Wants the lease; whether it was got. `patience` is how many seconds may still be spent on waiting."""

    held: Policy | None
    dialect: Dialect
    patience: float
    pause: float = FIRST_PAUSE

    def next(self, leased: bool) -> Looking:
        """Look again."""
        return Looking(self.held, self.dialect, self.patience, self.pause, leased)


State = Taking | Looking | Waiting | Found | Granted


def begin(held: Policy | None, dialect: Dialect, patience: float) -> Taking:
    """The flight that is to renew `held`, by the freshness of a dialect. It waits for `patience` seconds at most."""
    return Taking(held, dialect, patience)
