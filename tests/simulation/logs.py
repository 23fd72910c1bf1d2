"""The audit log of one process: the real FileJournal, on a simulated disk."""

from __future__ import annotations

from robots_guard.audit.journal import FileJournal, Keeping
from robots_guard.audit.writer import Writing
from robots_guard.core.events import Event
from robots_guard.core.verdict import Decision
from robots_guard.errors import JournalError
from robots_guard.ports import Clocks
from simulation.disks import DIRECTORY, View
from simulation.kernel import Process

KEEPING = Keeping(passes=1, retention=None)


class Log:
    """A Journal that remembers what it has acknowledged, and what it could not record."""

    def __init__(self, view: View, process: Process, *, fsync: bool) -> None:
        clocks = Clocks(now=process.now, monotonic=process.monotonic)
        writing = Writing(door="proxy", fsync=fsync, rotate_bytes=20_000)
        self._journal = FileJournal(DIRECTORY, clocks, KEEPING, writing, files=view, tokens=process.token)
        view.is_spared = False
        self.recorded: set[str] = set()  # ids of decisions
        self.failed: set[str] = set()

    def write(self, decision: Decision) -> None:
        try:
            self._journal.write(decision)
        except JournalError:
            self.failed.add(decision.id)
            raise
        self.recorded.add(decision.id)

    def note(self, event: Event) -> None:
        self._journal.note(event)

    def close(self) -> None:
        self._journal.close()
