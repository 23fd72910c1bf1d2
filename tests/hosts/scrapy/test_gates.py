"""What other components do to a request behind our back: what is sent is what was judged, or nothing is."""

from __future__ import annotations

import pytest
from hosts.scrapy.crawl import crawl

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
