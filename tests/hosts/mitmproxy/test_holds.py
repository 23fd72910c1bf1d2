"""Requests that wait for a turn, and the memory of deferred ones."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from mitmproxy.test import tflow
from support.waiting import until

from robots_guard.core.pacing import Demand, Pacer, Turn
from robots_guard.core.reasons import Reason
from robots_guard.core.verdict import Action, Decision, Question, Verdict
from robots_guard.mitmproxy import turn_waiters
from robots_guard.mitmproxy.turn_waiters import LONGEST, DeferralMemory, TurnWaiters
from robots_guard.origin import origin_of

QUESTION = Question(origin=origin_of("https://a.test"), target="/x", agent="mybot", client="192.0.2.1")
DEFER = Verdict(action=Action.DEFER, reason=Reason.CRAWL_DELAY)
DROP = Verdict(action=Action.DROP, reason=Reason.DISALLOWED)
PASS = Verdict(action=Action.PASS, reason=Reason.ALLOWED)
PACED = msgspec.structs.replace(PASS, pace=Demand(by=Pacer.CRAWL_DELAY, seconds=1.0))


def decision(question=QUESTION, verdict=DEFER, name="a-1", **more):
    return Decision(id=name, at=1000.0, component="proxy", question=question, verdict=verdict, **more)


@pytest.fixture
def memory(clock):
    return DeferralMemory(clock)


def test_a_repeated_request_is_linked(memory):
    assert memory.link(QUESTION) is QUESTION
    memory.remember(decision())

    again = memory.link(QUESTION)

    assert (again.deferral.id, again.deferral.since) == ("a-1", 1000.0)
    memory.remember(decision(again, name="a-2"))
    assert memory.link(QUESTION).deferral.id == "a-1"


@pytest.mark.parametrize(
    "other",
    [{"client": "192.0.2.2"}, {"method": "HEAD"}, {"target": "/y"}, {"origin": origin_of("http://a.test")}],
)
def test_another_request_is_not_linked(memory, other):
    memory.remember(decision())
    assert memory.link(msgspec.structs.replace(QUESTION, **other)).deferral is None


@pytest.mark.parametrize(
    ("verdict", "turn", "known"),
    [(PASS, None, False), (PACED, Turn(stamp=1.0), False), (PACED, None, True), (DROP, None, True)],
)
def test_only_a_sent_request_is_forgotten(memory, verdict, turn, known):
    """After a drop, a repeated request does not start `max_defer` anew."""
    memory.remember(decision())
    memory.remember(decision(memory.link(QUESTION), verdict, "a-2", turn=turn))
    assert (memory.link(QUESTION).deferral is not None) == known


def test_the_memory_is_bounded_in_time_and_size(memory, clock, monkeypatch):
    memory.remember(decision())
    clock.advance(LONGEST + 1)
    assert memory.link(QUESTION).deferral is None
    monkeypatch.setattr(turn_waiters, "REMEMBERED", 3)
    few = DeferralMemory(clock)
    for number in range(5):
        few.remember(decision(msgspec.structs.replace(QUESTION, target=f"/{number}")))
    assert len(few) == 3


async def test_only_the_waits_of_one_client_are_cancelled():
    waiting, stays, leaves = TurnWaiters(), tflow.tclient_conn(), tflow.tclient_conn()
    leaves.id = "leaves"
    turns = [asyncio.get_running_loop().create_future() for _ in range(3)]

    async def turn(number):
        return await turns[number]

    tasks = [asyncio.ensure_future(waiting.wait(each, turn(n))) for n, each in enumerate((stays, leaves, leaves))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(waiting) == 3

    waiting.cancel(leaves)
    assert await asyncio.gather(*tasks[1:]) == [None, None]
    turns[0].set_result(decision())

    assert (await tasks[0]).id == "a-1"
    assert len(waiting) == 0
    assert [each.cancelled() for each in turns] == [False, True, True]


async def test_a_wait_raises_the_errors_of_its_turn_and_cancels_it():
    waiting, client = TurnWaiters(), tflow.tclient_conn()

    async def fails():
        await asyncio.sleep(0)
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        await waiting.wait(client, fails())
    never = asyncio.get_running_loop().create_future()

    async def waits():
        return await never

    tasks = asyncio.ensure_future(waiting.wait(client, waits()))
    await until(lambda: len(waiting))
    tasks.cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks
    await asyncio.sleep(0)
    assert never.cancelled()
    assert len(waiting) == 0
