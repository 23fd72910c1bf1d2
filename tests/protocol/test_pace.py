"""Delays and visiting times: lenient forms are read as intended, and nothing raises."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.directives import WINDOWS, Window, pace_of
from robots_guard.protocol.lines import Line
from robots_guard.protocol.ruleset import compile_rules


def one(field: str, value: str):
    return pace_of([Line(7, field, value, f"{field}: {value}")])


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("10", 10),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1,5", 1.5),
        ("10s", 10),
        ("3 seconds", 3),
        ("1e3", 1000),
        ("0", 0),
        ("-5", 0),
        ("1e999", math.inf),
        ("inf", math.inf),
        ("+Infinity", math.inf),
        ("NaN", math.inf),
        ("9" * 400, 1e30),
    ],
)
def test_crawl_delay(value, seconds):
    (delay,) = one("crawl-delay", value).delays

    assert delay.seconds == pytest.approx(seconds)
    assert (delay.line.number, delay.window) == (7, None)


@pytest.mark.parametrize(
    ("value", "seconds", "window"),
    [
        ("1/10", 10, None),
        ("1/10s", 10, None),
        ("100/15m", 9, None),
        ("2/1h", 1800, None),
        ("1/1d", 86400, None),
        ("3 / 1 minutes", 20, None),
        ("0/5", math.inf, None),
        ("1/10\u017f", 10, None),  # a long s, which is an s in another case
        ("1/10s 1820-1940", 10, Window(1100, 1180)),
        ("1/10S 18:20 - 19:40 UTC", 10, Window(1100, 1180)),
    ],
)
def test_request_rate(value, seconds, window):
    (delay,) = one("request-rate", value).delays

    assert (delay.seconds, delay.window) == (pytest.approx(seconds), window)


@pytest.mark.parametrize(
    ("value", "window"),
    [
        ("0600-0845", Window(360, 525)),
        ("2200-0400", Window(1320, 240)),
        ("0000-2400", Window(0, 0)),
    ],
)
def test_visit_time(value, window):
    assert [visit.window for visit in one("visit-time", value).visits] == [window]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("crawl-delay", ""),
        ("crawl-delay", "soon"),
        ("crawl-delay", "information"),
        ("request-rate", "10"),
        ("request-rate", "1/10s 9-17"),
        ("request-rate", "/5"),
        ("visit-time", "9-17"),
        ("visit-time", "0660-0845"),
        ("visit-time", "2500-0100"),
    ],
)
def test_unreadable_values_are_odd(field, value):
    pace = one(field, value)

    assert (pace.delays, pace.visits) == ((), ())
    assert [line.number for line in pace.odd] == [7]


def test_windows():
    assert Window(360, 525).has(360)
    assert not Window(360, 525).has(525)
    assert Window(1320, 240).has(1439)
    assert Window(1320, 240).has(0)
    assert not Window(1320, 240).has(240)
    assert Window(0, 0).has(0)
    assert Window(0, 0).has(1439.9)


def test_a_group_without_delays():
    assert (
        pace_of([Line(1, "sitemap", "https://a.test/s.xml", "Sitemap: https://a.test/s.xml")])
        is None
    )


def test_only_lines_that_can_apply_are_kept():
    """The longest file has some 30,000 such lines, which must not all be compared at each request."""
    clock = [f"{hour:02}{minute:02}" for hour in range(24) for minute in range(60)]
    delays = [Line(1 + n, "crawl-delay", str(n), "") for n in range(1000)]
    rates = [
        Line(2001 + n, "request-rate", f"1/{n}s {time}-0000", "") for n, time in enumerate(clock)
    ]
    visits = [Line(4001 + n, "visit-time", f"{time}-0000", "") for n, time in enumerate(clock)]

    pace = pace_of([*delays, *rates, *visits])

    assert len(pace.delays) == len(pace.visits) == WINDOWS
    assert len(pace.lines) == len(delays) + len(rates) + len(visits)
    whole_day = next(delay for delay in pace.delays if delay.window is None)
    # Of a window too many, and so more.
    assert (whole_day.seconds, whole_day.line.number) == (
        1439,
        2001 + 1439,
    )


BODY = b"User-agent: *\nCrawl-delay: 7\nDisallow: /x\n\nUser-agent: bingbot\nDisallow: /y\n"


@pytest.mark.parametrize(("name", "seconds"), [("bing", [7.0]), ("rfc9309", None)])
def test_bing_also_uses_the_delay_of_the_star_group(name, seconds):
    pace = compile_rules(BODY, dialect(name), "bingbot").pace

    assert (pace and [delay.seconds for delay in pace.delays]) == seconds


def test_strictest_keeps_what_any_of_them_reads():
    pace = compile_rules(BODY, dialect("strictest(rfc9309, bing)"), "bingbot").pace

    assert [delay.seconds for delay in pace.delays] == [7.0]


@given(st.sampled_from(("crawl-delay", "request-rate", "visit-time")), st.text())
def test_reading_never_raises(field, value):
    pace = one(field, value)

    assert len(pace.delays) + len(pace.visits) + len(pace.odd) == 1
    assert all(delay.seconds >= 0 for delay in pace.delays)
