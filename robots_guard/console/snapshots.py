"""Snapshots: the journal as it was a moment ago, open for many questions.

The law of this file: reading must not cost more than it tells. Files are looked at anew when they have changed, and
no more often than takes a tenth of the time; what was found in one snapshot is kept until the next.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from cachetools import LRUCache

from robots_guard.audit.query import Trouble
from robots_guard.audit.resident import Resident
from robots_guard.audit.search import Search
from robots_guard.audit.segments import NoDirectory, segments
from robots_guard.errors import RobotsGuardError, SettingsError
from robots_guard.ports import Clocks
from robots_guard.threads import NoThread, start

ANSWERS = 512  # kept of one snapshot
REST = 9.0  # times as long as the last opening took, until the next
AT_ONCE = 0.1  # seconds an opening may take for somebody to wait for it
T = TypeVar("T")

S = TypeVar("S", bound="Snapshot | None")

_Files = tuple[tuple[str, int, int], ...]


class Nothing(NamedTuple):
    """Why no record can be shown. `lost`: for all that is known there are some, which cannot be looked at."""

    says: str
    lost: bool = False


class Snapshot:
    """One state of the journal. Its questions are asked by one thread at a time."""

    def __init__(self, directory: Path, files: _Files) -> None:
        self.files = files
        self.search = Resident(directory)
        self.trouble: Trouble = self.search.unreadable()
        self._answers: LRUCache[Hashable, Any] = LRUCache(ANSWERS)

    def once(self, key: Hashable, answer: Callable[[Search], T]) -> T:
        """The answer to a question, which is asked only once."""
        if key not in self._answers:
            self._answers[key] = answer(self.search)
        found: T = self._answers[key]
        return found


class Snapshots:
    """The snapshots of a journal, one after the other.

    What takes long to be opened is opened aside, and nobody waits: who asks meanwhile is told of the one before.
    """

    def __init__(self, directory: Path, clocks: Clocks) -> None:
        self._directory = directory
        self._clocks = clocks
        self._lock = threading.Lock()  # of the snapshot held and the questions to it
        self._held: Snapshot | None = None
        self._aside: threading.Thread | None = None
        self._took = 0.0
        self._next_look = 0.0
        self._was_there = False

    def nothing(self) -> Nothing | None:
        """Why there is nothing to be shown now; None where there is something."""
        where = repr(str(self._directory))
        try:
            found = segments(self._directory)
        except NoDirectory:
            if self._was_there:
                return Nothing(f"journal: {where} is not there any more: bring it back, or name another", lost=True)
            return Nothing(f"Nothing has been recorded yet in {where}: there is no such directory yet.")
        except SettingsError as error:
            return Nothing(str(error), lost=True)
        self._was_there = True
        return None if found else Nothing(f"Nothing has been recorded yet in {where}.")

    @contextmanager
    def now(self) -> Iterator[Snapshot]:
        """The newest, for one thread at a time. Raises SettingsError if there is no such directory."""
        with self._lock:
            yield self._current()

    def close(self) -> None:
        """Let the files go. Who asks later opens them again."""
        aside = self._aside
        if aside is not None:
            aside.join()
        with self._lock:
            self._replace(None)

    def _current(self) -> Snapshot:
        if self._held is None or not self._held.search.is_whole():
            return self._replace(self._opened(_files(self._directory)))
        if self._clocks.monotonic() >= self._next_look and self._aside is None:
            files = _files(self._directory)
            if files == self._held.files:
                self._next_look = self._clocks.monotonic()
            elif self._took <= AT_ONCE:
                self._replace(self._opened(files))
            else:
                with suppress(NoThread):  # the next look tries again
                    self._aside = start(self._open_aside, files, name="robots_guard snapshot")
        return self._held

    def _open_aside(self, files: _Files) -> None:
        try:
            made = self._opened(files)
            with self._lock:
                self._replace(made)
        except RobotsGuardError:  # gone meanwhile: the next look says so
            self._next_look = self._clocks.monotonic()
        finally:
            with self._lock:  # not before the thread has been noted
                self._aside = None

    def _opened(self, files: _Files) -> Snapshot:
        began = self._clocks.monotonic()
        made = Snapshot(self._directory, files)
        ended = self._clocks.monotonic()
        self._took, self._next_look = ended - began, ended + REST * (ended - began)
        return made

    def _replace(self, made: S) -> S:
        old, self._held = self._held, made
        if old is not None:
            old.search.close()
        return made


def _files(directory: Path) -> _Files:
    found = []
    for segment in segments(directory):
        try:
            there = os.stat(segment.path, follow_symlinks=False)  # noqa: PTH116  (thousands of files, at each look)
        except OSError:
            continue
        found.append((segment.path.name, there.st_size, there.st_mtime_ns))
    return tuple(found)
