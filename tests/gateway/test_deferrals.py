"""The memory of deferred requests."""

from __future__ import annotations

import msgspec
import pytest

from robots_guard.decisions.pacing import DelaySource, RequiredDelay, Turn
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Decision, Question, Verdict
from robots_guard.gateway import admission
from robots_guard.gateway.admission import REMEMBERED_FOR, DeferralMemory
from robots_guard.origin import origin_of

QUESTION = Question(
    origin=origin_of("https://a.test"), target="/x", agent="mybot", client="192.0.2.1"
)
DEFER = Verdict(action=Action.DEFER, reason=Reason.CRAWL_DELAY)
DROP = Verdict(action=Action.DROP, reason=Reason.DISALLOWED)
PASS = Verdict(action=Action.PASS, reason=Reason.ALLOWED)
PACED = msgspec.structs.replace(PASS, delay=RequiredDelay(by=DelaySource.CRAWL_DELAY, seconds=1.0))


def decision(question=QUESTION, verdict=DEFER, name="a-1", **more):
    return Decision(
        id=name, at=1000.0, component="proxy", question=question, verdict=verdict, **more
    )


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
    [
        {"client": "192.0.2.2"},
        {"method": "HEAD"},
        {"target": "/y"},
        {"origin": origin_of("http://a.test")},
    ],
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
    clock.advance(REMEMBERED_FOR + 1)
    assert memory.link(QUESTION).deferral is None
    monkeypatch.setattr(admission, "MAX_REMEMBERED", 3)
    few = DeferralMemory(clock)
    for number in range(5):
        few.remember(decision(msgspec.structs.replace(QUESTION, target=f"/{number}")))
    assert len(few) == 3
