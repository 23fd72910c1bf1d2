"""A journal under many questions about the newest, as a page on it asks.

The law of this file: lines are parsed once, when it is opened, and compacted files are looked at from the last, so
that a question for the newest leaves the others alone. It is the journal of that moment: what comes later is not in.
"""

from __future__ import annotations

from pathlib import Path

from robots_guard.audit.query import Trouble
from robots_guard.audit.schema import records_in
from robots_guard.audit.search import NOT_READABLE, Search, union
from robots_guard.audit.segments import PARQUET

_LINES = "lines"


class Resident(Search):
    """A Search that keeps what it has parsed. Raises SettingsError if there is no such directory."""

    def __init__(self, directory: Path) -> None:
        self._has_lines = False
        self._compacted: list[Path] = []
        super().__init__(directory)

    def _open(self, *, copies: bool = False) -> None:
        super()._open(copies=copies)
        files = [segment.path for segment in self._read if segment.form != PARQUET]
        if files:
            self._define(f"CREATE TEMP TABLE {_LINES} AS SELECT * FROM {records_in(files)}")  # noqa: S608  (ours)
        newest_first = sorted(self._read, key=lambda segment: segment.path.name, reverse=True)
        self._define(f"CREATE OR REPLACE VIEW records AS {union(newest_first, parsed=_LINES)}")
        self._has_lines = bool(files)
        self._compacted = [segment.path for segment in newest_first if segment.form == PARQUET]

    def is_whole(self) -> bool:
        """Whether the compacted files are still there: retention may have removed one."""
        return all(path.exists() for path in self._compacted)

    def unreadable(self) -> Trouble:
        """What of the files could not be read."""
        if self._has_lines:
            sql = f"SELECT filename, count(*) FROM {_LINES} WHERE {NOT_READABLE} GROUP BY 1 ORDER BY 1"  # noqa: S608  (ours)
            self.trouble.lines = {Path(name).name: count for name, count in self.rows(sql)}
        return self.trouble
