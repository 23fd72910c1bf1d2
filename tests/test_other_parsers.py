"""docs/migration/parsers.md is true of the parsers that it compares with `RobotsFile`."""

from __future__ import annotations

import math
from datetime import time
from pathlib import Path
from urllib.robotparser import RobotFileParser

import pytest
from support.parser_rows import ROWS, STAR, answers, cells, table

from robots_guard import RobotsFile

protego = pytest.importorskip("protego")

PAGE = (Path(__file__).parent.parent / "docs/migration/parsers.md").read_text()


def test_the_page_has_the_table_of_answers():
    assert table() in PAGE


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{cells(row)[0]} {row.url}")
def test_every_row_is_a_difference(row):
    assert len(set(answers(row))) > 1


def both(file: bytes):
    """The file as protego and robotparser read it."""
    parser = RobotFileParser()
    parser.parse(file.decode().splitlines())
    return protego.Protego.parse(file.decode()), parser


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (b"Crawl-delay: 1,5", (1.5, None, None)),
        (b"Crawl-delay: 10s", (10.0, None, None)),
        (b"Crawl-delay: 0.5", (0.5, 0.5, None)),
        (b"Crawl-delay: 1\nCrawl-delay: 5\nCrawl-delay: 2", (5.0, 2.0, 2)),
        (b"Crawl-delay: nan", (math.inf, None, None)),
    ],
)
def test_crawl_delays_are_as_the_page_says(lines, expected):
    file = STAR + lines + b"\nDisallow: /x\n"
    parsers = (RobotsFile.parse(file), *both(file))

    assert tuple(parser.crawl_delay("mybot") for parser in parsers) == expected


def test_rates_visits_sitemaps_and_hosts_are_as_the_page_says():
    file = (
        STAR + b"Request-rate: 1/5m\nRequest-rate: 1/10\nVisit-time: 0600-0845\n"
        b"Visit-time: 1000-1100\nDisallow: /x\nSitemap: /s.xml\nSitemap: /s.xml\n"
        b"Host: a.example.com\nHost: b.example.com\n"
    )
    ours, theirs, stdlib = RobotsFile.parse(file), *both(file)

    rates = [parser.request_rate("mybot").seconds for parser in (ours, theirs, stdlib)]
    assert rates == [300, 10, 10]
    assert [visit.start_time.hour for visit in ours.visit_times("mybot")] == [6, 10]
    assert ours.visit_times("mybot")[0].start_time.tzinfo is not None
    assert theirs.visit_time("mybot") == (time(10), time(11))
    assert ours.sitemaps == ("/s.xml",)
    assert [*theirs.sitemaps] == stdlib.site_maps() == ["/s.xml", "/s.xml"]
    assert (ours.preferred_host, theirs.preferred_host) == ("a.example.com", "b.example.com")


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x85", "\u2028"])
def test_only_three_line_ends_are_line_ends(end):
    file = f"User-agent: *\n# {end}Disallow: /\n".encode()
    theirs, stdlib = both(file)

    assert RobotsFile.parse(file).can_fetch("mybot", "/x")
    assert not theirs.can_fetch("/x", "mybot")
    assert not stdlib.can_fetch("mybot", "/x")
