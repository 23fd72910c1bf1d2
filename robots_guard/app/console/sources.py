"""The console's data sources, the records in them that belong together, and its only action: fetching an
origin's robots.txt.

Invariant: reading changes nothing. The store and the audit log belong to the integrations; a guard that writes to
both is opened only for the first refresh.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from robots_guard.audit.read.search import Search, record_of_row
from robots_guard.audit.record import AnyRecord
from robots_guard.audit.schema import COLUMNS
from robots_guard.configuration.settings import CLOCKS, Settings, direct_fetcher, open_guard
from robots_guard.decisions.component import Component
from robots_guard.decisions.overrides import Overrides
from robots_guard.decisions.policy import Policy
from robots_guard.decisions.verdict import Terms
from robots_guard.errors import SettingsError
from robots_guard.guard.guard import Guard
from robots_guard.guard.overrides import look_at_overrides
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.guard.stores import look_at
from robots_guard.invocation import BARE, Invocation
from robots_guard.origin import Origin
from robots_guard.ports import Clocks, SharedStore

Refresh = Callable[[Origin], Awaitable[Policy]]


class Sources(NamedTuple):
    """The data sources. `store` is None if policies are only in each integration's memory; `agent` is the product
    token for which robots.txt files are read by default. `invocation` says what commands on the pages must name."""

    audit_log: Path
    store: SharedStore | None
    overrides: Path | None
    terms: Terms
    agent: str
    clocks: Clocks = CLOCKS
    invocation: Invocation = BARE

    def exceptions(self) -> Overrides:
        """Read the operator's overrides as they are now. Raises SettingsError if the file cannot be read."""
        if self.overrides:
            return look_at_overrides(self.overrides, self.terms, self.clocks.now())
        return Overrides()

    def terms_now(self) -> tuple[Callable[[Origin], Terms], str]:
        """Return a function for each origin's terms now, and why overrides are missing if their file is unreadable."""
        try:
            found, trouble = self.exceptions(), ""
        except SettingsError as error:
            found, trouble = Overrides(), str(error)
        return lambda origin: found.terms(origin, self.terms, self.clocks.now()), trouble


def sources_of(settings: Settings, invocation: Invocation = BARE) -> Sources:
    """Open what integrations with these settings use, read-only. Raises SettingsError."""
    return Sources(
        audit_log=Path(settings.audit_log).expanduser(),
        # The console may be started before the first crawl.
        store=look_at(settings.store, insist=False),
        overrides=Path(settings.overrides).expanduser() if settings.overrides else None,
        terms=settings.terms(),
        agent=settings.agent,
        invocation=invocation,
    )


class Refresher:
    """Fetches origins' robots.txt files with its own guard, as `robots-guard policy refresh` does.

    With `trusts_caller` any private address may be fetched, because the user can reach it anyway; without it, only
    those in `allow_private`.
    """

    def __init__(self, settings: Settings, *, trusts_caller: bool = True) -> None:
        self._settings = settings
        self._trusts_asked = trusts_caller
        self._guard: Guard | None = None

    async def __call__(self, origin: Origin) -> Policy:
        """Return the origin's new policy. Raises SettingsError if the audit log or the store cannot be opened."""
        if self._guard is None:
            fetcher = direct_fetcher(self._settings, trusts_caller=self._trusts_asked)
            self._guard = open_guard(
                self._settings,
                component=Component.CONSOLE,
                runtime=AsyncioRuntime(),
                fetcher=fetcher,
            )
        return await self._guard.policy(origin, renew=True)

    def close(self) -> None:
        """Close the guard, if a refresh has opened it."""
        if self._guard is not None:
            self._guard.close()


# -- records ---------------------------------------------------------------------------------------


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
    rows = search.rows(
        f"SELECT {_NAMES} FROM records WHERE {among}",
        [*moments, *values],
    )
    read = (record_of_row(dict(zip(COLUMNS, row, strict=True))) for row in rows)
    return [entry for entry in read if entry is not None]
