"""The signal `robots_parsed`: sent once for each file, before the site's first page."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from integrations.scrapy.crawl import SCRAPY, crawl
from scrapy import Request, signals

from robots_guard.configuration.settings import Settings
from robots_guard.decisions.policy import Document, Policy
from robots_guard.guard.runtime import AsyncioRuntime
from robots_guard.origin import origin_of
from robots_guard.scrapy import announcements
from robots_guard.scrapy.announcements import Announcements
from robots_guard.testing import Loopback, Reply

ORIGIN = origin_of("http://a.test")
TERMS = Settings(agent="mybot").terms()
HAS_SIGNAL = SCRAPY >= (2, 18)
LISTENER = {"EXTENSIONS": {"integrations.scrapy.components.ListensForRobots": 1}}
RULES = "User-agent: mybot\nDisallow: /private\nCrawl-delay: 0.1\nSitemap: http://s.test/s.xml\n"


@pytest.fixture(scope="module")
def heard():
    """Two pages each of a site with rules, without a file, closed to crawlers, and in trouble."""
    with Loopback() as net:
        sites = {
            "rules": net.origin(RULES),
            "none": net.origin(Reply(status=404, body="User-agent: *\nDisallow: /\n")),
            "closed": net.origin(403),
            "trouble": net.origin(503),
        }
        answering = [site for name, site in sites.items() if name != "trouble"]
        pages = [f"{site.url}/{page}" for site in answering for page in ("a", "b")]
        done = crawl([*pages, f"{sites['trouble'].url}/a"], LISTENER)
    found = {}
    for each in done.stats["heard"]:
        name = next(name for name, site in sites.items() if site.url == each["site"])
        found.setdefault(name, []).append(each)
    return done, found


def test_each_file_is_announced_once_before_the_first_page(heard):
    done, found = heard
    announced = {"rules", "none", "closed"} if HAS_SIGNAL else set()

    assert set(found) == announced
    assert all(len(each) == 1 for each in found.values())
    assert "early" not in done.stats


def test_a_listener_gets_a_parser_that_says_what_the_guard_enforces(heard):
    _, found = heard
    names = ("allowed", "delay", "sitemaps", "is_parser")
    said = {site: tuple(each[name] for name in names) for site, (each,) in found.items()}

    expected = {
        "rules": ([True, False], 0.1, ["http://s.test/s.xml"], True),
        "none": ([True, True], None, [], True),
        "closed": ([False, False], None, [], True),
    }
    assert said == (expected if HAS_SIGNAL else {})


class FakeSignals:
    """Signals whose handlers never end, or fail."""

    def __init__(self, error=None):
        self.sent = []
        self.error = error

    async def send_catch_log_async(self, signal, robotparser, request):
        self.sent.append(robotparser)
        if self.error:
            raise self.error
        await asyncio.Event().wait()


class FakeCrawler:
    def __init__(self, sent):
        self.signals = sent


@pytest.fixture
def announce(monkeypatch):
    """A factory of functions that announce a file to handlers."""
    monkeypatch.setattr(signals, "robots_parsed", object(), raising=False)
    monkeypatch.setattr(announcements, "PATIENCE", 0.05)

    def build(sent):
        found = Announcements(FakeCrawler(sent), AsyncioRuntime())

        async def send(body, status=200):
            digest = hashlib.sha256(body).hexdigest()
            document = Document(
                status=status, url="", sha256=digest, body=body, fetched_at=0.0, via="x"
            )
            policy = Policy(origin=ORIGIN, document=document)
            if found.is_due(policy):
                await found.send(Request("http://a.test/"), policy, TERMS, 1.0)

        return send

    return build


async def test_a_handler_that_never_ends_holds_a_site_up_for_a_bounded_time(announce, caplog):
    sent = FakeSignals()
    send = announce(sent)

    await asyncio.gather(send(b"one"), send(b"one"))
    await send(b"one")

    assert len(sent.sent) == 1
    assert "requests to http://a.test go on without it" in caplog.text


async def test_another_file_is_announced_again_and_so_is_another_status(announce):
    sent = FakeSignals(ValueError("a handler's own error"))
    send = announce(sent)

    for body, status in ((b"", 404), (b"", 404), (b"", 403), (b"one", 200), (b"two", 200)):
        await send(body, status)

    said = [parser.allowed("http://a.test/x", "mybot") for parser in sent.sent]
    assert said == [True, False, True, True]
