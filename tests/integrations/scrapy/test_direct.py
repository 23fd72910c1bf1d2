"""Direct fetches on a reactor other than asyncio's: on a separate loop in a thread."""

from __future__ import annotations

import pytest
from support.threads import System

from robots_guard.decisions.access import Failed, Failure, Fetched, Get
from robots_guard.scrapy.fetch import direct
from robots_guard.scrapy.fetch.direct import DirectFetcher

GET = Get(url="http://a.test/robots.txt")


class FixedFetcher:
    """A fetcher that always succeeds."""

    via = "direct"

    async def fetch(self, get):
        return Fetched(status=200)


@pytest.fixture
def fetcher(monkeypatch):
    monkeypatch.setattr(direct, "is_asyncio_available", lambda: False)
    direct_fetcher = DirectFetcher(FixedFetcher())
    yield direct_fetcher
    direct_fetcher.close()


def outcome(fetcher):
    """The outcome of a fetch that does not wait for its thread."""
    fetch = fetcher.fetch(GET)
    with pytest.raises(StopIteration) as ended:
        fetch.send(None)
    return ended.value.value


def test_a_refused_thread_fails_one_fetch_only(fetcher, monkeypatch):
    works = []
    monkeypatch.setattr(direct, "from_thread", lambda work: works.append(work) or _nothing())
    system = System(monkeypatch)
    system.refuses = 1

    refused = outcome(fetcher)
    outcome(fetcher)

    assert isinstance(refused, Failed)
    assert refused.failure is Failure.INTERNAL
    (work,) = works
    assert work.result(60) == Fetched(status=200)


async def _nothing():
    """A replacement for the reactor, which does not run here."""
