"""What is new on the overview, and the history of a site's robots.txt: versions and their differences.

Invariant: documents come from the store, which may no longer have them; then the page says so.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import NamedTuple

from robots_guard.app.console.document import Difference, difference
from robots_guard.audit.read.search import Search
from robots_guard.audit.show.news import STATES, ChangedFile
from robots_guard.guard.stores import document_in
from robots_guard.ports import SharedStore
from robots_guard.text import counted

VERSIONS = 20  # of a robots.txt that are shown
DIFFERENCES = 256  # that are cached

_STATUS = re.compile(r"status (\d{3})")
# Fetches with the same result in succession are one version.
_VERSIONS = f"""
    SELECT state, min("at"), max("at"), count(*) FROM (
        SELECT *, count(*) FILTER (is_new) OVER (ORDER BY "at", writer, seq) AS version FROM (
            SELECT *, state IS DISTINCT FROM lag(state) OVER (ORDER BY "at", writer, seq) AS is_new
            FROM ({STATES.format(where="origin = ?")})
        )
    ) GROUP BY version, state ORDER BY version DESC LIMIT {VERSIONS + 1}
"""


class Version(NamedTuple):
    """A robots.txt as it was fetched several times in succession: its state, the times of the
    first and the last fetch, and their number.

    The state is a digest, or the status that says that there is no file.
    """

    state: str
    first: str
    last: str
    fetches: int


class Change(NamedTuple):
    """A change of a robots.txt in words, with the difference or why there is none."""

    origin: str
    at: str
    sentence: str
    difference: Difference | None
    no_difference: str


class History(NamedTuple):
    """The versions of a robots.txt from the newest on, each with the change that led to it, and
    whether there are older ones."""

    versions: list[tuple[Version, Change | None]]
    has_more: bool


class Differences:
    """The differences of documents in a store. They are cached, because documents never change."""

    def __init__(self, store: SharedStore | None) -> None:
        self._store = store
        # What raises is not cached.
        self._cached = functools.lru_cache(DIFFERENCES)(self._compare)

    def explain(self, change: ChangedFile) -> Change:
        """Return a change in words, with its difference."""
        before, after = (_STATUS.fullmatch(state) for state in (change.before, change.after))
        shown = functools.partial(Change, change.origin, change.at)
        if before and after:
            return shown(f"Its status changed from {before[1]} to {after[1]}", None, "")
        if after:
            return shown(f"It is gone: status {after[1]}", None, "")
        if before:
            return shown(f"It is there now; before, the status was {before[1]}", None, "")
        try:
            found = self._cached(change.before, change.after)
        except LookupError as error:
            return shown("It changed", None, str(error))
        return shown(_size_of(found), found, "")

    def history(self, search: Search, origin: str) -> list[Version]:
        """Return the versions of an origin's robots.txt, and one more than is shown."""
        return [Version(*row) for row in search.rows(_VERSIONS, [origin])]

    def explained(self, origin: str, versions: list[Version]) -> History:
        """Return versions with the changes between them."""
        pairs = itertools.zip_longest(versions, versions[1:])
        found = [
            (
                new,
                self.explain(ChangedFile(origin, new.first, old.state, new.state)) if old else None,
            )
            for new, old in pairs
        ]
        return History(found[:VERSIONS], len(found) > VERSIONS)

    def _compare(self, before: str, after: str) -> Difference:
        return difference(document_in(self._store, before), document_in(self._store, after))


def _size_of(found: Difference) -> str:
    return f"{counted(found.added, 'line')} added, {found.removed:,} removed"
