"""The timetable: one timer, for the first moment at which something opens again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from scrapy.utils.asyncio import call_later


class Timetable:
    """Calls `callback` at a moment (monotonic seconds), or slightly later."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._timer: Any = None
        self._due = 0.0

    def call_at(self, moment: float | None) -> None:
        """Call back at this moment, unless an earlier call is scheduled. None: do nothing."""
        if moment is None or (self._timer is not None and self._due <= moment):
            return
        self.stop()
        self._due = moment
        self._timer = call_later(max(0.0, moment - time.monotonic()), self._call)

    def stop(self) -> None:
        """Cancel the next call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _call(self) -> None:
        self._timer = None
        self._callback()
