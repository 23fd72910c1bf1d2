"""A search over an audit log loaded into memory, for repeated queries for the newest records, as
web pages make.

Invariant: lines are parsed once, when the log is opened, and compacted files are read from the
newest on, so that a query for the newest records does not read the others. Records written after
opening are not included.
"""

from __future__ import annotations

from pathlib import Path

from robots_guard.audit.read.reader import Unreadable
from robots_guard.audit.read.search import COUNTED, NOT_READABLE, Search, note_unreadable, union
from robots_guard.audit.schema import records_in
from robots_guard.audit.segments import PARQUET

_LINES = "lines"


class LoadedSearch(Search):
    """A Search that keeps the parsed lines. Raises SettingsError if there is no such directory."""

    def __init__(self, directory: Path) -> None:
        self._has_lines = False
        self._compacted: list[Path] = []
        super().__init__(directory)

    def _open(self, *, copies: bool = False) -> None:
        super()._open(copies=copies)
        files = [segment.path for segment in self._segments if segment.form != PARQUET]
        if files:
            self._define(f"CREATE TEMP TABLE {_LINES} AS SELECT * FROM {records_in(files)}")  # noqa: S608  (quoted)
        newest_first = sorted(self._segments, key=lambda segment: segment.path.name, reverse=True)
        self._define(f"CREATE OR REPLACE VIEW records AS {union(newest_first, parsed=_LINES)}")
        self._has_lines = bool(files)
        self._compacted = [segment.path for segment in newest_first if segment.form == PARQUET]

    def is_whole(self) -> bool:
        """Whether the compacted files are still there: retention may have removed one."""
        return all(path.exists() for path in self._compacted)

    def unreadable(self) -> Unreadable:
        """The files, and parts of files, that could not be read."""
        if self._has_lines:
            sql = f"SELECT {COUNTED} FROM {_LINES} WHERE {NOT_READABLE} GROUP BY 1 ORDER BY 1"  # noqa: S608  (quoted)
            note_unreadable(self.trouble, self.rows(sql))
        return self.trouble
