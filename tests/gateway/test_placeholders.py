"""Placeholders: what a browser gets instead of a part of a page."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.guards import CLOCKS
from support.wires import wire

from robots_guard.audit.record import record_of
from robots_guard.decisions.access import Fetched
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import (
    Action,
    Decision,
    Question,
    ResponseRef,
    Subresource,
    Verdict,
)
from robots_guard.gateway.admission import Admission
from robots_guard.gateway.placeholders import PLACEHOLDERS, subresource_of
from robots_guard.gateway.refusal import reply_to
from robots_guard.gateway.wire import Wire
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.origin import Origin

#: Every destination of the Fetch standard, section 2.2.5.
DESTINATIONS = (
    *("audio", "audioworklet", "document", "embed", "empty", "fencedframe", "font", "frame"),
    *("iframe", "image", "json", "manifest", "object", "paintworklet", "report", "script"),
    *("serviceworker", "sharedworker", "style", "text", "track", "video", "webidentity"),
    *("worker", "xslt"),
)
SHARED = ("Robots-Guard", "Proxy-Status", "Cache-Control", "X-Content-Type-Options", "Retry-After")
EVERY_ACTION = (Action.DROP, Action.DEFER)


def decision(subresource=None, action=Action.DROP):
    verdict = Verdict(action=action, reason=Reason.DISALLOWED, until=1030.0)
    question = Question(
        origin=Origin("https", "site.test", 443),
        target="/private/x",
        agent="mybot",
        subresource=subresource,
    )
    return Decision(id="ab-1", at=1000.0, component="proxy", question=question, verdict=verdict)


@pytest.mark.parametrize(
    ("destination", "status", "content_type", "body"),
    [
        ("script", 200, "text/javascript; charset=utf-8", b"\n"),
        ("style", 200, "text/css; charset=utf-8", b"\n"),
        ("image", 200, "image/gif", PLACEHOLDERS["image"].body),
        ("track", 200, "text/vtt; charset=utf-8", b"WEBVTT\n"),
        ("manifest", 200, "application/manifest+json", b"{}"),
        ("video", 204, None, b""),
        ("empty", 204, None, b""),
        ("iframe", 204, None, b""),
    ],
)
def test_a_part_of_a_page(destination, status, content_type, body):
    reply = reply_to(decision(Subresource(destination)), accept="text/html")
    assert (reply.status, reply.body) == (status, body)
    assert dict(reply.headers).get("Content-Type") == content_type


def test_the_image_is_a_gif_of_one_transparent_pixel():
    body = PLACEHOLDERS["image"].body
    width, height = body[6:8], body[8:10]
    control = body.index(b"!\xf9")
    assert (body[:6], width, height) == (b"GIF89a", b"\1\0", b"\1\0")
    assert body[control + 3] & 1  # its colour 0 is transparent
    assert body.endswith(b";")


@pytest.mark.parametrize("action", EVERY_ACTION)
@pytest.mark.parametrize("destination", PLACEHOLDERS)
def test_a_placeholder_has_the_fields_of_the_refusal(action, destination):
    refusal = dict(reply_to(decision(action=action)).headers)
    fields = dict(reply_to(decision(Subresource(destination), action)).headers)
    assert {name: fields.get(name) for name in SHARED} == {
        name: refusal.get(name) for name in SHARED
    }
    assert fields["Cross-Origin-Resource-Policy"] == "cross-origin"


def test_a_deferral_says_when_to_retry():
    fields = dict(reply_to(decision(Subresource("script"), Action.DEFER)).headers)
    assert fields["Retry-After"] == "30"


def test_a_request_with_cors_may_be_read_by_its_page():
    fields = dict(reply_to(decision(Subresource("font", "https://page.test"))).headers)
    assert fields["Access-Control-Allow-Origin"] == "https://page.test"
    assert fields["Access-Control-Allow-Credentials"] == "true"


def test_head_has_no_body():
    reply = reply_to(decision(Subresource("image")), method="HEAD")
    assert (reply.status, reply.body) == (200, b"")


def test_without_a_destination_it_is_the_refusal():
    reply = reply_to(decision())
    assert (reply.status, json.loads(reply.body)["reason"]) == (403, "disallowed")


# -- which requests -------------------------------------------------------------------------------


def test_documents_and_what_outlives_the_page_are_refused():
    left = [each for each in DESTINATIONS if subresource_of("GET", each, "") is None]
    assert left == ["document", "report", "serviceworker", "text", "webidentity"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
def test_a_request_that_may_change_something_is_refused(method):
    assert subresource_of(method, "empty", "https://page.test") is None


@pytest.mark.parametrize(
    ("origin", "kept"),
    [
        ("https://page.test:8443", True),
        ("https://[::1]:8443", True),
        ("null", True),
        ("https://page.test, https://other.test", False),
        ("*", False),
        ("https://page.test\r\nX: y", False),
        ("https://page.test/\xff", False),
    ],
)
def test_an_origin_is_repeated_only_if_it_is_one(origin, kept):
    found = subresource_of("GET", "font", origin)
    assert found.origin == (origin if kept else "")


def read(*fields):
    return Wire.read(
        ((b"host", b"site.test"), *fields),
        method=b"GET",
        scheme=b"https",
        host="site.test",
        port=443,
        target=b"/x",
        version=b"HTTP/1.1",
        authority=b"",
        sni=None,
        addressed=False,
        client="",
    ).subresource


def test_the_field_is_read_in_any_case_and_only_if_it_occurs_once():
    field = (b"Sec-Fetch-Dest", b" script ")
    assert read(field) == Subresource("script")
    assert read((b"sec-fetch-dest", b"font"), (b"Origin", b"null")) == Subresource("font", "null")
    assert read() is read(field, field) is read((b"Sec-Fetch-Dest", b"SCRIPT")) is None


@given(st.binary(max_size=20), st.binary(max_size=40))
def test_no_field_value_raises(destination, origin):
    read((b"sec-fetch-dest", destination), (b"origin", origin))


# -- at the gate ----------------------------------------------------------------------------------

RULES = b"User-agent: *\nDisallow: /private/\n"


async def no_objection(origin):
    return None


@pytest.fixture
def judge(build_guard):
    """Judge a request by RULES, as a proxy does."""

    async def run(*, uses_placeholders=True, **changes):
        found = Fetched(status=200, body=RULES, tls_verified=True)
        guard = build_guard(ScriptedFetcher({"https://site.test/robots.txt": found}))
        admission = Admission(guard, CLOCKS, uses_placeholders=uses_placeholders)
        return await admission.judge(wire(**changes), ["mybot"], no_objection)

    return run


async def test_the_record_says_what_the_client_got(judge):
    refused = await judge(target="/private/x", fetch_destination="script")
    assert record_of(refused).placeholder == "script"
    assert reply_to(refused).status == 200

    passed = await judge(target="/open", fetch_destination="script")
    assert (passed.verdict.action, record_of(passed).placeholder) == (Action.PASS, None)


async def test_a_placeholder_is_a_setting(judge):
    refused = await judge(uses_placeholders=False, target="/private/x", fetch_destination="script")
    assert record_of(refused).placeholder is None
    assert reply_to(refused).status == 403


@pytest.mark.parametrize("destination", [*DESTINATIONS, "", "forged"])
@pytest.mark.parametrize("target", ["/private/x", "/open"])
async def test_no_destination_changes_a_verdict(judge, destination, target):
    plain = await judge(uses_placeholders=False, target=target)
    claimed = await judge(target=target, fetch_destination=destination)
    assert claimed.verdict == plain.verdict


async def test_a_refused_response_is_replaced_by_a_placeholder(judge):
    request = await judge(target="/open", fetch_destination="image")
    response = msgspec.structs.replace(
        request,
        verdict=Verdict(action=Action.DROP, reason=Reason.USAGE_RESERVED),
        response=ResponseRef(status=200, request=request.id),
    )
    assert reply_to(response).body == PLACEHOLDERS["image"].body
