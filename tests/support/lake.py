"""What examples/clickhouse and docs/operations/lake.md say of the columns of the Parquet export."""

from __future__ import annotations

from robots_guard.audit.tables import LAKE_TABLES, RAW, LakeTable

#: Columns of few values.
_FEW = frozenset(
    ("kind", "component", "job", "writer", "agent", "method", "action", "reason", "group", "form",
     "dialect", "matching", "via", "delay_source", "relaxed", "would", "source", "failure", "file",
     "version", "host", "change")
)  # fmt: skip
#: Columns that always have a value.
_ALWAYS = frozenset(("at", "schema", "seq", "elapsed_us", "count", "evidence_omitted"))
_TYPES = {
    "VARCHAR": "String",
    "JSON": "String",
    "BIGINT": "Int64",
    "DOUBLE": "Float64",
    "BOOLEAN": "Bool",
    "TIMESTAMP": "DateTime64(3, 'UTC')",
    "VARCHAR[]": "Array(String)",
}

HEAD = """\
-- The tables of a Parquet export of robots_guard's audit log, for ClickHouse. A record is identified
-- by its writer and number: what is inserted twice is one row after a merge, or with FINAL.
-- The columns are those of docs/operations/lake.md. Text that a record does not have is ''.

CREATE DATABASE IF NOT EXISTS robots_guard;
"""

LOAD = """\
-- Inserts a Parquet export into the tables of tables.sql. It can be repeated: rows that are there
-- already are merged. To insert one day, replace the first * by day=2026-11-23. To read from an object
-- store, replace file('lake/...', 'Parquet') by s3('https://bucket.example/lake/...', 'Parquet').

SET use_hive_partitioning = 0; -- the column day follows from at
SET input_format_parquet_allow_missing_columns = 1; -- of files of earlier versions
"""


def _type(name: str, kind: str) -> str:
    if name in _FEW:
        return "LowCardinality(String)"
    found = _TYPES[kind]
    if kind in ("BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP") and name not in _ALWAYS:
        return f"Nullable({found})"
    return found


def _statement(table: LakeTable) -> str:
    columns = table.columns | {RAW: "VARCHAR"}
    lines = ",\n".join(f"    `{name}` {_type(name, kind)}" for name, kind in columns.items())
    return (
        f"\nCREATE TABLE IF NOT EXISTS robots_guard.{table.name} (\n{lines}\n)\n"
        "ENGINE = ReplacingMergeTree\nPARTITION BY toYYYYMM(at)\nORDER BY (writer, seq);\n"
    )


def statements() -> str:
    """The text of examples/clickhouse/tables.sql."""
    return HEAD + "".join(_statement(table) for table in LAKE_TABLES.values())


def insertion(table: LakeTable) -> str:
    """A statement of examples/clickhouse/load.sql."""
    names = ", ".join(f"`{name}`" for name in (*table.columns, RAW))
    return (
        f"INSERT INTO robots_guard.{table.name} ({names})\nSELECT {names}\n"
        f"FROM file('lake/{table.name}/*/*.parquet', 'Parquet');\n"
    )


def column_table() -> str:
    """The table of docs/operations/lake.md: each column, its type, and the tables that have it."""
    found: dict[tuple[str, str], list[str]] = {}
    for table in LAKE_TABLES.values():
        for name, kind in table.columns.items():
            found.setdefault((name, kind), []).append(table.name)
    lines = ["| column | type | tables |", "|---|---|---|"]
    for (name, kind), tables in found.items():
        shown = "text with JSON" if kind == "JSON" else f"`{kind}`"
        where = (
            "all" if len(tables) == len(LAKE_TABLES) else ", ".join(f"`{each}`" for each in tables)
        )
        lines.append(f"| `{name}` | {shown} | {where} |")
    lines.append(f"| `{RAW}` | `VARCHAR` | all |")
    return "\n".join(lines)
