"""What happened how often, for a host's own statistics; and failures: each is counted, each fault logged once a minute.

A failure that an auditor asks for goes into the journal, too.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter

from robots_guard.core.events import Event, StoreBegunAnew
from robots_guard.errors import DamagedValue, JournalError, StoreReset
from robots_guard.ports import Clocks, Journal

log = logging.getLogger("robots_guard")

WARN_EVERY = 60.0  # seconds between two warnings of the same fault
FAULTS = 5  # different faults of one kind that are logged within that time
QUIET = 5.0  # seconds without a failure until a success counts: a cluster may have lost one node of several

#: What is said when something works again, by the kind of its failures.
_WORKS_AGAIN = {"store/error": "the policy store works again", "journal/error": "the audit log works again"}


class Tally:
    """Running totals in `counts`."""

    def __init__(self, clocks: Clocks, journal: Journal | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._clocks = clocks
        self._journal = journal
        self._limits: dict[tuple[str, str], _Limit] = {}
        self._failed: dict[str, dict[str, float]] = {}  # by kind: the parts that do not work, and when each last failed

    def warn(self, kind: str, message: str, error: Exception, about: str = "", part: str = "") -> None:
        """Count a failure under its kind, such as ``store/error``; warn, unless that was done within the minute for
        the same fault of what it is `about`. The `part` that failed counts as not working until `works` is called."""
        self.counts[kind] += 1
        now = self._clocks.monotonic()
        if self._limits.setdefault((kind, about), _Limit()).lets(error, now):
            log.warning(_NEW_STORE if isinstance(error, StoreReset) else message, error)
        if isinstance(error, StoreReset):
            self.note(StoreBegunAnew(at=self._clocks.now(), detail=str(error)))
        elif part:
            self._failed.setdefault(kind, {})[part] = now

    def works(self, kind: str, *parts: str) -> None:
        """Note that these parts of what fails under this kind have worked; log it when the last of them works again."""
        failed = self._failed.get(kind)
        if not failed:
            return
        quiet_since = self._clocks.monotonic() - QUIET
        for part in parts:
            if failed.get(part, math.inf) <= quiet_since:
                failed.pop(part, None)
        if not failed and self._failed.pop(kind, None) is not None:
            self._limits.pop((kind, ""), None)  # what fails from now on is another outage
            log.warning(_WORKS_AGAIN[kind])

    def note(self, event: Event) -> None:
        """Put an event into the journal, as far as that can be done."""
        if self._journal is None:
            return
        try:
            self._journal.note(event)
        except JournalError as error:
            self.warn("journal/error", "an event could not be recorded: %s", error, part="records")
        else:
            self.works("journal/error", "records")


_NEW_STORE = "the policy store %s: going on with the new one"
_NUMBER = re.compile(r"\d+(\.\d+)?")


class _Limit:
    """Lets each fault through once within `WARN_EVERY`, and at most `FAULTS` different ones."""

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}

    def lets(self, error: Exception, now: float) -> bool:
        fault = _fault(error)
        self._logged = {each: at for each, at in list(self._logged.items()) if now - at < WARN_EVERY}
        if fault in self._logged or len(self._logged) >= FAULTS:
            return False
        self._logged[fault] = now
        return True


def _fault(error: Exception) -> str:
    """What tells one fault from another: not its numbers, such as seconds, nor the origin whose value is damaged."""
    if isinstance(error, DamagedValue):
        return type(error).__name__
    return _NUMBER.sub("0", str(error))
