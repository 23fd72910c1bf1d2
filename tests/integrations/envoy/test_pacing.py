"""Pacing through Envoy: delays hold at the site, and a pause that a site asks for is kept."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from integrations.mitmproxy.wire import connected, plain
from support.waiting import eventually

from robots_guard.testing import Reply

DELAY = 0.5
PACED = f"User-agent: *\nCrawl-delay: {DELAY}\n"


def _gaps(site) -> list[float]:
    pages = [each for each in site.received if each.target != "/robots.txt"]
    return [later.at - earlier.at for earlier, later in pairwise(pages)]


@pytest.mark.timing
@pytest.mark.parametrize("slowness", [0.0, 0.1])
def test_the_delay_holds_at_the_site_for_several_clients(integration, net, slowness):
    site = net.origin(PACED, {f"/{n}": Reply(delay=slowness, body="x") for n in range(8)})

    with ThreadPoolExecutor(4) as clients:
        list(clients.map(lambda n: plain(integration, f"{site.url}/{n}"), range(8)))

    assert len(_gaps(site)) >= 5
    assert min(_gaps(site)) >= 0.99 * DELAY


@pytest.mark.timing
def test_the_delay_counts_from_the_response(integration, net):
    site = net.origin(PACED, {"/slow": Reply(delay=0.2, body="x")})

    plain(integration, site.url + "/slow")
    plain(integration, site.url + "/next")

    assert _gaps(site)[0] >= 0.99 * (DELAY + 0.2)


@pytest.mark.parametrize(
    ("status", "field", "is_kept"),
    [(429, "30", True), (503, "30", True), (402, "30", True), (200, "30", False), (429, "", False)],
)
def test_a_site_may_ask_for_a_pause(integration, net, status, field, is_kept):
    fields = (("Retry-After", field),) if field else ()
    site = net.origin("", {"/busy": Reply(status=status, headers=fields, body="b")})

    first = plain(integration, site.url + "/busy")
    second = plain(integration, site.url + "/next")

    assert (first.status, first.body) == (status, b"b")
    assert (second.status == 429) == is_kept
    assert site.targets == (["/busy"] if is_kept else ["/busy", "/next"])
    if is_kept:
        assert second.guard.startswith("defer; reason=retry-after")
        assert 25 < int(second.headers["retry-after"]) <= 30


def test_a_client_that_leaves_gives_up_its_place(integration, net):
    site = net.origin("User-agent: *\nCrawl-delay: 1.5\n")
    plain(integration, site.url + "/first")
    with connected(integration) as connection:
        connection.sendall(f"GET {site.url}/left HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        url = f"{site.url}/left"
        eventually(lambda: any(each["url"] == url for each in integration.records()))

    assert plain(integration, site.url + "/next").status == 200
    assert site.targets == ["/first", "/next"]


def test_other_sites_are_not_held_up(integration, net):
    slow, quick = net.origin("User-agent: *\nCrawl-delay: 2\n"), net.origin("")
    plain(integration, slow.url + "/a")
    plain(integration, quick.url + "/a")
    held = threading.Thread(target=plain, args=(integration, slow.url + "/b"))
    held.start()

    begun = time.monotonic()
    statuses = [plain(integration, f"{quick.url}/{n}").status for n in range(10)]

    assert statuses == [200] * 10
    assert slow.targets == ["/a"]
    assert time.monotonic() - begun < 2
    held.join()
    assert slow.targets == ["/a", "/b"]
