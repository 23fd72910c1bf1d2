"""A browser as the crawler: headless Chromium, through the proxy, on a local HTTPS site.

SCREENSHOTS names a folder for pictures of what was seen.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from integrations.mitmproxy.process import ROOT
from support.programs import program
from support.waiting import eventually

from robots_guard.testing import Reply

#: The flags that docs/proxy.md names against a browser's own errands.
DOCUMENTED = re.findall(
    r"--[a-z][^\s\\]*",
    (ROOT / "docs" / "proxy.md").read_text().split("$ chromium ")[1].partition("```")[0],
)
FLAGS = [
    "--no-sandbox",
    "--proxy-bypass-list=<-loopback>",
    *(flag for flag in DOCUMENTED if not flag.startswith("--proxy-server")),
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


@pytest.fixture(scope="module", autouse=True)
def plain_chromium(integrations, sites, tmp_path_factory):
    """The site of a Chromium that runs while the tests of this file do, as a user starts it: playwright has flags of
    its own."""
    site = sites.start("http", RULES, {"/": html("<!doctype html><title>Open</title>")})
    profile = f"--user-data-dir={tmp_path_factory.mktemp('profile')}"
    proxy = f"--proxy-server={integrations['proxy'].url}"
    command = [program("chromium"), "--headless=new", "--disable-gpu", profile, proxy, *FLAGS]
    with subprocess.Popen(
        [*command, site.url + "/"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as running:
        yield site
        os.killpg(running.pid, signal.SIGKILL)


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


def test_the_documented_flags_leave_a_browser_no_errands(integrations, plain_chromium):
    """This is the last test, so that Chromium has had time for them."""
    assert len(DOCUMENTED) == 8
    eventually(lambda: "/favicon.ico" in plain_chromium.origin.targets)
    hosts = {urlsplit(record["origin"]).hostname for record in integrations["proxy"].records()}
    # Other tests ask the same proxy for addresses and for reserved names.
    ours = re.compile(r"[0-9.]+|.*:.*|localhost|.*\.(test|invalid|example)")
    assert [host for host in hosts if host and not ours.fullmatch(host)] == []
