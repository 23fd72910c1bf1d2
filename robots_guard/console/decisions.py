"""Decisions, a page at a time.

The law of this file: a page costs the same wherever it lies. It begins behind the key of the last row of the page
before, never after so many rows; the files are in order of time, so that only those are read that can hold it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from robots_guard.audit.search import Search, conditions
from robots_guard.console.asked import SORTS, Asked, Key, Sort, written

SIZE = 50  # rows of a page
COLUMNS = (
    "at",
    "id",
    "action",
    "reason",
    "origin",
    "url",
    "rule",
    "line",
    "door",
    "agent",
    "override",
    "would",
    "detail",
    "elapsed_us",
)


class Page(NamedTuple):
    """Some decisions, and the keys of the pages before and behind; None where there is none."""

    rows: list[dict[str, Any]]
    before: str | None
    after: str | None


def page(search: Search, asked: Asked) -> Page:
    """The decisions asked for."""
    sort = SORTS[asked.sort]
    where, values = conditions(asked.wanted)
    if asked.key is not None:
        behind, more = _behind(sort, asked.key, backwards=asked.backwards)
        where, values = f"{where} AND {behind}", [*values, *more]
    found = _rows(search, sort, where, values, backwards=asked.backwards)
    there_is_more, found = len(found) > SIZE, found[:SIZE]
    if asked.backwards:
        found.reverse()
    if not found:
        return Page([], None, None)
    first, last = (written(found[at][0]) for at in (0, -1))
    is_first = asked.key is None or (asked.backwards and not there_is_more)
    is_last = not asked.backwards and not there_is_more
    return Page([row for _, row in found], None if is_first else first, None if is_last else last)


def count(search: Search, asked: Asked) -> int:
    """How many there are."""
    where, values = conditions(asked.wanted)
    ((number,),) = search.rows(f"SELECT count(*) FROM records WHERE {where}", values)
    return int(number)


def _behind(sort: Sort, key: Key, *, backwards: bool) -> tuple[str, list[Any]]:
    """What comes behind a key. Its first part is said twice: by that alone files are left aside."""
    sign = "<" if sort.descending != backwards else ">"
    columns = sort.columns
    marks = ", ".join("?" for _ in key)
    return f"{columns[0]} {sign}= ? AND ({', '.join(columns)}) {sign} ({marks})", [key[0], *key]


def _rows(
    search: Search, sort: Sort, where: str, values: list[Any], *, backwards: bool
) -> list[tuple[Key, dict[str, Any]]]:
    """One more than a page has, in order from the key on, each with its own key.

    First the keys alone, for which little is read; then the rows, by their moments.
    """
    direction = "DESC" if sort.descending != backwards else "ASC"
    order = ", ".join(f"{column} {direction}" for column in sort.columns)
    sql = f"SELECT {', '.join(sort.columns)} FROM records WHERE {where} ORDER BY {order} LIMIT {SIZE + 1}"
    keys = [*search.rows(sql, values)]
    if not keys:
        return []
    moments = sorted({key[-3] for key in keys})
    found = _by_key(search, sort, f'{where} AND "at" IN ({", ".join("?" for _ in moments)})', [*values, *moments])
    return [(key, found[key]) for key in keys if key in found]


def _by_key(search: Search, sort: Sort, where: str, values: list[Any]) -> dict[Key, dict[str, Any]]:
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    keys = len(sort.columns)
    rows = search.rows(f"SELECT {', '.join(sort.columns)}, {names} FROM records WHERE {where}", values)
    return {row[:keys]: dict(zip(COLUMNS, row[keys:], strict=True)) for row in rows}
