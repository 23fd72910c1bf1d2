"""With the default settings, both integrations record which sites were visited, how often and under
which robots.txt; and what an exempted request would have been."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest
from integrations.mitmproxy.process import mitmdump
from integrations.mitmproxy.wire import plain
from integrations.scrapy.crawl import crawl

from robots_guard.audit.read.reader import Filter, entries

RULES = "User-agent: *\nDisallow: /private/\n"
OVERRIDE = """
[[override]]
id = "friend"
origin = "{url}"
owner = "jane"
reason = "by contract"
expires = 2099-01-01
action = "pass"
"""


def by_scrapy(folder, urls, overrides):
    first, *others = urls
    follow = {url: [following] for url, following in zip(urls, others, strict=False)}
    crawl([first], {"ROBOTS_GUARD_OVERRIDES": overrides}, folder=folder, follow=follow)


def by_proxy(folder, urls, overrides):
    with mitmdump(folder, overrides=overrides) as integration:
        for url in urls:
            plain(integration, url)


@pytest.mark.parametrize("visit", [by_scrapy, by_proxy])
def test_passes_are_counted_and_exemptions_compared(net, tmp_path, visit):
    site, friend = net.origin(RULES), net.origin(RULES)
    overrides = tmp_path / "overrides.toml"
    overrides.write_text(OVERRIDE.format(url=friend.url))
    urls = [f"{friend.url}/private/1", *(f"{site.url}/open/{number}" for number in range(5))]
    urls += [f"{friend.url}/private/2", f"{site.url}/private/x"]
    visit(tmp_path, urls, str(overrides))
    found = [
        msgspec.to_builtins(entry)
        for entry in entries(tmp_path / "audit_log", Filter(kind=None))
        if getattr(entry, "origin", "") in (site.url, friend.url)
    ]
    counted = [each for each in found if each["kind"] == "passes"]
    exempted = [each for each in found if each.get("reason") == "bypassed"]
    digest = sha256(RULES.encode()).hexdigest()

    assert [(each["origin"], each["count"], each["sha256"]) for each in counted] == [
        (site.url, 5, digest)
    ]
    assert [each["reason"] for each in found if each.get("action") == "drop"] == ["disallowed"]
    assert (exempted[-1]["would"], exempted[-1]["line"], exempted[-1]["sha256"]) == (
        "drop",
        2,
        digest,
    )
    assert [each["override"] for each in exempted] == ["friend"] * 2
    assert friend.targets == ["/private/1", "/private/2"]
