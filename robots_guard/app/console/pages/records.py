"""Records that belong together, found by what they have in common."""

from __future__ import annotations

from typing import Any

from robots_guard.audit.read.search import Search, record_of_row
from robots_guard.audit.record import AnyRecord
from robots_guard.audit.schema import COLUMNS

MOST = 1000  # distinct times of the records that are read at once
_NAMES = ", ".join(f'"{name}"' for name in COLUMNS)


def find_records(
    search: Search, condition: str, values: list[Any], *, newest: int | None = None
) -> list[AnyRecord]:
    """Return the first matching records, or those of the `newest` times, in order of time.

    Their times are found first, which reads little; then the records.
    """
    order = f"ASC LIMIT {MOST}"
    if newest is not None:
        order = f"DESC LIMIT {newest}"
    sql = f'SELECT DISTINCT "at" FROM records WHERE {condition} ORDER BY 1 {order}'
    moments = [at for (at,) in search.rows(sql, values)]
    if not moments:
        return []
    among = (
        f'"at" IN ({", ".join("?" for _ in moments)}) AND {condition} ORDER BY "at", writer, seq'
    )
    rows = search.rows(f"SELECT {_NAMES} FROM records WHERE {among}", [*moments, *values])
    read = (record_of_row(dict(zip(COLUMNS, row, strict=True))) for row in rows)
    return [entry for entry in read if entry is not None]
