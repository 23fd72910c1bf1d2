"""The tables of a Parquet export of the audit log: their columns, and SQL that turns records into
rows and rows into records.

Each record is one row of one table. The columns have the names of the fields, so that a field is
added and never renamed here, either.

Invariant: a row says all that its line says. Where the columns do not, because a field is unknown,
or has a value of another type, the line itself is in the column `raw`. Otherwise `raw` is NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from robots_guard.audit.partitions import TABLES
from robots_guard.audit.record import (
    AnyRecord,
    Checkpoint,
    Entry,
    FailOpen,
    Fetch,
    HoldRecord,
    OverridesRecord,
    Passes,
    PinnedRecord,
    Record,
    Removal,
    Repeats,
    SignalsRecord,
    Start,
    Stop,
    StoreResetRecord,
)
from robots_guard.audit.schema import COLUMNS, column_type, files_in, literal, parsed_line

VERSION = 1  # counts changes of meaning, as `schema` does for records
VERSION_KEY = "robots_guard"  # of the metadata of a file, whose value is VERSION
NO_DAY = "__HIVE_DEFAULT_PARTITION__"  # of records whose `at` is no time
RAW = "raw"

_KINDS: Mapping[str, tuple[type[Entry], ...]] = {
    "decisions": (Record,),
    "responses": (SignalsRecord,),
    "counts": (Repeats, Passes),
    "fetches": (Fetch,),
    "events": (
        Start,
        Stop,
        Checkpoint,
        StoreResetRecord,
        FailOpen,
        OverridesRecord,
        PinnedRecord,
        HoldRecord,
        Removal,
    ),
}
_OTHERS = "events"  # also has the records of kinds that are not known
_FORM = "%Y-%m-%dT%H:%M:%S.%gZ"
#: The fields that are moments, and how records write them.
_MOMENTS = dict.fromkeys(
    ("at", "since", "until", "fetched_at", "trouble_since", "override_expires"), _FORM
) | {"unavailable_after": "%Y-%m-%dT%H:%M:%SZ"}

#: The types that a value in a line may have, by the type of its column.
_JSON_TYPES = {
    "VARCHAR": ("VARCHAR",),
    "TIMESTAMP": ("VARCHAR",),
    "BIGINT": ("UBIGINT", "BIGINT"),
    "DOUBLE": ("DOUBLE", "UBIGINT", "BIGINT"),
    "BOOLEAN": ("BOOLEAN",),
    "VARCHAR[]": ("ARRAY",),
}
_ALL_JSON_TYPES = (
    "VARCHAR", "UBIGINT", "BIGINT", "HUGEINT", "DOUBLE", "BOOLEAN", "ARRAY", "OBJECT",
)  # fmt: skip


class LakeTable(NamedTuple):
    """A table: its name, the kinds of its records, and its columns with their DuckDB types, without
    RAW."""

    name: str
    kinds: tuple[str, ...]
    columns: Mapping[str, str]

    @property
    def stored(self) -> dict[str, str]:
        """The columns of its files, with their DuckDB types. JSON is stored as text."""
        types = {name: "VARCHAR" if kind == "JSON" else kind for name, kind in self.columns.items()}
        return types | {RAW: "VARCHAR"}


def _table(name: str, records: Iterable[type[Entry]]) -> LakeTable:
    columns = {"kind": "VARCHAR"}
    for record in records:
        columns |= {
            field.name: "TIMESTAMP" if field.name in _MOMENTS else column_type(field.type)
            for field in msgspec.structs.fields(record)
        }
    kinds = (str(record.__struct_config__.tag) for record in records)
    return LakeTable(name, tuple(kinds), columns)


#: The tables, by name.
LAKE_TABLES: Mapping[str, LakeTable] = {name: _table(name, kinds) for name, kinds in _KINDS.items()}
assert tuple(LAKE_TABLES) == TABLES
assert {each for kinds in _KINDS.values() for each in kinds} == set(get_args(AnyRecord))


# -- from records to rows --------------------------------------------------------------------------


def belongs(table: LakeTable) -> str:
    """An SQL condition: whether a record of any kind lies in a table."""
    known = [kind for each in LAKE_TABLES.values() for kind in each.kinds]
    if table.name == _OTHERS:
        others = ", ".join(literal(kind) for kind in known if kind not in table.kinds)
        return f"kind NOT IN ({others})"
    return f"kind IN ({', '.join(map(literal, table.kinds))})"


def rows_of(table: LakeTable, records: str) -> str:
    """SQL for the rows of records, a relation with the columns COLUMNS and RAW."""
    values = ", ".join(
        f'{_row_value(name, kind)} AS "{name}"' for name, kind in table.columns.items()
    )
    kept = f"CASE WHEN {RAW} IS NULL OR ({_is_whole(table)}) THEN NULL ELSE {RAW} END AS {RAW}"
    return f"SELECT {values}, {kept} FROM {records}"


def _row_value(name: str, kind: str) -> str:
    if kind == "TIMESTAMP":
        return _moment(name)
    if kind == "JSON":
        return f'CAST("{name}" AS VARCHAR)'
    return f'"{name}"'


def _moment(name: str) -> str:
    """SQL for a field as a timestamp; NULL unless it is written as records write it."""
    time = f'TRY_CAST("{name}" AS TIMESTAMP)'
    return f'CASE WHEN strftime({time}, {literal(_MOMENTS[name])}) = "{name}" THEN {time} END'


def day_of_record() -> str:
    """SQL for the name of the partition of a record, without DAY."""
    return f"coalesce(strftime({_moment('at')}, '%Y-%m-%d'), {literal(NO_DAY)})"


def _is_whole(table: LakeTable) -> str:
    """An SQL condition: whether the columns say all that the line RAW says.

    As many columns have values as the line has names, and all values are of the types of their
    columns; so no name is unknown, occurs twice, or has null or a value of another type.
    """
    filled = " + ".join(
        f"CAST({_row_value(name, kind)} IS NOT NULL AS INTEGER)"
        for name, kind in table.columns.items()
    )
    tests = [f"len(json_keys({RAW})) = {filled}"]
    for kind, accepted in _JSON_TYPES.items():
        paths = ", ".join(
            literal(f'$."{name}"') for name, each in table.columns.items() if each == kind
        )
        wrong = ", ".join(literal(each) for each in _ALL_JSON_TYPES if each not in accepted)
        if paths:
            tests.append(f"NOT list_has_any(json_type({RAW}, [{paths}]), [{wrong}])")
    return " AND ".join(tests)


# -- from rows to records --------------------------------------------------------------------------


def records_of(table: LakeTable, paths: Iterable[Path]) -> str:
    """SQL for the records in files of a table, with the columns COLUMNS and RAW, which is NULL
    where the columns say all.

    A file of an earlier version may lack columns.
    """
    empty = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in table.stored.items())
    names = ", ".join(f'"{name}"' for name in table.stored)
    files = f"read_parquet({files_in(paths)}, union_by_name = true, hive_partitioning = false)"
    rows = f"(SELECT {names} FROM (SELECT {empty} WHERE false UNION ALL BY NAME SELECT * FROM {files}))"
    values = ", ".join(
        f'{_record_value(table, name, kind)} AS "{name}"' for name, kind in COLUMNS.items()
    )
    parsed = ", ".join(f'entry."{name}" AS "{name}"' for name in COLUMNS)
    lines = f"(SELECT {RAW}, {parsed_line()} AS entry FROM {rows} WHERE {RAW} IS NOT NULL)"
    return (
        f"SELECT {values}, NULL::VARCHAR AS {RAW} FROM {rows} WHERE {RAW} IS NULL"
        f" UNION ALL SELECT {parsed}, {RAW} FROM {lines}"
    )


def _record_value(table: LakeTable, name: str, kind: str) -> str:
    if name not in table.columns:
        return f"NULL::{kind}"
    if table.columns[name] == "TIMESTAMP":
        return f'strftime("{name}", {literal(_MOMENTS[name])})'
    if kind == "JSON":
        return f'TRY_CAST("{name}" AS JSON)'  # NULL in a forged row
    return f'"{name}"'
