"""Deferral: which requests may leave a scheduler now, and which wait in it.

Knows no scheduler, no clock, no host: `now` is an argument, in monotonic seconds. An origin and a group of its requests
are named by strings, a request by its ticket, which can be anything hashable. A ticket is out from `admit` until it is
sent, sent back, freed or ended. Each origin is in one state:

    Open     -> Probing    a request leaves, and the origin's policy is not known
    Open     -> Sending    a request leaves, and must be alone on its way: the origin wants time between requests, or
                           its policy has just been fetched, so that this request may be the one to shut it
    Open     -> Shut       nothing may leave until a moment
    Probing  -> Fetching   the policy is not known yet: the request goes back, and the policy is fetched
    Probing  -> Open       the request has been sent, sent back, refused, cancelled or lost
    Probing  -> Shut       likewise, and meanwhile the origin was shut until a moment
    Sending  -> Open       as above
    Sending  -> Shut
    Fetching -> Open       the policy has been fetched, or cannot be for now
    Fetching -> Shut
    Shut     -> Open       the moment has come

A group (the requests that one rule forbids for now, say) is only ever Open or Shut. Its requests may leave when both
it and the origin are Open.

Invariant: an origin that is not Open has a ticket out, a fetch under way, or a moment at which it opens.
Invariant: a Probing or Sending origin has one ticket out since it became so, a Fetching or Shut one none.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Self

from cachetools import LRUCache

SHORTEST = 0.05  # seconds an origin stays shut at least, so that going back and forth never becomes a busy loop
REMEMBERED = 10_000  # origins; a forgotten one is noted again by the next decision on it


@dataclass(frozen=True, slots=True)
class _NotOpen:
    """Nothing leaves before a moment, and in some states not after it either."""

    until: float

    def shut(self, until: float) -> Self:
        """Stay shut until then, or longer if that was set before."""
        return replace(self, until=max(self.until, until))


@dataclass(frozen=True, slots=True)
class Shut(_NotOpen):
    """Nothing leaves until a moment."""

    def settled(self, now: float) -> Shut | Open:
        """The state at `now`."""
        return self if self.until > now else OPEN


@dataclass(frozen=True, slots=True)
class _Busy(_NotOpen):
    """Something is under way, and nothing else leaves until it has ended and the moment has come."""

    def ended(self, now: float) -> Shut | Open:
        """What was under way is over."""
        return Shut(self.until).settled(now)


@dataclass(frozen=True, slots=True)
class Fetching(_Busy):
    """The policy is being fetched."""


@dataclass(frozen=True, slots=True)
class Probing(_Busy):
    """One request is out because the policy is not known."""

    ticket: Hashable

    def fetch(self) -> Fetching:
        """The policy has to be fetched."""
        return Fetching(self.until)


@dataclass(frozen=True, slots=True)
class Sending(_Busy):
    """One request is on its way to the wire, alone."""

    ticket: Hashable


@dataclass(frozen=True, slots=True)
class Open:
    """Requests leave as they come."""

    until: float = -math.inf

    def admit(self, ticket: Hashable, *, known: bool, alone: bool) -> Open | Probing | Sending:
        """A request leaves: with the others, or alone."""
        if not known:
            return Probing(self.until, ticket)
        return Sending(self.until, ticket) if alone else self

    def shut(self, until: float) -> Shut:
        """Let nothing leave until a moment."""
        return Shut(until)


State = Open | Shut | Probing | Sending | Fetching
OPEN = Open()


class Deferrals:
    """The states of all origins of one crawl.

    Of Open origins, the last `remembered` are kept that want time between requests, and as many whose policy has just
    been fetched. Their requests leave one at a time, which saves the others the way to the wire and back; the turns
    keep the delay in any case.
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._states: dict[str, Shut | Probing | Sending | Fetching] = {}  # of what is not Open
        self._out: dict[Hashable, str] = {}  # the origins of the tickets that are out alone
        self._moments: list[tuple[float, str]] = []  # a heap: one entry for each key that opens at a moment
        self._paced: LRUCache[str, bool] = LRUCache(remembered)
        self._fetched: LRUCache[str, bool] = LRUCache(remembered)

    def __len__(self) -> int:
        """How many origins and groups are not Open."""
        return len(self._states)

    def state(self, key: str) -> State:
        """The state of an origin or a group, as of the last event."""
        return self._states.get(key, OPEN)

    def is_open(self, origin: str, group: str = "") -> bool:
        """Whether requests may leave, as of the last event."""
        return origin not in self._states and group not in self._states

    def is_probing(self, ticket: Hashable) -> bool:
        """Whether the request is out because its policy was not known."""
        origin = self._out.get(ticket)
        return origin is not None and isinstance(self._states[origin], Probing)

    # -- time ---------------------------------------------------------------------------------------------

    @property
    def due(self) -> float | None:
        """When to call `settle` at the latest, so that nothing waits for longer than it must."""
        return self._moments[0][0] if self._moments else None

    def settle(self, now: float) -> None:
        """Open what was shut until a moment that has passed."""
        while self._moments and self._moments[0][0] <= now:
            _, key = heappop(self._moments)
            state = self._states.get(key)
            if state is not None and state.until > now:  # it has been shut for longer since
                heappush(self._moments, (state.until, key))
            elif isinstance(state, Shut):
                del self._states[key]

    # -- requests -----------------------------------------------------------------------------------------

    def admit(self, ticket: Hashable, origin: str, now: float, *, known: bool, group: str = "") -> bool:
        """Whether a request may leave; it may then have to go alone. `known`: whether its policy is known."""
        self.settle(now)
        if not self.is_open(origin, group):
            return False
        self.free(ticket, now)  # of a request that comes round though it is still out
        is_first = self._fetched.pop(origin, False)  # it is not probed again: the policy may be one that is not kept
        state = OPEN.admit(ticket, known=known or is_first, alone=is_first or self._paced.get(origin, False))
        if not isinstance(state, Open):
            self._states[origin] = state
            self._out[ticket] = origin
        return True

    def free(self, ticket: Hashable, now: float) -> bool:
        """The request no longer needs its origin to itself: it goes on with others, or it has ended in any way.
        Returns whether it was alone until now."""
        origin = self._out.pop(ticket, None)
        if origin is not None:
            self._end(origin, now)
        return origin is not None

    def sent(self, ticket: Hashable, origin: str, delay: float, now: float) -> None:
        """The request is on the wire; the origin's next may follow in `delay` seconds."""
        self.shut(origin, now + delay, now)
        self.free(ticket, now)

    def send_back(self, ticket: Hashable, key: str, wait: float, now: float) -> None:
        """Send the request back to the scheduler; shut what it waits for, its origin or group, for `wait` seconds."""
        self.shut(key, now + max(SHORTEST, wait), now)
        self.free(ticket, now)

    def shut(self, key: str, until: float, now: float) -> None:
        """Let nothing of an origin or a group leave until a moment, or a later one that was set before."""
        self.settle(now)
        if until <= now:
            return
        state = self._states.get(key, OPEN)
        if state.until <= now:
            heappush(self._moments, (until, key))
        self._states[key] = state.shut(until)

    # -- policies -----------------------------------------------------------------------------------------

    def fetch(self, ticket: Hashable) -> str:
        """The probing request goes back, and nothing leaves until the policy is `fetched`. Returns its origin."""
        origin = self._out.pop(ticket)
        state = self._states[origin]
        assert isinstance(state, Probing)
        self._states[origin] = state.fetch()
        return origin

    def fetched(self, origin: str, now: float) -> None:
        """The origin's policy is known, or will not be for now."""
        if isinstance(self._states.get(origin), Fetching):
            self._fetched[origin] = True
            self._end(origin, now)

    def _end(self, origin: str, now: float) -> None:
        self.settle(now)
        state = self._states.pop(origin)
        assert isinstance(state, _Busy)
        following = state.ended(now)
        if isinstance(following, Shut):
            self._states[origin] = following

    @property
    def has_paced(self) -> bool:
        """Whether any origin is known to want time between requests."""
        return bool(self._paced)

    def note_paced(self, origin: str) -> None:
        """Note that the origin wants time between requests."""
        self._paced[origin] = True

    def note_unpaced(self, origin: str) -> None:
        """Note that the origin wants no time between requests, or no longer."""
        self._paced.pop(origin, None)

    def clear(self) -> None:
        """Forget everything: the crawl is over."""
        for kept in (self._states, self._out, self._moments, self._paced, self._fetched):
            kept.clear()


def group_due(at: float, wait: float) -> float:
    """The moment at which a request that is deferred at `at` for `wait` seconds is judged again, with all others of its
    origin that are due at about the same time. So later arrivals do not bury what is due, and there are never more than
    about seventeen such groups."""
    grain = 2.0 ** math.floor(math.log2(max(wait, SHORTEST) / 8))
    return math.ceil((at + wait) / grain) * grain
