"""The columns that records have in DuckDB, derived from the record classes; SQL for reading the log's
files, and the database that executes it.

Invariant: a name or a path becomes SQL only through `literal` and `files_in`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType, NoneType
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from robots_guard.audit.record import SCHEMA, AnyRecord, EvidenceItem
from robots_guard.errors import MissingExtra

if TYPE_CHECKING:
    import duckdb

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
        found |= {field.name: column_type(field.type) for field in msgspec.structs.fields(record)}
    return found


def column_type(kind: Any) -> str:
    """The DuckDB type for the values of a field."""
    if kind in _TYPES:
        return _TYPES[kind]
    first = next(each for each in get_args(kind) if each is not NoneType)
    if first in _TYPES:  # X | None
        return _TYPES[first]
    return _TYPES[type(first)]  # Literal[x]


#: What the head of a line has, after its kind.
_HEAD = f'"schema":{SCHEMA},"at":"'

#: A row of `records_in` that is not a record of this version.
NOT_READABLE = (
    '"schema" IS NULL OR "schema" <> 1 OR kind IS NULL OR length("at") IS DISTINCT FROM 24'
)

#: The time of a record as a timestamp.
TIME = 'TRY_CAST("at" AS TIMESTAMP) AS "time"'

#: Every field of every kind of record, and its DuckDB type.
COLUMNS = _columns()
#: The columns whose values are objects or lists of objects.
JSON_COLUMNS = frozenset(name for name, kind in COLUMNS.items() if kind == "JSON")


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


def lines_in(paths: Iterable[Path], *, names: bool = False) -> str:
    """A table of the lines of files, in the column `raw`; with `names`, also of their `filename`.

    A line that is not a record never causes an error, but may be several rows or none: carriage
    returns also end a line here, and lines longer than LONGEST are skipped.
    """
    return (
        f"read_csv({files_in(paths)}, columns = {{raw: 'VARCHAR'}}, delim = '\x01', quote = '', escape = '',"
        f" new_line = '\\n', strict_mode = false, max_line_size = {LONGEST}, buffer_size = {LONGEST},"
        f" header = false, auto_detect = false, ignore_errors = true, filename = {names})"
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


def records_or_damage(paths: Iterable[Path], texts: Iterable[str], pattern: str) -> str:
    """SQL for the records of those lines that contain one of these texts, and for the lines that do
    not look like records of this version; with the column `filename`. A line that is not JSON is a
    row of nulls. Records whose `url` does not match `pattern`, an SQL expression, are left out."""
    wanted = " OR ".join(f"contains(raw, {literal(text)})" for text in texts)
    damaged = f"NOT contains(raw, {literal(_HEAD)}) OR NOT ends_with(raw, '}}')"
    test = f"({wanted} OR {damaged}) AND trim(raw) <> ''"
    url = "json_extract_string(raw, '$.url')"
    is_named = f"coalesce(regexp_full_match({url}, {pattern}), true)"
    test += f" AND CASE WHEN json_valid(raw) THEN {is_named} ELSE true END"
    return (
        f"SELECT unnest({parsed_line()}), filename FROM {lines_in(paths, names=True)} WHERE {test}"
    )


def parsed_line() -> str:
    """SQL for the columns of a line, or NULL for one that is not JSON."""
    return f"CASE WHEN json_valid(raw) THEN from_json(raw, {literal(structure())}) END"


def first_line(error: Exception) -> str:
    """DuckDB's message, without the excerpt that shows the position."""
    return str(error).partition("\n")[0][:300]


# -- the database ----------------------------------------------------------------------------------


def database() -> duckdb.DuckDBPyConnection:
    """A new DuckDB database in memory. Raises MissingExtra."""
    connection: duckdb.DuckDBPyConnection = _duckdb().connect()
    # Python variables must not become tables.
    connection.execute("SET python_enable_replacements = false")
    return connection


def duckdb_error() -> type[Exception]:
    """The base class of DuckDB's errors. Raises MissingExtra."""
    error: type[Exception] = _duckdb().Error
    return error


def _duckdb() -> ModuleType:
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtra("audit", "querying the audit log") from error
    return duckdb


def can_read(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Whether DuckDB can read all of a file of lines, including lines that are not records."""
    try:
        for table, column in ((lines_in([path]), "raw"), (records_in([path]), '"at"')):
            connection.execute(f"SELECT count({column}) FROM {table}").fetchone()
    except duckdb_error():
        return False
    return True
