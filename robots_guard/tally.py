"""What happened how often, for a host's own statistics; and failures, counted each and spoken of once a minute.

A failure that an auditor asks for goes into the journal, too.
"""

from __future__ import annotations

import logging
from collections import Counter

from robots_guard.core.events import Event, StoreBegunAnew
from robots_guard.errors import JournalError, StoreReset
from robots_guard.ports import Clocks, Journal

log = logging.getLogger("robots_guard")

WARN_EVERY = 60.0  # seconds between two warnings of the same kind


class Tally:
    """Running totals in `counts`."""

    def __init__(self, clocks: Clocks, journal: Journal | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._clocks = clocks
        self._journal = journal
        self._warned: dict[tuple[str, str], float] = {}

    def warn(self, kind: str, message: str, error: Exception, about: str = "") -> None:
        """Count a failure under its kind, such as ``store/error``; warn, unless it was done within the minute, for what
        it is `about`."""
        self.counts[kind] += 1
        now = self._clocks.monotonic()
        if now - self._warned.get((kind, about), -WARN_EVERY) >= WARN_EVERY:
            self._warned[kind, about] = now
            log.warning(message, error)
        if isinstance(error, StoreReset):
            self.note(StoreBegunAnew(at=self._clocks.now(), detail=str(error)))

    def note(self, event: Event) -> None:
        """Put an event into the journal, as far as that can be done."""
        try:
            if self._journal is not None:
                self._journal.note(event)
        except JournalError as error:
            self.warn("journal/error", "an event could not be recorded: %s", error)
