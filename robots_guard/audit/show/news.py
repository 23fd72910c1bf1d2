"""What is new at the sites: origins that began to refuse requests, and files that changed.

Invariant: "new" means since the beginning of a period, compared with the `BEFORE` that precede it.
Only records say what was there before: an origin that was not crawled then is new, too.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from robots_guard.audit.read.search import DECISIONS, Search
from robots_guard.audit.record import moment
from robots_guard.decisions.reasons import MEANINGS, Party

BEFORE = timedelta(days=7)  # at least; a longer period is compared with one of its own length
MOST = 10  # origins and files that are shown

_SITE = [reason for reason, meaning in MEANINGS.items() if meaning.fault is Party.SITE]
_REFUSALS = f"""
    WITH refused AS (
        SELECT origin, "at" FROM records WHERE {DECISIONS} AND action = 'drop'
        AND origin IS NOT NULL AND reason IN (SELECT unnest(?))
    )
    SELECT origin, min("at"), count(*), count(*) OVER () FROM refused
    WHERE "at" >= ? AND origin NOT IN (
        SELECT DISTINCT origin FROM refused WHERE "at" >= ? AND "at" < ?
    ) GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT {MOST}
"""
# A state of a file is the digest of its content, or the status that says that there is none.
#: The states of the robots.txt files, by fetches that got a final answer.
STATES = """
    SELECT origin, "at", writer, seq, coalesce(sha256, 'status ' || status) AS state
    FROM records WHERE {where} AND kind = 'fetch' AND coalesce(file, 'robots.txt') = 'robots.txt'
    AND (sha256 IS NOT NULL OR (status BETWEEN 400 AND 499 AND status <> 429))
"""
_CHANGES = f"""
    SELECT origin, "at", earlier, state, count(*) OVER () FROM (
        SELECT *, lag(state) OVER (PARTITION BY origin ORDER BY "at", writer, seq) AS earlier
        FROM ({STATES.format(where='"at" >= ?')})
    ) WHERE "at" >= ? AND earlier <> state
    QUALIFY row_number() OVER (PARTITION BY origin ORDER BY "at" DESC) = 1
    ORDER BY "at" DESC, origin LIMIT {MOST}
"""


class NewRefusals(NamedTuple):
    """An origin that refused requests in the period and not before: since when, and how many."""

    origin: str
    since: str
    dropped: int


class ChangedFile(NamedTuple):
    """A robots.txt that changed: when this was seen, and its states before and after.

    A state is a digest, or the status that says that there is no file, such as `status 404`.
    """

    origin: str
    at: str
    before: str
    after: str


class News(NamedTuple):
    """The first ones of what is new, and the number of all."""

    since: str
    compared_from: str
    refusals: list[NewRefusals]
    refusals_total: int
    changes: list[ChangedFile]
    changes_total: int


def compared_from(since: str, until: str) -> str:
    """Return from when on records are compared with those since then. `until` is now."""
    begins, now = datetime.fromisoformat(since), datetime.fromisoformat(until)
    return moment((begins - max(BEFORE, now - begins)).timestamp()) or ""


def news_of(search: Search, since: str, until: str) -> News:
    """Return what is new since then. `until` is now."""
    compared = compared_from(since, until)
    refusals = [*search.rows(_REFUSALS, [_SITE, since, compared, since])]
    changes = [*search.rows(_CHANGES, [compared, since])]
    return News(
        since=since,
        compared_from=compared,
        refusals=[NewRefusals(origin, at, int(number)) for origin, at, number, _ in refusals],
        refusals_total=_total(refusals),
        changes=[ChangedFile(*row[:4]) for row in changes],
        changes_total=_total(changes),
    )


def _total(rows: list[tuple[Any, ...]]) -> int:
    if not rows:
        return 0
    return int(rows[0][-1])
