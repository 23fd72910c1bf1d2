"""Records: stable names, no secrets, and no character that could end a line or control a terminal."""

from __future__ import annotations

import json
import math
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from audit.decisions import AT, DEFER, DROP, PASS, decision, policy
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.audit.record import Record, Writer, json_schema, moment, record_of, shown_url
from robots_guard.decisions.access import Failed, Failure, Fetched
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.renewal import begin
from robots_guard.decisions.verdict import Action, Verdict

SCHEMA = Path(__file__).parents[2] / "docs" / "audit-record.schema.json"


def test_the_schema_is_the_published_one():
    """Fields are added and never renamed, because users parse them. If you only added some, write the new schema with
    `robots-guard audit query --schema > docs/audit-record.schema.json`."""
    assert json.loads(SCHEMA.read_text()) == json_schema()


def test_fields_with_default_values_are_omitted():
    bare = json.loads(record_of(decision(verdict=PASS, user_agent="", client="")).line_of_json())

    assert list(bare) == [
        "kind",
        "schema",
        "at",
        "component",
        "id",
        "agent",
        "method",
        "url",
        "origin",
        "action",
        "reason",
    ]


def test_an_escaped_request_is_marked_with_what_led_to_it():
    refused = decision()
    led_by = "https://a.test/open?token=secret"
    sent = msgspec.structs.replace(refused.question, sent=True, led_by=led_by)
    escaped = record_of(msgspec.structs.replace(refused, question=sent))

    assert (record_of(refused).escaped, record_of(refused).led_by) == (False, None)
    assert (escaped.escaped, escaped.led_by) == (True, "https://a.test/open?token=REDACTED")


def test_a_drop_has_its_rule_and_document():
    made = decision(
        policy=policy(),
        dialect="rfc9309",
        matching="standard",
        source="memory",
        elapsed=0.000_123_4,
    )
    record = json.loads(
        record_of(made, Writer(writer="host-1-abcd", job="daily"), seq=7, mono=1.5).line_of_json()
    )

    assert record == {
        "kind": "decision",
        "schema": 1,
        "at": "2027-01-15T08:00:00.000Z",
        "mono": 1.5,
        "seq": 7,
        "writer": "host-1-abcd",
        "component": "cli",
        "job": "daily",
        "id": "w-1",
        "agent": "mybot",
        "user_agent": "mybot/1.0",
        "client": "127.0.0.1:4000",
        "method": "GET",
        "url": "https://a.test/private/x",
        "origin": "https://a.test",
        "action": "drop",
        "reason": "disallowed",
        "group": "*",
        "rule": "Disallow: /private/",
        "line": 2,
        "form": "spec",
        "dialect": "rfc9309",
        "matching": "standard",
        "sha256": policy().document.sha256,
        "status": 200,
        "fetched_at": "2027-01-15T07:59:00.000Z",
        "age": 60.0,
        "via": "direct",
        "tls_verified": True,
        "source": "memory",
        "elapsed_us": 123,
    }


def test_a_deferral_has_its_end_and_the_failure():
    troubled = begin(policy().origin, None, "direct").next(Fetched(status=503), AT - 1).policy
    record = record_of(decision(verdict=DEFER, policy=troubled))

    assert (record.until, record.failure, record.status) == (
        "2027-01-15T08:00:30.000Z",
        "status",
        503,
    )
    assert (record.sha256, record.via, record.tls_verified) == (None, None, None)


def test_a_record_has_both_document_and_failure():
    troubled = (
        begin(policy().origin, policy(), "direct").next(Failed(failure=Failure.DNS), AT).policy
    )
    record = record_of(decision(policy=troubled))

    assert (record.failure, record.status, record.sha256) == ("dns", 200, policy().document.sha256)


def test_a_relaxation_is_named():
    verdict = Verdict(action=Action.PASS, reason=Reason.UNREACHABLE, relaxed="on_unreachable=allow")

    assert record_of(decision(verdict=verdict)).relaxed == "on_unreachable=allow"


def test_tls_verified_is_omitted_for_http():
    assert (
        record_of(decision("http://a.test/", policy=policy("http://a.test/"))).tls_verified is None
    )


# -- secrets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:secret@a.test/", "https://a.test/"),
        ("https://me@a.test:8443/x", "https://a.test:8443/x"),
        (
            "http://malformed.invalid/http:///me:secret@a.test/x",
            "http://malformed.invalid/http://a.test/x",
        ),
        ("https://a.test/x#secret", "https://a.test/x"),
        ("https://a.test/x?q=1&page=2", "https://a.test/x?q=1&page=2"),
        ("https://a.test/x?token=abc", "https://a.test/x?token=REDACTED"),
        (
            "https://a.test/x?a=1&access_token=abc&b=2",
            "https://a.test/x?a=1&access_token=REDACTED&b=2",
        ),
        ("https://a.test/x?a=1;sid=abc;b=2", "https://a.test/x?a=1;sid=REDACTED;b=2"),
        ("https://a.test/x?TOKEN=abc=def==", "https://a.test/x?TOKEN=REDACTED"),
        ("https://a.test/x?%74oken=abc", "https://a.test/x?%74oken=REDACTED"),
        ("https://a.test/x?user[password]=abc", "https://a.test/x?user[password]=REDACTED"),
        ("https://a.test/x;jsessionid=abc/y;v=1?q", "https://a.test/x;jsessionid=REDACTED/y;v=1?q"),
        (
            "https://a.test/x?u=https://b.test/?token=abc",
            "https://a.test/x?u=https://b.test/?token=REDACTED",
        ),
        ("https://a.test/x?u=https%3A%2F%2Fb.test%2F%3Ftoken%3Dabc", "https://a.test/x?u=REDACTED"),
        ("https://a.test/x?u=https%3A%2F%2Fme:secret%40b.test%2F", "https://a.test/x?u=REDACTED"),
        (
            "https://a.test/x?u=https%3A%2F%2Fb.test%2F%3Fpage%3D1",
            "https://a.test/x?u=https%3A%2F%2Fb.test%2F%3Fpage%3D1",
        ),
        (
            "https://a.test/x?u=https%253A%252F%252Fb.test%252F%253Ftoken%253Dabc",
            "https://a.test/x?u=REDACTED",
        ),
        ("https://a.test/x?token", "https://a.test/x?token"),
        ("https://a.test/token=abc", "https://a.test/token=abc"),
    ],
)
def test_secrets_in_urls_are_not_recorded(url, shown):
    assert record_of(decision(url)).url == shown
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "key",
        "sig",
        "signature",
        "secret",
        "pass",
        "pwd",
        "auth",
        "session",
        "sid",
        "code",
        "jwt",
        "sas",
        "X-Amz-Signature",
        "x-amz-credential",
        "X-Goog-Signature",
        "api_key",
        "api-key",
        "apiKey",
        "apikey",
        "client_secret",
        "password",
        "passwd",
        "authorization",
        "oauth_token",
        "id_token",
        "PHPSESSID",
        "sessid",
        "session_id",
        "connect.sid",
        "auth_code",
        "passphrase",
        "credential",
        "bearer",
        "csrf_token",
        "otp",
    ],
)
def test_a_name_that_looks_secret_hides_its_value(name):
    assert shown_url(f"https://a.test/?{name}=abc&x=1") == f"https://a.test/?{name}=REDACTED&x=1"


@pytest.mark.parametrize(
    "name",
    [
        "q",
        "page",
        "id",
        "lang",
        "author",
        "authors",
        "keyword",
        "keywords",
        "zipcode",
        "side",
        "encode",
        "compass",
        "utm_source",
    ],
)
def test_an_ordinary_name_does_not_hide_its_value(name):
    assert shown_url(f"https://a.test/?{name}=abc") == f"https://a.test/?{name}=abc"


def test_redirects_and_details_are_redacted():
    policy_ = begin(policy().origin, None, "direct")
    hop = policy_.next(Fetched(status=302, headers={"location": "/r?token=abc#x"}), AT)
    settled = hop.next(Fetched(status=302, headers={"location": "/s"}), AT).next(
        Fetched(status=404), AT
    )
    looped = hop.next(Fetched(status=302, headers={"location": "/r?token=abc"}), AT).policy
    verdict = Verdict(action=Action.DEFER, reason=Reason.UNREACHABLE, detail=looped.trouble.detail)

    assert (
        record_of(decision(policy=settled.policy)).redirects[1] == "https://a.test/r?token=REDACTED"
    )
    assert record_of(decision(verdict=verdict)).detail == "back to https://a.test/r?token=REDACTED"


@given(st.floats(0, 4e9))
def test_a_moment_is_read_back_to_the_millisecond(seconds):
    assert abs(datetime.fromisoformat(moment(seconds)).timestamp() - seconds) <= 0.001_01
    assert len(moment(seconds)) == len("2027-01-15T08:00:00.000Z")


# -- hostile values -----------------------------------------------------------------------------------------


def test_bytes_of_a_target_are_escaped():
    assert (
        record_of(decision(target='/a\x00\r\n\x1b[31m \xe9"\\')).url
        == 'https://a.test/a%00%0D%0A%1B[31m%20%E9"\\'
    )


def test_long_values_are_cut():
    record = record_of(
        decision(
            target="/" + "\xe9" * 5000, user_agent="u" * 999, method="M" * 99, client="c" * 999
        )
    )

    assert (len(record.url), record.url[-3:]) == (2048, "...")
    assert (len(record.user_agent), len(record.method), len(record.client)) == (256, 32, 256)
    assert len(record.line_of_json()) < 8192


@pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan, 1e300, -1e300])
def test_any_time_can_be_recorded(seconds):
    verdict = Verdict(action=Action.DEFER, reason=Reason.UNREACHABLE, until=seconds)

    assert moment(seconds) is None
    assert "until" not in json.loads(
        record_of(decision(verdict=verdict, policy=policy(at=seconds))).line_of_json()
    )


TEXT = st.text(st.characters(), max_size=40) | st.text(
    '\x00\n\r\x1b\x7f\x85\u2028\u202e\udc80\U0001f600"\\', max_size=9
)


@given(target=TEXT, agent=TEXT, user_agent=TEXT, method=TEXT, client=TEXT, detail=TEXT, group=TEXT)
def test_a_record_is_always_one_line_of_printable_ascii(
    target, agent, user_agent, method, client, detail, group
):
    verdict = msgspec.structs.replace(DROP, detail=detail, group=group)
    made = decision(
        verdict=verdict,
        target="/" + target,
        agent=agent,
        user_agent=user_agent,
        method=method,
        client=client,
    )
    line = record_of(made).line_of_json()

    assert line.endswith(b"\n")
    assert all(0x20 <= octet < 0x7F for octet in line[:-1])
    read = json.loads(line)
    assert msgspec.json.decode(line, type=Record) == record_of(made)
    assert "#" not in read["url"]
