"""A search over an audit log loaded into memory, for repeated queries for the newest records, as
web pages make.

Invariant: lines are parsed once, when the log is opened; those of finished files are read from
their index (audit/read/index.py). The index and compacted files are read from the newest on, so
that a query for the newest records does not read the others. Records written after opening are not
included.
"""

from __future__ import annotations

from pathlib import Path

from robots_guard.audit.read.index import READABLE, DayCopy, Indexed, indexed, remove_damaged
from robots_guard.audit.read.search import (
    COUNTED,
    TIME,
    Search,
    may_match,
    union,
)
from robots_guard.audit.schema import NOT_READABLE, files_in, records_in
from robots_guard.audit.segments import Segment

_LINES = "lines"


class LoadedSearch(Search):
    """A Search that keeps the parsed lines. Raises SettingsError if there is no such directory."""

    def __init__(self, directory: Path) -> None:
        self._index = Indexed([], [])
        self._tables: list[str] = []  # of rows of lines, including those that are not records
        super().__init__(directory)

    def _prepare(self) -> None:
        lines = [segment for segment in self._segments if segment.has_lines]
        self._index = indexed(self._directory, lines)
        self._copies = [copy.path for copy in self._index.copies]
        self._tables = []
        if self._copies:
            self._tables.append(f"{_copied(self._copies)} WHERE NOT {READABLE}")
        if self._index.rest:
            self._tables.append(f"{_LINES} WHERE {NOT_READABLE}")

    def _load(self) -> None:
        if self._index.rest:
            table = records_in(segment.path for segment in self._index.rest)
            self._define(f"CREATE TEMP TABLE {_LINES} AS SELECT *, {TIME} FROM {table}")

    def _records_in_period(self) -> str:
        compacted = [segment for segment in self._compacted if may_match(segment, self._period)]
        parts = [union(compacted)]
        copies = [copy.path for copy in self._index.copies if self._may_match(copy)]
        if copies:
            columns = f"* EXCLUDE (filename, {READABLE})"
            parts.append(f"SELECT {columns} FROM {_copied(copies)} WHERE {READABLE}")
        if self._index.rest:
            parts.append(f"SELECT * EXCLUDE (filename) FROM {_LINES} WHERE NOT ({NOT_READABLE})")
        return " UNION ALL BY NAME ".join(parts)

    @property
    def _compacted(self) -> list[Segment]:
        """The compacted or exported files, from the newest on."""
        compacted = [segment for segment in self._segments if not segment.has_lines]
        return sorted(compacted, key=lambda segment: (segment.day, segment.stem), reverse=True)

    def _may_match(self, copy: DayCopy) -> bool:
        return any(may_match(segment, self._period) for segment in copy.files)

    def _has_new_unusable(self, error: Exception) -> bool:
        return remove_damaged(self._copies) or super()._has_new_unusable(error)

    def is_whole(self) -> bool:
        """Whether the compacted files, and the copies of others, still exist: retention may have
        removed one."""
        compacted = (segment.path for segment in self._compacted)
        return all(path.exists() for path in (*compacted, *self._copies))

    def _unreadable(self) -> str:
        """SQL for the lines that could not be read, of the files that are read now: a retry may
        read other copies."""
        counts = [f"SELECT {COUNTED} FROM {table} GROUP BY 1" for table in self._tables]
        if not counts:
            return "SELECT '', 0, 0, 0 WHERE false"
        return f"{' UNION ALL '.join(counts)} ORDER BY 1"


def _copied(copies: list[Path]) -> str:
    """A table of the rows of copies, from the newest on."""
    return f"read_parquet({files_in(reversed(copies))})"
