"""Those who wait, and what is remembered of those put off, by themselves."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from mitmproxy.test import tflow

from robots_guard.core.pacing import Demand, Pacer, Turn
from robots_guard.core.verdict import Action, Decision, Question, Reason, Verdict
from robots_guard.mitmproxy import holds
from robots_guard.mitmproxy.holds import LONGEST, Holds, PutOff
from robots_guard.origin import origin_of

QUESTION = Question(origin=origin_of("https://a.test"), target="/x", agent="mybot", client="192.0.2.1")
DEFER = Verdict(action=Action.DEFER, reason=Reason.CRAWL_DELAY)
DROP = Verdict(action=Action.DROP, reason=Reason.DISALLOWED)
PASS = Verdict(action=Action.PASS, reason=Reason.ALLOWED)
PACED = msgspec.structs.replace(PASS, pace=Demand(by=Pacer.CRAWL_DELAY, seconds=1.0))


def decision(question=QUESTION, verdict=DEFER, name="a-1", **more):
    return Decision(id=name, at=1000.0, door="mitmproxy", question=question, verdict=verdict, **more)


@pytest.fixture
def put_off(clock):
    return PutOff(clock)


def test_who_asks_again_is_known(put_off):
    assert put_off.linked(QUESTION) is QUESTION
    put_off.note(decision())

    again = put_off.linked(QUESTION)

    assert (again.deferral.id, again.deferral.since) == ("a-1", 1000.0)
    put_off.note(decision(again, name="a-2"))
    assert put_off.linked(QUESTION).deferral.id == "a-1"


@pytest.mark.parametrize(
    "other",
    [{"client": "192.0.2.2"}, {"method": "HEAD"}, {"target": "/y"}, {"origin": origin_of("http://a.test")}],
)
def test_another_request_is_another(put_off, other):
    put_off.note(decision())
    assert put_off.linked(msgspec.structs.replace(QUESTION, **other)).deferral is None


@pytest.mark.parametrize(
    ("verdict", "turn", "known"),
    [(PASS, None, False), (PACED, Turn(0.0, 1.0), False), (PACED, None, True), (DROP, None, True)],
)
def test_what_is_sent_is_forgotten_and_what_is_not_is_not(put_off, verdict, turn, known):
    """A drop in the end is the end: who goes on asking does not begin anew."""
    put_off.note(decision())
    put_off.note(decision(put_off.linked(QUESTION), verdict, "a-2", turn=turn))
    assert (put_off.linked(QUESTION).deferral is not None) == known


def test_it_is_forgotten_after_a_day_and_never_too_much(put_off, clock, monkeypatch):
    put_off.note(decision())
    clock.advance(LONGEST + 1)
    assert put_off.linked(QUESTION).deferral is None
    monkeypatch.setattr(holds, "REMEMBERED", 3)
    few = PutOff(clock)
    for number in range(5):
        few.note(decision(msgspec.structs.replace(QUESTION, target=f"/{number}")))
    assert len(few) == 3


async def test_those_of_a_client_are_given_up_and_others_are_not():
    waiting, stays, leaves = Holds(), tflow.tclient_conn(), tflow.tclient_conn()
    leaves.id = "leaves"
    turns = [asyncio.get_running_loop().create_future() for _ in range(3)]

    async def turn(number):
        return await turns[number]

    held = [asyncio.ensure_future(waiting.wait(each, turn(n))) for n, each in enumerate((stays, leaves, leaves))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(waiting) == 3

    waiting.give_up(leaves)
    assert await asyncio.gather(*held[1:]) == [None, None]
    turns[0].set_result(decision())

    assert (await held[0]).id == "a-1"
    assert len(waiting) == 0
    assert [each.cancelled() for each in turns] == [False, True, True]


async def test_a_hold_that_fails_says_so_and_one_that_is_cancelled_takes_its_turn_along():
    waiting, client = Holds(), tflow.tclient_conn()

    async def fails():
        await asyncio.sleep(0)
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        await waiting.wait(client, fails())
    never = asyncio.get_running_loop().create_future()

    async def waits():
        return await never

    held = asyncio.ensure_future(waiting.wait(client, waits()))
    await asyncio.sleep(0.01)
    held.cancel()
    with pytest.raises(asyncio.CancelledError):
        await held
    await asyncio.sleep(0)
    assert never.cancelled()
    assert len(waiting) == 0
