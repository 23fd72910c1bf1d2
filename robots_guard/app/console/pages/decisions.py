"""The list of decisions, a page at a time; and all of it as comma-separated values.

Invariant: every page costs the same. A page begins after the key of the previous page's last row, not at an offset;
files are sorted by time, so that only those that can contain its rows are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from robots_guard.app.console.query import SORTS, DecisionQuery, Key, Sort, encode_key
from robots_guard.audit.read.search import Search, conditions
from robots_guard.audit.show.export import csv_line

SIZE = 50  # rows per page
CSV_ROWS = 100_000  # in one file
CSV_PIECE = 2000  # rows that are read at once for it
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
    "job",
    "override",
    "would",
    "detail",
    "elapsed_us",
)


CSV_COLUMNS = (
    *COLUMNS,
    "override_owner",
    "override_reason",
    "method",
    "group",
    "until",
    "sha256",
    "fetched_at",
    "status",
    "failure",
    "writer",
    "seq",
)


class Extent(NamedTuple):
    """What an audit log contains: decisions with their own records, how many of them are passes, further ones that
    were only counted, and the times of the first and the last."""

    decisions: int
    passes: int
    counted: int
    first: str | None
    last: str | None


class DecisionPage(NamedTuple):
    """A page of decisions, and the keys for the previous and the next page, or None."""

    rows: list[dict[str, Any]]
    before: str | None
    after: str | None


def read_page(
    search: Search,
    query: DecisionQuery,
    size: int = SIZE,
    columns: tuple[str, ...] = COLUMNS,
) -> DecisionPage:
    """Return the page for a query: at most `size` rows with these columns."""
    sort = SORTS[query.sort]
    where, values = conditions(query.wanted)
    if query.key is not None:
        after, more = _after_key(sort, query.key, backwards=query.backwards)
        where, values = f"{where} AND {after}", [*values, *more]
    keys = _keys(search, sort, where, values, size + 1, backwards=query.backwards)
    has_more, keys = len(keys) > size, keys[:size]
    found = _rows(search, sort, where, values, keys, columns)
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


def extent_of(search: Search) -> Extent:
    """Return what the audit log contains."""
    (decisions,) = search.rows(
        'SELECT count(*), count(*) FILTER (action = \'pass\'), min("at"), max("at") FROM decisions'
    )
    ((counted,),) = search.rows("SELECT coalesce(sum(count), 0) FROM records WHERE kind = 'passes'")
    number, passes, first, last = decisions
    return Extent(number, passes, int(counted), first, last)


def read_csv_page(search: Search, query: DecisionQuery) -> DecisionPage:
    """Return the next rows of a query for `csv_of`."""
    return read_page(search, query, CSV_PIECE, CSV_COLUMNS)


def csv_of(read: Callable[[DecisionQuery], DecisionPage], query: DecisionQuery) -> Iterator[str]:
    """Yield the first `CSV_ROWS` decisions of a query as comma-separated values, some lines at a time.

    `read` returns the result of `read_csv_page`. Each page begins after the key of the one before, so that the audit
    log may grow meanwhile.
    """
    yield csv_line(CSV_COLUMNS)
    remaining = CSV_ROWS
    while remaining > 0:
        page = read(query)
        rows = page.rows[:remaining]
        yield "".join(csv_line(row.values()) for row in rows)
        remaining -= len(rows)
        if page.after is None:
            return
        query = query.after(page.after)


def _after_key(sort: Sort, key: Key, *, backwards: bool) -> tuple[str, list[Any]]:
    """Return the SQL condition for the rows after a key.

    The separate condition on the first column lets DuckDB skip files.
    """
    sign = "<" if sort.descending != backwards else ">"
    columns = sort.columns
    marks = ", ".join("?" for _ in key)
    return f"{columns[0]} {sign}= ? AND ({', '.join(columns)}) {sign} ({marks})", [key[0], *key]


def _keys(
    search: Search,
    sort: Sort,
    where: str,
    values: list[Any],
    most: int,
    *,
    backwards: bool,
) -> list[Key]:
    """Return the keys of the first rows, in order. They are queried before the rows, which reads little."""
    direction = "DESC" if sort.descending != backwards else "ASC"
    order = ", ".join(f"{column} {direction}" for column in sort.columns)
    return [
        *search.rows(
            f"SELECT {', '.join(sort.columns)} FROM records WHERE {where} ORDER BY {order} LIMIT {most}",
            values,
        )
    ]


def _rows(
    search: Search,
    sort: Sort,
    where: str,
    values: list[Any],
    keys: list[Key],
    columns: tuple[str, ...],
) -> list[tuple[Key, dict[str, Any]]]:
    """Return the rows with these keys, in this order, each with its key. They are found by their times."""
    if not keys:
        return []
    moments = sorted({key[-3] for key in keys})
    names = ", ".join(f'"{name}"' for name in columns)
    among = ", ".join("?" for _ in moments)
    rows = search.rows(
        f'SELECT {", ".join(sort.columns)}, {names} FROM records WHERE {where} AND "at" IN ({among})',
        [*values, *moments],
    )
    width = len(sort.columns)
    found = {row[:width]: dict(zip(columns, row[width:], strict=True)) for row in rows}
    return [(key, found[key]) for key in keys if key in found]
