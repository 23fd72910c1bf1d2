"""A fetcher without a network, for tests: ours, and those of whoever builds on us.

fetcher = ScriptedFetcher({"https://a.test/robots.txt": Fetched(status=200, body=b"User-agent: *\\nDisallow: /x")})
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable

from robots_guard.core.access import Failed, Failure, FetchOutcome, Get

Script = FetchOutcome | Callable[[Get], FetchOutcome | Awaitable[FetchOutcome]]


class ScriptedFetcher:
    """A Fetcher that answers from a table of URLs.

    An entry is an outcome, or a function of the Get that returns one or (a coroutine function) awaits one. A URL
    that is not in the table has no such host. `gets` keeps what was asked for, `counts` how often by URL.
    """

    via = "scripted"

    def __init__(self, script: Mapping[str, Script] | None = None) -> None:
        self.script: dict[str, Script] = dict(script or {})
        self.gets: list[Get] = []

    @property
    def counts(self) -> Counter[str]:
        """Fetches by URL."""
        return Counter(get.url for get in self.gets)

    async def fetch(self, get: Get) -> FetchOutcome:
        """The scripted outcome."""
        self.gets.append(get)
        entry = self.script.get(get.url, Failed(failure=Failure.DNS, detail="not in the script"))
        if not callable(entry):
            return entry
        outcome = entry(get)
        return await outcome if isawaitable(outcome) else outcome
