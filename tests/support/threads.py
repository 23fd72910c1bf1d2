"""A system that refuses new threads, as when a limit of processes or memory is reached."""

from __future__ import annotations

import math
import threading

import pytest


class System:
    """A system that refuses the next `refuses` threads and starts all others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refuses = 0.0
        start = threading.Thread.start

        def start_or_refuse(thread: threading.Thread) -> None:
            if self.refuses:
                self.refuses -= 1
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_or_refuse)

    def refuse_all(self) -> None:
        """Refuse every thread, until `refuses` is 0 again."""
        self.refuses = math.inf
