"""A browser as the crawler: headless Chromium, through the proxy, on a local HTTPS site.

SCREENSHOTS names a folder for pictures of what was seen.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.programs import program

from robots_guard.testing import Reply

FLAGS = [
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",  # a browser has errands of its own, each of which would cost a robots.txt
    "--disable-component-update",
    "--disable-sync",
    "--proxy-bypass-list=<-loopback>",
]
RULES = "User-agent: *\nDisallow: /private/\nDisallow: /*.png$\n"
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9" fill="green"/></svg>'
PAGE = """<!doctype html><title>An open page</title><h1 id="here">An open page</h1>
<img id="allowed" src="/open.svg"><img id="forbidden" src="/closed.png"><script src="/private/script.js"></script>
<script>fetch("/private/data").then(answer => answer.json())
.then(problem => document.body.dataset.fetched = problem.reason)</script>"""


def html(text):
    return Reply(body=text, headers=(("Content-Type", "text/html; charset=utf-8"),))


@pytest.fixture(scope="module")
def browser(integrations):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = {
            "executable_path": program("chromium"),
            "args": FLAGS,
            "proxy": {"server": integrations["proxy"].url},
        }
        running = playwright.chromium.launch(**options)
        yield running
        running.close()


@pytest.fixture
def page(browser):
    # The browser does not know the proxy's CA; the proxy verifies the sites' certificates.
    context = browser.new_context(ignore_https_errors=True, viewport={"width": 900, "height": 700})
    yield context.new_page()
    context.close()


def seen(page, name):
    """Keep a screenshot if SCREENSHOTS is set."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png")


@pytest.fixture
def shop(sites):
    svg = Reply(body=SVG, headers=(("Content-Type", "image/svg+xml"),))
    return sites.start("https", RULES, {"/": html(PAGE), "/open.svg": svg})


def test_an_allowed_page_renders_without_its_forbidden_parts(page, shop):
    statuses = {}
    page.on(
        "response",
        lambda answer: statuses.update({answer.url.removeprefix(shop.url): answer.status}),
    )
    page.goto(shop.url + "/", wait_until="networkidle")
    seen(page, "allowed")
    assert page.inner_text("#here") == "An open page"
    assert page.evaluate("document.getElementById('allowed').naturalWidth") == 9
    assert page.evaluate("document.getElementById('forbidden').naturalWidth") == 0
    assert page.evaluate("document.body.dataset.fetched") == "disallowed"
    assert {target: status for target, status in statuses.items() if target != "/favicon.ico"} == {
        "/": 200,
        "/open.svg": 200,
        "/closed.png": 403,
        "/private/script.js": 403,
        "/private/data": 403,
    }
    assert not {"/closed.png", "/private/script.js", "/private/data"} & set(shop.origin.targets)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_forbidden_page_shows_why(page, shop, scheme):
    page.emulate_media(color_scheme=scheme)
    answer = page.goto(shop.url + "/private/diary?day=1")
    seen(page, f"forbidden-{scheme}")
    assert answer.status == 403
    assert "robots-guard" in answer.headers
    said = page.inner_text("body")
    for text in (
        "/private/diary?day=1",
        "robots.txt forbids the request",
        "Disallow: /private/",
        "line 2",
        "operator",
    ):
        assert text in said
    assert shop.origin.targets == []


def test_a_narrow_screen(page, shop):
    page.set_viewport_size({"width": 360, "height": 700})
    page.goto(shop.url + "/private/" + "long" * 40)
    seen(page, "narrow")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_deferred_page_says_when(page, sites):
    site = sites.start("https", Reply(status=503))
    answer = page.goto(site.url + "/")
    seen(page, "deferred")
    assert answer.status == 503
    assert "Again in" in page.inner_text("body")
    assert site.origin.targets == []
