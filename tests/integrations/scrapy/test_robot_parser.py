"""The parser behind Scrapy's interface, with Scrapy's own middleware and alone."""

from __future__ import annotations

import pytest
from integrations.scrapy.crawl import crawl
from scrapy.robotstxt import RobotParser as ScrapyRobotParser
from scrapy.settings import Settings

from robots_guard.errors import SettingsError
from robots_guard.scrapy import RobotParser
from robots_guard.scrapy.robot_parser import product_tokens

NAME = "robots_guard.scrapy.RobotParser"
SITE = "https://www.site.test"
FILE = """\
User-agent: *
Disallow: /private/
Disallow: /caf\u00e9
Allow: /private/open/
Disallow: /*.pdf$
Crawl-delay: 1.5

User-agent: onebot
Disallow: /
Crawl-delay: 400

User-agent: otherbot
Disallow:
""".encode()


BUILT_IN = {
    "ADDONS": {},
    "ROBOTSTXT_OBEY": True,
    "ROBOTSTXT_PARSER": NAME,
    "USER_AGENT": "mybot/1.0 (+https://x.test)",
}


class FakeCrawler:
    def __init__(self, **settings):
        self.settings = Settings(settings)


def parsed(file=FILE, **settings):
    return RobotParser.from_crawler(FakeCrawler(**settings), file)


@pytest.mark.parametrize(
    ("path", "user_agent", "allowed"),
    [
        ("/", "mybot", True),
        ("/private/a", "mybot", False),
        ("/private/open/a", "mybot", True),
        ("/a.pdf", "mybot", False),
        ("/a.pdf?x", "mybot", True),
        ("/caf%C3%A9", "mybot", False),
        ("/caf%c3%a9", "mybot", False),
        ("/a", "onebot", False),
        ("/a", "ONEBOT/2.1", False),
        ("/private/a", "otherbot", True),
        ("/a", "Mozilla/5.0 (compatible; onebot/2.1; +http://x.test/otherbot)", False),
        ("/private/a", "Mozilla/5.0 (X11; Linux) AppleWebKit/537.36 (compatible; otherbot)", True),
        ("/private/a", "otherbot/1.0 onebot/1.0", False),
        ("/a", "Mozilla/5.0 (X11; Linux) onebot", False),
        ("/a", "Mozilla/5.0 (Linux; onebot)", False),
        ("/a", "Scrapy/2.13 onebot", False),
        ("/a", "[onebot/1.0]", False),
        ("/private/a", "Scrapy/2.13 otherbot", False),  # perhaps it is only mentioned
        ("/a", "mybot (+https://x.test/onebot, onebot@x.test, www.x.test/onebot)", True),
        ("/private/a", "otherbot/1.0 (like onebot)", True),
        ("/private/a", "anotherbot", False),
        ("/private/a", "", False),
        ("/robots.txt", "onebot", True),
        ("/a/../private/x", "mybot", False),
    ],
)
def test_urls_and_agents_may_be_text_or_bytes(path, user_agent, allowed):
    url = f"{SITE}{path}"
    parser = parsed()

    assert parser.allowed(url, user_agent) is allowed
    assert parser.allowed(url.encode(), user_agent.encode()) is allowed


def test_a_url_of_any_characters_or_bytes_is_judged():
    parser = parsed()

    assert not parser.allowed(f"{SITE}/caf\u00e9", "mybot")
    assert not parser.allowed(f"{SITE}/caf\u00e9".encode(), b"my\xffbot")
    assert parser.allowed(f"{SITE}/".encode() + b"\xff", b"\xff")


@pytest.mark.parametrize(
    "file", [b"", b"\xd3", b"\x80\x01" * 50, b"<!DOCTYPE html>", "User-agent".encode("utf-16")]
)
def test_a_file_without_rules_allows_everything(file):
    assert parsed(file).allowed(f"{SITE}/private/", "mybot")


def test_the_interface_is_scrapys_also_without_a_crawler():
    parser = RobotParser.from_crawler(crawler=None, robotstxt_body=FILE)

    assert isinstance(parser, ScrapyRobotParser)
    assert not parser.allowed(f"{SITE}/private/a", "mybot")
    assert parser.file.match("mybot", f"{SITE}/private/a").rule.line == 2


def test_a_delay_is_limited_as_the_guard_limits_it():
    assert parsed().crawl_delay("mybot") == 1.5
    assert parsed().crawl_delay(b"onebot") == 300.0
    assert parsed(ROBOTS_GUARD_MAX_DELAY="10").crawl_delay("onebot") == 10.0
    assert parsed(ROBOTS_GUARD_MAX_DELAY=0).crawl_delay("onebot") is None
    assert parsed().crawl_delay("otherbot") is None
    assert parsed().crawl_delay("otherbot onebot/1.0") == 300.0


def test_dialect_and_matching_are_the_settings():
    file = b"User-agent: *\nDisallow: /A\nAllow: /A\n"

    assert parsed(file).allowed(f"{SITE}/A", "mybot")
    assert not parsed(file, ROBOTS_GUARD_DIALECT="koster1996").allowed(f"{SITE}/A", "mybot")
    strict = parsed(b"User-agent: *\nDisallow: /A\n", ROBOTS_GUARD_MATCHING="strict")
    assert not strict.allowed(f"{SITE}/a", "mybot")
    with pytest.raises(SettingsError, match="dialect 'rfc' is not known"):
        parsed(ROBOTS_GUARD_DIALECT="rfc")


@pytest.mark.parametrize(
    ("user_agent", "tokens"),
    [
        ("mybot/1.0 (+https://example.test/bot)", ["mybot"]),
        ("Mozilla/5.0 (compatible; mybot; +http://x.test) Chrome/1.0 Safari/2", ["mybot"]),
        ("Mozilla/5.0 (Compatible;my-bot/2.1)", ["my-bot"]),
        ("Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/120.0", []),
        ("one/1 (two/2) one/3", ["one", "two"]),
        ("AI2Bot/1.0 (compatible; MJ12bot/v1.4) Chrome/120.0.0.0", ["AI2Bot", "MJ12bot"]),
        ("*", []),
    ],
)
def test_product_tokens_are_found_in_a_user_agent(user_agent, tokens):
    assert product_tokens(user_agent) == tokens


def test_scrapys_own_middleware_judges_by_it(net):
    """One request after another: of those that wait for the same robots.txt, Scrapy 2.14 to 2.19 judges
    only the first two, by any parser, as the test below shows."""
    site = net.origin("User-agent: mybot\nDisallow: /private/\nAllow: /private/open/\n")
    pages = [f"{site.url}/{page}" for page in ("a", "private/b", "private/open/c", "private;x/d")]

    done = crawl([{"url": page, "inline": True} for page in pages], BUILT_IN)

    assert site.targets == ["/a", "/private/open/c"]
    assert [done[page]["action"] for page in pages] == ["pass", "error", "pass", "error"]


def test_scrapys_own_middleware_lets_waiting_requests_pass_and_the_guard_does_not(net):
    """docs/migration/scrapy.md says so. Each waiting request awaits the same Deferred, and the first
    one leaves no parser in it for the others. How many wait depends on when the robots.txt arrives."""
    site = net.origin("User-agent: mybot\nDisallow: /private/\n")
    pages = [f"{site.url}/private/{number}" for number in range(5)]

    crawl(pages, BUILT_IN)
    passed = len(site.targets)
    assert passed > 0

    guarded = crawl(pages)
    assert len(site.targets) == passed
    assert {guarded[page]["action"] for page in pages} == {"drop"}
