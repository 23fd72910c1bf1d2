"""In both integrations, a client's own request for /robots.txt waits for the site's delay like any
other. In Scrapy, one that is answered with the guard's copy does not reach the site, and need not
wait."""

from __future__ import annotations

from itertools import pairwise

import pytest
from integrations.mitmproxy.process import mitmdump, proxy
from integrations.mitmproxy.wire import connected, exchange, plain
from integrations.scrapy.crawl import MODES, crawl

from robots_guard.testing import Reply

LONG = "User-agent: *\nCrawl-delay: 30\nDisallow: /private/\n"
DELAY = 0.3
SHORT = f"User-agent: *\nCrawl-delay: {DELAY}\n"
TO_THE_SITE = {"dont_cache": True}  # meta of a request that is not answered with the guard's copy
INTEGRATIONS = {"mitmdump": mitmdump, "proxy": proxy}


def gaps(site) -> list[float]:
    """Seconds between the client's requests; the first request at the site is the guard's."""
    return [later.at - earlier.at for earlier, later in pairwise(site.received[1:])]


# -- through the proxy -----------------------------------------------------------------------------


@pytest.mark.parametrize("start", INTEGRATIONS.values(), ids=INTEGRATIONS)
def test_it_is_deferred_like_a_page(net, tmp_path, start):
    site = net.origin(LONG)
    with start(tmp_path, audit="all") as integration:
        answers = [
            plain(integration, f"{site.url}/{target}")
            for target in ("open", "robots.txt", "robots.txt")
        ]
        head = plain(integration, f"{site.url}/robots.txt", method="HEAD")
        records = [
            record for record in integration.records() if record["url"].endswith("/robots.txt")
        ]

    assert [answer.status for answer in answers] == [200, 429, 429]
    assert head.status == 429
    assert answers[1].guard.startswith("defer; reason=crawl-delay;")
    assert 0 < int(answers[1].headers["retry-after"]) <= 30
    assert len(site.robots_fetches) == 1
    assert (records[1]["action"], records[1]["rule"], records[1]["line"]) == (
        "defer",
        "Crawl-delay: 30",
        2,
    )


def test_it_takes_the_turn_of_the_next_page(net, tmp_path):
    site = net.origin(LONG)
    with proxy(tmp_path) as integration:
        assert plain(integration, f"{site.url}/private/x").status == 403, (
            "the rules are known, and no turn is taken"
        )
        assert plain(integration, f"{site.url}/robots.txt").status == 200
        assert plain(integration, f"{site.url}/open").status == 429

    assert site.targets == []


@pytest.mark.timing
@pytest.mark.parametrize("start", INTEGRATIONS.values(), ids=INTEGRATIONS)
def test_it_waits_as_long_as_a_page_would(net, tmp_path, start):
    site = net.origin(SHORT)
    request = f"GET {site.url}/robots.txt HTTP/1.1\r\nHost: {site.url[7:]}\r\n\r\n".encode()
    with start(tmp_path) as integration, connected(integration) as client:
        assert plain(integration, f"{site.url}/open").status == 200
        assert [exchange(client, request).status for _ in range(3)] == [200] * 3

    assert len(site.received) == 5
    assert min(gaps(site)) >= DELAY * 0.99


def test_an_unknown_delay_is_not_kept(net, tmp_path):
    site = net.origin(LONG)
    with proxy(tmp_path) as integration:
        assert [plain(integration, f"{site.url}/robots.txt").status for _ in range(3)] == [200] * 3

    assert len(site.robots_fetches) == 3


def test_a_delay_in_the_shared_store_is_kept(net, tmp_path):
    site, store = net.origin(LONG), f"sqlite:///{tmp_path}/policies.sqlite"
    with proxy(tmp_path / "one", store=store) as integration:
        assert plain(integration, f"{site.url}/open").status == 200
    with proxy(tmp_path / "another", store=store) as integration:
        assert plain(integration, f"{site.url}/robots.txt").status == 429

    assert len(site.robots_fetches) == 1


def test_a_pause_that_the_site_requests_is_kept(net, tmp_path):
    site = net.origin("", {"/busy": Reply(status=503, headers=(("Retry-After", "60"),))})
    with proxy(tmp_path) as integration:
        assert plain(integration, f"{site.url}/busy").status == 503
        answer = plain(integration, f"{site.url}/robots.txt")

    assert (answer.status, answer.guard.partition(";")[2].partition(";")[0]) == (
        429,
        " reason=retry-after",
    )
    assert len(site.robots_fetches) == 1


def test_in_report_only_mode_it_is_only_recorded(net, tmp_path):
    site = net.origin(LONG)
    with proxy(tmp_path, ["--report-only"]) as integration:
        assert [
            plain(integration, f"{site.url}/{target}").status for target in ("open", "robots.txt")
        ] == [200, 200]
        (record,) = [each for each in integration.records() if each.get("would") == "defer"]

    assert record["url"] == f"{site.url}/robots.txt"


# -- in Scrapy -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_spiders_own_request_for_it_is_deferred_like_a_page(net, mode):
    """The request bypasses the scheduler, so it is refused at once instead of rescheduled."""
    site = net.origin(LONG)
    mode = MODES[mode] | {"settings": MODES[mode]["settings"] | {"ROBOTS_GUARD_HOLD_MAX": 0.1}}
    page, file = f"{site.url}/a", f"{site.url}/robots.txt"
    plan = [
        {"url": page},
        {"url": file, "meta": TO_THE_SITE},
        {"url": file, "key": "copy"},
    ]

    done = crawl([{"inline": True, **each} for each in plan], **mode)

    assert [done[key]["action"] for key in (page, file, "copy")] == ["pass", "defer", "pass"]
    assert next(each for each in done.records if each["url"] == file)["reason"] == "crawl-delay"
    assert len(site.robots_fetches) == 1, "the guard's own"


@pytest.mark.timing
@pytest.mark.parametrize("mode", MODES)
def test_a_spiders_own_requests_for_it_keep_the_delay(net, mode):
    site = net.origin(SHORT)
    scheduled = [
        {"url": f"{site.url}/{target}", "meta": TO_THE_SITE} for target in ("robots.txt", "b")
    ]
    past = [
        {"url": f"{site.url}/{target}", "meta": TO_THE_SITE, "inline": True, "key": target}
        for target in ("a", "robots.txt")
    ]

    done = crawl([*past, *scheduled], see_through=True, **MODES[mode])

    keys = ("a", "robots.txt", *(each["url"] for each in scheduled))
    assert {done[key]["status"] for key in keys} == {200}
    assert len(site.received) == 5
    assert min(gaps(site)) >= DELAY * 0.99


def test_the_guards_own_fetch_takes_no_turn(net):
    """Otherwise each site's first page would be requested a delay later than necessary."""
    site = net.origin(LONG)

    done = crawl([f"{site.url}/a"])

    assert done[f"{site.url}/a"]["status"] == 200
