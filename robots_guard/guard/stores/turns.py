"""Turns in memory: the last turn of each origin, in an LRU cache.

Evicting an origin is safe: by then, 100,000 other origins have been requested since.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
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
