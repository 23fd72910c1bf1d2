"""What each of Scrapy's download handlers writes is what was judged: the bytes at the origin are
compared with the audit log."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote

import pytest
from integrations.mitmproxy.h2_site import h2_site
from integrations.scrapy.crawl import SCRAPY, crawl

from robots_guard.origin import split_url

HANDLERS = "scrapy.core.downloader.handlers"
HTTP11 = f"{HANDLERS}.http11.HTTP11DownloadHandler"
H2 = f"{HANDLERS}.http2.H2DownloadHandler"
AIOHTTP = f"{HANDLERS}._aiohttp.AiohttpDownloadHandler"
HTTPX = f"{HANDLERS}._httpx.HttpxDownloadHandler"
ASCII = "".join(map(chr, range(0x21, 0x7F)))
OWN = "integrations.scrapy.components.ParsedUrlHandler"  # a project's

#: Targets that some library does not write as they are spelt.
TARGETS = (
    "/a",
    "/a?",
    "/a?#part",
    "/a;",
    "/a;#part",
    "/a;p=1",
    "/a;p=1;q/b;r",
    "/a;p?q;r",
    "/a?q;r",
    "//a",
    "//a//b#part",
    "/./a",
    "/b/../a",
    "/%2e%2e/a",
    "/a%2Fb",
    "/a%2cb",
    "/%61",
    "/%zz",
    "/a%20b",
    "/a b",
    "/a ",
    "/a\t",
    "/pri\nvate",
    "/a|b",
    '/a"b',
    "/a\\b",
    "/ä",
    "/a?ü=%C3%BC",
    "/a?q=a+b&c=%20",
    "/a?b?c#d#e",
    "?q",
    "#part",
    "",
    "?",
    "/robots.txt?",
    "/robots.txt;",
)


class Site:
    """An origin that shows the targets that it has received, but for the guard's fetches."""

    def __init__(self, url: str, received: Any) -> None:
        self.url = url
        self.received = received


@contextmanager
def site_for(handler: str, net: Any, ca: Any, folder: Any) -> Iterator[Site]:
    """A site that the handler can speak to, with `Disallow: /private/`."""
    if not find_spec(handler.rpartition(".")[0]):
        pytest.skip("this Scrapy has no such handler")
    if handler != H2:
        origin = net.origin("User-agent: *\nDisallow: /private/\n")
        yield Site(origin.url, lambda: origin.targets)
        return
    if SCRAPY < (2, 15):
        pytest.skip("the HTTP/2 handler of Scrapy 2.14 fails with today's Twisted")
    with h2_site(folder, ca, "127.0.0.1") as h2:

        def received() -> list[str]:
            h2.process.kill()
            paths = [json.loads(line)["path"] for line in h2.process.stdout]
            return [path for path in paths if path != "/robots.txt"]

        yield Site(h2.url, received)


def settings_for(handler: str, matching: str = "spec", **more: Any) -> dict[str, Any]:
    return {
        "DOWNLOAD_HANDLERS": {"http": handler, "https": handler},
        "ROBOTS_GUARD_MATCHING": matching,
        "ROBOTS_GUARD_AUDIT": "all",
        "DOWNLOAD_TIMEOUT": 20,
        **more,
    }


def passed(done: Any) -> set[str]:
    """The targets that a crawl has recorded as permitted."""
    return {split_url(record["url"])[1] for record in done.records if record["action"] == "pass"}


def recorded(targets: list[str]) -> set[str]:
    """Targets as records spell them: in ASCII."""
    return {quote(target, safe=ASCII, encoding="latin-1") for target in targets}


@pytest.mark.parametrize("handler", [HTTP11, H2, AIOHTTP, HTTPX, OWN])
def test_what_is_written_has_been_judged(handler, net, ca, tmp_path):
    """`verbatim_url` is a meta key of Scrapy 2.19, without which it escapes some characters."""
    with site_for(handler, net, ca, tmp_path) as site:
        requests = [
            {
                "url": site.url + target,
                "key": f"{target} {is_verbatim}",
                "meta": {"verbatim_url": is_verbatim},
                "dont_filter": True,
            }
            for target in TARGETS
            for is_verbatim in (False, True)
        ]

        done = crawl(requests, settings_for(handler))

        received = site.received()
    assert recorded(received) <= passed(done)
    assert not [target for target in received if " " in target or not target.startswith("/")]
    assert len(received) > len(TARGETS)


@pytest.mark.parametrize("handler", [HTTP11, H2, AIOHTTP, HTTPX, OWN])
def test_a_url_that_is_changed_in_place(handler, net, ca, tmp_path):
    """H2DownloadHandler writes the URL that Scrapy parsed first, and the others the changed one."""
    places = {"TurnsUrl": 60, "TurnsUrlBetween": 500, "TurnsUrlInside": sys.maxsize}
    middlewares = {f"integrations.scrapy.components.{name}": at for name, at in places.items()}
    with site_for(handler, net, ca, tmp_path) as site:
        urls = [
            f"{site.url}{before}?{place}={after}"
            for place in ("outside", "between", "inside")
            for before, after in (
                ("/private/x", "/y"),
                ("/y", "/private/x"),
                ("/z", f"/{place}"),
            )
        ]

        done = crawl(urls, settings_for(handler, "standard", DOWNLOADER_MIDDLEWARES=middlewares))

        received = site.received()
    assert not [target for target in received if target.startswith("/private/")]
    assert recorded(received) <= passed(done)
    assert len([target for target in received if target.endswith(("outside", "inside"))]) == 2


def test_a_url_that_is_changed_in_place_while_the_request_waits_for_its_turn(net, tmp_path):
    site = net.origin("User-agent: *\nDisallow: /private/\nCrawl-delay: 0.2\n")
    urls = [
        f"{site.url}/{number}?turn=/{to}/{number}" for number, to in enumerate(("open", "private"))
    ]

    done = crawl(
        [*urls, {"url": urls[1], "key": "inline", "inline": True}],
        {
            "EXTENSIONS": {"integrations.scrapy.components.TurnsUrlInTurn": 0},
            "ROBOTS_GUARD_STORE": f"sqlite:///{tmp_path}/store",
            "ROBOTS_GUARD_AUDIT": "all",
        },
        see_through=True,
    )

    assert done.verdict(urls[1]) == done.verdict("inline") == ("drop", "disallowed")
    assert site.targets == ["/open/0"]
    assert recorded(site.targets) <= passed(done)


def test_options_of_a_whole_server_is_not_written(net, ca, tmp_path):
    """H2DownloadHandler writes "*" in the place of an empty path (RFC 9113 section 8.3.1)."""
    with site_for(H2, net, ca, tmp_path) as site:
        done = crawl([{"url": site.url, "method": "OPTIONS"}], settings_for(H2))

        received = site.received()
    assert received == []
    assert done.verdict(site.url) == ("drop", "malformed-target")


@pytest.mark.parametrize("handler", [HTTP11, H2, AIOHTTP, HTTPX])
def test_names_and_methods_that_are_no_tokens_are_not_written(handler, net, ca, tmp_path):
    """Lenient servers read "Transfer-Encoding : chunked", and a request in the body; a proxy that
    speaks HTTP/1 to its servers may pass on a method with a line break."""
    fields = {
        "Host ": "other.test",
        "Transfer-Encoding ": "chunked",
        " Content-Length": "0",
        "": "x",
    }
    with site_for(handler, net, ca, tmp_path) as site:
        fielded = {
            "url": f"{site.url}/fields",
            "method": "POST",
            "body": "0\r\n\r\n",
            "headers": fields,
        }
        methods = [
            {"url": f"{site.url}/{number}", "method": method}
            for number, method in enumerate(
                ("GET /private/x HTTP/1.1\r\nX:", "G ET", "", "CONNECT")
            )
        ]

        done = crawl([fielded, *methods], settings_for(handler))

        received = site.received()
    assert received == ["/fields"]
    assert [done.verdict(each["url"]) for each in methods] == [("drop", "malformed-target")] * 4
