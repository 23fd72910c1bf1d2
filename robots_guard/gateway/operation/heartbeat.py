"""A heartbeat of the event loop: shows another thread whether the loop still runs.

A record of the audit log is written before its decision is released, in the loop itself. So a disk
that does not respond blocks the whole process, and only the thread that serves the metrics can report
it.
"""

from __future__ import annotations

import asyncio
import time

EVERY = 1.0  # seconds between two beats
#: Seconds after which the loop counts as blocked: longer than one iteration of a busy loop.
STALE = 5.0


class Heartbeat:
    """Beats in an event loop while that runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._beat()

    def is_recent(self) -> bool:
        """Whether the loop has run recently. Safe to call from any thread."""
        return time.monotonic() - self._last < STALE

    def _beat(self) -> None:
        self._last = time.monotonic()
        self._loop.call_later(EVERY, self._beat)
