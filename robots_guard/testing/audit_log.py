"""An audit log in memory."""

from __future__ import annotations

from robots_guard.audit.record import (
    AnyRecord,
    Record,
    SignalsRecord,
    Writer,
    record_of,
    record_of_event,
    signals_record_of,
)
from robots_guard.decisions.events import Event
from robots_guard.decisions.verdict import Decision


class CapturingAuditLog:
    """An audit log in memory: `records` has every decision on a request, including each PASS, and
    `signals` every decision on a response."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.signals: list[SignalsRecord] = []
        self.events: list[AnyRecord] = []

    def write(self, decision: Decision) -> None:
        """Store the record of a decision."""
        writer, seq = Writer(writer="captured"), len(self.records) + len(self.signals) + 1
        if decision.response is not None:
            self.signals.append(signals_record_of(decision, writer, seq=seq))
        else:
            self.records.append(record_of(decision, writer, seq=seq))

    def note(self, event: Event, *, is_tried_again: bool = False) -> None:  # noqa: ARG002  (storing cannot fail)
        """Store the record of an event."""
        self.events.append(record_of_event(event, {}))

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
