"""The console in headless Chromium, served by uvicorn: looks, keys, narrow screens, print, strangers, no script.

SCREENSHOTS names a folder for pictures of what was seen.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from audit.decisions import AT, audit_log_in, decision
from console.material import plant, scene
from support.accessibility import violations
from support.programs import program

from robots_guard.app.console import app
from robots_guard.audit.read.reader import Filter, entries

TOKEN = "t0ken"
PAGES = {
    "overview": "/",
    "decisions": "/decisions",
    "decision": "/decisions/dropped",
    "deferral": "/decisions/let-go",
    "exception": "/decisions/by-override",
    "unreachable": "/decisions/down",
    "response": "/decisions/reserved",
    "filtered": "/decisions?url=shop.example&reason=disallowed&sort=slowest",
    "nothing": "/decisions?url=https://shop.example/never&agent=nobody",
    "origins": "/origins",
    "origin": "/origin?name=https://shop.example",
    "overrides": "/overrides",
    "pin": "/overrides/pin?origin=https://a.test&file=/etc/a.txt&owner=jane&reason=contract&until=2030-01-31",
    "try": "/try?url=https://shop.example/private/open/x",
    "refused": "/try?url=https://shop.example/private/x",
    "mistake": "/decisions?url=shop.example/private/x&job=crawl",
    "missing": "/nothing",
}
HOSTILE = (
    "/?period=all",
    "/decisions",
    "/decisions/evil%3Cscript%3Ealert(4)%3C%2Fscript%3E",
    "/overrides",
)


@contextmanager
def served(place, **options):
    """The console on a port of its own; its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    host = f"127.0.0.1:{listener.getsockname()[1]}"
    made = app(place.sources, hosts=[host], token=TOKEN, **options)
    server = uvicorn.Server(uvicorn.Config(made, log_level="warning", access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://{host}"
    finally:
        server.should_exit = True
        thread.join(60)
        listener.close()


@pytest.fixture(scope="module")
def asked():
    return []


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = scene(tmp_path_factory.mktemp("browser"), 3000)
    yield made
    made.store.close()


def pages_of(place):
    """The addresses of all pages, by name."""
    first = next(iter(entries(place.audit_log, Filter(kind="fetch"))))
    return {**PAGES, "fetch": f"/fetches/{first.writer}/{first.seq}"}


@pytest.fixture(scope="module")
def address(place, asked):
    async def refresh(origin):
        asked.append(str(origin))
        return place.store.get(origin)

    with served(place, refresh=refresh) as found:
        yield found


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = [
            "--no-sandbox",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]
        running = playwright.chromium.launch(executable_path=program("chromium"), args=flags)
        yield running
        running.close()


@contextmanager
def opened(browser, address, **options):
    """A page that has been let in. What it complains of fails the test."""
    context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
    complaints = []
    page = context.new_page()
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto(f"{address}/?token={TOKEN}")
    page.wait_for_url(f"{address}/")
    try:
        yield page
    finally:
        context.close()
    assert [
        each for each in complaints if "the server responded with a status of 40" not in each
    ] == []


def seen(page, name):
    """Keep a picture, if asked to."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"console-{name}.png", full_page=True)


GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 21, 27)"}
CUT_TABLES = (
    "[...document.querySelectorAll('.wide')].some(each => each.scrollWidth > each.clientWidth)"
)
DESK = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
NARROWEST = {"width": 320, "height": 640}  # of WCAG 2.2, 1.4.10


@pytest.mark.parametrize(
    ("look", "scheme", "viewport"),
    [
        ("light", "light", DESK),
        ("dark", "dark", DESK),
        ("narrow", "light", PHONE),
        ("narrowest", "dark", NARROWEST),
    ],
)
def test_pages_are_accessible_in_every_look(browser, address, place, look, scheme, viewport):
    """axe-core finds nothing, no page scrolls sideways, and at these widths no table does. Only here
    may a script be injected into the pages."""
    options = {"color_scheme": scheme, "viewport": viewport, "bypass_csp": True}
    wrong = {}
    with opened(browser, address, **options) as page:
        for name, path in pages_of(place).items():
            page.goto(address + path)
            seen(page, f"{name}-{look}")
            wrong[name] = violations(page)
            if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
                wrong[name].append("scrolls sideways")
            if page.evaluate(CUT_TABLES):
                wrong[name].append("cuts a table off")
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert ground == GROUNDS[scheme]

    assert {name: each for name, each in wrong.items() if each} == {}


def test_pages_work_without_javascript(browser, address):
    with opened(browser, address, java_script_enabled=False) as page:
        page.goto(address + "/")
        assert page.locator("svg.chart rect.drop").count() > 10
        assert not page.locator(".live").is_visible()
        with page.expect_navigation():
            page.click("header nav >> text=Decisions")
        page.select_option("select[name=action]", "drop")
        with page.expect_navigation():
            page.click("text=Filter")
        assert set(page.locator("td .tag").all_inner_texts()) == {"drop"}
        with page.expect_navigation():
            page.click("text=Next →")
        assert page.locator("table.decisions tbody tr").count() == 50
        with page.expect_navigation():
            time = page.locator("table.decisions td.time").first.bounding_box()
            page.mouse.click(time["x"] + 5, time["y"] + 5)  # the row opens, not only its link
        assert page.locator("mark").inner_text() == "Disallow: /private/"
        page.goto(address + "/decisions")
        assert page.locator("table.decisions tbody a").count() == 50  # one for each row


def test_pages_work_with_the_keyboard_only(browser, address):
    with opened(browser, address) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "7 days":
                break
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        page.wait_for_url("**/?period=7d")
        assert page.inner_text(".choice [aria-current]") == "7 days"


def test_overview_updates_itself(browser, tmp_path, place):
    audit_log = tmp_path / "audit_log"
    made = audit_log_in(audit_log)
    made.write(decision(at=AT - 5))
    there = place._replace(sources=place.sources._replace(audit_log=audit_log))
    with served(there) as address, opened(browser, address) as page:
        page.clock.install()
        page.goto(address)
        assert page.inner_text(".tiles .drop b") == "1"
        made.write(decision(at=AT - 4))
        page.clock.fast_forward(5000)
        page.locator(".tiles .drop b", has_text="2").wait_for()
    made.close()


def test_button_fetches_robots_txt(browser, address, asked):
    with opened(browser, address) as page:
        page.goto(address + "/origins?part=shop.example")
        page.click("text=Fetch now")
        page.wait_for_selector("[role=status]")
        assert page.inner_text("[role=status]") == "The robots.txt was fetched just now."
    assert asked == ["https://shop.example"]


def test_form_on_another_site_is_refused(browser, address, asked):
    """The page of a stranger, in the browser that was let in: it has neither cookie nor origin."""
    before = len(asked)
    form = f'<form method=post action="{address}/origins/refresh"><input name=origin value="https://shop.example"></form>'
    with opened(browser, address) as page:
        page.route(
            "http://stranger.test/",
            lambda route: route.fulfill(body=form, content_type="text/html"),
        )
        page.goto("http://stranger.test/")
        with page.expect_navigation():
            page.evaluate("document.forms[0].submit()")
        assert "token" in page.inner_text("body")
        page.goto("about:blank")
    assert len(asked) == before


def test_address_works_as_link_on_another_page(browser, address):
    """In a chat, or a terminal in a browser: a strict cookie does not go with a redirect from there."""
    link = f'<a href="{address}/?token={TOKEN}">the console</a>'
    with browser.new_context() as context:
        page = context.new_page()
        page.route(
            "http://stranger.test/",
            lambda route: route.fulfill(body=link, content_type="text/html"),
        )
        page.goto("http://stranger.test/")
        page.click("a")
        page.locator("h1", has_text="Overview").wait_for()
        assert page.url == f"{address}/"
        assert page.evaluate("document.cookie") == ""


def test_foreign_page_cannot_frame_the_console(browser, address):
    with browser.new_context() as context:
        page = context.new_page()
        page.route(
            "http://stranger.test/",
            lambda route: route.fulfill(
                body=f'<iframe src="{address}/static/icon.svg"></iframe>', content_type="text/html"
            ),
        )
        page.goto("http://stranger.test/")
        assert "<path" not in page.frames[-1].content()


def test_untrusted_text_does_nothing_in_a_browser(browser, tmp_path):
    place = scene(tmp_path, 20)
    plant(place.audit_log)
    with served(place) as address, opened(browser, address) as page:
        for number, path in enumerate(HOSTILE):
            page.goto(address + path)
            seen(page, f"hostile-{number}")
            assert page.evaluate("document.scripts.length") == 1
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert page.locator("main img, main iframe, main object").count() == 0
    place.store.close()


def test_print_is_black_on_white_without_controls(browser, address):
    with opened(browser, address, color_scheme="dark") as page:
        page.emulate_media(media="print")
        page.goto(address + "/decisions")
        seen(page, "print")
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        assert not page.locator("form.filter").is_visible()
        assert not page.locator("header nav").is_visible()
        assert (
            page.locator(".count").inner_text().endswith("decisions")
        )  # without the link to the CSV
        assert page.pdf()[:5] == b"%PDF-"
