"""Dates of unavailable_after: the forms that are read, and texts that are not dates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cost import LINEAR, growth

from robots_guard.protocol.signals.dates import match_date

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(text: str) -> str | None:
    found = match_date(text)
    if found is None or found.end < len(text):
        return None
    return (EPOCH + timedelta(seconds=found.seconds)).isoformat().removesuffix("+00:00")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("25 Jun 2010 15:00:00 PST", "2010-06-25T23:00:00"),
        ("Fri, 25 Jun 2010 15:00:00 -0800", "2010-06-25T23:00:00"),
        ("Fri, 25 Jun 10 15:00 EDT", "2010-06-25T19:00:00"),
        ("Friday, 25-Jun-10 15:00:00 GMT", "2010-06-25T15:00:00"),
        ("25-Jun-2010 15:00:00 EST", "2010-06-25T20:00:00"),
        ("Fri Jun 25 15:00:00 2010", "2010-06-25T15:00:00"),
        ("Fri Jun  5 15:00:00 2010", "2010-06-05T15:00:00"),
        ("Fri Jun 25 15:00:00 UTC 2010", "2010-06-25T15:00:00"),
        ("Fri Jun 25 2010 15:00:00 GMT+0200", "2010-06-25T13:00:00"),
        ("Jun 25, 2010 15:00 UTC", "2010-06-25T15:00:00"),
        ("June 25th, 2010 at 3:00 pm PST", "2010-06-25T23:00:00"),
        ("June 25, 2010 12:30 a.m. UTC", "2010-06-25T00:30:00"),
        ("25 June 2010", "2010-06-25T00:00:00"),
        ("2020-09-21", "2020-09-21T00:00:00"),
        ("2020-9-1", "2020-09-01T00:00:00"),
        ("2020-09-21T10:00:00Z", "2020-09-21T10:00:00"),
        ("2020-09-21t10:00:00.999z", "2020-09-21T10:00:00"),
        ("2020-09-21T10:00:00+02:00", "2020-09-21T08:00:00"),
        ("2020-09-21T10:00:00-0330", "2020-09-21T13:30:00"),
        ("2020-09-21T10:00+02", "2020-09-21T08:00:00"),
        ("2020-09-21 10:00", "2020-09-21T10:00:00"),
        ("2020-09-21T10Z", "2020-09-21T10:00:00"),
        ("20200921", "2020-09-21T00:00:00"),
        ("20200921T100000Z", "2020-09-21T10:00:00"),
        ("20200921T1000", "2020-09-21T10:00:00"),
        ("2020-09-21T24:00:00Z", "2020-09-22T00:00:00"),
        ("31 Dec 2016 23:59:60 UTC", "2017-01-01T00:00:00"),
        ("29 Feb 2024", "2024-02-29T00:00:00"),
    ],
)
def test_forms(text, expected):
    assert moment(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "06/05/2010",
        "06-05-2010",
        "2010",
        "31 Feb 2010 00:00:00 GMT",
        "29 Feb 2023",
        "25 Jun 2010 25:00:00 GMT",
        "25 Jun 2010 15:61 GMT",
        "25 Jun 2010 13:00 pm",
        "2020-13-01",
        "0000-01-01",
        "Jun 25",
        "25 Juno",
        "\u0661\u0662 Jun 2010",  # digits of another script
    ],
)
def test_no_dates(text):
    assert match_date(text) is None


@pytest.mark.parametrize(
    ("year", "expected"), [("00", 2000), ("76", 2076), ("77", 1977), ("99", 1999)]
)
def test_a_short_year_is_at_most_50_years_ahead(year, expected):
    assert moment(f"1-Jan-{year}").startswith(f"{expected}-")


@pytest.mark.parametrize(
    ("text", "assumed"),
    [
        ("25 Jun 2010 15:00:00 GMT", False),
        ("25 Jun 2010 15:00:00 +0000", False),
        ("25 Jun 2010 15:00:00", True),
        ("2010-06-25", True),
    ],
)
def test_without_a_zone_a_time_is_taken_as_utc(text, assumed):
    assert match_date(text).assumed_utc is assumed


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("2020-01-01, noindex", ", noindex"),
        ("2020-01-01 noindex", "noindex"),
        ("25 Jun 2010 15:00:00 XYZ", "XYZ"),
        ("25 Jun 2010 15:00:00 PST, otherbot: noindex", ", otherbot: noindex"),
        ("25 Jun 2010 15:00:00 GMT nofollow", " nofollow"),
        ("25 Jun 2010 15:00:00 est-bot: nofollow", "est-bot: nofollow"),
        ("2020-01-01T10:00:00+99:00", "+99:00"),
    ],
)
def test_a_date_ends_before_text_that_does_not_belong_to_it(text, rest):
    assert text[match_date(text).end :].lstrip() == rest.lstrip()


def test_the_earliest_and_latest_moments_remain_dates():
    assert moment("9999-12-31T24:00:00-23:59") == "9999-12-31T23:59:59"
    assert moment("0001-01-01T00:00:00+23:59") == "0001-01-01T00:00:00"


@given(
    st.datetimes(min_value=datetime(1000, 1, 1), max_value=datetime(9999, 12, 31)),
    st.sampled_from(
        (
            "%a, %d %b %Y %H:%M:%S GMT",
            "%d %B %Y %H:%M:%S UTC",
            "%d-%b-%Y %H:%M:%S GMT",
            "%a %b %d %H:%M:%S %Y",
            "%b %d, %Y %H:%M:%S UTC",
            "%Y-%m-%dT%H:%M:%SZ",
            "%Y%m%dT%H%M%SZ",
        )
    ),
)
def test_any_moment_in_any_form(at, form):
    assert moment(at.strftime(form)) == at.replace(microsecond=0).isoformat()


@given(st.text(alphabet="0123456789-:T+ ,.ZJunFebMayPST/apm\u0660\u00a0", max_size=40))
def test_no_text_raises(text):
    found = match_date(text)

    assert found is None or 0 < found.end <= len(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: "Fri" + " " * n + "x",
        lambda n: "25 Jun 2010" + " " * n,
        lambda n: "25" + " " * n + "-" + " " * n + "Jun",
        lambda n: "Jun" + "e" * n + " 25",
        lambda n: "2020-01-01T10:00:00." + "9" * n,
    ],
)
def test_the_time_is_linear(make):
    assert growth(match_date, make, 20_000) < LINEAR
