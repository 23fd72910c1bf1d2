"""`RobotsFile`: its answers are the guard's, for a file that a site has just sent."""

from __future__ import annotations

import datetime as dt
import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard import RobotsFile, SettingsError
from robots_guard.app.cli.ask.answers import Judge
from robots_guard.configuration.settings import Settings
from robots_guard.decisions import robots_file
from robots_guard.decisions.verdict import Action
from robots_guard.protocol.dialect import DIALECTS

# `_rules` is private: nothing else shows how much memory many agents take.

FILE = b"""\
User-agent: *
Disallow: /private/
Allow: /private/open
Crawl-delay: 2
Request-rate: 1/10s 0900-1700
Request-rate: 2/10s
Visit-time: 0600-0845
Sitemap: https://example.com/sitemap.xml

User-agent: mybot
Disallow: /*.pdf$
"""
SITE = "https://example.com"

paths = st.text("/.%2Fa;#?* \\é\udcff", max_size=12)
files = st.lists(
    st.sampled_from(
        [*FILE.splitlines(), b"Disallow: /a", b"Allow: /%2F", b"Disallow: *", b"Host: a.example"]
    ),
    max_size=12,
)


def test_the_example_in_its_docstring_is_true():
    assert doctest.testmod(robots_file).failed == 0


@given(
    lines=files,
    url=st.builds("{}{}".format, st.sampled_from(["", SITE, "http://h:8000", "ftp://h"]), paths),
    agent=st.sampled_from(["mybot", "otherbot"]),
    dialect=st.sampled_from([*DIALECTS, "strictest(google, koster1996)"]),
    matching=st.sampled_from(["spec", "standard", "strict"]),
)
def test_its_verdicts_are_the_guards(lines, url, agent, dialect, matching):
    body = b"\n".join(lines)
    terms = Settings(agent=agent, dialect=dialect, matching=matching, visit_time="ignore").terms()
    robots = RobotsFile.parse(body, dialect=dialect, matching=matching)

    verdict = robots.match(agent, url)

    assert robots.can_fetch(agent, url) == (verdict.action is Action.PASS)
    if not url.startswith("/"):
        guards = Judge(terms).by_text(body, url, agent, now=0.0).verdict
        found = (verdict.action, verdict.reason, verdict.rule, verdict.form)
        assert found == (guards.action, guards.reason, guards.rule, guards.form)


def test_a_rule_and_its_line_are_named():
    verdict = RobotsFile.parse(FILE).match("otherbot", f"{SITE}/private/x")

    assert (verdict.action, verdict.reason) == ("drop", "disallowed")
    assert (verdict.rule.line, verdict.rule.text, verdict.rule.group) == (
        2,
        "Disallow: /private/",
        "*",
    )


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("/private/x", False),
        ("//private/x", False),
        ("/private/open", True),
        ("/x#/private/x", True),
        (f"{SITE}/robots.txt", True),
        ("ftp://example.com/private/x", True),
        ("http://exa mple.com/", False),
        ("private/x", False),
        ("", False),
        ("/\ud800", False),
    ],
)
def test_urls_and_targets_are_judged_as_the_guard_judges_them(url, allowed):
    assert RobotsFile.parse(FILE).can_fetch("otherbot", url) is allowed


@pytest.mark.parametrize("agent", ["mybot", "MyBot", "mybot/1.0", "mybot/1.0 (+https://x.test)"])
def test_an_agent_is_a_product_token_and_may_have_a_version(agent):
    robots = RobotsFile.parse(FILE)

    assert robots.names(agent)
    assert not robots.can_fetch(agent, "/a.pdf")
    assert robots.can_fetch(agent, "/private/x")
    assert not robots.names("*")
    assert not robots.can_fetch("*", "/private/x")


@pytest.mark.parametrize(
    "agent", ["", f"{SITE}/a", "b\u00f6t", "Mozilla/5.0 (compatible; mybot/1.0)"]
)
def test_a_text_without_a_product_token_is_an_error(agent):
    with pytest.raises(ValueError, match="product token"):
        RobotsFile.parse(FILE).can_fetch(agent, "mybot")


@pytest.mark.parametrize("matching", ["spec", "standard", "strict"])
@pytest.mark.parametrize("path", ["/foo/\u30c4", "/foo/%E3%83%84", "/foo/%e3%83%84"])
@pytest.mark.parametrize("rule", ["/foo/\u30c4", "/foo/%E3%83%84"])
def test_a_character_and_its_escape_are_the_same(rule, path, matching):
    # RFC 9309 section 2.2.2
    robots = RobotsFile.parse(f"User-agent: *\nDisallow: /\nAllow: {rule}\n", matching=matching)

    assert robots.can_fetch("mybot", path)
    assert robots.can_fetch("mybot", SITE + path)
    assert robots.match("mybot", SITE + path).rule.line == 3


def test_bytes_that_are_no_text_are_judged_as_they_are():
    robots = RobotsFile.parse("User-agent: *\nDisallow: /caf\xe9\n")

    assert not robots.can_fetch(
        "mybot", f"{SITE}/caf\udce9"
    )  # Latin-1: an origin may read it as UTF-8


@pytest.mark.parametrize("dialect", ["rfc9309", "google"])
def test_of_a_file_that_is_no_text_nothing_may_be_requested(dialect):
    robots = RobotsFile.parse(b"\x1f\x8b\x08\0", dialect=dialect)

    assert not robots.can_fetch("mybot", "/x")
    assert robots.can_fetch("mybot", "/robots.txt") is (dialect == "rfc9309")
    assert robots.match("mybot", "/x").reason == "unreachable"


def test_delays_rates_visits_and_sitemaps():
    robots = RobotsFile.parse(FILE.decode())

    assert (robots.crawl_delay("otherbot"), robots.crawl_delay("mybot")) == (2.0, None)
    rate = robots.request_rate("otherbot")
    assert (rate.requests, rate.seconds, rate.start_time.hour, rate.end_time.hour) == (1, 10, 9, 17)
    assert rate.start_time.tzinfo is dt.UTC
    (visit,) = robots.visit_times("otherbot")
    assert (visit.start_time.hour, visit.end_time.minute) == (6, 45)
    assert robots.sitemaps == (f"{SITE}/sitemap.xml",)
    assert robots.preferred_host is None


def test_what_a_file_does_not_say_is_none_or_empty():
    robots = RobotsFile.parse(b"")

    assert robots.can_fetch("mybot", "/x")
    assert robots.match("mybot", "/x").rule is None
    assert robots.crawl_delay("mybot") is robots.request_rate("mybot") is None
    assert robots.visit_times("mybot") == robots.sitemaps == ()


def test_a_rate_of_no_requests_is_the_slowest():
    robots = RobotsFile.parse(b"User-agent: *\nRequest-rate: 1/1d\nRequest-rate: 0/1\n")

    assert robots.request_rate("mybot").requests == 0
    assert RobotsFile.parse(b"User-agent: *\nCrawl-delay: inf\n").crawl_delay("a") == math.inf


def test_an_unknown_dialect_or_matching_is_an_error():
    with pytest.raises(SettingsError, match="dialect 'rfc' is not known"):
        RobotsFile.parse(b"", dialect="rfc")
    with pytest.raises(SettingsError, match="matching 'exact' is not known"):
        RobotsFile.parse(b"", matching="exact")


def test_rules_are_kept_for_a_bounded_number_of_agents():
    robots = RobotsFile.parse(FILE)
    for number in range(500):
        name = "a" * (number + 1)
        assert not robots.can_fetch(name, "/private/x")

    assert len(robots._rules) == robots_file.KEPT_RULES
