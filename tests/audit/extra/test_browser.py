"""The report and the page of a bundle in a browser: hostile values are text, nothing is loaded, and
axe-core finds no violation, in light, dark and print modes.

SCREENSHOTS names a folder for pictures of what was seen.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
from pathlib import Path

import msgspec
import pytest
from audit.decisions import AT, DEFER, DROP, audit_log_in, decision
from axe_playwright_python.sync_playwright import Axe
from support.programs import program

from robots_guard.audit.bundle.writer import write_bundle
from robots_guard.audit.read.reader import Filter
from robots_guard.audit.read.search import Search
from robots_guard.audit.show.figures import summary
from robots_guard.audit.show.report import Cover, page, verification_of

COVER = Cover(
    "2027-01-16T00:00:00.000Z", "1.0", "All decisions", title="January at the shops", author="Jane"
)
HOSTILE = (
    "Disallow: /<script>document.title='hacked'</script>",
    "Disallow: /<img src=http://127.0.0.1:9/x onerror=alert(1)>",
    "Disallow: /\x1b[31m\u202e</td></table><h1>gone</h1>",
    "Disallow: /" + "x" * 100_000,
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    place = tmp_path_factory.mktemp("report")
    audit_log = audit_log_in(place / "audit_log")
    for number in range(200):
        rule = msgspec.structs.replace(DROP.rule, text=HOSTILE[number % len(HOSTILE)])
        verdict = msgspec.structs.replace(DROP, rule=rule)
        audit_log.write(
            decision(f"https://site-{number % 7}.test/x", verdict=verdict, at=AT + number * 60)
        )
        if number % 3 == 0:
            audit_log.write(decision("https://down.test/", verdict=DEFER, at=AT + number * 60))
    audit_log.close()
    with Search(place / "audit_log") as search:
        figures = summary(search, "2027-01-16T00:00:00.000Z")
    path = place / "report.html"
    path.write_text(
        page(figures, COVER, verification=verification_of(place / "audit_log")), "utf-8"
    )
    return path


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=program("chromium"), args=["--no-sandbox"]
        )
        yield running
        running.close()


@pytest.mark.parametrize("look", ["light", "dark", "print"])
def test_the_page_is_readable_and_runs_nothing(browser, report, look):
    requests, alarms = [], []
    context = browser.new_context(viewport={"width": 1000, "height": 1400})
    shown = context.new_page()
    shown.emulate_media(
        color_scheme="dark" if look == "dark" else "light",
        media="print" if look == "print" else None,
    )
    shown.on("request", lambda request: requests.append(request.url))
    shown.on("dialog", lambda dialog: alarms.append(dialog.message))
    shown.on("pageerror", lambda error: alarms.append(str(error)))
    shown.goto(report.as_uri())
    if folder := os.environ.get("SCREENSHOTS"):
        shown.screenshot(path=Path(folder) / f"report-{look}.png", full_page=True)
    text, ground = (
        shown.inner_text("body"),
        shown.evaluate("getComputedStyle(document.body).backgroundColor"),
    )

    assert (requests, alarms) == ([report.as_uri()], [])
    assert shown.title() == "January at the shops"
    assert shown.locator("h1").count() == 1
    assert "<script>document.title='hacked'</script>" in text
    assert shown.locator("svg.full rect.drop").count() > 10
    assert shown.evaluate("document.documentElement.scrollWidth") <= 1000
    assert shown.locator("svg.chart:visible").count() == 1
    if look == "light":
        shown.set_viewport_size({"width": 390, "height": 800})
        assert shown.evaluate("document.documentElement.scrollWidth") <= 390
        assert shown.locator("svg.narrow:visible").count() == 1
    if look == "print":  # the pages are filled: two at most for what takes one and a half
        assert len(re.findall(rb"/Type\s*/Page\b", shown.pdf(prefer_css_page_size=True))) <= 5
    assert ground == {"dark": "rgb(18, 22, 29)"}.get(look, "rgb(255, 255, 255)")
    context.close()


@pytest.fixture(scope="module")
def bundle_page(report):
    """The page of a bundle of all decisions in the report."""
    path, content = report.with_name("index.html"), io.BytesIO()
    with Search(report.with_name("audit_log")) as search:
        wanted = Filter(since="2027-01-15T00:00:00.000Z")
        write_bundle(content, search, wanted, documents=lambda _: None, now=AT + 86_400)
    path.write_bytes(zipfile.ZipFile(content).read("index.html"))
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_can_be_used_by_everyone(browser, report, bundle_page, scheme):
    """axe-core finds no violation, also on a telephone, and the hostile values run nothing."""
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)  # axe is a script
    alarms, found = [], []
    shown = context.new_page()
    shown.on("dialog", lambda dialog: alarms.append(dialog.message))
    for path in (report, bundle_page):
        shown.goto(path.as_uri())
        for width in (1440, 390):
            shown.set_viewport_size({"width": width, "height": 900})
            found += [(path.name, width, each["id"]) for each in violations(shown)]
    context.close()

    assert (found, alarms) == ([], [])


def violations(shown):
    return Axe().run(shown).response["violations"]
