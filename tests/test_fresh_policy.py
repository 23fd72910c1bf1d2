"""`Guard.fresh_policy`: the policy of an origin for integrations that show its robots.txt."""

from __future__ import annotations

import asyncio

import pytest

from robots_guard.decisions.access import Fetched
from robots_guard.decisions.verdict import Question
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.origin import origin_of
from robots_guard.ports import Clocks

A = origin_of("https://a.test")
LIFETIME, HOUR = 600.0, 3600.0
URL = f"{A}/robots.txt"


def answer(body: bytes) -> Fetched:
    headers = {"cache-control": f"max-age={LIFETIME:.0f}"}
    return Fetched(status=200, body=body, headers=headers, tls_verified=True)


@pytest.fixture
def build(build_guard, clock):
    def build(fetcher, **options):
        return build_guard(fetcher, clocks=Clocks(now=clock, monotonic=clock), **options)

    return build


async def test_a_fresh_policy_is_not_fetched_again(build, clock):
    fetcher = ScriptedFetcher({URL: answer(b"one")})
    guard = build(fetcher)

    first = await guard.fresh_policy(A)
    clock.advance(LIFETIME - 1)

    assert first.document.body == b"one"
    assert await guard.fresh_policy(A) == first
    assert fetcher.counts == {URL: 1}


async def test_a_stale_policy_is_renewed_first(build, clock):
    """`check` would use the stale one, and renew it in the background."""
    fetcher = ScriptedFetcher({URL: answer(b"one")})
    guard = build(fetcher)
    await guard.fresh_policy(A)
    fetcher.script[URL] = answer(b"two")
    clock.advance(LIFETIME + 1)

    assert (await guard.fresh_policy(A)).document.body == b"two"
    assert fetcher.counts == {URL: 2}


async def test_it_shares_the_fetch_of_a_check(build):
    fetcher = ScriptedFetcher({URL: answer(b"User-agent: *\nDisallow: /x")})
    guard = build(fetcher)
    question = Question(origin=A, target="/x", agent="mybot")

    decision, policy = await asyncio.gather(guard.check(question), guard.fresh_policy(A))

    assert (decision.verdict.action, decision.policy) == ("drop", policy)
    assert fetcher.counts == {URL: 1}


async def test_trouble_is_not_fetched_again_before_its_time(build, clock):
    fetcher = ScriptedFetcher()
    guard = build(fetcher)

    first = await guard.fresh_policy(A)
    again = await guard.fresh_policy(A)

    assert first == again
    assert first.trouble is not None
    assert fetcher.counts == {URL: 1}
    clock.advance(HOUR)
    assert (await guard.fresh_policy(A)).trouble.at > first.trouble.at


async def test_it_gives_up_after_the_decision_timeout(build_guard):
    released = asyncio.Event()

    async def hang(_get):
        await released.wait()
        return answer(b"late")

    guard = build_guard(ScriptedFetcher({URL: hang}), decision_timeout=0.05)

    assert await guard.fresh_policy(A) is None
    released.set()
    assert (await guard.policy(A)).document.body == b"late"


async def test_an_error_is_logged_and_gives_none(build, caplog, monkeypatch):
    guard = build(ScriptedFetcher())

    monkeypatch.setattr("robots_guard.guard.checks.Checks.look_up_in_time", lambda *_: 1 / 0)

    assert await guard.fresh_policy(A) is None
    assert "is not available" in caplog.text
