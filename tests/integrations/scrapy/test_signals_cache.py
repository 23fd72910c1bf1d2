"""Signals and Scrapy's HTTP cache: what it may keep, and how its copies are judged."""

from __future__ import annotations

import gzip
import time
from datetime import UTC, datetime, timedelta

import pytest
from integrations.scrapy.crawl import crawl
from integrations.scrapy.test_signals import HTML, OPEN, declared, page, tagged

from robots_guard.testing import Reply

DUMMY = "scrapy.extensions.httpcache.DummyPolicy"
RFC2616 = "scrapy.extensions.httpcache.RFC2616Policy"
STORED, HIT = "httpcache/store", "httpcache/hit"


def caching(folder, policy: str = DUMMY) -> dict:
    return {
        "HTTPCACHE_ENABLED": True,
        "HTTPCACHE_DIR": str(folder / "cache"),
        "HTTPCACHE_POLICY": policy,
    }


def gzipped(text: str) -> Reply:
    fields = (HTML, ("Content-Encoding", "gzip"))
    return Reply(headers=fields, body=gzip.compress(text.encode()))


@pytest.mark.parametrize(
    "reply",
    [
        tagged("noarchive"),
        page("robots=noarchive"),
        gzipped('<meta name="robots" content="noarchive">'),
    ],
    ids=["header", "meta", "compressed"],
)
@pytest.mark.parametrize("policy", [DUMMY, RFC2616])
def test_a_page_with_noarchive_is_not_kept(net, tmp_path, reply, policy):
    fresh = Reply(headers=(*reply.headers, ("Cache-Control", "max-age=3600")), body=reply.body)
    site = net.origin(OPEN, {"/a": fresh, "/b": page(headers=(("Cache-Control", "max-age=9"),))})
    pages = [f"{site.url}/a", f"{site.url}/b"]

    done = crawl(pages, declared("search") | caching(tmp_path, policy))

    assert [done[each]["action"] for each in pages] == ["pass", "pass"]
    assert done.stats[STORED] == 1
    assert done.stats["httpcache/uncacheable"] == 1
    done = crawl(pages, declared("search") | caching(tmp_path, policy))
    assert site.targets.count("/a") == 2
    assert site.targets.count("/b") == 1
    assert done[pages[1]]["cached"]


@pytest.mark.parametrize(
    "settings", [{}, declared("search", signals="record"), declared("search", report_only=True)]
)
def test_it_is_kept_unless_signals_are_enforced(net, tmp_path, settings):
    site = net.origin(OPEN, {"/a": tagged("noarchive")})
    done = crawl([f"{site.url}/a"], settings | caching(tmp_path))
    assert done.stats[STORED] == 1


META = b'<!doctype html><meta name="robots" content="noindex">' + b" " * 200
PACKED = gzip.compress(META)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip, gzip", gzip.compress(PACKED)),
        ("identity, gzip", PACKED),
        ("gzip", PACKED[:-8]),
        ("gzip", PACKED + b"more"),
        ("unknown", META),
    ],
    ids=["twice", "identity", "cut", "more", "unknown"],
)
def test_a_page_that_others_may_decode_further_is_not_kept(net, tmp_path, coding, body):
    reply = Reply(headers=(HTML, ("Content-Encoding", coding)), body=body)
    site = net.origin(OPEN, {"/a": reply})
    done = crawl([f"{site.url}/a"], declared("search") | caching(tmp_path))
    assert STORED not in done.stats
    assert (done[f"{site.url}/a"]["action"] == "pass") is (coding == "unknown")


@pytest.mark.parametrize(
    "reply", [tagged("noindex"), page("robots=noindex")], ids=["header", "meta"]
)
def test_a_refused_page_is_not_kept(net, tmp_path, reply):
    """A download that was stopped has no body, and would be taken for the page later."""
    site = net.origin(OPEN, {"/a": reply})
    url = f"{site.url}/a"

    done = crawl([url], declared("search") | caching(tmp_path))
    assert done.verdict(url) == ("drop", "usage-reserved")
    assert STORED not in done.stats

    done = crawl([url], declared("ai-train") | caching(tmp_path))
    assert done[url]["action"] == "pass"
    assert done[url]["length"] > 50


@pytest.mark.parametrize(
    "reply", [tagged("noindex"), page("robots=noindex")], ids=["header", "meta"]
)
def test_a_copy_is_judged_by_the_present_purposes(net, tmp_path, reply):
    site = net.origin(OPEN, {"/a": reply})
    url = f"{site.url}/a"

    done = crawl([url], caching(tmp_path))
    assert done.stats[STORED] == 1
    done = crawl([url], declared("search") | caching(tmp_path))

    assert done.stats[HIT] == 1
    assert site.targets == ["/a"]
    assert done.verdict(url) == ("drop", "usage-reserved")
    assert len(done.signals) == 1


def test_a_copy_is_judged_at_the_present_time(net, tmp_path):
    end = datetime.now(UTC) + timedelta(seconds=8)
    moment = end.strftime("%Y-%m-%dT%H:%M:%SZ")
    site = net.origin(OPEN, {"/a": tagged(f"unavailable_after: {moment}")})
    url = f"{site.url}/a"

    done = crawl([url], declared("search") | caching(tmp_path))
    assert (done[url]["action"], done[url]["signals"]["unavailable_after"]) == ("pass", moment)

    time.sleep(max(0.0, (end - datetime.now(UTC)).total_seconds()))
    done = crawl([url], declared("search") | caching(tmp_path))
    assert done.stats[HIT] == 1
    assert done.verdict(url) == ("drop", "usage-reserved")


def validated(*lines: str, first: Reply):
    """A page that was changed since only in its header fields."""

    def reply(request) -> Reply:
        if "if-none-match" not in request.headers:
            fields = (*first.headers, ("ETag", '"1"'))
            return Reply(status=200, headers=fields, body=first.body)
        tags = tuple(("X-Robots-Tag", line) for line in lines)
        return Reply(status=304, headers=(("ETag", '"1"'), *tags))

    return reply


@pytest.mark.parametrize(
    ("first", "lines", "action"),
    [
        (page(), ["noindex"], "drop"),
        (tagged("nosnippet"), ["noindex"], "drop"),
        (tagged("noindex"), [], "drop"),
        (page("robots=noindex"), ["all"], "drop"),
        (tagged("noindex"), ["all"], "pass"),  # RFC 9111 section 3.2: a new field replaces it
        (page(), [], "pass"),
    ],
    ids=["new", "changed", "stored", "meta", "lifted", "none"],
)
def test_a_304_updates_the_stored_fields(net, tmp_path, first, lines, action):
    """Scrapy itself does that since 2.19 only, and then takes the type of the 304 as well, which is
    text/plain here."""
    site = net.origin(OPEN, {"/a": validated(*lines, first=first)})
    url = f"{site.url}/a"

    done = crawl([url], caching(tmp_path, RFC2616))
    assert done.stats[STORED] == 1
    done = crawl([url], declared("search") | caching(tmp_path, RFC2616))

    assert done.stats["httpcache/revalidate"] == 1
    assert done[url]["action"] == action
    if action == "pass":
        assert done[url]["length"] > 50
    assert len(done.signals) == (
        1 if first.headers[1:] or lines or b"robots" in _bytes(first) else 0
    )


def _bytes(reply: Reply) -> bytes:
    return reply.body.encode() if isinstance(reply.body, str) else reply.body


def test_a_304_that_a_spider_asked_for_is_judged_by_its_own_fields(net):
    site = net.origin(OPEN, {"/a": validated("noindex", first=page())})

    done = crawl(
        [{"url": f"{site.url}/a", "headers": {"If-None-Match": '"1"'}}],
        declared("search"),
        spider={"handle_httpstatus_list": [304]},
    )

    assert done.verdict(f"{site.url}/a") == ("drop", "usage-reserved")
