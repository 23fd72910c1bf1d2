"""A breaker: what has just failed slowly is left alone for a while, so that nobody waits for it again and again."""

from __future__ import annotations

import time
from collections.abc import Callable

from robots_guard.errors import StoreError

OPEN_FOR = 30.0  # seconds


class Breaker:
    """Closed at first. `trip` opens it for 30 seconds; while it is open, `check` raises StoreError at once."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._open_until = float("-inf")
        self._why = ""

    def check(self) -> None:
        """Pass, or say why not."""
        if self._monotonic() < self._open_until:
            raise StoreError(f"left alone for {OPEN_FOR:.0f} s after: {self._why}")

    def trip(self, why: str) -> None:
        """Open it."""
        self._why = why
        self._open_until = self._monotonic() + OPEN_FOR
