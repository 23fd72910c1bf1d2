"""The delay between requests, measured at the origin, and its effect on other origins: none."""

from __future__ import annotations

import pytest
from integrations.scrapy.crawl import MODES, SCRAPY, crawl, crawl_together, shortest_gap

from robots_guard.testing import Reply

pytestmark = pytest.mark.timing

DELAY = 0.3  # more than pacing.SLACK, so that a busy machine does not show in the gaps
RULES = f"User-agent: *\nCrawl-delay: {DELAY}\nDisallow: /private/\n"
TOLERANCE = 0.99


def moved(location: str) -> Reply:
    return Reply(status=302, headers=(("Location", location),))


def assert_keeps(site, delay: float = DELAY) -> None:
    """Assert that the delay was kept between any two requests."""
    assert len(site.targets) > 1
    assert shortest_gap(site) >= delay * TOLERANCE


# -- every kind of request -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_sequential_concurrent_redirected_and_retried_requests_keep_the_delay(net, mode):
    flaky = iter([Reply(status=500), Reply(status=200)])
    site = net.origin(
        RULES,
        {
            "/next": Reply(body="", headers=(("Content-Type", "text/html"),)),
            "/moved": moved("/landed"),
            "/flaky": lambda _: next(flaky),
        },
    )
    pages = [f"{site.url}/{page}" for page in ("next", "moved", "flaky", "a", "b", "c")]
    mode = MODES[mode]

    done = crawl(
        [*pages, {"url": f"{site.url}/inline", "inline": True}],
        follow={f"{site.url}/next": [f"{site.url}/followed"]},
        see_through=True,
        **{**mode, "settings": {**mode["settings"], "RETRY_ENABLED": True}},
    )

    assert sorted(site.targets) == sorted(
        ["/next", "/followed", "/moved", "/landed", "/flaky", "/flaky", "/a", "/b", "/c", "/inline"]
    )
    assert_keeps(site)
    assert {done[page]["status"] for page in pages} == {200}
    assert not done.records, "requests that wait in the scheduler are not judged"


def test_origins_that_the_gate_has_forgotten_keep_the_delay(net):
    sites = [net.origin(RULES) for _ in range(4)]

    crawl([f"{site.url}/{n}" for n in range(4) for site in sites], remembered=1, see_through=True)

    for site in sites:
        assert sorted(site.targets) == ["/0", "/1", "/2", "/3"]
        assert_keeps(site)


def test_media_requests_wait_in_the_turn_queue_and_keep_the_delay(net, tmp_path):
    site = net.origin(RULES)
    files = [f"{site.url}/file{number}" for number in range(5)]

    done = crawl(
        [f"{site.url}/{page}" for page in "abc"],
        {
            "ITEM_PIPELINES": {"integrations.scrapy.components.Downloads": 1},
            "FILES_STORE": str(tmp_path),
        },
        files=[*files, f"{site.url}/private/file"],
        see_through=True,
    )

    assert_keeps(site)
    assert {done[url]["action"] for url in files} == {"pass"}
    assert done[f"{site.url}/private/file"]["action"] == "drop"
    assert len(site.targets) == 3 + 5


@pytest.mark.parametrize(
    "settings",
    [
        # times 0.5 to 1.5
        {"DOWNLOAD_DELAY": 0.25, "CONCURRENT_REQUESTS": 0 if SCRAPY >= (2, 18) else 10_000},
        {
            "AUTOTHROTTLE_ENABLED": True,
            "AUTOTHROTTLE_START_DELAY": 0.3,
            "AUTOTHROTTLE_TARGET_CONCURRENCY": 8.0,
        },
        {"CONCURRENT_REQUESTS_PER_DOMAIN": 1},
    ],
    ids=["jitter and no limit", "autothrottle", "one at a time"],
)
def test_scrapys_own_settings_do_not_undercut_the_delay(net, settings):
    """Responses that take longer than the delay fill the download slot, so requests leave it in a
    burst."""
    slow = Reply(delay=DELAY * 1.5)
    site = net.origin(RULES, {f"/{number}": slow for number in range(0, 6, 2)})

    crawl([f"{site.url}/{number}" for number in range(6)], settings, see_through=True)

    assert_keeps(site)
    assert len(site.targets) == 6


def test_hosts_that_share_a_download_slot_share_no_delay(net):
    """A paced origin in a project's `download_slot` does not slow down others, and its delay is
    kept."""
    paced, free = net.origin(RULES), net.origin("User-agent: *\nAllow: /\n")
    slot = {"download_slot": "all"}

    done = crawl(
        [
            {"url": f"{site.url}/{n}", "meta": slot}
            for site, most in ((paced, 6), (free, 40))
            for n in range(most)
        ],
        see_through=True,
    )

    assert_keeps(paced)
    assert max(done[f"{free.url}/{n}"]["at"] for n in range(40)) < done[f"{paced.url}/5"]["at"] / 2


def test_many_slots_of_one_origin_keep_one_delay(net):
    """For example with one download slot per proxy."""
    site = net.origin(RULES)

    crawl(
        [{"url": f"{site.url}/{n}", "meta": {"download_slot": f"s{n % 4}"}} for n in range(8)],
        see_through=True,
    )

    assert_keeps(site)
    assert len(site.targets) == 8


def test_every_source_of_a_delay_is_kept(net):
    """A Request-rate, a Crawl-delay capped by the operator, and the operator's own delay."""
    delays = {
        "User-agent: *\nRequest-rate: 20/7\n": 0.35,
        "User-agent: *\nCrawl-delay: 500\n": 0.4,
        "User-agent: *\nAllow: /\n": 0.3,
    }
    sites = [(net.origin(robots), delay) for robots, delay in delays.items()]

    crawl(
        [f"{site.url}/{number}" for site, _ in sites for number in range(5)],
        {"ROBOTS_GUARD_MIN_DELAY": 0.3, "ROBOTS_GUARD_MAX_DELAY": 0.4},
        see_through=True,
    )

    for site, delay in sites:
        assert_keeps(site, delay)
        assert len(site.targets) == 5


def test_in_report_only_mode_no_request_waits(net, tmp_path):
    """`report_only`: scheduled requests and those that bypass the scheduler are sent at once,
    and recorded."""
    site = net.origin("User-agent: *\nCrawl-delay: 30\n")
    files = [f"{site.url}/file{n}" for n in range(4)]
    pipeline = {
        "ITEM_PIPELINES": {"integrations.scrapy.components.Downloads": 1},
        "FILES_STORE": str(tmp_path),
    }

    done = crawl(
        [f"{site.url}/{n}" for n in range(8)],
        {**pipeline, "ROBOTS_GUARD_REPORT_ONLY": True},
        files=files,
        see_through=True,
    )

    assert len(site.targets) == 12
    assert {done[url]["action"] for url in files} == {"pass"}
    actions = [record["would"] for record in done.records if record["relaxed"] == "report_only"]
    assert actions == ["defer"] * 11


def test_a_cached_response_uses_no_turn(net, tmp_path):
    """The second crawl sends no request, and is not paced."""
    site = net.origin("User-agent: *\nCrawl-delay: 0.5\n")
    pages = [f"{site.url}/{number}" for number in range(3)]
    cache = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path)}

    crawl(pages, cache, see_through=True)
    done = crawl(pages, cache, see_through=True)

    assert len(site.targets) == 3
    assert_keeps(site, 0.5)
    assert max(done[page]["at"] for page in pages) < 1.0, "the last of three waits for two delays"


# -- an origin that asks for a pause ---------------------------------------------------------------


def test_retry_after_pauses_all_requests_and_the_retry(net):
    def busy(_request) -> Reply:
        return (
            Reply(status=503, headers=(("Retry-After", "1"),)) if len(site.targets) < 2 else Reply()
        )

    site, other = net.origin("User-agent: *\nAllow: /\n", {"/first": busy}), net.origin("")
    pages = [f"{site.url}/{number}" for number in range(4)]

    done = crawl(
        [f"{site.url}/first", f"{other.url}/x"],
        {"RETRY_ENABLED": True},
        follow={f"{other.url}/x": pages},
        see_through=True,
    )

    at = [request.at for request in site.received if request.target != "/robots.txt"]
    assert at[1] - at[0] >= 1
    assert sorted(site.targets) == ["/0", "/1", "/2", "/3", "/first", "/first"]
    assert done[f"{site.url}/first"]["status"] == 200


@pytest.mark.parametrize("mode", MODES)
def test_retry_after_pauses_requests_in_the_download_slot(net, mode):
    """With DOWNLOAD_DELAY, many requests have passed the middlewares before the first response."""

    def busy(_request) -> Reply:
        return (
            Reply(status=503, headers=(("Retry-After", "2"),)) if len(site.targets) < 2 else Reply()
        )

    pages = [f"/{number}" for number in range(6)]
    site = net.origin("User-agent: *\nAllow: /\n", dict.fromkeys(pages, busy))
    way = MODES[mode]
    slowly = {
        **way["settings"],
        "RETRY_ENABLED": True,
        "DOWNLOAD_DELAY": 0.5,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
    }

    done = crawl(
        [site.url + page for page in pages], **{**way, "settings": slowly}, see_through=True
    )

    at = [request.at for request in site.received if request.target != "/robots.txt"]
    assert at[1] - at[0] >= 2
    assert sorted(site.targets) == sorted([*pages, site.targets[0]])
    assert {done[site.url + page]["status"] for page in pages} == {200}


def test_a_cached_503_causes_no_pause(net, tmp_path):
    site = net.origin("", {"/busy": Reply(status=503, headers=(("Retry-After", "3600"),))})
    cache = {
        "HTTPCACHE_ENABLED": True,
        "HTTPCACHE_DIR": str(tmp_path),
        "ROBOTS_GUARD_RESPECT_RETRY_AFTER": False,
    }

    crawl([f"{site.url}/busy"], cache)
    done = crawl(
        [f"{site.url}/busy", f"{site.url}/x"], {**cache, "ROBOTS_GUARD_RESPECT_RETRY_AFTER": True}
    )

    assert site.targets == ["/busy", "/x"]
    assert done[f"{site.url}/x"]["status"] == 200


def test_a_503_of_an_ungoverned_scheme_is_handed_on():
    handler = {"DOWNLOAD_HANDLERS": {"s4": "integrations.scrapy.components.BusyHandler"}}

    done = crawl([{"url": "s4://bucket/key", "meta": {"handle_httpstatus_all": True}}], handler)

    assert done["s4://bucket/key"]["status"] == 503


# -- waiting requests, and their effect on others --------------------------------------------------


def chains(net, hosts: int, length: int):
    """Hosts whose pages are discovered one by one: their first pages, links by page, and last
    pages."""
    sites = [net.origin("User-agent: *\nAllow: /\n") for _ in range(hosts)]
    follow = {
        f"{site.url}/{n}": [f"{site.url}/{n + 1}"] for site in sites for n in range(length - 1)
    }
    return (
        [f"{site.url}/0" for site in sites],
        follow,
        [f"{site.url}/{length - 1}" for site in sites],
    )


def test_a_slow_host_with_a_long_queue_stalls_no_other(net):
    slow = net.origin("User-agent: *\nCrawl-delay: 1\n")
    first, follow, last = chains(net, 3, 20)

    done = crawl([*(f"{slow.url}/{n}" for n in range(300)), *first], follow=follow, stop_when=last)

    assert {done[page].get("status") for page in last} == {200}
    assert max(done[page]["at"] for page in last) < 15, "300 s if they waited for its 300 URLs"


def test_media_that_wait_do_not_use_up_the_concurrent_requests(net, tmp_path):
    """Requests that bypass the scheduler cannot be rescheduled, but do not count while they
    wait."""
    slow = net.origin("User-agent: *\nCrawl-delay: 1\n")
    first, follow, last = chains(net, 2, 8)
    files = [f"{slow.url}/file{n}" for n in range(30)]
    settings = {
        "ITEM_PIPELINES": {"integrations.scrapy.components.Downloads": 1},
        "FILES_STORE": str(tmp_path),
    }

    done = crawl(
        first,
        {**settings, "CONCURRENT_REQUESTS": 2, "ROBOTS_GUARD_HOLD_MAX": 5},
        follow=follow,
        files=files,
        see_through=True,
    )

    pages_done = max(done[page]["at"] for page in last)
    assert pages_done < 3, "at least two files wait 4 s or longer"
    assert_keeps(slow, 1)
    assert 3 <= len(slow.targets) <= 6, "hold_max is 5 s"
    refused = [url for url in files if done[url]["action"] == "drop"]
    assert len(refused) == 30 - len(slow.targets)
    assert {record["reason"] for record in done.records if record["url"] in refused} == {
        "crawl-delay"
    }


def test_a_stopped_job_resumes_with_every_paced_request_once(net, tmp_path):
    site = net.origin(RULES)
    job = {"JOBDIR": str(tmp_path / "job"), "ROBOTS_GUARD_STORE": f"sqlite:///{tmp_path / 'store'}"}

    crawl([f"{site.url}/{n}" for n in range(10)], job, stop_when=[f"{site.url}/3"])
    assert 4 <= len(site.targets) <= 6
    crawl([], job, see_through=True)

    assert sorted(site.targets) == sorted(f"/{n}" for n in range(10))
    assert_keeps(site)


# -- one delay for several processes ---------------------------------------------------------------


@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_eight_crawls_keep_one_delay(net, tmp_path, request, store):
    site = net.origin("User-agent: *\nCrawl-delay: 0.4\n")
    url = f"sqlite:///{tmp_path}/store"
    if store == "redis":
        url = request.getfixturevalue("redis_server").url
    targets = [[f"/{crawler}-{n}" for n in range(1 + crawler % 2)] for crawler in range(8)]

    codes = crawl_together(
        [[f"{site.url}{target}" for target in each] for each in targets],
        {"ROBOTS_GUARD_STORE": url},
        tmp_path,
    )

    assert codes == [0] * 8
    assert sorted(site.targets) == sorted(target for each in targets for target in each)
    assert_keeps(site, 0.4)
    assert len(site.robots_fetches) == 1
