"""Both integrations at once on one SQLite file: a site's delay applies between any two requests of
either."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest
from integrations.mitmproxy.process import mitmdump
from integrations.mitmproxy.wire import plain
from integrations.scrapy.crawl import crawl

pytestmark = pytest.mark.timing

DELAY = 0.3


def test_two_integrations_keep_one_delay(net, tmp_path):
    site = net.origin(f"User-agent: *\nCrawl-delay: {DELAY}\n")
    store = f"sqlite:///{tmp_path}/policies.sqlite"
    crawled, statuses = threading.Event(), []

    def send_requests() -> None:
        while not crawled.is_set():
            statuses.append(plain(integration, f"{site.url}/proxy/{len(statuses)}").status)

    with mitmdump(tmp_path, store=store) as integration:
        client = threading.Thread(target=send_requests)
        client.start()
        urls = [f"{site.url}/scrapy/{number}" for number in range(4)]
        done = crawl(
            urls, {"ROBOTS_GUARD_STORE": store}, folder=tmp_path / "scrapy", see_through=True
        )
        crawled.set()
        client.join(60)

    assert [done[url]["status"] for url in urls] == [200] * 4
    assert set(statuses) == {200}
    pages = [request for request in site.received if request.target != "/robots.txt"]
    assert min(later.at - earlier.at for earlier, later in pairwise(pages)) >= DELAY * 0.99
    integrations = [page.target.split("/")[1] for page in pages]
    first = integrations.index("scrapy")
    turns = "".join(
        "s" if integration == "scrapy" else "p" for integration in integrations[first : first + 7]
    )
    assert turns == "spspsps", "turns are first come, first served"
    assert len(site.robots_fetches) == 1
