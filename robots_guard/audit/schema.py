"""The columns that records have in DuckDB, derived from the record classes; and SQL for reading the
log's files.

Invariant: a name or a path becomes SQL only through `literal` and `files_in`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import msgspec

from robots_guard.audit.record import AnyRecord, EvidenceItem

# Bytes of a line that DuckDB reads: a power failure may leave long garbage.
LONGEST = 32 * 1024 * 1024

_TYPES: dict[Any, str] = {
    str: "VARCHAR",
    int: "BIGINT",
    float: "DOUBLE",
    bool: "BOOLEAN",
    list[str]: "VARCHAR[]",
    dict[str, str]: "JSON",
    dict[str, str | int | bool]: "JSON",
    list[EvidenceItem]: "JSON",
}


def _columns() -> Mapping[str, str]:
    found = {"kind": "VARCHAR"}
    for record in get_args(AnyRecord):
        found |= {field.name: _type(field.type) for field in msgspec.structs.fields(record)}
    return found


def _type(kind: Any) -> str:
    if kind in _TYPES:
        return _TYPES[kind]
    first = next(each for each in get_args(kind) if each is not NoneType)
    if first in _TYPES:  # X | None
        return _TYPES[first]
    return _TYPES[type(first)]  # Literal[x]


#: Every field of every kind of record, and its DuckDB type.
COLUMNS = _columns()


def structure() -> str:
    """The columns in the notation of from_json."""
    notations: dict[str, Any] = {"VARCHAR[]": ["VARCHAR"]}
    return msgspec.json.encode(
        {name: notations.get(kind, kind) for name, kind in COLUMNS.items()}
    ).decode()


def literal(text: str) -> str:
    """A string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def files_in(paths: Iterable[Path]) -> str:
    """Paths as an SQL list, with characters that are patterns to DuckDB escaped."""
    return "[" + ", ".join(literal(unglobbed(path)) for path in paths) + "]"


def unglobbed(path: Path) -> str:
    """A path as a pattern that matches only the path itself."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in named(path))


def named(path: Path) -> str:
    """A path as DuckDB expects it: decoded as UTF-8 in any locale. Raises UnicodeDecodeError if it
    is not UTF-8."""
    return os.fsencode(path).decode()


def lines_in(paths: Iterable[Path]) -> str:
    """A table of the lines of files, in the column `raw`.

    A line that is not a record never causes an error, but may be several rows or none: carriage
    returns also end a line here, and lines longer than LONGEST are skipped.
    """
    return (
        f"read_csv({files_in(paths)}, columns = {{raw: 'VARCHAR'}}, delim = '\x01', quote = '', escape = '',"
        f" new_line = '\\n', strict_mode = false, max_line_size = {LONGEST}, buffer_size = {LONGEST},"
        " header = false, auto_detect = false, ignore_errors = true)"
    )


def records_in(paths: Iterable[Path]) -> str:
    """A table of the records of files of lines. A line that is not a record is a row of nulls."""
    types = ", ".join(f'"{name}": {literal(kind)}' for name, kind in COLUMNS.items())
    return (
        f"read_json({files_in(paths)}, format = 'newline_delimited', columns = {{{types}}}, ignore_errors = true,"
        f" maximum_object_size = {LONGEST}, filename = true)"
    )


def records_with(paths: Iterable[Path], text: str) -> str:
    """A table of the records of those lines that contain a text."""
    lines = f"SELECT raw FROM {lines_in(paths)} WHERE contains(raw, {literal(text)}) AND json_valid(raw)"
    return f"(SELECT unnest(from_json(raw, {literal(structure())})) FROM ({lines}))"


def first_line(error: Exception) -> str:
    """DuckDB's message, without the excerpt that shows the position."""
    return str(error).partition("\n")[0][:300]
