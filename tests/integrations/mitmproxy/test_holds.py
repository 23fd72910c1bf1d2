"""Requests that wait for a turn."""

from __future__ import annotations

import asyncio

import pytest
from mitmproxy.test import tflow
from support.waiting import until

from robots_guard.core.reasons import Reason
from robots_guard.core.verdict import Action, Decision, Question, Verdict
from robots_guard.mitmproxy.turn_waiters import TurnWaiters
from robots_guard.origin import origin_of

QUESTION = Question(origin=origin_of("https://a.test"), target="/x", agent="mybot")
DECISION = Decision(
    id="a-1",
    at=1000.0,
    component="proxy",
    question=QUESTION,
    verdict=Verdict(action=Action.PASS, reason=Reason.ALLOWED),
)


async def test_only_the_waits_of_one_client_are_cancelled():
    waiting, stays, leaves = TurnWaiters(), tflow.tclient_conn(), tflow.tclient_conn()
    leaves.id = "leaves"
    turns = [asyncio.get_running_loop().create_future() for _ in range(3)]

    async def turn(number):
        return await turns[number]

    tasks = [
        asyncio.ensure_future(waiting.wait(each, turn(n)))
        for n, each in enumerate((stays, leaves, leaves))
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(waiting) == 3

    waiting.cancel(leaves)
    assert await asyncio.gather(*tasks[1:]) == [None, None]
    turns[0].set_result(DECISION)

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
