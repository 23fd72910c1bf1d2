"""Verdicts on responses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.response import ResponseHead, judge_response, needs_page, reads_page
from robots_guard.decisions.verdict import Action, Terms
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.html.page import read_page
from robots_guard.protocol.paths import matching
from robots_guard.protocol.signals.statement import Place, Signal, Statement

NOINDEX = Statement(signal=Signal.X_ROBOTS_TAG, place=Place.HEADER, rule="noindex", raw="noindex")
NOARCHIVE = Statement(
    signal=Signal.X_ROBOTS_TAG, place=Place.HEADER, rule="noarchive", raw="noarchive"
)
RESERVED = Statement(
    signal=Signal.TDM, place=Place.HEADER, rule="tdm-reservation", value=1, raw="1"
)
NONE = Statement(signal=Signal.X_ROBOTS_TAG, place=Place.HEADER, rule="none", raw="none")
PRICE = Statement(
    signal=Signal.PAYMENT,
    place=Place.HEADER,
    rule="crawler-price",
    value="USD 0.01",
    raw="USD 0.01",
)
LICENSE = Statement(
    signal=Signal.PAYMENT, place=Place.HEADER, rule="license-required", raw="License"
)

USE = Statement(
    signal=Signal.CONTENT_SIGNAL, place=Place.HEADER, rule="use", value="reference", raw="use"
)


def terms(**settings):
    return Terms(dialect=dialect("rfc9309"), matching=matching("standard"), **settings)


def judge(*statements, status=200, client_pays=False, can_use_links_only=False, **settings):
    return judge_response(
        statements,
        ResponseHead(status=status),
        "mybot",
        terms(**settings),
        0.0,
        client_pays=client_pays,
        can_use_links_only=can_use_links_only,
    )


def outcome(verdict):
    return verdict.action, verdict.reason


def test_a_response_is_refused_if_a_purpose_is_denied():
    assert outcome(judge(NOINDEX, purposes="search")) == (Action.DROP, Reason.USAGE_RESERVED)


@pytest.mark.parametrize(
    "settings", [{}, {"purposes": "ai-train"}, {"purposes": "search", "action": "pass"}]
)
def test_otherwise_it_passes_with_its_uses(settings):
    verdict = judge(NOINDEX, **settings)
    assert verdict.action is Action.PASS
    assert "search" in verdict.uses.denied


def test_a_refusal_that_is_only_recorded_names_the_setting():
    verdict = judge(NOINDEX, purposes="search", signals="record")
    assert (verdict.action, verdict.relaxed) == (Action.PASS, "signals=record")


@pytest.mark.parametrize(
    ("status", "action"),
    [(200, "drop"), (203, "drop"), (206, "drop"), (304, "drop"), (301, "pass"), (404, "pass")],
)
def test_only_responses_with_content_are_refused(status, action):
    assert judge(NOINDEX, status=status, purposes="search").action == action


def test_a_noindex_page_may_be_used_for_its_links():
    settings = {"purposes": "search", "noindex_action": "follow-only"}
    verdict = judge(NOINDEX, can_use_links_only=True, **settings)
    assert verdict.action is Action.PASS
    assert verdict.is_follow_only
    assert verdict.relaxed == "noindex_action=follow-only"
    assert judge(NONE, can_use_links_only=True, **settings).action is Action.DROP


def test_a_caller_that_cannot_drop_the_rest_of_a_page_gets_a_refusal():
    settings = {"purposes": "search", "noindex_action": "follow-only"}
    assert judge(NOINDEX, **settings).action is Action.DROP


@pytest.mark.parametrize(
    ("statement", "settings", "relaxed"),
    [
        (NOARCHIVE, {"page_dialect": "google"}, "page_dialect=google"),
        (NOINDEX, {"page_dialect": "google"}, None),
    ],
)
def test_a_reading_that_lets_a_page_pass_is_named(statement, settings, relaxed):
    verdict = judge(statement, purposes="ai-train", **settings)
    assert (verdict.action, verdict.relaxed) == (Action.PASS, relaxed)


@pytest.mark.parametrize(
    ("others", "settings"),
    [
        ([USE], {"purposes": "search"}),
        ([], {"purposes": "search,archive", "on_unknown": "deny"}),
    ],
)
def test_a_page_that_more_than_noindex_refuses_is_not_used_for_its_links(others, settings):
    settings |= {"noindex_action": "follow-only", "can_use_links_only": True}
    assert judge(NOINDEX, *others, **settings).action is Action.DROP


@pytest.mark.parametrize(
    ("statement", "status", "settings", "client_pays", "expected"),
    [
        (PRICE, 402, {}, False, ("drop", "payment-required")),
        (PRICE, 402, {}, True, ("pass", "payment-required")),
        (PRICE, 402, {"signals": "record"}, False, ("pass", "payment-required")),
        (PRICE, 200, {}, False, ("pass", "allowed")),
        (LICENSE, 401, {}, False, ("drop", "payment-required")),
        (LICENSE, 404, {}, False, ("pass", "allowed")),
    ],
)
def test_the_guard_never_pays(statement, status, settings, client_pays, expected):
    assert outcome(judge(statement, status=status, client_pays=client_pays, **settings)) == expected


@pytest.mark.parametrize(
    ("head", "settings", "expected"),
    [
        (
            ResponseHead(status=200, headers=[("Content-Type", "text/html; charset=x")]),
            "search",
            True,
        ),
        (ResponseHead(status=200, headers=[("content-type", "TEXT/HTML")]), "search", True),
        (ResponseHead(status=200), "search", True),
        (ResponseHead(status=200, headers=[("Content-Type", "image/png")]), "search", False),
        (ResponseHead(status=404), "search", False),
        (ResponseHead(status=200, method="HEAD"), "search", False),
        (ResponseHead(status=200), "", False),
    ],
)
def test_a_page_is_only_needed_if_it_can_refuse(head, settings, expected):
    assert needs_page(head, terms(purposes=settings)) is expected


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["text/plain", "text/html"], True),
        (["text/html", "image/png"], True),
        (["text/plain, application/xhtml+xml;charset=x"], True),
        (["text/plain", "image/png"], False),
        (["*/*"], True),
        (["html"], True),
        ([""], True),
        (["text/html charset=utf-8"], True),
        (["text/html: charset=utf-8"], True),
        (["text / html"], True),
        (["text/html/"], True),
        (['"text/html"'], True),
        (["text/html="], True),
        (["text/"], True),
        (["text/plain; x=text/html"], False),
        (["text/plain charset=utf-8"], False),
        (['"application/json"'], False),
    ],
)
def test_any_type_that_a_client_can_take_counts(types, expected):
    head = ResponseHead(status=200, headers=[("Content-Type", each) for each in types])
    assert needs_page(head, terms(purposes="search")) is expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"signals": "record"}, True),
        ({"purposes": "search"}, True),
        ({"purposes": "search", "signals": "off"}, False),
    ],
)
def test_a_page_is_read_for_the_record_only_if_the_operator_asks_for_it(settings, expected):
    assert reads_page(ResponseHead(status=200), terms(**settings)) is expected


@pytest.mark.parametrize(
    "values",
    [
        ["text/html charset=utf-8"],
        ["text/html,text/html"],
        ["text/plain, text/html"],
        ["text/plain", "text/html"],
        ["*/*"],
        ["application/unknown"],
        ["html"],
        ["application/xhtml+xml;charset=x"],
    ],
)
def test_every_page_that_is_read_must_be_waited_for(values):
    head = ResponseHead(status=200, headers=[("Content-Type", value) for value in values])
    page = read_page(b'<meta name="robots" content="none">', head.content_type, "https://a.test/")

    assert page.statements
    assert needs_page(head, terms(purposes="search"))


@given(st.lists(st.text("texthmlaplicon/xhtml+plain*unkw;,= ", max_size=30), max_size=3))
def test_no_page_states_anything_that_is_not_waited_for(values):
    head = ResponseHead(status=200, headers=[("Content-Type", value) for value in values])
    page = read_page(b'<meta name="robots" content="none">', head.content_type, "https://a.test/")

    assert needs_page(head, terms(purposes="search")) is bool(page.statements)
