"""Lines to groups, and which of them applies."""

from __future__ import annotations

import tracemalloc

import pytest
from protocol.rows import ask

from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.robots import parse

RFC = dialect("rfc9309")


def test_a_group_is_stored_once_however_many_agents_it_has():
    count = 5_000
    body = b"".join(b"User-agent: bot%s\n" % (b"a" * (n % 90) + b"b") for n in range(count))
    body += b"".join(b"Disallow: /%d\n" % n for n in range(count))
    tracemalloc.start()
    robots = parse(body, RFC)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert len(robots.groups) == 1
    assert len(robots.groups[0].rules) == count
    assert used < 4 * 1024 * 1024


def test_a_selection_says_why():
    robots = parse(b"User-agent: a\nDisallow: /a\nUser-agent: *\nDisallow: /b\n", RFC)

    assert robots.select("A/2.0").why == "named a"
    assert robots.select("b").why == "named *"
    assert parse(b"", RFC).select("b").why == "no group applies"
    assert robots.select("a").title == "a"
    assert parse(b"", RFC).select("b").title is None


@pytest.mark.parametrize("token", ["", "*", "123", "/", "\udcff", "é"])
def test_a_name_without_a_token_gets_the_star_group(token):
    robots = parse(b"User-agent: x\nDisallow: /\nUser-agent: *\nDisallow: /b\n", RFC)

    assert robots.select(token).why == "named *"


def test_a_digit_in_a_name_cuts_it_on_both_sides():
    assert not ask("User-agent: bot2\nDisallow: /\n", "/x", "bot2").allowed


def test_rules_outside_any_group_are_kept_as_strays():
    robots = parse(b"Disallow: /a\nUser-agent: x\nDisallow: /b\n", RFC)

    assert [number for number, _, _ in robots.strays] == [1]
    assert [number for number, _, _ in robots.groups[0].rules] == [3]


@pytest.mark.parametrize("name", ["rfc9309", "google", "koster1994", "rambler2003"])
def test_crawl_delay_between_agents_does_not_split_the_group(name):
    body = "User-agent: a\nCrawl-delay: 5\nUser-agent: b\nDisallow: /x\n"

    assert not ask(body, "/x", "a", name).allowed
    assert not ask(body, "/x", "b", name).allowed


def test_a_blank_line_ends_a_record_in_some_dialects():
    body = "User-agent: a\nDisallow: /a\n\nDisallow: /b\n"

    assert ask(body, "/b", "a", "koster1994").allowed
    assert not ask(body, "/b", "a", "rambler2003").allowed


def test_a_record_without_a_rule_does_not_hide_the_default_record():
    body = "User-agent: a\n\nUser-agent: *\nDisallow: /x\n"

    assert not ask(body, "/x", "a", "koster1994").allowed
    assert not ask(body, "/x", "a", "koster1996").allowed


def test_the_lines_of_a_file_can_be_listed_for_reports():
    robots = parse(b"Sitemap: /s # c\nUser-agent: *\nVisit-time: 0100-0200\n", RFC)

    assert [(line.number, line.field, line.value) for line in robots.lines()] == [
        (1, "sitemap", "/s"),
        (2, "user-agent", "*"),
        (3, "visit-time", "0100-0200"),
    ]


def test_thousands_of_groups_are_fast():
    body = b"".join(
        b"User-agent: bot%s\nDisallow: /%d\n" % (b"x" * (n % 50), n) for n in range(16_000)
    )

    assert len(parse(body[:500_000], RFC).groups) > 8_000
