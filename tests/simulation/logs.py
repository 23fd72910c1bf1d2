"""The audit log of one process: the real FileAuditLog, on a simulated disk."""

from __future__ import annotations

from robots_guard.audit.write.log import FileAuditLog, LogOptions
from robots_guard.audit.write.writer import WriterOptions
from robots_guard.core.events import Event
from robots_guard.core.verdict import Decision
from robots_guard.errors import AuditLogError
from robots_guard.ports import Clocks
from simulation.disks import DIRECTORY, View
from simulation.kernel import Process

KEEPING = LogOptions(passes=1, retention=None)


class Log:
    """An audit log that remembers which decisions it recorded, and which it could not record."""

    def __init__(self, view: View, process: Process, *, fsync: bool) -> None:
        clocks = Clocks(now=process.now, monotonic=process.monotonic)
        writing = WriterOptions(component="proxy", fsync=fsync, rotate_bytes=20_000)
        self._audit_log = FileAuditLog(
            DIRECTORY, clocks, KEEPING, writing, files=view, tokens=process.token
        )
        view.is_starting = False
        self.recorded: set[str] = set()  # ids of decisions
        self.failed: set[str] = set()

    def write(self, decision: Decision) -> None:
        try:
            self._audit_log.write(decision)
        except AuditLogError:
            self.failed.add(decision.id)
            raise
        self.recorded.add(decision.id)

    def note(self, event: Event, *, is_tried_again: bool = False) -> None:
        self._audit_log.note(event, is_tried_again=is_tried_again)

    def close(self) -> None:
        self._audit_log.close()
