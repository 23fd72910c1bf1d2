"""The system calls of an SQLite store, in one object that a test can replace."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from robots_guard.stores.patience import Connection, connect

BUSY = 5.0  # seconds to wait for another process's write


@dataclass(frozen=True)
class System:
    """The system calls of a Database, its clock, and its timeout for another process's lock.

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
