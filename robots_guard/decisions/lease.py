"""The lease: one renewal per origin at a time among all processes that share a store.

This state machine uses no clock, store or framework. It starts when the store had no usable policy,
and checks the store again after acquiring the lease, because another process may have fetched in
between (double-checked locking):

    begin    -> Taking      acquire a slot among this guard's fetches, and the origin's lease
    Taking   -> Looking     acquired or not: check the store again (in the same call)
    Looking  -> Found       another process has renewed the policy
    Looking  -> Granted     none has, and the lease is acquired or patience is used up: fetch
    Looking  -> Waiting     none has, and another process holds the lease
    Waiting  -> Taking      the holder may have finished or died: a lease expires by itself

A lost or duplicate lease costs one extra fetch, never a wrong verdict: a policy fetched earlier
never replaces one fetched later. Waiting is therefore bounded, even if a lease is forged or its
holders keep dying.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from robots_guard.decisions.freshness import Freshness
from robots_guard.decisions.policy import Policy
from robots_guard.protocol.dialect import Dialect

FIRST_PAUSE, LONGEST_PAUSE = 0.020, 0.250  # seconds between two attempts to acquire the lease


class Taken(NamedTuple):
    """A store's reply to a process that asks for a lease.

    `is_ours`: whether it has the lease now. `policy`: the stored policy, read after that. `damage`:
    why the stored value cannot be used, as the end of a sentence; empty if it can.
    """

    is_ours: bool
    policy: Policy | None = None
    damage: str = ""


class Needs(NamedTuple):
    """What a policy must meet to be used: the freshness of a dialect, and perhaps reservations."""

    dialect: Dialect
    reservations: bool = False

    def freshness(self, policy: Policy, now: float) -> Freshness:
        """Whether the policy may be used at `now`, and whether it must be renewed."""
        return policy.freshness(now, self.dialect, needs_reservations=self.reservations)


class Found(msgspec.Struct, frozen=True):
    """Final state: the policy that another process has stored."""

    policy: Policy


class Granted(msgspec.Struct, frozen=True):
    """Final state: this process is to fetch. `cached` is the latest policy known."""

    cached: Policy | None


class Waiting(msgspec.Struct, frozen=True):
    """Needs `pause` seconds to pass."""

    cached: Policy | None
    needs: Needs
    patience: float
    pause: float

    def next(self) -> Taking:
        """Try again; the next pause is twice as long."""
        next_pause = min(2 * self.pause, LONGEST_PAUSE)
        return Taking(self.cached, self.needs, self.patience - self.pause, next_pause)


class Looking(msgspec.Struct, frozen=True):
    """Needs the policy that the store had when it was asked for the lease, or None."""

    cached: Policy | None
    needs: Needs
    patience: float
    pause: float
    leased: bool

    def next(self, found: Policy | None, now: float) -> Found | Granted | Waiting:
        """Use what another process has fetched since; otherwise wait for the lease, or fetch."""
        if found is not None and self._is_renewal(found, now):
            return Found(found)
        if not self.leased and self.patience > 0:
            return Waiting(self.cached, self.needs, self.patience, self.pause)
        if found is None or self._is_later_than(found):
            return Granted(self.cached)
        return Granted(found)

    def _is_renewal(self, found: Policy, now: float) -> bool:
        """Whether a policy is fresh and not the one that was to be renewed."""
        if self.needs.freshness(found, now) is not Freshness.FRESH:
            return False
        if self.cached is None or self.needs.freshness(self.cached, now) is Freshness.EXPIRED:
            return True
        return not self._is_later_than(found)

    def _is_later_than(self, found: Policy) -> bool:
        return self.cached is not None and self.cached.settled_at >= found.settled_at


class Taking(msgspec.Struct, frozen=True):
    """Needs to know whether the lease was acquired. `patience` is how many seconds may still be
    waited."""

    cached: Policy | None
    needs: Needs
    patience: float
    pause: float = FIRST_PAUSE

    def next(self, leased: bool) -> Looking:
        """Check the store again."""
        return Looking(self.cached, self.needs, self.patience, self.pause, leased)


State = Taking | Looking | Waiting | Found | Granted


def begin(
    cached: Policy | None,
    dialect: Dialect,
    patience: float,
    *,
    needs_reservations: bool = False,
) -> Taking:
    """The first state of renewing `cached`, judged by a dialect's freshness. It waits at most
    `patience` seconds."""
    return Taking(cached, Needs(dialect, needs_reservations), patience)
