"""The scripted fetcher returns outcomes by URL and counts them."""

from __future__ import annotations

from robots_guard.decisions.access import Failed, Failure, Fetched, Get
from robots_guard.guard.fetch.script import ScriptedFetcher

A = Get(url="https://a.test/robots.txt")
NONE = Fetched(status=404)


async def test_entries_are_outcomes_functions_and_coroutine_functions():
    async def slow(get):
        return Fetched(status=200, body=get.url.encode())

    fetcher = ScriptedFetcher({A.url: NONE})
    assert await fetcher.fetch(A) is NONE
    fetcher.script[A.url] = lambda get: Failed(failure=Failure.TLS, detail=get.url)
    assert await fetcher.fetch(A) == Failed(failure=Failure.TLS, detail=A.url)
    fetcher.script[A.url] = slow
    assert (await fetcher.fetch(A)).body == A.url.encode()

    assert fetcher.counts == {A.url: 3}
    assert fetcher.gets == [A, A, A]


async def test_an_unknown_url_is_an_unknown_host():
    assert (await ScriptedFetcher().fetch(A)).failure is Failure.DNS
