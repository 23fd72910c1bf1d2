"""Deferral: which requests may leave a scheduler now, and which wait in it.

It uses no scheduler, clock or framework: `now` is an argument, in monotonic seconds. Strings name
an origin and a group of its requests; any hashable ticket identifies a request. A ticket is out
from `admit` until it is sent, sent back, freed or ended. Each origin is in one state:

    Open     -> Probing    a request leaves while the origin's policy is not known
    Open     -> Sending    a request leaves alone: the origin requires a delay, or its policy has
                           just been fetched, so that this request may reveal that it does
    Open     -> Shut       nothing may leave before a given moment
    Probing  -> AwaitingPolicy   the policy is not known: the request goes back, the policy is fetched
    Probing  -> Open       the request has been sent, sent back, refused, cancelled or lost
    Probing  -> Shut       likewise, and meanwhile the origin was shut until a moment
    Sending  -> Open       as above
    Sending  -> Shut
    AwaitingPolicy -> Open       the policy has been fetched, or cannot be fetched for now
    AwaitingPolicy -> Shut
    Shut     -> Open       the moment has come

A group (such as the requests that one rule forbids for now) is either Open or Shut. Its requests
may leave when both the group and the origin are Open.

Invariant: an origin that is not Open has a ticket out, a fetch in progress, or a time at which it
opens.
Invariant: a Probing or Sending origin has exactly one ticket out since it entered that state; an
AwaitingPolicy or Shut origin has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Self

from cachetools import LRUCache

#: Seconds an origin stays shut at least, so that requeuing never becomes a busy loop.
SHORTEST = 0.05
REMEMBERED = 10_000  # origins; the next decision on a forgotten one notes it again


@dataclass(frozen=True, slots=True)
class _NotOpen:
    """A state in which nothing leaves before `until`, and in some states not after it either."""

    until: float

    def shut(self, until: float) -> Self:
        """Stay shut until this moment, or until a later one that was set before."""
        return replace(self, until=max(self.until, until))


@dataclass(frozen=True, slots=True)
class Shut(_NotOpen):
    """The origin is closed until a moment."""

    def settled(self, now: float) -> Shut | Open:
        """The state at `now`."""
        if self.until > now:
            return self
        return OPEN


@dataclass(frozen=True, slots=True)
class _Busy(_NotOpen):
    """An operation is in progress; nothing else leaves until it has ended and `until` has
    passed."""

    def ended(self, now: float) -> Shut | Open:
        """The state after the operation has ended."""
        return Shut(self.until).settled(now)


@dataclass(frozen=True, slots=True)
class AwaitingPolicy(_Busy):
    """The policy is being fetched."""


@dataclass(frozen=True, slots=True)
class Probing(_Busy):
    """One request is out, although the policy is not known, to find it out."""

    ticket: Hashable

    def fetch(self) -> AwaitingPolicy:
        """The state while the policy is fetched."""
        return AwaitingPolicy(self.until)


@dataclass(frozen=True, slots=True)
class Sending(_Busy):
    """One request is on its way to the wire, alone."""

    ticket: Hashable


@dataclass(frozen=True, slots=True)
class Open:
    """Requests leave as they arrive."""

    until: float = -math.inf

    def admit(self, ticket: Hashable, *, known: bool, alone: bool) -> Open | Probing | Sending:
        """The state after a request has left, alone or among others."""
        if not known:
            return Probing(self.until, ticket)
        if alone:
            return Sending(self.until, ticket)
        return self

    def shut(self, until: float) -> Shut:
        """The state in which nothing leaves until a moment."""
        return Shut(until)


State = Open | Shut | Probing | Sending | AwaitingPolicy
OPEN = Open()


class Deferrals:
    """The states of all origins of one crawl.

    Among Open origins, the last `remembered` that require a delay are kept, and as many whose
    policy has just been fetched. Their requests leave one at a time, so that the rest do not travel
    to the wire only to be sent back. Turns enforce the delay in any case.

    `on_change` is called with each origin or group that has become Open, or is no longer.
    """

    def __init__(
        self, remembered: int = REMEMBERED, on_change: Callable[[str], None] | None = None
    ) -> None:
        self._on_change = on_change
        self._states: dict[str, Shut | Probing | Sending | AwaitingPolicy] = {}  # those not Open
        self._out: dict[Hashable, str] = {}  # ticket that is out alone -> origin
        self._moments: list[tuple[float, str]] = []  # a heap with one entry per key that is shut
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

    def may_open_by(self, moment: float, origin: str, group: str = "") -> bool:
        """Whether requests may leave by this moment, as far as is known: an operation in progress
        may end at any time."""
        states = (self.state(origin), self.state(group))
        return all(isinstance(state, _Busy) or state.until <= moment for state in states)

    def opening(self, origin: str, group: str = "") -> float:
        """The moment before which nothing leaves; it may be in the past."""
        return max(self.state(origin).until, self.state(group).until)

    def is_probing(self, ticket: Hashable) -> bool:
        """Whether the request is out because its policy was not known."""
        origin = self._out.get(ticket)
        return origin is not None and isinstance(self._states[origin], Probing)

    # -- time --------------------------------------------------------------------------------------

    @property
    def due(self) -> float | None:
        """The latest moment to call `settle`, so that nothing waits longer than necessary."""
        if self._moments:
            return self._moments[0][0]
        return None

    def settle(self, now: float) -> None:
        """Open every origin and group whose moment has passed."""
        while self._moments and self._moments[0][0] <= now:
            _, key = heappop(self._moments)
            state = self._states.get(key)
            if state is not None and state.until > now:  # the time was extended
                heappush(self._moments, (state.until, key))
            elif isinstance(state, Shut):
                self._set_state(key, OPEN)

    # -- requests ----------------------------------------------------------------------------------

    def admit(
        self, ticket: Hashable, origin: str, now: float, *, known: bool, group: str = ""
    ) -> bool:
        """Let a request leave if it may, perhaps alone; return whether it may.

        `known`: whether the origin's policy is known.
        """
        self.settle(now)
        if not self.is_open(origin, group):
            return False
        self.free(ticket, now)  # the request may be scheduled again while it is still out
        # The origin is not probed again: the policy may be uncacheable.
        is_first = self._fetched.pop(origin, False)
        alone = is_first or self._paced.get(origin, False)
        state = OPEN.admit(ticket, known=known or is_first, alone=alone)
        if not isinstance(state, Open):
            self._out[ticket] = origin
            self._set_state(origin, state)
        return True

    def free(self, ticket: Hashable, now: float) -> bool:
        """Note that the request no longer needs to be alone, or has ended. Returns whether it was
        alone."""
        origin = self._out.pop(ticket, None)
        if origin is not None:
            self._end(origin, now)
        return origin is not None

    def send_back(self, ticket: Hashable, key: str, wait: float, now: float) -> None:
        """Send the request back to the scheduler, and shut its origin or group (`key`) for `wait`
        seconds."""
        self.shut(key, now + max(SHORTEST, wait), now)
        self.free(ticket, now)

    def shut(self, key: str, until: float, now: float) -> None:
        """Shut an origin or a group until a moment, or until a later one that was set before."""
        self.settle(now)
        if until <= now:
            return
        state = self._states.get(key, OPEN)
        if state.until <= now:
            heappush(self._moments, (until, key))
        self._set_state(key, state.shut(until))

    # -- policies ----------------------------------------------------------------------------------

    def fetch(self, ticket: Hashable) -> str:
        """Take the probing request back and shut its origin until the policy is `fetched`. Returns
        the origin."""
        origin = self._out.pop(ticket)
        state = self._states[origin]
        assert isinstance(state, Probing)
        self._states[origin] = state.fetch()
        return origin

    def fetched(self, origin: str, now: float) -> None:
        """Note that the origin's policy is known, or cannot be fetched for now."""
        if isinstance(self._states.get(origin), AwaitingPolicy):
            self._fetched[origin] = True
            self._end(origin, now)

    def _end(self, origin: str, now: float) -> None:
        self.settle(now)
        state = self._states[origin]
        assert isinstance(state, _Busy)
        self._set_state(origin, state.ended(now))

    def _set_state(self, key: str, state: State) -> None:
        was_open = key not in self._states
        if isinstance(state, Open):
            self._states.pop(key, None)
        else:
            self._states[key] = state
        if self._on_change is not None and was_open != isinstance(state, Open):
            self._on_change(key)

    @property
    def is_quiet(self) -> bool:
        """Whether no origin is known to require a delay, and no request is out alone."""
        return not self._out and not self._paced

    def note_paced(self, origin: str) -> None:
        """Note that the origin requires a delay between requests."""
        self._paced[origin] = True

    def note_unpaced(self, origin: str) -> None:
        """Note that the origin requires no delay, or no longer requires one."""
        self._paced.pop(origin, None)

    def clear(self) -> None:
        """Forget everything, because the crawl is over."""
        for kept in (self._out, self._moments, self._paced, self._fetched):
            kept.clear()
        for key in tuple(self._states):
            self._set_state(key, OPEN)


def group_due(at: float, wait: float) -> float:
    """The moment at which a request deferred at `at` for `wait` seconds is judged again.

    It is rounded up, so that requests of an origin that are due at about the same time form a
    group. Later arrivals then do not bury those that are due, and an origin has at most about
    seventeen groups.
    """
    grain = 2.0 ** math.floor(math.log2(max(wait, SHORTEST) / 8))
    return math.ceil((at + wait) / grain) * grain
