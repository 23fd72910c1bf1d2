"""What other components do to a request behind our back: what is sent is what was judged, or nothing is."""

from __future__ import annotations

import pytest
from hosts.scrapy.crawl import MODES, crawl

from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"
CLOSED = "User-agent: *\nDisallow: /\n"
OPEN = "User-agent: *\nAllow: /\n"


def moved(location: str) -> Reply:
    return Reply(status=302, headers=(("Location", location),))


def two_sites(net, other: str, ours: str = RULES):
    """A server that holds another site under the name other.test."""
    return net.origin(lambda request: Reply(body=other if request.headers["host"] == "other.test" else ours))


def behind_us(name: str, place: int = 500) -> dict:
    return {"DOWNLOADER_MIDDLEWARES": {f"hosts.scrapy.components.{name}": place}}


# -- our own fetch --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [OPEN, CLOSED])
def test_a_host_field_of_the_projects_does_not_bring_another_sites_rules(net, tmp_path, other):
    """Stored under our origin, they would be believed by every later crawl."""
    site = two_sites(net, other)
    store = {"ROBOTS_GUARD_STORE": f"sqlite:///{tmp_path}/store"}

    done = crawl([f"{site.url}/open"], {"DEFAULT_REQUEST_HEADERS": {"Host": "other.test"}, **store})
    assert [request.headers["host"] for request in site.robots_fetches] == [f"{site.address}:{site.port}"]

    done = crawl([f"{site.url}/open", f"{site.url}/private/x"], store)
    assert done.verdict(f"{site.url}/private/x") == ("drop", "disallowed")
    assert site.targets[-1] == "/open"
    assert "/private/x" not in site.targets


def test_a_copy_of_our_fetch_is_no_ticket(net):
    site = net.origin(RULES)

    done = crawl([f"{site.url}/open"], behind_us("CopiesFetch", 50))

    assert site.targets == ["/open"]
    assert done.record(f"{site.url}/private/copied")["reason"] == "disallowed"


def test_credentials_of_a_proxy_go_with_it_only_where_there_is_a_proxy(net):
    elsewhere = net.origin(OPEN)
    site = net.origin(moved(f"{elsewhere.url}/robots.txt"))
    page = {"url": f"{site.url}/x", "headers": {"Proxy-Authorization": "Basic c2VjcmV0"}}

    crawl([page], {"DOWNLOADER_MIDDLEWARES": {"scrapy.downloadermiddlewares.httpproxy.HttpProxyMiddleware": None}})

    fetches = [*site.robots_fetches, *elsewhere.robots_fetches]
    assert len(fetches) == 2
    assert not any("proxy-authorization" in request.headers for request in fetches)


# -- exemptions -----------------------------------------------------------------------------------------------


def test_an_exemption_ends_where_another_origin_begins(net):
    victim = net.origin(RULES)
    pages = {"/private/start": moved("/private/next"), "/private/next": moved(f"{victim.url}/private/x")}
    site = net.origin(RULES, pages=pages)

    done = crawl([{"url": f"{site.url}/private/start", "meta": {"dont_obey_robotstxt": True}}])

    assert site.targets == ["/private/start", "/private/next"]
    assert victim.targets == []
    assert done.record(f"{victim.url}/private/x")["reason"] == "disallowed"


# -- the second gate ------------------------------------------------------------------------------------------


def test_a_host_field_from_behind_is_refused(net):
    """Another site of that server would answer, whose rules nobody has asked for."""
    site = two_sites(net, CLOSED)

    done = crawl([f"{site.url}/hosted", f"{site.url}/open"], behind_us("SetsHost"))

    assert done.verdict(f"{site.url}/hosted") == ("drop", "ambiguous-authority")
    assert site.targets == ["/open"]


def test_default_request_headers_come_behind_too(net):
    site = net.origin(RULES)

    done = crawl([f"{site.url}/open"], {"DEFAULT_REQUEST_HEADERS": {"Host": "other.test"}})

    assert done.verdict(f"{site.url}/open") == ("drop", "ambiguous-authority")
    assert site.targets == []


@pytest.mark.parametrize("mode", MODES)
def test_a_url_changed_from_behind_is_judged_again(net, mode):
    """On every reactor: the last middleware answers None or a coroutine."""
    site = net.origin(RULES)
    turned, inside = f"{site.url}/open?turn", f"{site.url}/open?inside"

    done = crawl(
        [turned, inside, {"url": turned, "key": "inline", "inline": True}],
        **MODES[mode] | {"settings": MODES[mode]["settings"] | behind_us("TurnsAside", 99_999)},
    )

    assert done.verdict(turned) == done.verdict("inline") == ("drop", "disallowed")
    assert site.targets == ["/open/inside"]
    assert done.record(f"{site.url}/private/turned")["line"] == 2


def test_files_pass_it_too(net, tmp_path):
    site = net.origin(RULES)
    turned, kept = f"{site.url}/open?turn", f"{site.url}/open/file"
    pipeline = {"ITEM_PIPELINES": {"hosts.scrapy.components.Downloads": 1}, "FILES_STORE": str(tmp_path)}

    done = crawl([f"{site.url}/page"], {**behind_us("TurnsAside"), **pipeline}, files=[turned, kept])

    assert sorted(site.targets) == ["/open/file", "/page"]
    assert done[turned]["action"] == "drop"
    assert done[kept]["action"] == "pass"


def test_a_request_that_goes_on_unchanged_is_judged_once(net):
    site = net.origin(RULES)

    done = crawl([f"{site.url}/open"], {"ROBOTS_GUARD_AUDIT_PASSES": "all"})

    assert [record["url"] for record in done.records] == [f"{site.url}/open"]
    assert done.stats["robots_guard/pass/allowed"] == 1


def test_our_own_fetch_passes_it_unchanged_or_not_at_all(net):
    site = two_sites(net, OPEN)

    done = crawl([f"{site.url}/private/x"], behind_us("LeadsRobotsAstray"), timeout=60)

    assert site.received == []
    assert done.verdict(f"{site.url}/private/x") == ("defer", "unreachable")
    assert "another component has changed our fetch" in done.log


# -- the target on the wire -----------------------------------------------------------------------------------


def test_the_target_that_twisted_writes_is_judged_too(net):
    """Under a matching that compares octets, `/private;` is not `/private`; but `/private` is what is sent for it."""
    site = net.origin("User-agent: *\nDisallow: /private$\nDisallow: /query?\nDisallow: ////\n")
    refused = [f"{site.url}/private;", f"{site.url}/query;?q"]
    free = [f"{site.url}/other;", f"{site.url}/private;v=1", f"{site.url}/a;v=1;w/b;"]

    done = crawl([*refused, *free, f"{site.url}//deep/x"], {"ROBOTS_GUARD_MATCHING": "spec"})

    assert [done.verdict(url) for url in refused] == [("drop", "disallowed")] * 2
    assert [done[url]["action"] for url in free] == ["pass"] * 3
    assert not [t for t in site.targets if t == "/private" or t.startswith(("/query", "////"))]
