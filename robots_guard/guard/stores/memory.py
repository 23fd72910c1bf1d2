"""Policies and turns in memory: policies in an LRU cache bounded by bytes rather than by count, and the
last turn of each origin in another one.

Every guard also keeps a store of this kind as its local cache in front of the shared store: reading
it never blocks. Evicting the turn of an origin is safe: by then, 100,000 other origins have been
requested since.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable

from cachetools import LRUCache

from robots_guard.decisions.pacing import (
    Places,
    Turn,
    Wait,
    as_wait,
    moved_stamp,
    next_turn,
    queue_turn,
)
from robots_guard.decisions.policy import Policy
from robots_guard.origin import Origin

ORIGINS = 100_000


class MemoryTurns:
    """A TurnStore for the threads of one process."""

    def __init__(self, origins: int = ORIGINS) -> None:
        self._last: LRUCache[Origin, float] = LRUCache(origins)
        self._not_before: LRUCache[Origin, float] = LRUCache(origins)
        self._lines: LRUCache[Origin, Places] = LRUCache(origins)
        self._has_pauses = False
        self.reset_after_fork()
        _all.add(self)

    def reset_after_fork(self) -> None:
        """Create an unlocked lock: a forked child has none of the threads that could release the
        parent's.
        """
        self._lock = threading.Lock()

    def reserve(
        self, origin: Origin, delay: float, now: Callable[[], float], name: str = ""
    ) -> Turn | Wait:
        """Take the origin's turn, or return how long to wait for it."""
        with self._lock:
            at = now()
            reply = self._next(origin, delay, at)
            turn, self._lines[origin] = queue_turn(
                self._lines.get(origin, ()), name, reply, delay, at
            )
            if isinstance(turn, Turn):
                self._last[origin] = turn.stamp
            return turn

    def next_turn(self, origin: Origin, delay: float, now: float) -> Turn | Wait:
        """Return what `reserve` would return, without taking the turn."""
        with self._lock:
            return self._next(origin, delay, now)

    def _next(self, origin: Origin, delay: float, now: float) -> Turn | Wait:
        return next_turn(
            self._last.get(origin, -math.inf), self._not_before.get(origin, -math.inf), delay, now
        )

    def move_turn(self, origin: Origin, stamp: float, since: float) -> bool:
        """Re-stamp the turn, if it is still the last."""
        with self._lock:
            is_last = self._last.get(origin) == stamp
            if is_last:
                self._last[origin] = moved_stamp(stamp, since)
            return is_last

    def note_pause(self, origin: Origin, seconds: float, now: float) -> None:
        """Grant no turn for `seconds` from now. Never shortens an earlier pause."""
        with self._lock:
            self._not_before[origin] = now + max(seconds, self._pause(origin, now))
            self._has_pauses = True

    def is_paused(self, origin: Origin, now: Callable[[], float]) -> bool:
        """Whether the origin is paused now. Cheap until an origin asks for a pause."""
        if not self._has_pauses:
            return False
        with self._lock:
            return self._pause(origin, now()) > 0

    def _pause(self, origin: Origin, now: float) -> float:
        """Return how long the origin is still held off, in seconds."""
        return as_wait(
            next_turn(-math.inf, self._not_before.get(origin, -math.inf), 0.0, now)
        ).pause


_all: weakref.WeakSet[MemoryTurns] = weakref.WeakSet()


def _reset_all_after_fork() -> None:
    for turns in list(_all):
        turns.reset_after_fork()


os.register_at_fork(after_in_child=_reset_all_after_fork)


DEFAULT_SIZE = 64 * 1024 * 1024  # bytes


class MemoryStore(MemoryTurns):
    """A bounded LRU cache of policies, and the turns of each origin.

    `get` takes no lock, because every question comes there: each of its steps is one operation of
    the dict. Methods that change the policies hold the lock.
    """

    def __init__(self, max_bytes: int = DEFAULT_SIZE) -> None:
        super().__init__()
        self._max_bytes = max_bytes
        self._bytes = 0
        self._policies: OrderedDict[Origin, Policy] = OrderedDict()  # the last used last

    def reset_after_fork(self) -> None:
        """Create unlocked locks, as MemoryTurns does after a fork."""
        super().reset_after_fork()
        self._policies_lock = threading.Lock()

    def get(self, origin: Origin) -> Policy | None:
        """Return the cached policy, or None."""
        policy = self._policies.get(origin)
        if policy is None:
            return None
        try:
            self._policies.move_to_end(origin)
        except KeyError:  # another thread has removed it meanwhile
            return None
        return policy

    def put(self, policy: Policy, now: float) -> None:
        """Store a policy, unless the cached one is newer (`Policy.may_be_replaced_by`)."""
        origin = policy.origin
        with self._policies_lock:
            cached = self._policies.get(origin)
            if cached is not None:
                if not cached.may_be_replaced_by(policy, now):
                    return
                self._bytes -= cached.size
            self._policies[origin] = policy
            self._policies.move_to_end(origin)
            self._bytes += policy.size
            while self._bytes > self._max_bytes:
                _, removed = self._policies.popitem(last=False)
                self._bytes -= removed.size

    def forget(self, origin: Origin) -> bool:
        """Remove the cached policy. Returns whether there was one."""
        with self._policies_lock:
            cached = self._policies.pop(origin, None)
            if cached is None:
                return False
            self._bytes -= cached.size
            return True

    def origins(self) -> list[Origin]:
        """Return every origin that has a cached policy."""
        with self._policies_lock:
            return list(self._policies)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
