"""Pacing behind Squid: delays are measured at the site, and may never be too short."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from integrations.mitmproxy.origin import Site
from integrations.mitmproxy.wire import connected, exchange
from integrations.squid.conftest import bumped, get

from robots_guard.testing import Reply

pytestmark = pytest.mark.timing

DELAY = 0.3
TOLERANCE = 0.01
PACED = f"User-agent: *\nCrawl-delay: {DELAY}\nDisallow: /private/\n"
SCHEMES = ["http", "https"]


def gaps(site: Site) -> list[float]:
    pages = [each for each in site.origin.received if each.target != "/robots.txt"]
    return [later.at - earlier.at for earlier, later in pairwise(pages)]


def at_once(integration, site):
    with ThreadPoolExecutor(4) as clients:
        return list(clients.map(lambda n: get(integration, site, f"/{n}").status, range(6)))


def on_one_connection(integration, site):
    prefix = site.url if site.scheme == "http" else ""
    head = f"GET {prefix}/x HTTP/1.1\r\nHost: {site.authority}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        way = (
            connected(integration) if site.scheme == "http" else bumped(integration, site.authority)
        )
        connection = stack.enter_context(way)
        return [exchange(connection, head).status for _ in range(3)]


def by_methods(integration, site):
    post = {"method": "POST", "fields": "Content-Length: 2\r\n", "body": b"ab"}
    return [get(integration, site, "/x", **more).status for more in ({"method": "HEAD"}, post, {})]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("ask", [at_once, on_one_connection, by_methods])
def test_a_crawl_delay_is_kept(integration, sites, scheme, ask):
    site = sites.start(scheme, PACED)
    assert set(ask(integration, site)) == {200}
    assert min(gaps(site)) >= DELAY * (1 - TOLERANCE)
    assert len(site.origin.robots_fetches) == 1


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_slow_response_moves_the_next_turn(integration, sites, scheme):
    """The delay counts from the start of the response: Squid reports it by RESPMOD."""
    site = sites.start(scheme, PACED, {"/slow": Reply(delay=0.5)})
    with ThreadPoolExecutor(3) as clients:
        targets = ["/slow", "/a", "/b"]
        statuses = list(clients.map(lambda each: get(integration, site, each).status, targets))
    assert set(statuses) == {200}
    assert min(gaps(site)) >= DELAY * (1 - TOLERANCE)


def test_connecting_does_not_shorten_the_delay(integration, sites):
    """The first connection takes longer than the second. Squid does not say when it sends."""
    site = sites.start("http", PACED)
    assert get(integration, site, "/known").status == 200
    site.tap.pauses += [0.2]
    with ThreadPoolExecutor(3) as clients:
        statuses = list(clients.map(lambda n: get(integration, site, f"/{n}").status, range(3)))
    assert set(statuses) == {200}
    assert min(gaps(site)) >= DELAY * (1 - TOLERANCE)


def test_a_delay_longer_than_the_hold_is_deferred(integration, sites):
    site = sites.start("http", "User-agent: *\nCrawl-delay: 30\n")
    assert get(integration, site, "/1").status == 200
    answer = get(integration, site, "/2")
    assert (answer.status, "defer" in answer.guard) == (429, True)
    assert 20 <= int(answer.headers["retry-after"]) <= 30
    assert site.origin.targets == ["/1"]


def test_a_held_client_that_leaves_gives_up_its_place(integration, sites):
    """Squid closes the connection to the service, and the next client gets the turn."""
    site = sites.start("http", "User-agent: *\nCrawl-delay: 1\n")
    assert get(integration, site, "/1").status == 200
    with connected(integration) as connection:
        head = f"GET {site.url}/left HTTP/1.1\r\nHost: {site.authority}\r\n\r\n"
        connection.sendall(head.encode())
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
    assert get(integration, site, "/2").status == 200
    assert site.origin.targets == ["/1", "/2"]
    assert 1 - TOLERANCE <= gaps(site)[0] < 1.9
