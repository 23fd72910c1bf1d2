"""Schedulers and dupefilters that refuse requests they have seen: no deferred request is lost."""

from __future__ import annotations

import pytest
from integrations.scrapy.crawl import crawl

from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"
SLOW = "User-agent: *\nCrawl-delay: 0.1\n"
COMPONENTS = "integrations.scrapy.components"
#: Schedulers and dupefilters, by name.
KINDS = {
    "drops": {"SCHEDULER": f"{COMPONENTS}.SeenScheduler"},
    "drops silently": {"SCHEDULER": f"{COMPONENTS}.SilentScheduler"},
    "dupefilter": {"DUPEFILTER_CLASS": f"{COMPONENTS}.UrlFilter"},
    "dupefilter in a wrapped queue": {
        "DUPEFILTER_CLASS": f"{COMPONENTS}.UrlFilter",
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
    },
    "no dupefilter": {"DUPEFILTER_CLASS": "scrapy.dupefilters.BaseDupeFilter"},
}
REFUSING = {name: KINDS[name] for name in ("drops", "drops silently")}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture(params=["memory", "disk"])
def queue(request, tmp_path):
    return {} if request.param == "memory" else {"JOBDIR": str(tmp_path / "job")}


def test_no_origin_loses_its_first_request(net, kind, queue):
    """The request goes back while its robots.txt is fetched."""
    sites = [net.origin(RULES) for _ in range(3)]
    pages = [f"{site.url}/{page}" for site in sites for page in ("a", "b", "private/c")]

    done = crawl(pages, {**kind, **queue}, see_through=True)

    assert [sorted(site.targets) for site in sites] == [["/a", "/b"]] * 3
    assert {done[page]["action"] for page in pages} == {"pass", "drop"}


def test_no_request_that_is_deferred_repeatedly_is_lost(net, kind, queue):
    site = net.origin(
        lambda _: Reply(status=503) if len(site.robots_fetches) < 3 else Reply(body=SLOW)
    )
    pages = [f"{site.url}/{n}" for n in range(5)]

    done = crawl(pages, {**kind, **queue}, retry_min=0.2, see_through=True)

    assert sorted(site.targets) == sorted(f"/{n}" for n in range(5))
    assert {done[page].get("status") for page in pages} == {200}


@pytest.mark.parametrize("name", [name for name in KINDS if name != "no dupefilter"])
def test_a_request_that_is_yielded_twice_is_sent_once(net, name, queue):
    site = net.origin(SLOW)
    pages = [
        {"url": f"{site.url}/{n}", "key": f"{n} {time}"} for n in range(3) for time in range(2)
    ]

    crawl(pages, {**KINDS[name], **queue}, see_through=True)

    assert sorted(site.targets) == ["/0", "/1", "/2"]


@pytest.mark.parametrize("refusing", REFUSING)
def test_beyond_max_parked_requests_are_not_handed_back_to_a_scheduler_that_refuses_them(
    net, refusing, queue
):
    slow, fast = net.origin(SLOW), net.origin(RULES)
    pages = [f"{slow.url}/{n}" for n in range(20)]
    others = [f"{fast.url}/{n}" for n in range(5)]

    done = crawl([*pages, *others], {**REFUSING[refusing], **queue}, parked=4, see_through=True)

    assert sorted(slow.targets) == sorted(f"/{n}" for n in range(20))
    assert sorted(fast.targets) == sorted(f"/{n}" for n in range(5))
    assert "does not take requests back" in done.log


@pytest.mark.parametrize("name", KINDS)
def test_a_stopped_job_resumes_with_every_request_once(net, name, tmp_path):
    site = net.origin("User-agent: *\nCrawl-delay: 0.3\n")
    pages = [f"{site.url}/{n}" for n in range(12)]
    job = {**KINDS[name], "JOBDIR": str(tmp_path)}

    first = crawl(pages, job, stop_when=pages[1:2] if name == "no dupefilter" else pages[:1])
    assert 0 < len(site.targets) < 12
    done = crawl([], {**job, "ROBOTS_GUARD_MAX_DELAY": 0}, see_through=True)

    assert sorted(site.targets) == sorted(f"/{n}" for n in range(12))
    assert "lost" not in first.log + done.log
    again = crawl([], job, see_through=True)
    assert len(site.targets) == 12
    assert not again.results


@pytest.mark.parametrize("refusing", REFUSING)
def test_without_a_job_lost_requests_are_counted(net, refusing):
    site = net.origin("User-agent: *\nCrawl-delay: 0.3\n")
    pages = [f"{site.url}/{n}" for n in range(12)]

    done = crawl(pages, REFUSING[refusing], stop_when=pages[:1])

    assert f"did not take them back: {12 - len(site.targets)}" in done.log


def test_without_guard_scheduler_a_lost_request_is_logged(net):
    site = net.origin(RULES)
    by_hand = {
        "ADDONS": {},
        "ROBOTSTXT_OBEY": False,
        "DOWNLOADER_MIDDLEWARES": {
            "robots_guard.scrapy.RobotsGuardMiddleware": 100,
            "robots_guard.scrapy.RobotsGuardSeal": 10**6,
        },
        "SCHEDULER_PRIORITY_QUEUE": "robots_guard.scrapy.GuardPriorityQueue",
        "SCHEDULER": f"{COMPONENTS}.SeenScheduler",
    }

    done = crawl([f"{site.url}/a", f"{site.url}/b"], by_hand)

    assert site.targets == ["/b"]
    assert "SeenScheduler has refused" in done.log
    assert done.stats["robots_guard/refused_by_scheduler"] == 1
