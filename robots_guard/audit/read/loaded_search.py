"""A search over an audit log loaded into memory, for repeated queries for the newest records, as
web pages make.

Invariant: lines are parsed once, when the log is opened; those of finished files are read from
their index (audit/read/index.py). It and compacted files are read from the newest on, so that a
query for the newest records does not read the others. Records written after opening are not
included.
"""

from __future__ import annotations

from pathlib import Path

from robots_guard.audit.read.index import READABLE, indexed, remove_damaged
from robots_guard.audit.read.reader import Unreadable
from robots_guard.audit.read.search import COUNTED, TIME, Search, note_unreadable, union
from robots_guard.audit.schema import NOT_READABLE, files_in, records_in
from robots_guard.audit.segments import PARQUET, Segment

_LINES = "lines"


class LoadedSearch(Search):
    """A Search that keeps the parsed lines. Raises SettingsError if there is no such directory."""

    def __init__(self, directory: Path) -> None:
        self._parsed: list[Segment] = []  # files of which there is no copy
        self._compacted: list[Path] = []
        self._tables: list[str] = []  # of rows of lines, including those that are not records
        super().__init__(directory)

    def _prepare(self) -> None:
        lines = [segment for segment in self._segments if segment.form != PARQUET]
        self._copies, self._parsed = indexed(self._directory, lines)

    def _all_records(self) -> str:
        self._tables = []
        compacted = [segment for segment in self._segments if segment.form == PARQUET]
        newest_first = sorted(compacted, key=lambda segment: segment.path.name, reverse=True)
        parts = [union(newest_first)]
        if self._copies:
            table = f"read_parquet({files_in(reversed(self._copies))})"
            parts.append(
                f"SELECT * EXCLUDE (filename, {READABLE}), {TIME} FROM {table} WHERE {READABLE}"
            )
            self._tables.append(f"{table} WHERE NOT {READABLE}")
        if self._parsed:
            files = [segment.path for segment in self._parsed]
            self._define(f"CREATE TEMP TABLE {_LINES} AS SELECT * FROM {records_in(files)}")
            parts.append(
                f"SELECT * EXCLUDE (filename), {TIME} FROM {_LINES} WHERE NOT ({NOT_READABLE})"
            )
            self._tables.append(f"{_LINES} WHERE {NOT_READABLE}")
        self._compacted = [segment.path for segment in newest_first]
        return " UNION ALL BY NAME ".join(parts)

    def _has_new_unusable(self, error: Exception) -> bool:
        return remove_damaged(self._copies) or super()._has_new_unusable(error)

    def is_whole(self) -> bool:
        """Whether the compacted files are still there: retention may have removed one. The same of
        copies of other files."""
        return all(path.exists() for path in (*self._compacted, *self._copies))

    def unreadable(self) -> Unreadable:
        """The files, and parts of files, that could not be read."""
        for table in self._tables:
            sql = f"SELECT {COUNTED} FROM {table} GROUP BY 1 ORDER BY 1"
            note_unreadable(self.trouble, self.rows(sql))
        return self.trouble
