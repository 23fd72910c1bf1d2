"""The report in a browser: hostile values are text, nothing is asked of any network, light, dark and on paper.

SCREENSHOTS names a folder for pictures of what was seen.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from audit.decisions import AT, DEFER, DROP, decision, journal_in
from support.programs import program

from robots_guard.audit.report import page
from robots_guard.audit.search import Search
from robots_guard.audit.summary import summary

HOSTILE = (
    "Disallow: /<script>document.title='hacked'</script>",
    "Disallow: /<img src=http://127.0.0.1:9/x onerror=alert(1)>",
    "Disallow: /\x1b[31m\u202e</td></table><h1>gone</h1>",
    "Disallow: /" + "x" * 100_000,
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    place = tmp_path_factory.mktemp("report")
    journal = journal_in(place / "journal")
    for number in range(200):
        rule = msgspec.structs.replace(DROP.rule, text=HOSTILE[number % len(HOSTILE)])
        verdict = msgspec.structs.replace(DROP, rule=rule)
        journal.write(decision(f"https://site-{number % 7}.test/x", verdict=verdict, at=AT + number * 60))
        if number % 3 == 0:
            journal.write(decision("https://down.test/", verdict=DEFER, at=AT + number * 60))
    journal.close()
    with Search(place / "journal") as search:
        figures = summary(search, "2027-01-16T00:00:00.000Z")
    path = place / "report.html"
    path.write_text(page(figures, "2027-01-16T00:00:00.000Z", "All decisions in the journal"), "utf-8")
    return path


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program("chromium"), args=["--no-sandbox"])
        yield running
        running.close()


@pytest.mark.parametrize("look", ["light", "dark", "print"])
def test_it_is_read_and_nothing_runs(browser, report, look):
    asked, alarms = [], []
    context = browser.new_context(viewport={"width": 1000, "height": 1400})
    shown = context.new_page()
    shown.emulate_media(color_scheme="dark" if look == "dark" else "light", media="print" if look == "print" else None)
    shown.on("request", lambda request: asked.append(request.url))
    shown.on("dialog", lambda dialog: alarms.append(dialog.message))
    shown.on("pageerror", lambda error: alarms.append(str(error)))
    shown.goto(report.as_uri())
    if folder := os.environ.get("SCREENSHOTS"):
        shown.screenshot(path=Path(folder) / f"report-{look}.png", full_page=True)
    text, ground = shown.inner_text("body"), shown.evaluate("getComputedStyle(document.body).backgroundColor")

    assert (asked, alarms) == ([report.as_uri()], [])
    assert shown.title() == "robots_guard: what was decided"
    assert shown.locator("h1").count() == 1
    assert "<script>document.title='hacked'</script>" in text
    assert shown.locator("section svg rect.drop").count() > 10
    assert shown.evaluate("document.documentElement.scrollWidth") <= 1000
    assert ground == {"dark": "rgb(18, 22, 29)"}.get(look, "rgb(255, 255, 255)")
    context.close()
