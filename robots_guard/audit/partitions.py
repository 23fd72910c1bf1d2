"""Partitions: the files of a Parquet export of the audit log, by their names.

    decisions/day=2026-11-23/SOURCE.parquet    the records of a table and a day (audit/tables.py)
    _exports/SOURCE.json                       which files of the audit log these contain (lake/)

Programs that read such a directory skip names that begin with an underscore.
"""

from __future__ import annotations

import os
from pathlib import Path

from robots_guard.audit.segments import LAKE, PARQUET, NoDirectory, Segment, segments
from robots_guard.errors import SettingsError

TABLES = ("decisions", "responses", "counts", "fetches", "events")
DAY = "day="  # a partition is named so, as in Hive
LISTS = "_exports"
#: What a Parquet export cannot do.
NO_CHAIN = (
    "it is a Parquet export, which has no chain and no signatures, so that nothing in it proves that"
    " records are complete or unchanged: the audit log itself can be verified"
)


def is_lake(directory: Path) -> bool:
    """Whether a directory is a Parquet export, and not an audit log."""
    names = (*TABLES, LISTS)
    return any(os.path.isdir(directory / name) for name in names)  # noqa: PTH112  (never raises)


def refuse_lake(directory: Path, what: str) -> None:
    """Raise SettingsError if a directory is a Parquet export. `what` needs an audit log."""
    if is_lake(directory):
        raise SettingsError(
            f"{str(directory)!r} is a Parquet export, which has no lines and no chain: name an audit log"
            f" for {what}"
        )


def files_of(directory: Path) -> list[Segment]:
    """The files to read of an audit log, or of a Parquet export. Raises as `segments` does."""
    if is_lake(directory):
        return partitions(directory)
    return segments(directory)


def partitions(directory: Path) -> list[Segment]:
    """The files of a Parquet export, in order of days. Raises NoDirectory, and SettingsError if it
    cannot be read."""
    found = []
    try:
        for name in TABLES:
            for path in (directory / name).glob(f"{DAY}*/*{PARQUET}"):
                stem = path.relative_to(directory).as_posix().removesuffix(PARQUET)
                found.append(Segment(path, stem, LAKE))
    except FileNotFoundError as error:
        raise NoDirectory(f"{str(directory)!r} no longer exists: export it again") from error
    except OSError as error:
        raise SettingsError(f"{str(directory)!r} cannot be read ({error.strerror})") from error
    return sorted(found, key=lambda segment: (segment.day, segment.stem))


def table_of(segment: Segment) -> str:
    """The name of the table to which a file of an export belongs."""
    return segment.path.parent.parent.name
