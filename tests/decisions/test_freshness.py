"""Lifetimes of robots.txt copies: RFC 9309 section 2.4, RFC 9111 section 4.2, within the dialect's clamps."""

from __future__ import annotations

import pytest

from robots_guard.decisions.freshness import (
    RETRY_MAX,
    Freshness,
    asked_to_wait,
    backoff,
    freshness,
    lifetime,
    retry_after,
    stated_lifetime,
)
from robots_guard.protocol.dialect import dialect

RFC = dialect("rfc9309")
HOUR, DAY = 3600.0, 86400.0
NOW = 1_798_761_600.0  # Fri, 01 Jan 2027 00:00:00 GMT


@pytest.mark.parametrize(
    ("headers", "stated"),
    [
        pytest.param({}, None, id="nothing-said"),
        pytest.param({"cache-control": "max-age=600"}, 600.0, id="max-age"),
        pytest.param({"cache-control": "public, Max-Age=600"}, 600.0, id="case-and-neighbours"),
        pytest.param({"cache-control": 'max-age="600"'}, 600.0, id="quoted"),
        pytest.param({"cache-control": "max-age=600", "age": "100"}, 500.0, id="age-counts"),
        pytest.param(
            {"cache-control": "max-age=600", "age": "900"}, 0.0, id="older-than-its-max-age"
        ),
        pytest.param({"cache-control": "max-age=-5"}, 0.0, id="negative"),
        pytest.param({"cache-control": "max-age=soon"}, 0.0, id="unreadable"),
        pytest.param({"cache-control": "max-age=1" + "0" * 400}, 2.0**31, id="overflow-is-2-to-31"),
        pytest.param({"cache-control": "no-store, max-age=600"}, 0.0, id="no-store-beats-max-age"),
        pytest.param({"cache-control": "no-cache"}, 0.0, id="no-cache"),
        pytest.param(
            {"expires": "Fri, 01 Jan 2027 01:00:00 GMT", "date": "Fri, 01 Jan 2027 00:00:00 GMT"},
            HOUR,
            id="expires-minus-date",
        ),
        pytest.param(
            {"expires": "Fri, 01 Jan 2027 00:00:00 GMT", "date": "Fri, 01 Jan 2027 01:00:00 GMT"},
            0.0,
            id="past",
        ),
        pytest.param(
            {"expires": "Fri, 01 Jan 2027 01:00:00 GMT"}, HOUR, id="without-date-from-now"
        ),
        pytest.param(
            {"expires": "Fri, 01 Jan 2027 01:00:00 GMT", "date": "soon"}, HOUR, id="date-garbage"
        ),
        pytest.param({"expires": "Thu, 01 Jan 2015 00:00:00 GMT"}, 0.0, id="past-without-date"),
        pytest.param({"expires": "Fri, 31 Dec 9999 23:59:59 GMT"}, 2.0**31, id="expires-overflow"),
        pytest.param({"cache-control": "max-age=60, max-age=86400"}, 60.0, id="the-first-max-age"),
        pytest.param({"cache-control": "max-age=600", "age": "100, 5"}, 500.0, id="the-first-age"),
        pytest.param({"expires": "0"}, 0.0, id="expires-0"),
        pytest.param(
            {"expires": "Fri, 99 Foo 9999999999999 00:00:00 GMT"}, 0.0, id="expires-garbage"
        ),
        pytest.param(
            {"cache-control": "max-age=60", "expires": "Fri, 01 Jan 2027 01:00:00 GMT"},
            60.0,
            id="max-age-beats-expires",
        ),
    ],
)
def test_stated_lifetimes(headers, stated):
    assert stated_lifetime(headers, NOW) == stated


@pytest.mark.parametrize(
    ("stated", "seconds"),
    [
        (None, DAY),
        (0.0, 300.0),
        (60.0, 300.0),
        (HOUR, HOUR),
        (DAY, DAY),
        (7 * DAY, DAY),
        (2.0**31, DAY),
    ],
)
def test_rfc9309_clamps_between_5_minutes_and_24_hours(stated, seconds):
    assert lifetime(stated, RFC) == seconds


def test_koster1996_keeps_7_days_and_has_no_cap():
    koster = dialect("koster1996")

    assert lifetime(None, koster) == 7 * DAY
    assert lifetime(30 * DAY, koster) == 30 * DAY


@pytest.mark.parametrize(
    ("age", "stated", "expected"),
    [
        (0.0, None, Freshness.FRESH),
        (DAY - 1, None, Freshness.FRESH),
        pytest.param(DAY, None, Freshness.EXPIRED, id="no-staleness-beyond-24-h"),
        (HOUR - 1, HOUR, Freshness.FRESH),
        (HOUR, HOUR, Freshness.STALE),
        (2 * HOUR - 1, HOUR, Freshness.STALE),
        (2 * HOUR, HOUR, Freshness.EXPIRED),
        pytest.param(-200.0, None, Freshness.FRESH, id="a-little-ahead-of-us"),
        pytest.param(-400.0, None, Freshness.EXPIRED, id="the-clock-jumped-back"),
    ],
)
def test_fresh_stale_expired(age, stated, expected):
    assert freshness(age, stated, RFC) is expected


def test_backoff_doubles_from_a_second_to_an_hour():
    assert [backoff(n, 0.0) for n in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, 8.0]
    assert backoff(13, 0.0) == RETRY_MAX
    assert backoff(10_000, 0.0) == RETRY_MAX
    assert backoff(1, 1.0) == 1.25


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("", 0.0),
        ("120", 120.0),
        ("120, 60", 120.0),  # sent twice
        ("999999999999", RETRY_MAX),
        ("-5", 0.0),
        ("soon", 0.0),
        ("Fri, 15 Jan 2027 08:10:00 GMT", 600.0),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0.0),
    ],
)
def test_retry_after(text, wait):
    # 2027-01-15 08:00:00 UTC.
    assert retry_after({"retry-after": text}, now=1_800_000_000.0) == wait


@pytest.mark.parametrize(
    ("status", "wait"),
    [
        *((200, 0.0), (401, 0.0), (402, 600.0), (403, 0.0), (428, 0.0), (429, 600.0)),
        *((430, 0.0), (502, 0.0), (503, 600.0), (504, 0.0)),
    ],
)
def test_only_402_429_and_503_request_a_pause(status, wait):
    """With other statuses, such as 301, Retry-After means something else."""
    headers = {"retry-after": "Fri, 15 Jan 2027 08:10:00 GMT"}

    assert asked_to_wait(status, headers, now=1_800_000_000.0) == wait
    assert asked_to_wait(status, {}, now=1_800_000_000.0) == 0
