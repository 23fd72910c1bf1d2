"""A crawl with the guard comes out as one with Scrapy's RobotsTxtMiddleware, whatever extensions and
signal handlers it has: none of them meets the guard's own fetches."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from integrations.scrapy.crawl import crawl

RULES = "User-agent: *\nDisallow: /private/\n"
BEGIN = ("/a", "/private/b")
FOLLOWED = ("/c", "/private/d", "/e")
OWN = "integrations.scrapy.components."
#: Those of Scrapy's extensions that are off unless a setting switches them on.
ALL = {
    "CLOSESPIDER_ERRORCOUNT": 1,
    "CLOSESPIDER_ITEMCOUNT": 100,
    "CLOSESPIDER_TIMEOUT": 100,
    "CLOSESPIDER_TIMEOUT_NO_ITEM": 100,
    "LOGSTATS_INTERVAL": 0.05,
    "MEMDEBUG_ENABLED": True,
    "MEMUSAGE_ENABLED": True,
    "PERIODIC_LOG_DELTA": True,
    "PERIODIC_LOG_STATS": True,
    "TELNETCONSOLE_ENABLED": True,
}


def extended(*names, **settings):
    extensions = {OWN + name: 500 for name in (*names, "CountsSignals")}
    extensions["scrapy.extensions.periodic_log.PeriodicLog"] = 0
    return {"EXTENSIONS": extensions, **settings}


CRAWLS = {
    "all extensions": extended(**ALL),
    "pages are counted": extended(CLOSESPIDER_PAGECOUNT=1),
    "pages without an item are counted": extended(CLOSESPIDER_PAGECOUNT_NO_ITEM=1),
    "downloads are stopped at the headers": extended("StopsAtHeaders"),
    "downloads are stopped in the body": extended("StopsAtBytes"),
    "stopped downloads fail": extended("FailsAtHeaders"),
    "a handler of response_received closes": extended("ClosesAtFirst"),
    "a handler of request_reached_downloader closes": extended("ClosesAtDownload"),
    "autothrottle": extended(AUTOTHROTTLE_ENABLED=True, AUTOTHROTTLE_START_DELAY=0.2),
    "http cache": extended(HTTPCACHE_ENABLED=True),
    "http cache of RFC 2616": extended(
        HTTPCACHE_ENABLED=True, HTTPCACHE_POLICY="scrapy.extensions.httpcache.RFC2616Policy"
    ),
}
#: Statistics that do not depend on how long the crawl takes, nor on requests for robots.txt.
COMPARED = ("item_", "spider_exceptions", "finish_reason", "httpcache/hit")


def outcomes(done):
    """What the spider has received, and the statistics that must be the same."""
    results = {
        urlsplit(url).path: (result["action"], result.get("status"), result.get("length"))
        for url, result in done.results.items()
        if "/private/" not in url
    }
    return results, {key: done.stats[key] for key in done.stats if key.startswith(COMPARED)}


@pytest.mark.parametrize("settings", CRAWLS.values(), ids=CRAWLS)
def test_extensions_and_signal_handlers_do_not_meet_the_guards_fetch(settings, net, tmp_path):
    crawls = []
    for is_on in (False, True):
        site = net.origin(robots=RULES)
        first, *others = (site.url + path for path in (*BEGIN, *FOLLOWED))
        done = crawl(
            [first, others[0]],
            {
                **settings,
                "HTTPCACHE_DIR": str(tmp_path / site.address),
                "ROBOTS_GUARD_ENABLED": is_on,
            },
            follow={first: others[1:]},
            items={first: [{"a": 1}]},
        )
        crawls.append((site, done))
    (_, alone), (site, guarded) = crawls

    assert outcomes(guarded) == outcomes(alone)
    assert "log_count/ERROR" not in guarded.stats
    assert not site.pages_matching("/private/")
    seen = [name for name in guarded.stats if name.startswith("seen/")]
    assert "seen/request_reached_downloader/a" in seen
    assert not [name for name in seen if name.endswith("/robots.txt")]


#: Values that a component may set under a meta key, most of which make no sense.
META = {
    "redirect_urls": (None, 5, "http://x.test/", [], [None], {"a": 1}),
    "dont_obey_robotstxt": (None, 0, False, ""),
    "download_slot": (None, ""),  # a number ends the crawl in Scrapy itself
    "proxy": (None,),
    "bindaddress": (None,),
    "cached_response": (None, 5),
    "robots_guard_fetch": (None, 5),
    "robots_guard_signals": (None, 5, []),
    "handle_httpstatus_list": (None,),
    "download_timeout": (None,),
}


def test_odd_values_of_meta_keys_have_the_outcomes_that_scrapy_gives_them(net):
    plan = [{name: value} for name, values in META.items() for value in values]
    plan += [{**meta, "dont_obey_robotstxt": True} for meta in plan if "redirect_urls" in meta]
    crawls = []
    for is_on in (False, True):
        site = net.origin("User-agent: *\nDisallow: /private/\n")
        pages = [{"url": f"{site.url}/{n}", "meta": meta} for n, meta in enumerate(plan)]
        done = crawl(pages, {"ROBOTS_GUARD_ENABLED": is_on}, timeout=60)
        crawls.append({key.rpartition("/")[2]: done.results[key] for key in done.results})
    alone, guarded = crawls

    assert len(alone) == len(plan)
    for number, meta in enumerate(plan):
        one, other = alone[str(number)], guarded.get(str(number), {})
        keys = ("action", "status", "error")
        assert [one.get(key) for key in keys] == [other.get(key) for key in keys], meta


@pytest.mark.parametrize("queue", ["Lifo", "Fifo"])
def test_requests_reach_the_site_in_scrapys_order(queue, net):
    """The first of a site goes back to the scheduler until its policy is known: to the front."""
    orders = []
    for is_on in (False, True):
        first, site = net.origin(RULES), net.origin(RULES)
        crawl(
            [f"{first.url}/"],
            {
                "CONCURRENT_REQUESTS": 1,
                "ROBOTS_GUARD_ENABLED": is_on,
                "SCHEDULER_MEMORY_QUEUE": f"scrapy.squeues.{queue}MemoryQueue",
            },
            follow={f"{first.url}/": [f"{site.url}/{number}" for number in range(6)]},
        )
        orders.append(site.targets)

    assert orders[1] == orders[0]
