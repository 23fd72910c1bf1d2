"""Deferral in real crawls: no request is lost, none is sent too early, and other origins do not
wait."""

from __future__ import annotations

import pytest
from integrations.scrapy.crawl import MODES, SCRAPY, crawl

from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"
NO_LIMIT = 0 if SCRAPY >= (2, 18) else 10_000  # 0 means no limit since 2.18
DAPQ = "scrapy.pqueues.DownloaderAwarePriorityQueue"
BY_HAND = {
    "ADDONS": {},
    "DOWNLOADER_MIDDLEWARES": {
        "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
        "robots_guard.scrapy.RobotsGuardMiddleware": 100,
        "robots_guard.scrapy.RobotsGuardSeal": 2**40,
    },
}


def recovering(net, failures: int):
    """An origin whose robots.txt fails a number of times, then is served."""
    answers = [Reply(status=503)] * failures + [Reply(body=RULES)]
    site = net.origin(lambda request: answers[min(len(site.robots_fetches), len(answers)) - 1])
    return site


@pytest.mark.parametrize(
    "mode",
    [*MODES.values(), {"settings": {"CONCURRENT_REQUESTS": NO_LIMIT}}],
    ids=[*MODES, "no limit"],
)
def test_deferred_requests_are_sent_when_robots_txt_is_available_again(net, mode):
    """503 twice, then rules: three fetches for nine requests, and the dupefilter is unaffected."""
    site, fine = recovering(net, 2), net.origin(RULES)
    pages = [f"{site.url}/{number}" for number in range(6)]
    twice = {"url": pages[0], "key": "twice"}

    done = crawl(
        [*pages, twice, f"{site.url}/private/x", *(f"{fine.url}/{number}" for number in range(20))],
        retry_min=0.4,
        see_through=True,
        **mode,
    )

    assert sorted(site.targets) == [f"/{number}" for number in range(6)]
    assert len(site.robots_fetches) == 3
    assert [done[page]["status"] for page in pages] == [200] * 6
    assert done["twice"]["action"] == "duplicate"
    assert done.verdict(f"{site.url}/private/x") == ("drop", "disallowed")
    # The same request probes each time, and goes back for the second and third fetch and decision.
    assert sum(done[page]["deferrals"] for page in pages) <= 4, (
        "each fetch sends back one probe, and not the queue"
    )
    assert not any(done[page]["dont_filter"] for page in pages), "dont_filter leaked into a request"
    assert not any("_robots_guard_df" in done[page]["meta"] for page in pages)
    waits = [
        later.at - earlier.at
        for earlier, later in zip(site.robots_fetches, site.robots_fetches[1:], strict=False)
    ]
    assert waits[0] >= 0.4
    assert waits[1] >= 0.8
    assert [done[f"{fine.url}/{number}"]["status"] for number in range(20)] == [200] * 20
    first_back = min(done[page]["at"] for page in pages)
    first_fine = min(done[f"{fine.url}/{number}"]["at"] for number in range(20))
    assert first_fine < first_back, "the other origin waited"


def test_a_reopened_bucket_is_polled_before_the_next_heartbeat(net):
    """The engine itself polls every 5 s; the gate wakes it."""
    site = recovering(net, 1)

    done = crawl([f"{site.url}/a", f"{site.url}/b"], retry_min=0.3, see_through=True)

    assert done[f"{site.url}/b"]["at"] < 5


def test_waiting_costs_no_processor_time(net):
    """The queue is closed for 2 s, and its requests do not move meanwhile."""
    site = recovering(net, 1)

    done = crawl([f"{site.url}/{number}" for number in range(200)], retry_min=2, see_through=True)

    assert len(site.targets) == 200
    # One goes back while the policy is fetched, one is deferred by it, and one goes back while it
    # is fetched again.
    assert done.stats["scheduler/dequeued"] == 203
    assert done.stats["scheduler/enqueued"] == 203


def test_http_and_https_of_one_host_do_not_wait_for_each_other(net, authority):
    """Each origin has its own bucket, though both schemes share a download slot."""
    down = net.origin(503)
    up = net.origin(RULES, address=down.address, tls=authority(down.address))
    pages = [f"{up.url}/{number}" for number in range(20)]

    done = crawl([f"{down.url}/x", *pages])

    assert {done.verdict(page)[0] for page in pages} == {"pass"}
    assert done.verdict(f"{down.url}/x") == ("defer", "unreachable")


def test_many_hosts_in_one_download_slot_do_not_wait_for_each_other(net):
    """The same if a project puts several hosts into one slot."""
    down, up = net.origin(Reply(hang=True)), net.origin(RULES)
    pages = [f"{up.url}/{number}" for number in range(10)]
    slot = {"download_slot": "everything"}

    done = crawl(
        [{"url": url, "meta": slot} for url in (f"{down.url}/x", f"{down.url}/y", *pages)],
        stop_after=4,
        settings={"ROBOTS_GUARD_FETCH_TIMEOUT": 10},
    )

    assert max(done[page]["at"] for page in pages) < 4
    assert down.targets == []


def test_an_exempt_request_does_not_wait_for_a_policy(net):
    site = net.origin(503)
    judged = {"url": f"{site.url}/judged", "priority": 1}
    exempt = {"url": f"{site.url}/exempt", "meta": {"dont_obey_robotstxt": True}}

    done = crawl([judged, exempt], see_through=True, stop_when=[exempt["url"]], timeout=50)

    assert done[exempt["url"]]["status"] == 200
    assert done.record(exempt["url"])["reason"] == "bypassed"
    assert site.targets == ["/exempt"]


def test_an_exempt_request_does_not_wait_for_a_delay(net):
    site = net.origin("User-agent: *\nCrawl-delay: 60\n")
    pages, exempt = [f"{site.url}/{number}" for number in range(3)], f"{site.url}/exempt"

    crawl(
        pages,
        follow={page: [exempt] for page in pages},
        spider={"meta": {"dont_obey_robotstxt": True}},
        see_through=True,
        stop_when=[exempt],
        timeout=50,
    )

    assert len(site.targets) == 2
    assert site.targets[1] == "/exempt"


def test_after_max_defer_a_deferral_becomes_a_drop(net):
    site = net.origin(503)

    done = crawl(
        [f"{site.url}/a", f"{site.url}/b"],
        {"ROBOTS_GUARD_MAX_DEFER": 0.5},
        retry_min=0.7,
        see_through=True,
    )

    assert {done.verdict(f"{site.url}/{page}") for page in "ab"} == {("drop", "unreachable")}
    assert site.targets == []


@pytest.mark.parametrize("choice", ["drop", "allow"])
def test_on_unreachable_is_applied(net, choice):
    site = net.origin(503)

    done = crawl([f"{site.url}/a"], {"ROBOTS_GUARD_ON_UNREACHABLE": choice})

    assert site.targets == ([] if choice == "drop" else ["/a"])
    assert done.record(f"{site.url}/a")["relaxed"] == (
        None if choice == "drop" else "on_unreachable=allow"
    )


@pytest.mark.parametrize("way", ["ignored", "cancelled", "answered", "replaced"])
def test_a_request_that_another_component_ends_leaves_no_origin_closed(net, way):
    """It was admitted as its origin's only request, for its policy or for a delay, and never
    arrives.

    The guard's middleware does not see all of these ends.
    """
    unknown, paced = net.origin(RULES), net.origin("User-agent: *\nCrawl-delay: 0.1\n")
    after = [f"{paced.url}/{page}" for page in (way, "b", "c")]

    done = crawl(
        [f"{unknown.url}/{way}", f"{unknown.url}/a", f"{paced.url}/a"],
        {"DOWNLOADER_MIDDLEWARES": {"integrations.scrapy.components.EndsEarly": 50}},
        follow={f"{paced.url}/a": after},
        stop_when=[f"{unknown.url}/a", *after[1:]],
    )

    assert [done[page].get("status") for page in (f"{unknown.url}/a", *after[1:])] == [
        200,
        200,
        200,
    ]


def test_a_request_that_a_scheduler_loses_leaves_no_origin_closed(net):
    site = net.origin(RULES)
    scheduling = {"SCHEDULER": "integrations.scrapy.components.Forgets"}
    scheduling["SCHEDULER_PRIORITY_QUEUE"] = "robots_guard.scrapy.GuardPriorityQueue"

    done = crawl(
        [f"{site.url}/forgotten", f"{site.url}/a"],
        {**BY_HAND, **scheduling},
        stop_when=[f"{site.url}/a"],
    )

    assert done[f"{site.url}/a"]["status"] == 200


@pytest.mark.parametrize("queue", [DAPQ, "scrapy.pqueues.ScrapyPriorityQueue"])
def test_the_request_itself_goes_back_and_not_a_copy(net, queue):
    """While its policy is fetched, while that fails, and while its turn has not come."""
    sites = recovering(net, 1), net.origin("User-agent: *\nCrawl-delay: 0.1\n")
    pages = [f"{site.url}/{number}" for site in sites for number in range(4)]

    done = crawl(
        pages,
        {
            "SCHEDULER_PRIORITY_QUEUE": queue,
            "SPIDER_MIDDLEWARES": {"integrations.scrapy.components.YieldsOwnRequests": 500},
        },
        retry_min=0.4,
        see_through=True,
    )

    assert [done[page].get("status") for page in pages] == [200] * len(pages)
    assert done.stats["own_requests"] == len(pages)


def test_a_request_that_scrapy_has_no_handler_for_is_left_to_scrapy(net):
    """It does not wait for a robots.txt that cannot be fetched either."""
    site = net.origin(RULES)
    urls = [f"{site.url}/a", "https://127.0.0.1:9/b", "other://127.0.0.1/c"]

    done = crawl(urls, {"DOWNLOAD_HANDLERS": {"https": None}}, see_through=True, timeout=30)

    assert [done[url].get("error") for url in urls] == [None, "NotSupported", "NotSupported"]
    assert done.stats["finish_reason"] == "finished"


def pages_of(*sites) -> list[str]:
    return [f"{site.url}/{number}" for site in sites for number in range(20)]


def received(*sites) -> list[str]:
    return [f"{site.url}{target}" for site in sites for target in site.targets]


def test_a_stopped_job_resumes_with_every_deferred_request(net, tmp_path):
    """In JOBDIR each waiting request is on disk once, the one that was sent back included."""
    down, up = recovering(net, 1), net.origin(RULES)
    pages = pages_of(down, up)
    job = {
        "JOBDIR": str(tmp_path / "job"),
        "ROBOTS_GUARD_STORE": f"sqlite:///{tmp_path / 'policies.sqlite'}",
    }

    first = crawl(pages, job, retry_min=1.5, stop_after_last=1)
    assert down.targets == []
    # One of each host went back while its policy was fetched, and one of the host that is down was
    # deferred.
    assert first.stats["scheduler/enqueued/disk"] == len(pages) + 3
    second = crawl([f"{down.url}/private/x"], job, retry_min=1.5, see_through=True)

    assert sorted(received(down, up)) == sorted(pages)
    assert len(down.robots_fetches) == 2
    assert second.verdict(f"{down.url}/private/x") == ("drop", "disallowed")


def test_a_job_that_began_without_the_guard_can_be_resumed(net, tmp_path):
    """Its buckets have other names; requests move into the guard's as they come out, and none is
    lost or sent twice."""
    down, up = recovering(net, 1), net.origin(RULES)
    pages = pages_of(down, up)
    job = {"JOBDIR": str(tmp_path / "job")}

    crawl(
        pages,
        {**job, "ADDONS": {}, "DOWNLOAD_DELAY": 0.2, "CONCURRENT_REQUESTS": 4},
        stop_after=0.3,
    )
    assert len(received(down, up)) < len(pages) / 2
    crawl([], job, retry_min=0.5, see_through=True)

    assert sorted(received(down, up)) == sorted(pages)
    assert len(down.robots_fetches) == 2


def test_a_job_can_be_resumed_without_the_guard(net, tmp_path):
    """The files on disk are DownloaderAwarePriorityQueue's; a request sent back has only plain
    values in its meta."""
    down = net.origin(503)
    job = {"JOBDIR": str(tmp_path / "job")}
    pages = [f"{down.url}/{number}" for number in range(5)]

    crawl(pages, job, stop_after_last=0.4)
    crawl([], {**job, "ADDONS": {}, "ROBOTSTXT_OBEY": False}, see_through=True)

    assert sorted(down.targets) == [f"/{number}" for number in range(5)]


@pytest.mark.parametrize("queue", ["scrapy.pqueues.ScrapyPriorityQueue", DAPQ])
def test_without_a_gate_requests_that_must_wait_are_refused(net, queue):
    """Without the guard's queue no request can be deferred; warnings are logged at the start and at
    the first refusal."""
    down, slow, up = net.origin(503), net.origin(Reply(body=RULES, delay=0.5)), net.origin(RULES)
    settings = {**BY_HAND, "SCHEDULER_PRIORITY_QUEUE": queue, "ROBOTS_GUARD_AUDIT": "all"}

    done = crawl(
        [f"{site.url}/{page}" for site in (down, slow, up) for page in ("a", "b", "private/c")],
        settings,
        retry_min=20,
    )

    assert {done[f"{down.url}/{page}"]["error"] for page in ("a", "b", "private/c")} == {
        "RobotsDeferred"
    }
    assert down.targets == []
    assert sorted(slow.targets) == sorted(up.targets) == ["/a", "/b"]
    assert len(slow.robots_fetches) == 1
    assert done.log.count("does not consult robots_guard") == 1
    assert done.log.count("could have been deferred") == 1


def test_with_another_queue_wrapped_no_request_is_refused(net):
    down, up = recovering(net, 1), net.origin(RULES)

    done = crawl(
        pages_of(down, up), {"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue"}, retry_min=3,
        see_through=True,
    )  # fmt: skip

    assert sorted(received(down, up)) == sorted(pages_of(down, up))
    assert max(done[page]["at"] for page in pages_of(up)) < 3
    assert "robots_guard: requests" not in done.log


def test_downloads_that_bypass_the_scheduler_wait_briefly_or_are_refused(net):
    """Requests of `engine.download_async` wait up to 3 s; a longer wait is an exception with the
    time to retry at."""
    soon, late = recovering(net, 1), net.origin(503)

    done = crawl(
        [
            {"url": f"{soon.url}/a", "inline": True},
            {"url": f"{soon.url}/private/a", "inline": True},
            {"url": f"{late.url}/b", "inline": True},
        ],
        retry_min=0.4,
    )
    refused = crawl([{"url": f"{late.url}/c", "inline": True}])

    assert done[f"{soon.url}/a"]["status"] == 200
    assert done.verdict(f"{soon.url}/private/a") == ("drop", "disallowed")
    assert done[f"{late.url}/b"]["error"] == "RobotsDeferred"
    assert refused[f"{late.url}/c"]["error"] == "RobotsDeferred"
    assert refused.seconds < 5
    assert late.targets == []


def test_files_and_redirects_are_checked(net, tmp_path):
    """Requests of a media pipeline and every hop of a redirect pass the same middleware."""

    def to(location: str) -> Reply:
        return Reply(status=302, headers=(("Location", location),))

    other = net.origin(RULES)
    site = net.origin(
        RULES,
        {
            "/moved": to("/private/landed"),
            "/away": to(f"{other.url}/private/landed"),
            "/fine": to("/landed"),
            "/file-moved": to("/private/file"),
        },
    )
    good, *bad = [
        f"{site.url}/file",
        f"{site.url}/private/f",
        f"{site.url}/file-moved",
        f"{other.url}/private/f",
    ]

    done = crawl(
        [f"{site.url}/{page}" for page in ("moved", "away", "fine")],
        {
            "ITEM_PIPELINES": {"integrations.scrapy.components.Downloads": 1},
            "FILES_STORE": str(tmp_path),
            "MEDIA_ALLOW_REDIRECTS": True,
        },
        files=[good, *bad],
    )

    assert (
        done.verdict(f"{site.url}/moved")
        == done.verdict(f"{site.url}/away")
        == ("drop", "disallowed")
    )
    assert done[f"{site.url}/fine"]["url"] == f"{site.url}/landed"
    assert done[good]["action"] == "pass"
    assert [done[url]["action"] for url in bad] == ["drop"] * 3
    assert sorted(site.targets) == ["/away", "/file", "/file-moved", "/fine", "/landed", "/moved"]
    assert other.targets == []
