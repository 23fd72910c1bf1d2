"""Snapshots of the audit log that answer many queries.

Invariant: loading takes at most a tenth of the time. A new snapshot is made only if files have changed, and only when
nine times as long has passed as the last one took to load. Query results are cached until the next snapshot.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from cachetools import LRUCache

from robots_guard.audit.read.reader import Unreadable
from robots_guard.audit.read.search import LoadedSearch, Search
from robots_guard.audit.segments import NoDirectory, segments
from robots_guard.errors import RobotsGuardError, SettingsError
from robots_guard.guard.threads import NoThread, start
from robots_guard.ports import Clocks

ANSWERS = 512  # query results cached per snapshot
REST = 9.0  # the time to the next load, as a multiple of the time that the last one took
AT_ONCE = 0.1  # seconds; if the last load took longer, the next one runs in the background
T = TypeVar("T")

S = TypeVar("S", bound="Snapshot | None")

_Files = tuple[tuple[str, int, int], ...]


class NoSnapshot(NamedTuple):
    """Why no record can be shown. `lost` means that there may be records, but they cannot be read."""

    message: str
    lost: bool = False


class Snapshot:
    """One state of the audit log. Only one thread at a time may query it."""

    def __init__(self, directory: Path, files: _Files) -> None:
        self.files = files
        self.search = LoadedSearch(directory)
        self.trouble: Unreadable = self.search.unreadable()
        self._answers: LRUCache[Hashable, Any] = LRUCache(ANSWERS)

    def cached(self, key: Hashable, answer: Callable[[Search], T]) -> T:
        """Return the cached result of a query, or run the query and cache it."""
        if key not in self._answers:
            self._answers[key] = answer(self.search)
        found: T = self._answers[key]
        return found


class Snapshots:
    """Provides the newest snapshot of an audit log.

    A slow snapshot is loaded in a background thread; until it is ready, pages show the previous one.
    """

    def __init__(self, directory: Path, clocks: Clocks) -> None:
        self._directory = directory
        self._clocks = clocks
        self._lock = threading.Lock()  # protects the current snapshot and the queries to it
        self._current: Snapshot | None = None
        self._loader: threading.Thread | None = None
        self._load_time = 0.0
        self._next_check = 0.0
        self._has_existed = False

    def why_empty(self) -> NoSnapshot | None:
        """Return why no record can be shown, or None if there are files of records."""
        where = repr(str(self._directory))
        try:
            found = segments(self._directory)
        except NoDirectory:
            if self._has_existed:
                return NoSnapshot(
                    f"audit log: {where} no longer exists: restore it, or name another with --audit-log",
                    lost=True,
                )
            return NoSnapshot(
                f"Nothing has been recorded yet in {where}: there is no such directory yet."
            )
        except SettingsError as error:
            return NoSnapshot(str(error), lost=True)
        self._has_existed = True
        if found:
            return None
        return NoSnapshot(f"Nothing has been recorded yet in {where}.")

    @contextmanager
    def newest(self) -> Iterator[Snapshot]:
        """Yield the newest snapshot to one thread at a time. Raises SettingsError if there is no such directory."""
        with self._lock:
            yield self._newest()

    def close(self) -> None:
        """Close the files. A later request opens them again."""
        loader = self._loader
        if loader is not None:
            loader.join()
        with self._lock:
            self._replace(None)

    def _newest(self) -> Snapshot:
        if self._current is None or not self._current.search.is_whole():
            return self._replace(self._load(_files(self._directory)))
        if self._clocks.monotonic() >= self._next_check and self._loader is None:
            files = _files(self._directory)
            if files == self._current.files:
                self._next_check = self._clocks.monotonic()
            elif self._load_time <= AT_ONCE:
                self._replace(self._load(files))
            else:
                with suppress(NoThread):  # the next check tries again
                    self._loader = start(
                        self._load_in_background, files, name="robots_guard snapshot"
                    )
        return self._current

    def _load_in_background(self, files: _Files) -> None:
        try:
            loaded = self._load(files)
            with self._lock:
                self._replace(loaded)
        except RobotsGuardError:  # the directory has vanished: the next check reports it
            self._next_check = self._clocks.monotonic()
        finally:
            with self._lock:  # the lock is held until the starter has set `_loader`
                self._loader = None

    def _load(self, files: _Files) -> Snapshot:
        began = self._clocks.monotonic()
        loaded = Snapshot(self._directory, files)
        ended = self._clocks.monotonic()
        self._load_time, self._next_check = ended - began, ended + REST * (ended - began)
        return loaded

    def _replace(self, snapshot: S) -> S:
        old, self._current = self._current, snapshot
        if old is not None:
            old.search.close()
        return snapshot


def _files(directory: Path) -> _Files:
    found = []
    for segment in segments(directory):
        try:
            status = os.stat(segment.path, follow_symlinks=False)  # noqa: PTH116  (thousands of files at each check)
        except OSError:
            continue
        found.append((str(segment.path), status.st_size, status.st_mtime_ns))
    return tuple(found)
