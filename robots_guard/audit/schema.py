"""The columns that records have in DuckDB, made from the records' own classes; and SQL for the files they lie in.

The law of this file: a name or a path becomes SQL only through `literal` and `files_in`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import msgspec

from robots_guard.audit.record import AnyRecord

LONGEST = 32 * 1024 * 1024  # octets of a line that DuckDB reads: what a power failure left may be long

_TYPES: dict[Any, str] = {
    str: "VARCHAR",
    int: "BIGINT",
    float: "DOUBLE",
    bool: "BOOLEAN",
    list[str]: "VARCHAR[]",
    dict[str, str]: "JSON",
}


def _columns() -> Mapping[str, str]:
    found = {"kind": "VARCHAR"}
    for record in get_args(AnyRecord):
        found |= {field.name: _type(field.type) for field in msgspec.structs.fields(record)}
    return found


def _type(kind: Any) -> str:
    if kind in _TYPES:
        return _TYPES[kind]
    plain = [each for each in get_args(kind) if each is not NoneType]
    return _TYPES[plain[0]] if plain[0] in _TYPES else _TYPES[type(plain[0])]  # X | None, or Literal[x]


#: Every field of every kind of record, and its type.
COLUMNS = _columns()


def structure() -> str:
    """The columns as from_json wants them."""
    special: dict[str, Any] = {"VARCHAR[]": ["VARCHAR"]}
    return msgspec.json.encode({name: special.get(kind, kind) for name, kind in COLUMNS.items()}).decode()


def literal(text: str) -> str:
    """A string of SQL."""
    return "'" + text.replace("'", "''") + "'"


def files_in(paths: Iterable[Path]) -> str:
    """Files, each just itself whatever its name looks like."""
    return "[" + ", ".join(literal(unglobbed(path)) for path in paths) + "]"


def unglobbed(path: Path) -> str:
    """A path as a pattern that only itself matches."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in named(path))


def named(path: Path) -> str:
    """A path as DuckDB takes it: decoded as UTF-8, in any locale. Raises UnicodeDecodeError if it is not UTF-8."""
    return os.fsencode(path).decode()


def lines_in(paths: Iterable[Path]) -> str:
    """A table of the lines of files, `raw`. What is no line of ours may be several rows, or none, and fails nothing:
    a carriage return ends a line here, too, and a longer line than the longest is left out."""
    return (
        f"read_csv({files_in(paths)}, columns = {{raw: 'VARCHAR'}}, delim = '\x01', quote = '', escape = '',"
        f" new_line = '\\n', strict_mode = false, max_line_size = {LONGEST}, buffer_size = {LONGEST},"
        " header = false, auto_detect = false, ignore_errors = true)"
    )


def records_in(paths: Iterable[Path]) -> str:
    """A table of the records of files of lines. A line that is none is a row of nulls."""
    types = ", ".join(f'"{name}": {literal(kind)}' for name, kind in COLUMNS.items())
    return (
        f"read_json({files_in(paths)}, format = 'newline_delimited', columns = {{{types}}}, ignore_errors = true,"
        f" maximum_object_size = {LONGEST}, filename = true)"
    )


def records_with(paths: Iterable[Path], text: str) -> str:
    """A table of the records of those lines that have a text in them."""
    lines = f"SELECT raw FROM {lines_in(paths)} WHERE contains(raw, {literal(text)}) AND json_valid(raw)"
    return f"(SELECT unnest(from_json(raw, {literal(structure())})) FROM ({lines}))"


def first_line(error: Exception) -> str:
    """What DuckDB says, without its drawing of the place."""
    return str(error).partition("\n")[0][:300]
