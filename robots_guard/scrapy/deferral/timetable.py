"""The timetable: one timer, for the first moment at which something opens again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from scrapy.utils.asyncio import call_later


class Timetable:
    """Calls `ring` at a moment (monotonic seconds), or a little later."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: Any = None
        self._rings = 0.0

    def ring_at(self, moment: float | None) -> None:
        """Ring at this moment, unless an earlier ring is set. None: there is nothing to ring for."""
        if moment is None or (self._timer is not None and self._rings <= moment):
            return
        self.stop()
        self._rings = moment
        self._timer = call_later(max(0.0, moment - time.monotonic()), self._rang)

    def stop(self) -> None:
        """Cancel the next ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rang(self) -> None:
        self._timer = None
        self._ring()
