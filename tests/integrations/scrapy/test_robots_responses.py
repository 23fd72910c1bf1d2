"""A spider's own request for a robots.txt and the guard's are one request to the site."""

from __future__ import annotations

import textwrap

import pytest
from integrations.scrapy.crawl import QUIET, crawl, run_scrapy
from scrapy import Request

from robots_guard.scrapy.robots_responses import can_share
from robots_guard.testing import Loopback, Reply

MINIMAL = "integrations.scrapy.components.Minimal"
RULES = "User-agent: *\nDisallow: /private/\n"
LARGE = f"{RULES}#{'x' * 600 * 1024}\n"
SITEMAP = (
    '<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    "<url><loc>{0}/a</loc></url><url><loc>{0}/private/b</loc></url>"
    "<url><loc>{0}/private/c</loc></url></urlset>"
)


def asked(site):
    """How often the site was asked for its robots.txt, by method."""
    return [request.method for request in site.received if request.target == "/robots.txt"]


#: A spider's requests, beside one for a page: what it gets, and the requests that its site gets.
CASES = {
    "scheduled": ({}, RULES, ("pass", 200), 1),
    "inline": ({"inline": True}, RULES, ("pass", 200), 1),
    "paced": ({}, f"{RULES}Crawl-delay: 0.1\n", ("pass", 200), 1),
    "no file": ({}, Reply(status=404), ("error", "HttpError"), 1),
    "own fields": ({"headers": {"Accept": "text/plain"}}, RULES, ("pass", 200), 2),
    "own cookies": ({"cookies": {"a": "b"}}, RULES, ("pass", 200), 2),
    "not cached": ({"meta": {"dont_cache": True}}, RULES, ("pass", 200), 2),
    "exempt": ({"meta": {"dont_obey_robotstxt": True}}, RULES, ("pass", 200), 2),
    "HEAD": ({"method": "HEAD"}, RULES, ("pass", 200), 2),
    "large": ({}, LARGE, ("pass", 200), 2),
    "forbidden": ({}, Reply(status=403), ("error", "HttpError"), 2),
    "failing": ({}, Reply(status=503), ("error", "HttpError"), 2),
}


@pytest.fixture(scope="module")
def shared():
    with Loopback() as net:
        sites = {name: net.origin(rules) for name, (_, rules, *_) in CASES.items()}
        sites["target"] = net.origin(RULES)
        location = (("Location", f"{sites['target'].url}/robots.txt"),)
        sites["moved"] = net.origin(Reply(status=302, headers=location))
        plan = [
            {"url": f"{sites[name].url}/robots.txt", "key": name, **options}
            for name, (options, *_) in CASES.items()
        ]
        plan.append({"url": f"{sites['moved'].url}/robots.txt", "key": "moved"})
        # after the inline one, which therefore comes first
        pages = [f"{site.url}/a" for name, site in sites.items() if name != "target"]
        return sites, crawl([*plan, *pages], {"LOG_LEVEL": "INFO"})


@pytest.mark.parametrize("name", CASES)
def test_a_plain_request_is_shared_and_another_one_is_made(shared, name):
    sites, done = shared
    _, _, expected, times = CASES[name]
    result = done[name]

    assert len(asked(sites[name])) == times
    assert sites[name].targets == (["/a"] if name not in ("forbidden", "failing") else [])
    assert (result["action"], result.get("status") or result["error"]) == expected


def test_a_shared_response_looks_like_the_sites_own(shared):
    sites, done = shared

    for name in ("scheduled", "inline"):
        assert done[name]["url"] == f"{sites[name].url}/robots.txt"
        assert done[name]["length"] == len(RULES)
        assert done[name]["cached"]
    assert not done["own fields"]["cached"]
    assert done["large"]["length"] == len(LARGE)
    assert done.stats["robots_guard/fetch/shared"] == 4


def test_a_redirected_file_is_not_shared(shared):
    sites, done = shared

    assert done["moved"]["url"] == f"{sites['target'].url}/robots.txt"
    assert len(asked(sites["moved"])) == 2
    assert (
        len(asked(sites["target"])) == 2
    )  # for the guard's policy of the site that redirects, too


@pytest.mark.parametrize(
    "options",
    [
        {"meta": {"proxy": "http://127.0.0.1:1"}},
        {"meta": {"bindaddress": "127.0.0.1"}},
        {"meta": {"download_slot": "x"}},
        {"meta": {"http_user": "x"}},
        {"headers": {"User-Agent": "other"}},
        {"headers": {"Authorization": "Basic eDp5"}},
        {"headers": {"Cache-Control": "no-cache"}},
        {"body": b"x"},
        {"method": "POST"},
        {"url": "ftp://a.test/robots.txt"},
        {"url": "http://a.test/robots.txt?x"},
        {"url": "http://a.test/x/robots.tx"},
    ],
)
def test_a_request_with_anything_of_its_own_is_not_shared(options):
    assert not can_share(Request(**{"url": "http://a.test/robots.txt", **options}))


def test_the_referer_that_scrapy_adds_does_not_matter():
    assert can_share(Request("http://a.test/robots.txt", headers={"Referer": "http://a.test/"}))


def test_a_crawl_that_follows_is_answered_from_the_store(net, tmp_path):
    site = net.origin(RULES)
    store = {"ROBOTS_GUARD_STORE": f"sqlite:///{tmp_path}/store.sqlite"}

    first = crawl([f"{site.url}/a"], store)
    second = crawl([f"{site.url}/robots.txt"], store)

    assert first.verdict(f"{site.url}/a")[0] == "pass"
    assert second[f"{site.url}/robots.txt"]["length"] == len(RULES)
    assert asked(site) == ["GET"]


SPIDER = """
    from scrapy.spiders import SitemapSpider


    class Maps(SitemapSpider):
        name = "maps"
        sitemap_urls = [{url!r}]
        custom_settings = {settings!r}

        def parse(self, response):
            self.logger.info("VISITED %s", response.url)
"""


def test_a_sitemap_spider_costs_one_robots_txt_and_its_log_ends_with_a_summary(net, tmp_path):
    xml = (("Content-Type", "application/xml"),)
    site = net.origin(
        lambda _: Reply(body=f"{RULES}Sitemap: {site.url}/sitemap.xml\n"),
        {"/sitemap.xml": lambda _: Reply(body=SITEMAP.format(site.url), headers=xml)},
    )
    settings = {
        **QUIET,
        "ADDONS": {"robots_guard.scrapy.Addon": 500},
        "ROBOTS_GUARD_AGENT": "mybot",
        "ROBOTS_GUARD_STORE": "memory:",
        "ROBOTS_GUARD_AUDIT_LOG": str(tmp_path / "audit_log"),
        "ROBOTSTXT_OBEY": False,
        "LOG_FILE": str(tmp_path / "log"),
        "LOG_LEVEL": "INFO",
    }
    spider = SPIDER.format(url=f"{site.url}/robots.txt", settings=settings)
    (tmp_path / "maps.py").write_text(textwrap.dedent(spider))

    child = run_scrapy(tmp_path, "runspider", "maps.py", timeout=60)

    log = (tmp_path / "log").read_text()
    assert child.returncode == 0, child.stderr
    assert asked(site) == ["GET"]
    assert sorted(site.targets) == ["/a", "/sitemap.xml"]
    assert f"VISITED {site.url}/a" in log
    assert "ROBOTSTXT_OBEY is False in the settings of the spider (custom_settings)" in log
    assert log.count("drop (disallowed)") == 1
    assert f"dropped 2 requests:\n  {site.url}: 2 disallowed\n" in log


@pytest.mark.parametrize("scheduler", ["scrapy.core.scheduler.Scheduler", MINIMAL])
def test_a_request_for_robots_txt_does_not_wait_until_robots_txt_is_reachable(net, scheduler):
    """It is exempt from what closes its origin, and a spider may want to see the error."""
    site = net.origin(503)
    robots = f"{site.url}/robots.txt"

    done = crawl(
        [f"{site.url}/a", {"url": robots, "meta": {"handle_httpstatus_all": True}}],
        {"SCHEDULER": scheduler},
        retry_min=60,
        stop_when=[robots],
        timeout=40,
    )

    assert done[robots]["status"] == 503
    assert site.targets == []


def test_a_request_for_robots_txt_waits_for_a_pause(net):
    """Retry-After is about the site, whatever is requested."""
    asks = Reply(status=429, headers=(("Retry-After", "3"),))
    site = net.origin("User-agent: *\nAllow: /\n", {"/busy": asks})
    robots = f"{site.url}/robots.txt"
    own = {"url": robots, "headers": {"X-Own": "1"}}  # so that it is made

    done = crawl([{"url": f"{site.url}/busy", "inline": True}, own], see_through=True, timeout=60)

    assert done[robots]["status"] == 200
    (busy,) = (request for request in site.received if request.target == "/busy")
    assert site.robots_fetches[-1].at - busy.at > 3 * 0.99
