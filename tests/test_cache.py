"""The policies a guard holds, near and far."""

from __future__ import annotations

import pytest

from robots_guard.decisions import renewal
from robots_guard.decisions.access import Failed, Failure, Fetched
from robots_guard.errors import StoreError
from robots_guard.guard.cache import PolicyCache
from robots_guard.guard.calls import STORE_WIDTH, Calls
from robots_guard.guard.counters import QUIET, Counters
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.origin import origin_of
from robots_guard.ports import Clocks

A = origin_of("https://a.test")
RULES = Fetched(status=200, body=b"User-agent: *\nDisallow: /private/", tls_verified=True)


class Watch:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self.clocks = Clocks(now=lambda: self.time, monotonic=lambda: self.time)


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def counters(watch):
    return Counters(watch.clocks)


@pytest.fixture
def holding(watch, counters):
    runtime = AsyncioRuntime()
    outside = {"clocks": watch.clocks, "counters": counters}
    calls = Calls("the policy store", STORE_WIDTH, kind="store/error", runtime=runtime, **outside)
    yield PolicyCache(
        memory=MemoryStore(),
        store=MemoryStore(),
        calls=calls,
        demands_verified=True,
        agent="mybot",
        **outside,
    )
    runtime.close()


@pytest.fixture
def policy(watch):
    return renewal.begin(A, None, "test").next(RULES, watch.time).policy


async def test_what_is_kept_is_near_and_far(holding, policy):
    assert holding.get_local(A) is None
    assert await holding.get_shared(A) is None
    assert await holding.put(policy) == policy
    assert holding.get_local(A) == await holding.get_shared(A) == policy


async def test_a_failure_of_this_process_is_not_shared(holding, watch):
    failed = Failed(failure=Failure.INTERNAL)
    policy = renewal.begin(A, None, "test").next(failed, watch.time).policy

    assert await holding.put(policy, "proxy:3128") == policy
    assert holding.get_local(A) == holding.get_local(A, "proxy:3128") == policy
    assert await holding.get_shared(A) is None


async def test_a_failure_of_a_route_is_seen_by_requests_on_that_route_only(holding, watch, policy):
    await holding.put(policy)
    watch.time += 90_000
    failed = Failed(failure=Failure.CONNECT).on_route("proxy:3128")
    in_trouble = renewal.begin(A, policy, "test").next(failed, watch.time).policy
    await holding.put(in_trouble, "proxy:3128")

    assert holding.get_local(A, "proxy:3128") == in_trouble, "with the last good document"
    assert holding.get_local(A) == holding.get_local(A, "other:3128") == policy
    assert await holding.get_shared(A) == policy

    watch.time += 1
    renewed = renewal.begin(A, policy, "test").next(RULES, watch.time).policy
    await holding.put(renewed, "other:3128")
    assert holding.get_local(A, "proxy:3128") == renewed, "what another route has brought"


@pytest.mark.parametrize(
    "failures",
    [
        pytest.param(pair, id=name)
        for name, pair in {
            "site and asker": (Fetched(status=503, tls_verified=True), Failed(failure=Failure.TLS)),
            "site and route": (
                Fetched(status=500, tls_verified=True, relay="proxy:3128"),
                Fetched(status=502, tls_verified=True, relay="proxy:3128"),
            ),
            "route and asker": (
                Failed(failure=Failure.CONNECT).on_route("proxy:3128"),
                Failed(failure=Failure.REFUSED),
            ),
        }.items()
    ],
)
async def test_failures_of_two_kinds_in_turn_are_retried_ever_later(holding, watch, failures):
    route, tries = "proxy:3128", 0
    start = watch.time
    while watch.time < start + 3600:
        known = holding.get_local(A, route)
        if known is not None:
            watch.time = known.trouble.next_try
        state = renewal.begin(A, known, "test")
        await holding.put(state.next(failures[tries % 2], watch.time).policy, route)
        tries += 1

    assert tries <= 30


async def test_the_failures_that_are_remembered_are_bounded(holding, watch, monkeypatch):
    monkeypatch.setattr("robots_guard.guard.cache.MAX_LOCAL_FAILURES", 2)
    failed = Failed(failure=Failure.CONNECT).on_route("proxy")
    trouble = renewal.begin(A, None, "test").next(failed, watch.time).policy.trouble
    for route in "abc":
        holding.put_local_failure(A, trouble, route)

    assert [holding.get_local(A, route) is not None for route in "abc"] == [False, True, True]


async def test_a_policy_that_can_be_read_shows_that_reading_works_again_but_not_writing(
    holding, watch, counters, caplog
):
    for part in ("reading", "writing"):
        counters.warn("store/error", "%s", StoreError(part), part=part)
    watch.time += QUIET
    await holding.get_shared(A)
    assert caplog.messages == ["reading", "writing"]

    counters.mark_working("store/error", "writing")
    assert caplog.messages[2:] == ["the policy store works again"]


async def test_a_policy_that_can_be_kept_shows_that_both_work_again(
    holding, policy, watch, counters, caplog
):
    for part in ("reading", "writing"):
        counters.warn("store/error", "%s", StoreError(part), part=part)
    watch.time += QUIET
    await holding.put(policy)

    assert caplog.messages[2:] == ["the policy store works again"]
