"""What became of damaged files, kept until a call to the store has been told.

A file may be set aside when no new one can be made in its place (the disk is full), or by a call that does not pass its
failure on: what is to be told is therefore no exception under way, but kept here from the moment of the renaming.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

from robots_guard.errors import StoreReset
from robots_guard.stores.database_files import KEPT_ASIDE


class Resets:
    """The resets of one process of which no call has been told yet. Safe to use from several threads."""

    def __init__(self) -> None:
        self._untold: deque[tuple[Exception, Path | None]] = deque(maxlen=KEPT_ASIDE)  # older files are not kept

    def __str__(self) -> str:
        """The rest of a sentence that says why no new file can be made."""
        return "".join(f"; the damaged file is now {str(aside)!r}" for _, aside in list(self._untold) if aside)

    def keep(self, why: Exception, aside: Path | None) -> None:
        """Keep why a file was damaged, and its new name, if this process has renamed it."""
        self._untold.append((why, aside))

    def take(self) -> StoreReset | None:
        """The earliest, for a caller that raises it; it is not kept any longer."""
        try:
            return reset(*self._untold.popleft())
        except IndexError:
            return None


def reset(why: Exception, aside: Path | None) -> StoreReset:
    """What is told of a file that was damaged."""
    where = f"; the old file is {str(aside)!r}" if aside else ""
    return StoreReset(f"was damaged ({why}) and has been begun anew{where}")
