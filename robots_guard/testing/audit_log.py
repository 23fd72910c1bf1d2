"""An audit log in memory."""

from __future__ import annotations

from robots_guard.audit.record import AnyRecord, Record, Writer, record_of, record_of_event
from robots_guard.core.events import Event
from robots_guard.core.verdict import Decision


class CapturingAuditLog:
    """An audit log in memory: `records` has every decision, including each PASS."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.events: list[AnyRecord] = []

    def write(self, decision: Decision) -> None:
        """Store the record of a decision."""
        self.records.append(
            record_of(decision, Writer(writer="captured"), seq=len(self.records) + 1)
        )

    def note(self, event: Event, *, is_tried_again: bool = False) -> None:  # noqa: ARG002  (storing cannot fail)
        """Store the record of an event."""
        self.events.append(record_of_event(event, {}))

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
