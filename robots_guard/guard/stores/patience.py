"""Calls that wait for another process's lock: a forking thread can interrupt them, and a test can
replace them.

The file must be closed when a process forks, so a call that waits for a lock has to stop waiting.
SQLite's own wait cannot be interrupted from outside (`interrupt` ends a running statement, not a
wait); this module splits it into short slices.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robots_guard.errors import StoreError

SLICE = 0.1  # seconds of one uninterruptible wait in SQLite


class Interrupted(StoreError):
    """A call lost its connection before it had locked it: to a fork, or to a replaced file.

    The call must retry with the next connection.
    """


class Patience:
    """Tells waiting threads when to stop waiting for one database's locks.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._ended_by: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether this thread must stop waiting. False for the thread that called `end`."""
        return self._ended_by not in (None, threading.get_ident())

    def end(self) -> None:
        """Interrupt the waits of all other threads, current and future."""
        self._ended_by = threading.get_ident()

    def begin(self) -> None:
        """Allow waits again."""
        self._ended_by = None


class Connection(sqlite3.Connection):
    """A connection that waits for a lock in slices, and checks `patience` between them."""

    patience = Patience()
    slices = 1

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement, waiting for its lock.

        Raises Interrupted if the wait is interrupted.
        """
        for _ in range(self.slices - 1):
            try:
                return super().execute(sql, parameters)
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                if self.patience.is_over:
                    raise Interrupted(
                        "was interrupted while another process had it locked"
                    ) from error
        return super().execute(sql, parameters)


def connect(path: Path) -> Connection:
    """Return a connection in autocommit mode, usable from any thread."""
    return sqlite3.connect(
        path, timeout=SLICE, isolation_level=None, check_same_thread=False, factory=Connection
    )


def is_busy(error: Exception) -> bool:
    """Whether the error is a lock held by another process (SQLITE_BUSY)."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


BUSY = 5.0  # seconds to wait for another process's write


@dataclass(frozen=True)
class System:
    """The system calls of a Database in one object, its clock, and its timeout for another process's lock.

    SQLite makes further system calls that cannot be replaced from Python.
    """

    open: Callable[[str, int, int], int] = os.open
    close: Callable[[int], None] = os.close
    flock: Callable[[int, int], None] = fcntl.flock
    stat: Callable[[str], os.stat_result] = os.stat
    rename: Callable[[str, str], None] = os.rename
    unlink: Callable[[str], None] = os.unlink
    link: Callable[[str, str], None] = os.link
    connect: Callable[[Path], Connection] = connect
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    busy: float = BUSY
