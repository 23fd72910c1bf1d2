"""A fetcher without a network, for tests of this package and of programs that use it.

fetcher = ScriptedFetcher({"https://a.test/robots.txt": Fetched(status=200, body=b"User-agent:
*\\nDisallow: /x")})
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable

from robots_guard.decisions.access import Failed, Failure, FetchOutcome, Get

Script = FetchOutcome | Callable[[Get], FetchOutcome | Awaitable[FetchOutcome]]


class ScriptedFetcher:
    """A Fetcher that answers from a table of URLs.

    An entry is an outcome, or a function, possibly a coroutine function, that returns one for the
    Get. A URL that is not in the table fails like a host name that does not resolve. `gets` lists
    all fetches, `counts` counts them by URL.
    """

    via = "scripted"

    def __init__(self, script: Mapping[str, Script] | None = None) -> None:
        self.script: dict[str, Script] = dict(script or {})
        self.gets: list[Get] = []

    @property
    def counts(self) -> Counter[str]:
        """The number of fetches by URL."""
        return Counter(get.url for get in self.gets)

    async def fetch(self, get: Get) -> FetchOutcome:
        """Return the scripted outcome."""
        self.gets.append(get)
        entry = self.script.get(get.url, Failed(failure=Failure.DNS, detail="not in the script"))
        if not callable(entry):
            return entry
        outcome = entry(get)
        if isawaitable(outcome):
            return await outcome
        return outcome
