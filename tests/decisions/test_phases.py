"""The phase in which a site's statements first refuse a page."""

from __future__ import annotations

import msgspec
import pytest

from robots_guard.configuration.settings import Settings
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.response import Phase, ResponseHead, StatementsByPhase, judge_phases
from robots_guard.decisions.verdict import Action, Verdict
from robots_guard.protocol.signals.statement import Place, Signal, Statement

ALLOWED = Verdict(action=Action.PASS, reason=Reason.ALLOWED)
DISALLOWED = Verdict(action=Action.DROP, reason=Reason.DISALLOWED)
HTML = ResponseHead(status=200, headers=[("Content-Type", "text/html")])

USAGE_N = Statement(
    signal=Signal.CONTENT_USAGE, place=Place.ROBOTS_TXT, rule="train-ai", value="n", line=2
)
NOAI = Statement(signal=Signal.X_ROBOTS_TAG, place=Place.HEADER, rule="noai")
NOARCHIVE = Statement(signal=Signal.META_ROBOTS, place=Place.PAGE, rule="noarchive")
NOINDEX = Statement(signal=Signal.META_ROBOTS, place=Place.PAGE, rule="noindex")


def judged(request=ALLOWED, head=HTML, purposes="ai-train", stated=None, **settings):
    terms = Settings(agent="mybot", purposes=purposes, **settings).terms()
    return judge_phases(request, StatementsByPhase(**(stated or {})), head, "mybot", terms, 0.0)


@pytest.mark.parametrize(
    ("stated", "phase"),
    [
        ({"policy": (USAGE_N,), "headers": (NOAI,), "page": (NOARCHIVE,)}, Phase.REQUEST),
        ({"headers": (NOAI,), "page": (NOARCHIVE,)}, Phase.HEADERS),
        ({"page": (NOARCHIVE,)}, Phase.BODY),
        ({"page": (NOINDEX,)}, None),  # another use
        ({}, None),
    ],
)
def test_first_phase_that_refuses_decides(stated, phase):
    result = judged(stated=stated)

    assert result.phase is phase
    assert (result.verdict.action is Action.PASS) == (phase is None)


def test_uses_have_what_later_phases_state():
    result = judged(stated={"policy": (USAGE_N,), "page": (NOINDEX,)})

    assert result.phase is Phase.REQUEST
    assert result.uses.denied == ["ai-index", "ai-train", "search", "snippet"]


def test_disallow_is_a_refusal_of_the_request():
    result = judged(DISALLOWED, stated={"headers": (NOAI,)})

    assert (result.phase, result.verdict.reason) == (Phase.REQUEST, Reason.DISALLOWED)


def test_without_purposes_nothing_refuses():
    stated = {"policy": (USAGE_N,), "headers": (NOAI,), "page": (NOARCHIVE,)}

    assert judged(purposes="", stated=stated).phase is None


@pytest.mark.parametrize("signals", ["off", "record"])
def test_signals_that_are_not_enforced_refuse_nothing(signals):
    result = judged(signals=signals, stated={"policy": (USAGE_N,), "headers": (NOAI,)})

    assert result.phase is None
    assert result.verdict.action is Action.PASS


@pytest.mark.parametrize(
    ("head", "phase"),
    [
        pytest.param(HTML, Phase.BODY, id="the page could still permit it"),
        pytest.param(
            msgspec.structs.replace(HTML, headers=[("Content-Type", "image/png")]),
            Phase.HEADERS,
            id="no page follows",
        ),
        pytest.param(
            msgspec.structs.replace(HTML, method="HEAD"), None, id="there is nothing to use"
        ),
    ],
)
def test_silence_counts_when_nothing_more_follows(head, phase):
    assert judged(head=head, on_unknown="deny").phase is phase


def test_demand_for_payment_refuses_at_the_header_fields():
    price = Statement(
        signal=Signal.PAYMENT, place=Place.HEADER, rule="crawler-price", value="USD 0.01"
    )
    head = ResponseHead(status=402)

    result = judged(head=head, purposes="", stated={"headers": (price,)})

    assert (result.phase, result.verdict.reason) == (Phase.HEADERS, Reason.PAYMENT_REQUIRED)
    assert judged(head=head, signals="off", stated={"headers": (price,)}).phase is None


def test_exemption_is_judged_and_refuses_nothing():
    terms = msgspec.structs.replace(
        Settings(agent="mybot", purposes="ai-train").terms(), action="pass"
    )
    stated = StatementsByPhase(policy=(USAGE_N,), headers=(NOAI,), page=(NOARCHIVE,))

    result = judge_phases(ALLOWED, stated, HTML, "mybot", terms, 0.0)

    assert (result.phase, result.verdict.action) == (None, Action.PASS)
    assert "ai-train" in result.uses.denied
