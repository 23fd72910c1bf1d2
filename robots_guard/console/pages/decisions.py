"""The list of decisions, a page at a time.

Invariant: every page costs the same. A page begins after the key of the previous page's last row, not at an offset;
files are sorted by time, so that only those that can contain its rows are read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from robots_guard.audit.read.search import Search, conditions
from robots_guard.console.query import SORTS, DecisionQuery, Key, Sort, encode_key

SIZE = 50  # rows per page
COLUMNS = (
    "at",
    "id",
    "action",
    "reason",
    "origin",
    "url",
    "rule",
    "line",
    "component",
    "agent",
    "override",
    "would",
    "detail",
    "elapsed_us",
)


class DecisionPage(NamedTuple):
    """A page of decisions, and the keys for the previous and the next page, or None."""

    rows: list[dict[str, Any]]
    before: str | None
    after: str | None


def read_page(search: Search, query: DecisionQuery) -> DecisionPage:
    """Return the page for a query."""
    sort = SORTS[query.sort]
    where, values = conditions(query.wanted)
    if query.key is not None:
        after, more = _after_key(sort, query.key, backwards=query.backwards)
        where, values = f"{where} AND {after}", [*values, *more]
    found = _rows(search, sort, where, values, backwards=query.backwards)
    has_more, found = len(found) > SIZE, found[:SIZE]
    if query.backwards:
        found.reverse()
    if not found:
        return DecisionPage([], None, None)
    first, last = (encode_key(found[at][0]) for at in (0, -1))
    is_first = query.key is None or (query.backwards and not has_more)
    is_last = not query.backwards and not has_more
    return DecisionPage(
        [row for _, row in found], None if is_first else first, None if is_last else last
    )


def count_decisions(search: Search, query: DecisionQuery) -> int:
    """Return how many decisions match."""
    where, values = conditions(query.wanted)
    ((number,),) = search.rows(f"SELECT count(*) FROM records WHERE {where}", values)
    return int(number)


def _after_key(sort: Sort, key: Key, *, backwards: bool) -> tuple[str, list[Any]]:
    """Return the SQL condition for the rows after a key.

    The separate condition on the first column lets DuckDB skip files.
    """
    sign = "<" if sort.descending != backwards else ">"
    columns = sort.columns
    marks = ", ".join("?" for _ in key)
    return f"{columns[0]} {sign}= ? AND ({', '.join(columns)}) {sign} ({marks})", [key[0], *key]


def _rows(
    search: Search, sort: Sort, where: str, values: list[Any], *, backwards: bool
) -> list[tuple[Key, dict[str, Any]]]:
    """Return one row more than a page has, in order, each with its key.

    The keys are queried first, which reads little; then the rows, by their times.
    """
    direction = "DESC" if sort.descending != backwards else "ASC"
    order = ", ".join(f"{column} {direction}" for column in sort.columns)
    sql = f"SELECT {', '.join(sort.columns)} FROM records WHERE {where} ORDER BY {order} LIMIT {SIZE + 1}"
    keys = [*search.rows(sql, values)]
    if not keys:
        return []
    moments = sorted({key[-3] for key in keys})
    found = _by_key(
        search,
        sort,
        f'{where} AND "at" IN ({", ".join("?" for _ in moments)})',
        [*values, *moments],
    )
    return [(key, found[key]) for key in keys if key in found]


def _by_key(search: Search, sort: Sort, where: str, values: list[Any]) -> dict[Key, dict[str, Any]]:
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    keys = len(sort.columns)
    rows = search.rows(
        f"SELECT {', '.join(sort.columns)}, {names} FROM records WHERE {where}", values
    )
    return {row[:keys]: dict(zip(COLUMNS, row[keys:], strict=True)) for row in rows}
