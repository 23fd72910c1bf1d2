"""What the console looks at, and the one thing it does: ask an origin for its robots.txt anew.

The law of this file: looking changes nothing. The store and the journal are the doors'; a guard of our own, which
writes to both, is opened when somebody first asks for a refresh and not before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from robots_guard.core.overrides import Overrides
from robots_guard.core.policy import Policy
from robots_guard.core.verdict import Terms
from robots_guard.errors import SettingsError
from robots_guard.guard import Guard
from robots_guard.origin import Origin
from robots_guard.overriding import read
from robots_guard.ports import Clocks, SharedStore
from robots_guard.runtime import AsyncioRuntime
from robots_guard.settings import CLOCKS, Settings, direct_fetcher, open_guard
from robots_guard.stores import look_at

DOOR = "console"

Refresh = Callable[[Origin], Awaitable[Policy]]


class Sources(NamedTuple):
    """Where things are. `store` is None where policies live in each door's memory only; `agent` is the crawler's
    product token, by which files are read where nobody names another."""

    journal: Path
    store: SharedStore | None
    overrides: Path | None
    terms: Terms
    agent: str
    clocks: Clocks = CLOCKS

    def exceptions(self) -> Overrides:
        """The operator's exceptions as they are now. Raises SettingsError for a file that cannot be read."""
        return read(self.overrides, self.terms) if self.overrides else Overrides()

    def terms_now(self) -> tuple[Callable[[Origin], Terms], str]:
        """The terms of each origin now, and why the overrides have no part in them if their file cannot be read."""
        try:
            found, trouble = self.exceptions(), ""
        except SettingsError as error:
            found, trouble = Overrides(), str(error)
        return lambda origin: found.terms(origin, self.terms, self.clocks.now()), trouble


def sources_of(settings: Settings) -> Sources:
    """What the doors with these settings use, only to be looked at. Raises SettingsError."""
    return Sources(
        journal=Path(settings.journal).expanduser(),
        store=look_at(settings.store, insist=False),  # a console may be there before the first crawl
        overrides=Path(settings.overrides).expanduser() if settings.overrides else None,
        terms=settings.terms(),
        agent=settings.agent,
    )


class Refresher:
    """Asks origins for their robots.txt by a guard of its own, as `robots-guard policy refresh` does.

    `trusts_asked`: who asks could reach the origin anyhow, so it may be private; else only `allow_private` may be.
    """

    def __init__(self, settings: Settings, *, trusts_asked: bool = True) -> None:
        self._settings = settings
        self._trusts_asked = trusts_asked
        self._guard: Guard | None = None

    async def __call__(self, origin: Origin) -> Policy:
        """The origin's new policy. Raises SettingsError if the journal or the store cannot be opened."""
        if self._guard is None:
            fetcher = direct_fetcher(self._settings, trusts_asked=self._trusts_asked)
            self._guard = open_guard(self._settings, door=DOOR, runtime=AsyncioRuntime(), fetcher=fetcher)
        return await self._guard.policy(origin, renew=True)

    def close(self) -> None:
        """Release what a refresh has opened."""
        if self._guard is not None:
            self._guard.close()
