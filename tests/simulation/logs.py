"""The audit log of one process: the real FileAuditLog, on a simulated disk."""

from __future__ import annotations

from robots_guard.audit.write.log import FileAuditLog, LogOptions, is_always_recorded
from robots_guard.audit.write.writer import WriterOptions
from robots_guard.decisions.events import Event
from robots_guard.decisions.verdict import Decision
from robots_guard.errors import AuditLogError
from robots_guard.ports import Clocks
from simulation.disks import DIRECTORY, View
from simulation.kernel import Process

RECORDING = LogOptions(audit="all", retention=None)
COUNTING = LogOptions(audit="summary", retention=None)


class Log:
    """An audit log that remembers which decisions it recorded, which it could not record, and with
    `counts` which it only counted."""

    def __init__(self, view: View, process: Process, *, fsync: bool, counts: bool) -> None:
        clocks = Clocks(now=process.now, monotonic=process.monotonic)
        writing = WriterOptions(component="proxy", fsync=fsync, rotate_bytes=20_000)
        keeping = COUNTING if counts else RECORDING
        self._audit_log = FileAuditLog(
            DIRECTORY, clocks, keeping, writing, files=view, tokens=process.token
        )
        self.writer = self._audit_log.writer
        view.is_starting = False
        self._counts = counts
        self.recorded: set[str] = set()  # ids of decisions
        self.failed: set[str] = set()
        self.counted: set[str] = set()
        self.uncounted = 0  # decided after the log was closed, so that no request follows
        self._is_closed = False

    def write(self, decision: Decision) -> None:
        try:
            self._audit_log.write(decision)
        except AuditLogError:
            self.failed.add(decision.id)
            raise
        if self._counts and not is_always_recorded(decision):
            self.counted.add(decision.id)
            self.uncounted += self._is_closed
        else:
            self.recorded.add(decision.id)

    def note(self, event: Event, *, is_tried_again: bool = False) -> None:
        self._audit_log.note(event, is_tried_again=is_tried_again)

    def close(self) -> None:
        self._is_closed = True
        self._audit_log.close()
