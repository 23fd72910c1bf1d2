"""When what is shut opens again: moments by key, and one timer for the first of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from scrapy.utils.asyncio import call_later


class Timetable:
    """Keys that are shut until a moment (monotonic seconds). `ring` is called when one may have opened."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._opens: dict[str, float] = {}
        self._moments: list[tuple[float, str]] = []  # a heap; a key that was shut anew is in it twice
        self._timer: Any = None
        self._rings = 0.0

    def __contains__(self, key: str) -> bool:
        return key in self._opens

    def __len__(self) -> int:
        return len(self._opens)

    def shut(self, key: str, seconds: float) -> None:
        """Shut for so long; never for less than was said before."""
        moment = time.monotonic() + seconds
        if moment > self._opens.get(key, 0.0):
            self._opens[key] = moment
            heappush(self._moments, (moment, key))
            self._set_timer()

    def settle(self) -> None:
        """Forget moments that have passed."""
        now = time.monotonic()
        while self._moments and self._moments[0][0] <= now:
            moment, key = heappop(self._moments)
            if self._opens.get(key) == moment:
                del self._opens[key]

    def clear(self) -> None:
        """Nothing is shut, and nothing will ring."""
        self._opens.clear()
        self._moments.clear()
        self._stop_timer()

    def _set_timer(self) -> None:
        first = self._moments[0][0]
        if self._timer is not None and self._rings <= first:
            return
        self._stop_timer()
        self._rings = first
        self._timer = call_later(max(0.0, first - time.monotonic()), self._rang)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rang(self) -> None:
        self._timer = None
        self.settle()
        if self._moments:
            self._set_timer()
        self._ring()
