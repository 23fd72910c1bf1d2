"""Resets of damaged files, recorded until a call to the store reports them.

A file may be quarantined when no new one can be created (the disk is full), or by a call that
suppresses its failure. An exception in flight could therefore get lost; the reset is recorded here
as soon as the file is renamed.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

from robots_guard.errors import StoreReset
from robots_guard.stores.database_files import MAX_QUARANTINED


class Resets:
    """The resets in this process that no call has reported yet.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        # Older files are deleted.
        self._unreported: deque[tuple[Exception, Path | None]] = deque(maxlen=MAX_QUARANTINED)

    def __str__(self) -> str:
        """Return the names of the damaged files, as the end of a sentence about a new file that
        cannot be created.
        """
        renamed = [path for _, path in list(self._unreported) if path]
        return "".join(f"; the damaged file is now {str(path)!r}" for path in renamed)

    def record(self, why: Exception, quarantined: Path | None) -> None:
        """Record why a file was considered damaged, and its new name if this process renamed it."""
        self._unreported.append((why, quarantined))

    def pop(self) -> StoreReset | None:
        """Remove and return the earliest reset, for the caller to raise; None if there is none."""
        try:
            return store_reset(*self._unreported.popleft())
        except IndexError:
            return None


def store_reset(why: Exception, quarantined: Path | None) -> StoreReset:
    """Return the error that reports a damaged file and its replacement."""
    where = f"; the old file is {str(quarantined)!r}" if quarantined else ""
    return StoreReset(f"was damaged ({why}) and has been recreated{where}")
