"""Turns in memory: the last of each origin, least recently used first out.

An origin that is forgotten here has not been asked for as long as it took a hundred thousand others to be.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from cachetools import LRUCache

from robots_guard.core.pacing import Places, Turn, counted_from, in_line, next_turn
from robots_guard.origin import Origin

ORIGINS = 100_000


class MemoryTurns:
    """A TurnStore for the threads of one process."""

    def __init__(self, origins: int = ORIGINS) -> None:
        self._last: LRUCache[Origin, float] = LRUCache(origins)
        self._not_before: LRUCache[Origin, float] = LRUCache(origins)
        self._lines: LRUCache[Origin, Places] = LRUCache(origins)
        self._lock = threading.Lock()

    def reserve(self, origin: Origin, delay: float, now: Callable[[], float], name: str = "") -> Turn:
        """Take the origin's turn, or say how long until it is."""
        with self._lock:
            at = now()
            turn = self._next(origin, delay, at)
            turn, self._lines[origin] = in_line(self._lines.get(origin, ()), name, turn, delay, at)
            if not turn.wait:
                self._last[origin] = turn.stamp
            return turn

    def next_turn(self, origin: Origin, delay: float, now: float) -> Turn:
        """What `reserve` would say; nothing is taken."""
        with self._lock:
            return self._next(origin, delay, now)

    def _next(self, origin: Origin, delay: float, now: float) -> Turn:
        return next_turn(self._last.get(origin, -math.inf), self._not_before.get(origin, -math.inf), delay, now)

    def count_from(self, origin: Origin, stamp: float, since: float) -> bool:
        """Move the turn, if it is the last."""
        with self._lock:
            is_last = self._last.get(origin) == stamp
            if is_last:
                self._last[origin] = counted_from(stamp, since)
            return is_last

    def hold_off(self, origin: Origin, seconds: float, now: float) -> None:
        """No turn before then."""
        with self._lock:
            before = next_turn(-math.inf, self._not_before.get(origin, -math.inf), 0.0, now).wait
            self._not_before[origin] = now + max(seconds, before)

    def is_held_off(self, origin: Origin, now: float) -> bool:
        """Whether there is no turn for now. As good as free where no origin has asked for that."""
        if not self._not_before:
            return False
        with self._lock:
            return next_turn(-math.inf, self._not_before.get(origin, -math.inf), 0.0, now).wait > 0
