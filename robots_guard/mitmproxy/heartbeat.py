"""A heartbeat of the event loop: it tells another thread whether the loop still turns.

A record of the audit log is written before its decision is released, in the loop itself. So a disk that does not
answer stops the whole proxy, which can then not say so; only the thread that serves the metrics can.
"""

from __future__ import annotations

import asyncio
import time

EVERY = 1.0  # seconds between two beats
STALE = 5.0  # seconds after which the loop counts as stopped: longer than a busy loop takes for one turn


class Heartbeat:
    """Beats in a running loop as long as that turns."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._beat()

    def is_recent(self) -> bool:
        """Whether the loop has turned of late. May be asked from any thread."""
        return time.monotonic() - self._last < STALE

    def _beat(self) -> None:
        self._last = time.monotonic()
        self._loop.call_later(EVERY, self._beat)
