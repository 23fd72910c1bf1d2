"""Waits for another process's lock, which a thread that forks can break off.

Nothing may have the file open when a process forks, so a call that waits for a lock must give way. SQLite's own wait
cannot be broken off from outside (`interrupt` ends a running statement, not a wait): it is cut into slices here.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

from robots_guard.errors import StoreError

SLICE = 0.1  # seconds that SQLite waits in one go


class Left(StoreError):
    """A call's connection was left, for a fork or for another file, before the call held it: it needs the next one."""


class Patience:
    """Whether the waits for one database's locks go on. Safe to use from several threads."""

    def __init__(self) -> None:
        self._ended_by: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether this thread is to give way. The thread that demands this of the others is not."""
        return self._ended_by not in (None, threading.get_ident())

    def end(self) -> None:
        """Break off the waits of all other threads, and those that they begin from now on."""
        self._ended_by = threading.get_ident()

    def begin(self) -> None:
        """Let waits go on again."""
        self._ended_by = None


class Connection(sqlite3.Connection):
    """A connection that waits for a lock a slice at a time, and looks at its patience in between."""

    patience = Patience()
    slices = 1

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement when the lock that it needs is free. Raises Left if the wait is broken off."""
        for _ in range(self.slices - 1):
            try:
                return super().execute(sql, parameters)
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                if self.patience.is_over:
                    raise Left("was left while another process had it locked") from error
        return super().execute(sql, parameters)


def connect(path: Path) -> Connection:
    """A connection without transactions of its own, for any thread."""
    return sqlite3.connect(path, timeout=SLICE, isolation_level=None, check_same_thread=False, factory=Connection)


def is_busy(error: Exception) -> bool:
    """Whether another process had the lock."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
