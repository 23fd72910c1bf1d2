"""The audit log of one process: what was recorded, and when it could not be."""

from __future__ import annotations

from robots_guard.core.events import Event
from robots_guard.core.verdict import Decision
from robots_guard.errors import JournalError
from simulation.kernel import Kernel
from simulation.plan import Plan


class Log:
    """A Journal that keeps what it is given, and fails in the spans of the plan."""

    def __init__(self, kernel: Kernel, plan: Plan) -> None:
        self._kernel = kernel
        self._spans = plan.log
        self.recorded: set[str] = set()  # ids of decisions
        self.failed: set[str] = set()
        self.is_closed = False

    def write(self, decision: Decision) -> None:
        if self._fails():
            self.failed.add(decision.id)
            raise JournalError("no space left on device")
        self.recorded.add(decision.id)

    def note(self, event: Event) -> None:
        if self._fails():
            raise JournalError("no space left on device")

    def close(self) -> None:
        self.is_closed = True

    def _fails(self) -> bool:
        now = self._kernel.time
        return any(
            span.begins <= now < span.ends and (span.share >= 1 or self._kernel.random.random() < span.share)
            for span in self._spans
        )
