"""Two proxies on one store, and two sites whose robots.txt redirect to each other's pages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from integrations.mitmproxy.process import proxy
from integrations.mitmproxy.wire import plain

from robots_guard.testing import Reply


def test_two_sites_that_redirect_to_each_other_block_no_proxy(net, tmp_path):
    """Each proxy holds the lease of one site while it needs to know the other."""
    store = f"sqlite:///{tmp_path}/policies.sqlite"
    one = net.origin(
        lambda _: Reply(status=301, headers=(("Location", f"{other.url}/x"),), delay=0.5)
    )
    other = net.origin(
        lambda _: Reply(status=301, headers=(("Location", f"{one.url}/y"),), delay=0.5)
    )
    settings = {"store": store, "fetch_timeout": "60"}
    with (
        proxy(tmp_path / "one", **settings) as first,
        proxy(tmp_path / "two", **settings) as second,
    ):
        with ThreadPoolExecutor(2) as clients:
            futures = [
                clients.submit(plain, integration, f"{site.url}/page")
                for integration, site in ((first, one), (second, other))
            ]
            answers = [each.result() for each in futures]  # each waits 20 s at most
        records = first.records() + second.records()

    assert [answer.status for answer in answers] == [503, 503]
    assert one.targets == other.targets == []
    assert {
        (each["url"], each["robots_txt_of"]) for each in records if "robots_txt_of" in each
    } >= {
        (f"{other.url}/x", one.url),
        (f"{one.url}/y", other.url),
    }
