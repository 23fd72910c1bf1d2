"""A pinned robots.txt decides in both integrations, and the site is not asked for its own."""

from __future__ import annotations

from hashlib import sha256

import pytest
from integrations.mitmproxy.process import mitmdump
from integrations.mitmproxy.wire import plain
from integrations.scrapy.crawl import crawl, shortest_gap
from support.audit_log import decisions

OWN = "User-agent: *\nDisallow: /\n"
DELAY = 0.3
PINNED = f"User-agent: *\nDisallow: /private/\nCrawl-delay: {DELAY}\n"
OVERRIDE = """
[[override]]
id = "contract"
origin = "{url}"
owner = "jane"
reason = "the site permits us more than its file says"
expires = 2099-01-01
robots_file = "pinned.txt"
"""


def by_scrapy(folder, urls, overrides):
    crawl(urls, {"ROBOTS_GUARD_OVERRIDES": overrides}, folder=folder)


def by_proxy(folder, urls, overrides):
    with mitmdump(folder, overrides=overrides) as integration:
        for url in urls:
            plain(integration, url)


@pytest.mark.timing
@pytest.mark.parametrize("visit", [by_scrapy, by_proxy])
def test_the_pinned_file_decides(net, tmp_path, visit):
    site = net.origin(OWN)
    overrides = tmp_path / "overrides.toml"
    overrides.write_text(OVERRIDE.format(url=site.url))
    (tmp_path / "pinned.txt").write_text(PINNED)
    urls = [f"{site.url}{target}" for target in ("/open/1", "/private/x", "/open/2", "/open/3")]

    visit(tmp_path, urls, str(overrides))

    assert site.robots_fetches == []
    assert sorted(site.targets) == ["/open/1", "/open/2", "/open/3"]
    assert shortest_gap(site) >= DELAY * 0.99
    found = {each["url"].removeprefix(site.url): each for each in decisions(tmp_path / "audit_log")}
    assert {target: each["action"] for target, each in found.items()} == {
        "/open/1": "pass",
        "/open/2": "pass",
        "/open/3": "pass",
        "/private/x": "drop",
    }
    for each in found.values():
        assert each["sha256"] == sha256(PINNED.encode()).hexdigest()
        assert (each["via"], each["override"]) == ("pinned", "contract")
    assert found["/open/1"]["relaxed"] == "override=contract"
