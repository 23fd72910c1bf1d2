"""Placeholders: a browser gets the same ones through the proxy and behind Envoy and Squid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from integrations.mitmproxy.process import Integration, running
from integrations.mitmproxy.wire import Answer, closed, connected, plain

from robots_guard.gateway.placeholders import PLACEHOLDERS
from robots_guard.testing import Loopback, RecordingOrigin, Reply

KINDS = ("proxy", "squid", *(["envoy"] if find_spec("envoy") else []))
SETTINGS = {"audit": "all", "refusals": "placeholder", "purposes": "ai-train"}
RULES = "User-agent: *\nDisallow: /private/\n"
PAGES = {"/reserved": Reply(headers=(("X-Robots-Tag", "noai"),), body="SECRET " * 3000)}
DESTINATIONS = sorted(PLACEHOLDERS)
ORIGIN = "https://shop.test"
#: A page that asks for four parts, all forbidden, and says in its title what became of them.
PARTS = """<!doctype html><title>Parts</title><script>
const part = (name, attributes) => new Promise(done => {
    const element = Object.assign(document.createElement(name), attributes);
    element.onload = () => done(true);
    element.onerror = () => done(false);
    document.body.append(element);
});
onload = async () => {
    const results = await Promise.all([
        part("script", {src: "/private/a.js"}),
        part("link", {rel: "stylesheet", href: "/private/a.css"}),
        part("img", {crossOrigin: "use-credentials", src: "/private/a.png"}),
        fetch("/private/data").then(answer => answer.status),
    ]);
    document.title = results.join(" ");
};
</script><p>Text</p>"""


@pytest.fixture(scope="module")
def net() -> Iterator[Loopback]:
    with Loopback() as started:
        yield started


@pytest.fixture(scope="module", params=KINDS)
def integration(request, tmp_path_factory) -> Iterator[Integration]:
    """One of the ways by which a browser is guarded."""
    with start(request.param, tmp_path_factory.mktemp(request.param)) as started:
        yield started


def start(kind: str, folder: Path) -> AbstractContextManager[Any]:
    if kind == "envoy":
        from integrations.envoy.process import envoy

        return envoy(folder, **SETTINGS)
    if kind == "squid":
        from integrations.squid.process import squid

        return squid(folder, **SETTINGS)
    return running("proxy", folder, **SETTINGS)


@pytest.fixture
def site(net) -> RecordingOrigin:
    html = Reply(headers=(("Content-Type", "text/html"),), body=PARTS)
    return net.origin(RULES, PAGES | {"/": html})


def get(integration: Integration, url: str, destination: str, method: str = "GET") -> Answer:
    """A browser's request for a part of a page, from another origin."""
    fields = f"Sec-Fetch-Dest: {destination}\r\nOrigin: {ORIGIN}\r\n"
    return plain(integration, url, method=method, fields=fields)


def assert_is_placeholder(answer: Answer, destination: str) -> None:
    placeholder = PLACEHOLDERS[destination]
    assert (answer.status, answer.body) == (placeholder.status, placeholder.body)
    assert answer.headers.get("content-type", "") == placeholder.content_type
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["access-control-allow-credentials"] == "true"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_a_forbidden_part_of_a_page(integration, site, destination):
    answer = get(integration, f"{site.url}/private/{destination}", destination)

    assert_is_placeholder(answer, destination)
    assert answer.guard.startswith("drop; reason=disallowed")
    assert not site.pages_matching("private")
    assert integration.records()[-1]["placeholder"] == destination


@pytest.mark.parametrize("destination", ["script", "image", "empty"])
def test_a_part_whose_response_is_refused(integration, site, destination):
    answer = get(integration, f"{site.url}/reserved", destination)

    assert_is_placeholder(answer, destination)
    assert answer.guard.startswith("drop; reason=usage-reserved")


@pytest.mark.parametrize(
    ("destination", "method"),
    [("document", "GET"), ("serviceworker", "GET"), ("", "GET"), ("image", "POST")],
)
def test_what_must_not_seem_to_succeed(integration, site, destination, method):
    assert get(integration, f"{site.url}/private/x", destination, method).status == 403


@pytest.mark.parametrize("destination", ["image", "empty"])
def test_a_response_to_head_ends_with_its_head(integration, site, destination):
    head = f"HEAD {site.url}/private/x HTTP/1.1\r\nHost: x\r\nSec-Fetch-Dest: {destination}\r\n"
    with connected(integration) as connection:
        connection.sendall(f"{head}Connection: close\r\n\r\n".encode())
        answer = closed(connection)

    assert answer.startswith(b"HTTP/1.1 %d " % PLACEHOLDERS[destination].status)
    assert answer.endswith(b"\r\n\r\n")


def test_a_204_has_no_length(integration, site):
    """RFC 9110 section 8.6."""
    for target in ("/private/x", "/reserved"):
        answer = get(integration, site.url + target, "empty")
        assert answer.status == 204
        assert "content-length" not in answer.headers
        assert "transfer-encoding" not in answer.headers


def test_a_page_accepts_the_placeholders_of_its_parts(integration, site):
    from playwright.sync_api import sync_playwright
    from support.programs import program

    flags = ["--no-sandbox", "--proxy-bypass-list=<-loopback>"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program("chromium"), args=flags)
        page = browser.new_page(proxy={"server": integration.url})
        page.goto(site.url + "/")
        page.wait_for_function("document.title !== 'Parts'")
        assert page.title() == "true true true 204"
        browser.close()

    assert not site.pages_matching("private")
    recorded = {
        urlsplit(record["url"]).path: record.get("placeholder")
        for record in integration.records()
        if record["action"] == "drop" and record["url"].startswith(f"{site.url}/private")
    }
    assert recorded == {
        "/private/a.js": "script",
        "/private/a.css": "style",
        "/private/a.png": "image",
        "/private/data": "empty",
    }
