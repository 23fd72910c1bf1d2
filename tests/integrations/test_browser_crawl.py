"""scrapy-playwright through `robots-guard proxy`, set up as in docs/scrapy.md, and without the
proxy."""

from __future__ import annotations

import re
import shlex
import ssl
from pathlib import Path

import pytest
import trustme
from integrations.mitmproxy.process import proxy, upstream_ca
from integrations.mitmproxy.test_browser import FLAGS
from integrations.scrapy.crawl import crawl, shortest_gap
from support.programs import program

from robots_guard.testing import RecordingOrigin, Reply

DOCS = (Path(__file__).parents[2] / "docs" / "scrapy.md").read_text()
SECTION = DOCS.partition("\n## Browsers\n")[2].partition("\n## ")[0]
DOCS_PROXY = "127.0.0.1:8080"
RULES = "User-agent: *\nDisallow: /private/\n"
PAGE = """<!doctype html><title>An open page</title><h1>An open page</h1>
<img src="/open.svg"><img src="/private/image.svg"><script src="/private/script.js"></script>
<script>fetch("/private/data").then(() => document.body.dataset.fetched = "yes")</script>"""
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>'


def code_block(kind: str) -> str:
    """The one code block of a kind in the docs' section."""
    (block,) = re.findall(rf"```{kind}\n(.*?)```", SECTION, re.DOTALL)
    return block


def settings(server: str) -> dict:
    """The settings of the docs, with the browser of this machine and a proxy at its own port (""
    for none)."""
    namespace: dict = {}
    exec(code_block("python"), namespace)
    found = {name: value for name, value in namespace.items() if name.isupper()}
    assert found["PLAYWRIGHT_LAUNCH_OPTIONS"] == {"proxy": {"server": f"http://{DOCS_PROXY}"}}
    options = {"executable_path": program("chromium"), "args": FLAGS}
    if server:
        options["proxy"] = {"server": server}
    found["PLAYWRIGHT_LAUNCH_OPTIONS"] = options
    return found


def browser_request(url: str) -> dict:
    return {"url": url, "meta": {"playwright": True}}


def html(text: str) -> Reply:
    return Reply(body=text, headers=(("Content-Type", "text/html; charset=utf-8"),))


def moved(location: str) -> Reply:
    return Reply(status=302, headers=(("Location", location),))


@pytest.fixture(scope="module")
def certifier() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def integration(certifier, tmp_path_factory):
    """The proxy, started by the command in the docs."""
    folder = tmp_path_factory.mktemp("proxy")
    certifier.cert_pem.write_to_path(str(folder / "origins.pem"))
    (line,) = re.findall(r"^\$ robots-guard proxy (.*)$", code_block("console"), re.MULTILINE)
    options = shlex.split(line.replace(DOCS_PROXY, "127.0.0.1:0"))
    with proxy(
        folder, [*upstream_ca("proxy", folder / "origins.pem"), *options], audit="all"
    ) as running:
        yield running


@pytest.fixture(params=["http", "https"])
def shop(net, certifier, request) -> RecordingOrigin:
    """A site whose open pages lead to forbidden ones in every way that a browser follows."""
    pages = {
        "/": html(PAGE),
        "/open.svg": Reply(body=SVG, headers=(("Content-Type", "image/svg+xml"),)),
        "/moved": moved("/private/landed"),
        "/moved-on": moved("/landed"),
        "/framed": html('<!doctype html><iframe src="/private/frame"></iframe>'),
        "/scripted": html('<!doctype html><script>location = "/private/scripted"</script>'),
    }
    address = "127.1.99.1"
    context = None
    if request.param == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certifier.issue_cert(address).configure_cert(context)
    return net.origin(RULES, pages, tls=context, address=address)


def test_through_the_proxy_no_forbidden_request_reaches_the_site(shop, integration):
    pages = [f"{shop.url}/{page}" for page in ("", "moved", "moved-on", "framed", "private/asked")]

    done = crawl([browser_request(page) for page in pages], settings(integration.url), timeout=120)

    assert not shop.pages_matching("/private/")
    assert {"/", "/open.svg", "/moved", "/moved-on", "/landed", "/framed"} <= set(shop.targets)
    assert done[f"{shop.url}/"]["status"] == 200
    assert done[f"{shop.url}/moved-on"]["url"] == f"{shop.url}/landed"
    assert (
        done.verdict(f"{shop.url}/moved")
        == done.verdict(f"{shop.url}/private/asked")
        == ("drop", "disallowed")
    )
    assert not done.record(f"{shop.url}/private/landed")["escaped"], "it was refused at the proxy"
    assert "robots_guard/escaped" not in done.stats
    refused = {
        record["url"].removeprefix(shop.url)
        for record in integration.records()
        if record["action"] == "drop"
    }
    assert {
        "/private/landed",
        "/private/image.svg",
        "/private/script.js",
        "/private/data",
        "/private/frame",
    } <= refused
    assert f"its proxy, {integration.url}, judges" in done.log
    assert "WARNING: robots_guard judges each" not in done.log


def test_the_proxy_refuses_a_scripts_navigation(shop, integration):
    """The crawl may have the page's document from before or after the script."""
    done = crawl([browser_request(f"{shop.url}/scripted")], settings(integration.url), timeout=120)

    assert shop.targets == ["/scripted"]
    assert done.results
    result = done[f"{shop.url}/scripted"]
    assert result["action"] == "drop" or result["url"] == f"{shop.url}/scripted"


def test_without_the_proxy_a_forbidden_landing_page_is_refused_and_recorded(shop):
    done = crawl(
        [browser_request(f"{shop.url}/moved"), browser_request(f"{shop.url}/moved-on")],
        settings(""),
        timeout=120,
    )

    assert done.verdict(f"{shop.url}/moved") == ("drop", "disallowed")
    record = done.record(f"{shop.url}/private/landed")
    assert (record["escaped"], record["led_by"]) == (True, f"{shop.url}/moved")
    assert done.stats["robots_guard/escaped"] == 1
    assert done[f"{shop.url}/moved-on"]["url"] == f"{shop.url}/landed"
    assert "ScrapyPlaywrightDownloadHandler" in done.log
    assert "drives a browser" in done.log


@pytest.mark.timing
def test_pages_and_their_resources_keep_the_sites_delay(net, integration):
    page = html('<!doctype html><link rel="icon" href="data:,"><img src="/part.svg">')
    svg = Reply(body=SVG, headers=(("Content-Type", "image/svg+xml"),))
    site = net.origin(
        "User-agent: *\nCrawl-delay: 0.5\n", {"/0": page, "/1": page, "/part.svg": svg}
    )

    done = crawl(
        [browser_request(f"{site.url}/{n}") for n in range(2)],
        settings(integration.url),
        see_through=True,
        timeout=120,
    )

    assert {result["status"] for result in done.results.values()} == {200}
    assert {"/0", "/1", "/part.svg"} <= set(site.targets)
    assert shortest_gap(site) >= 0.5 * 0.99
