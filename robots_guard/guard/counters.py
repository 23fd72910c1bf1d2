"""Event counters for an integration's statistics, and warnings about failures.

Every failure is counted; the same fault is logged at most once a minute. A failure that matters to
an auditor is also recorded in the audit log.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter

from robots_guard.decisions.events import Event, StoreWasReset
from robots_guard.errors import AuditLogError, DamagedValue, StoreReset
from robots_guard.ports import AuditLog, Clocks

log = logging.getLogger("robots_guard")

WARN_EVERY = 60.0  # seconds between two warnings of the same fault
FAULTS = 5  # different faults of one kind that are logged within that time
QUIET = 5.0  # seconds without a failure until a success counts: a cluster may have lost one node of several

#: The message logged on recovery, by kind of failure.
_RECOVERED = {
    "store/error": "the policy store works again",
    "audit_log/error": "the audit log works again",
}


class Counters:
    """The counters of one guard; `counts` holds the running totals."""

    def __init__(self, clocks: Clocks, audit_log: AuditLog | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._clocks = clocks
        self._audit_log = audit_log
        self._limits: dict[tuple[str, str], _RateLimit] = {}
        #: By kind of failure: the broken parts, and when each last failed.
        self.broken: dict[str, dict[str, float]] = {}

    def warn(
        self, kind: str, message: str, error: Exception, about: str = "", part: str = ""
    ) -> None:
        """Count a failure under its kind, such as ``store/error``, and log a warning.

        The warning is omitted if the same fault, `about` the same thing, was logged within the last
        minute. The `part` that failed counts as broken until `mark_working` is called for it.
        """
        self.counts[kind] += 1
        now = self._clocks.monotonic()
        if self._limits.setdefault((kind, about), _RateLimit()).permits(error, now):
            log.warning(_NEW_STORE if isinstance(error, StoreReset) else message, error)
        if isinstance(error, StoreReset):
            self.note(StoreWasReset(at=self._clocks.now(), detail=str(error)))
        elif part:
            self.broken.setdefault(kind, {})[part] = now

    def mark_working(self, kind: str, *parts: str) -> None:
        """Mark parts as working; log the recovery when no part of this kind is broken any more."""
        failed = self.broken.get(kind)
        if not failed:
            return
        quiet_since = self._clocks.monotonic() - QUIET
        for part in parts:
            if failed.get(part, math.inf) <= quiet_since:
                failed.pop(part, None)
        if not failed and self.broken.pop(kind, None) is not None:
            self._limits.pop((kind, ""), None)  # a later failure is a new outage
            log.warning(_RECOVERED[kind])

    def note(self, event: Event) -> None:
        """Record an event in the audit log. A failure to do so is counted, not raised."""
        if self._audit_log is None:
            return
        try:
            self._audit_log.note(event)
        except AuditLogError as error:
            self.warn(
                "audit_log/error", "an event could not be recorded: %s", error, part="records"
            )
        else:
            self.mark_working("audit_log/error", "records")


_NEW_STORE = "the policy store %s: continuing with the new one"
_NUMBER = re.compile(r"\d+(\.\d+)?")


class _RateLimit:
    """Permits each fault once within `WARN_EVERY` seconds, and at most `FAULTS` different ones."""

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}

    def permits(self, error: Exception, now: float) -> bool:
        fault = _fault_key(error)
        self._logged = {
            each: at for each, at in list(self._logged.items()) if now - at < WARN_EVERY
        }
        if fault in self._logged or len(self._logged) >= FAULTS:
            return False
        self._logged[fault] = now
        return True


def _fault_key(error: Exception) -> str:
    """Return what identifies a fault: not its numbers, such as seconds, nor the origin of a damaged
    value."""
    if isinstance(error, DamagedValue):
        return type(error).__name__
    return _NUMBER.sub("0", str(error))
