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
#: A page of which every forbidden part reports whether the browser took it.
PARTS = """<!doctype html><title>Parts</title><h1 id="here">Parts</h1>
<style>@font-face {{ font-family: f; src: url(/private/f.woff2) }} p {{ font-family: f }}</style>
<script>const took = {{}}, wait = [];
const part = (name, element, attributes) => wait.push(new Promise(done => {{
    Object.assign(element, attributes);
    element.onload = () => done(took[name] = true);
    element.onerror = () => done(took[name] = false);
    document.body.append(element);
}}));
const create = name => document.createElement(name);
onload = async () => {{
    part("script", create("script"), {{src: "/private/a.js"}});
    part("module", create("script"), {{type: "module", src: "{other}/private/b.js"}});
    part("integrity", create("script"), {{src: "/private/c.js", integrity: "sha256-{digest}"}});
    part("style", create("link"), {{rel: "stylesheet", href: "/private/a.css"}});
    part("image", create("img"), {{src: "/private/a.png"}});
    part("other", create("img"), {{crossOrigin: "use-credentials", src: "{other}/private/b.png"}});
    // A frame that gets a 204 stays blank, and has no event.
    document.body.append(Object.assign(create("iframe"), {{src: "/private/frame"}}));
    const said = url => fetch(url).then(answer => answer.status).catch(() => null);
    took.fetch = await said("/private/data");
    took.post = await fetch("/private/post", {{method: "POST"}}).then(answer => answer.status);
    took.preflight = await fetch("{other}/private/p", {{headers: {{"X-Own": "1"}}}})
        .then(answer => answer.status).catch(() => null);
    await Promise.all(wait);
    document.title = "Done";
}};
</script><p>Text</p>"""
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


@pytest.fixture(scope="module")
def placeholders(start):
    """A proxy that refuses the parts of a page with placeholders."""
    with start("proxy", audit="all", refusals="placeholder") as proxy:
        yield proxy


@pytest.fixture
def lenient_page(placeholders, browser):
    """A page of a browser whose parts may be placeholders."""
    context = browser.new_context(ignore_https_errors=True, proxy={"server": placeholders.url})
    yield context.new_page()
    context.close()


@pytest.fixture
def page_of_parts(sites):
    """A site whose page has many forbidden parts, some of another site."""
    other = sites.start("https", RULES)
    text = PARTS.format(other=other.url, digest="A" * 43 + "=")
    return sites.start("https", RULES, {"/": html(text)})


def took(page, site):
    """What the page of parts took, and what the console said."""
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(site.url + "/")
    page.wait_for_function("document.title === 'Done'")
    return page.evaluate("took"), said


NEVER_TAKEN = {"integrity": False, "post": 403, "preflight": None}


def test_with_placeholders_a_page_takes_its_forbidden_parts(
    lenient_page, page_of_parts, placeholders
):
    found, said = took(lenient_page, page_of_parts)
    seen(lenient_page, "placeholders")

    parts = dict.fromkeys(("script", "module", "style", "image", "other"), True)
    assert found == {**parts, "fetch": 204, **NEVER_TAKEN}
    expected = (
        "Failed to decode downloaded font",
        "OTS parsing error",
        "Failed to find a valid digest",
        "Failed to load resource: the server responded with a status of 403",  # the POST
        "Access to fetch at",  # the preflight
        "Failed to load resource: net::ERR_FAILED",
    )
    assert [text for text in said if not text.startswith(expected)] == []
    assert not [target for target in page_of_parts.origin.targets if "private" in target]

    recorded = {
        urlsplit(record["url"]).path: record.get("placeholder")
        for record in placeholders.records()
        if record["action"] == "drop" and record["method"] == "GET"
    }
    assert recorded == {
        "/private/a.js": "script",
        "/private/b.js": "script",
        "/private/c.js": "script",
        "/private/a.css": "style",
        "/private/a.png": "image",
        "/private/b.png": "image",
        "/private/f.woff2": "font",
        "/private/frame": "iframe",
        "/private/data": "empty",
    }


def test_with_placeholders_a_forbidden_page_shows_why(lenient_page, page_of_parts):
    answer = lenient_page.goto(page_of_parts.url + "/private/diary")
    assert answer.status == 403
    assert "robots.txt forbids the request" in lenient_page.inner_text("body")


def test_without_placeholders_the_parts_fail(page, page_of_parts):
    found, said = took(page, page_of_parts)

    parts = dict.fromkeys(("script", "module", "style", "image", "other"), False)
    assert found == {**parts, "fetch": 403, **NEVER_TAKEN}
    assert any("status of 403" in text for text in said)


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
