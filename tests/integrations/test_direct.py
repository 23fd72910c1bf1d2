"""`fetch = direct` in both integrations: the guard's own client, on the host's loop or on a
separate one."""

from __future__ import annotations

import pytest
from integrations.mitmproxy.process import mitmdump
from integrations.mitmproxy.wire import plain
from integrations.scrapy.crawl import EPOLL, crawl

from robots_guard.testing import Reply

RULES = "User-agent: *\nDisallow: /private/\n"
MODES = {
    "asyncio reactor": {},
    "epoll reactor": {"settings": {"TWISTED_REACTOR": EPOLL}, "deferred_api": True},
    "no reactor": {"settings": {"TWISTED_REACTOR_ENABLED": False}},
}


@pytest.mark.parametrize("mode", MODES)
def test_a_crawl_fetches_directly_on_every_reactor(net, mode):
    rules, none, slow = net.origin(RULES), net.origin(404), net.origin(Reply(hang=True))
    settings = {
        "ROBOTS_GUARD_FETCH": "direct",
        "ROBOTS_GUARD_FETCH_TIMEOUT": 6,
    }
    settings |= {"ROBOTS_GUARD_AUDIT": "all", **MODES[mode].get("settings", {})}
    pages = [f"{rules.url}/private/x", f"{rules.url}/open", f"{none.url}/open", f"{slow.url}/open"]

    done = crawl(pages, settings, deferred_api="deferred_api" in MODES[mode], timeout=60)

    assert done.code == 0, done.log
    assert [done.verdict(page)[0] for page in pages] == ["drop", "pass", "pass", "defer"]
    assert {record["via"] for record in done.records if record["url"] in pages[:3]} == {"direct"}
    assert rules.robots_fetches[0].headers["user-agent"] == "mybot (robots_guard)"
    assert [len(site.robots_fetches) for site in (rules, none, slow)] == [1, 1, 1]
    assert "Traceback" not in done.log


def test_many_silent_origins_delay_no_other_without_an_asyncio_loop(net):
    """The loop has a separate thread, not one of those that serve the store."""
    silent = [net.origin(Reply(hang=True)) for _ in range(8)]
    site = net.origin(RULES)
    settings = {
        "ROBOTS_GUARD_FETCH": "direct",
        "ROBOTS_GUARD_FETCH_TIMEOUT": 10,
        "TWISTED_REACTOR": EPOLL,
    }
    pages = [*(f"{each.url}/x" for each in silent), f"{site.url}/open"]

    done = crawl(pages, settings, deferred_api=True, timeout=60)

    assert done.verdict(f"{site.url}/open")[0] == "pass"
    assert done[f"{site.url}/open"]["at"] < 5


@pytest.fixture
def proxied(net, tmp_path):
    def request(*targets, site=None, **settings):
        site = site or net.origin(RULES)
        with mitmdump(tmp_path, fetch="direct", audit="all", **settings) as integration:
            statuses = [plain(integration, f"{site.url}{target}").status for target in targets]
            return site, statuses, integration.records()

    return request


def test_the_proxy_fetches_private_origins_directly_only_if_allowed(proxied):
    site, statuses, records = proxied("/open", allow_private="")

    assert statuses == [403]
    assert records[0]["reason"] == "destination-refused"
    assert site.connections == 0


def test_the_proxy_fetches_allowed_origins_directly(proxied):
    site, statuses, records = proxied("/open", "/private/x", allow_private="127.0.0.0/8")

    assert statuses == [200, 403]
    assert {record["via"] for record in records} == {"direct"}
    assert len(site.robots_fetches) == 1
