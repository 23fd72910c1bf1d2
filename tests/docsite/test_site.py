"""The documentation's site: it builds without a warning, a mistake in a page fails the build, it
loads nothing from elsewhere, and can be searched, printed and read on a telephone.

SCREENSHOTS names a folder for pictures of what was seen.
"""

from __future__ import annotations

import functools
import http.server
import os
import re
import runpy
import shutil
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

pytest.importorskip("sphinx", reason="the site needs: pip install --group docs")

from support.accessibility import violations
from support.programs import program

import robots_guard
from robots_guard.app.cli.main import COMMANDS
from robots_guard.configuration.settings import NAMES

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
#: Kinds of <link> that a browser does not load.
NAMED_ONLY = {"canonical", "next", "prev", "search", "index", "author", "help"}
DESK = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
#: One page of each kind; axe-core takes 20 s for the pages of the API and of all commands.
SHOWN = ["index", "explanation/how-it-works", "glossary", "faq", "operations/systemd", "search"]


def build(docs, site):
    """Build a site as the documentation says, with Sphinx's exit status and warnings."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "2"]
    return subprocess.run(
        [*command, docs, site], capture_output=True, text=True, check=False, timeout=200
    )


class Page(HTMLParser):
    """The anchors, links and loaded files of a page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loaded = {"", "top"}, [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        place = LOADED.get(tag)
        if place in values and values.get("rel") not in NAMED_ONLY:
            self.loaded.append(values[place])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    place = tmp_path_factory.mktemp("site")
    done = build(DOCS, place)
    assert (done.returncode, done.stderr) == (0, "")
    return place


@pytest.fixture(scope="module")
def pages(site):
    """The pages by their paths in the site."""
    return {
        path.relative_to(site).as_posix(): Page(path.read_text("utf-8"))
        for path in site.rglob("*.html")
    }


# -- the build ------------------------------------------------------------------------------------


def test_every_page_is_in_the_site(site):
    written = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}

    assert sorted(str(path) for path in written if not (site / path).exists()) == []


def test_a_mistake_in_a_page_fails_the_build(tmp_path):
    """A small site with the same configuration, and every mistake that the build must report."""
    docs = tmp_path / "docs"
    docs.mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in ("conf.py", "audit-record.schema.json"):
        shutil.copy(DOCS / name, docs)
    for name in ("_extensions", "_static"):
        shutil.copytree(DOCS / name, docs / name)
    index = "# Site\n\n```{toctree}\n:glob:\nlater/*\nstart/*\n```\n\n[a](gone.md) [b](start/a.md#gone)\n"
    docs.joinpath("index.md").write_text(index + "\n[c](../gone.toml) ![d](gone.svg)\n")
    docs.joinpath("start").mkdir()
    docs.joinpath("start", "a.md").write_text("# A\n")
    docs.joinpath("orphan.md").write_text("# Orphan\n")

    done = build(docs, tmp_path / "site")

    assert done.returncode == 1
    for mistake in (
        "toctree glob pattern 'later/*' didn't match any documents",
        "'gone.md'",
        "local id not found in doc 'start/a': 'gone'",
        "'../gone.toml'",
        "image file not readable: gone.svg",
        "orphan.md: WARNING: document isn't included in any toctree",
    ):
        assert mistake in done.stderr, done.stderr
    assert done.stderr.count("WARNING") == 6, done.stderr


def test_links_within_the_site_lead_to_a_page_and_a_heading(site, pages):
    def is_broken(path, link):
        target = urlsplit(urljoin(path, link))
        if target.scheme or target.netloc:
            return False
        found = pages.get(unquote(target.path) or path)
        if found is None:
            return not (site / target.path).is_file()
        return unquote(target.fragment) not in found.anchors

    links = [(path, link) for path, page in pages.items() for link in page.links]

    assert [each for each in links if is_broken(*each)] == []


def test_nothing_is_loaded_from_another_host(site, pages):
    found = [(path, each) for path, page in pages.items() for each in page.loaded]
    for sheet in site.rglob("*.css"):
        text = sheet.read_text("utf-8")
        found += [(sheet.name, each) for each in re.findall(r"url\(\s*['\"]?([^)'\"]+)", text)]
        found += [(sheet.name, each) for each in re.findall(r"@import\s+['\"]([^'\"]+)", text)]

    foreign = [each for each in found if re.match(r"(?!data:)[a-z]+:|//", each[1])]

    assert len(found) > 100
    assert foreign == []


def test_each_setting_has_an_address_of_its_own(site, pages):
    assert {f"setting-{name}" for name in NAMES} <= pages["settings.html"].anchors

    texts = [path.read_text("utf-8") for path in site.rglob("*.html")]
    found = [re.findall(r' id="(setting-[^"]+)"', text) for text in texts]
    assert [each for each in found if len(set(each)) < len(each)] == []


# -- what is made from the code -------------------------------------------------------------------


def test_the_reference_is_complete(pages):
    commands = {
        each.removeprefix("robots-guard-") for each in pages["reference/commands.html"].anchors
    }
    names = pages["reference/api.html"].anchors

    assert commands >= set(COMMANDS) | {"audit-query", "audit-hold", "policy-refresh"}
    public = {"open", *robots_guard.__all__}
    assert {f"robots_guard.{name}" for name in public} <= names
    assert {"robots_guard.scrapy.Addon", "robots_guard.mitmproxy.RobotsGuard"} <= names
    assert not [name for name in names if name.startswith("robots_guard.configuration")]
    assert {"decision", "passes", "store-reset"} <= pages["reference/audit-record.html"].anchors


# -- in a browser ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(site):
    """The site on a plain file server, its address."""
    handler = functools.partial(QuietHandler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(60)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program("chromium"), args=flags)
        yield running
        running.close()


@pytest.fixture
def opened(browser, address):
    """A function that opens a page. A request to another host fails the test, and so does an error
    of a script."""
    contexts, complaints = [], []

    def open_(path, **options):
        context = browser.new_context(**({"viewport": DESK} | options))
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda each: note_foreign(each.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{address}/{path}.html")
        return page

    def note_foreign(url):
        if not url.startswith((address, "data:")):
            complaints.append(url)

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


def seen(page, name):
    """Keep a picture, if asked to."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"docs-{name.replace('/', '-')}.png", full_page=True)


@pytest.mark.parametrize(
    ("look", "scheme", "viewport"),
    [("light", "light", DESK), ("dark", "dark", DESK), ("narrow", "light", PHONE)],
)
def test_pages_are_accessible_in_every_look(opened, address, look, scheme, viewport):
    page = opened("index", color_scheme=scheme, viewport=viewport)
    wrong = {}
    for name in SHOWN:
        page.goto(f"{address}/{name}.html")
        seen(page, f"{name}-{look}")
        wrong[name] = violations(page)

    assert {name: each for name, each in wrong.items() if each} == {}


def test_no_page_scrolls_sideways_on_a_telephone(opened, address, pages):
    page = opened("index", viewport=PHONE)
    wide = []
    for path in (each for each in pages if not each.startswith("decisions/0")):
        page.goto(f"{address}/{path}")
        if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
            wide.append(path)

    assert wide == []


def test_search_works_on_a_plain_file_server(opened):
    page = opened("index")
    page.fill("input[name=q]", "Crawl-delay")
    page.press("input[name=q]", "Enter")

    page.wait_for_selector("#search-results li")

    first = page.locator("#search-results li a").all_inner_texts()[:5]
    assert any(title.startswith("Pacing") for title in first)
    assert not any(title[0].isdigit() for title in first), "decisions are for developers"


def test_each_repair_of_the_theme_is_needed(site):
    texts = [path.read_text("utf-8") for path in site.rglob("*.html")]
    extension = runpy.run_path(str(DOCS / "_extensions" / "accessible_theme.py"))
    added = extension["REPLACEMENTS"].values()

    assert [each for each in added if not any(each in text for text in texts)] == []


OVERFLOWS = """() => [...document.querySelectorAll("svg.drawing")].flatMap(svg => {
    const outside = (inner, outer) => inner.x < outer.x + 3 || inner.y < outer.y
        || inner.x + inner.width > outer.x + outer.width - 3
        || inner.y + inner.height > outer.y + outer.height;
    const all = [...svg.querySelectorAll("text")];
    const wrong = all.filter(text => outside(text.getBoundingClientRect(), svg.getBoundingClientRect()));
    for (const box of svg.querySelectorAll("g.box")) {
        const rect = box.querySelector("rect").getBoundingClientRect();
        wrong.push(...[...box.querySelectorAll("text")]
            .filter(text => outside(text.getBoundingClientRect(), rect)));
    }
    return wrong.map(text => text.textContent);
})"""


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_the_text_of_a_drawing_fits(opened, viewport):
    page = opened("explanation/how-it-works", viewport=viewport)

    assert page.locator("svg.drawing").count() == 3
    assert page.evaluate(OVERFLOWS) == []


def test_drawings_follow_the_chosen_colours_and_print_dark_on_white(opened):
    page = opened("index", color_scheme="light")
    ink = "getComputedStyle(document.querySelector('svg.drawing .strong')).fill"
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ink)

    page.evaluate("document.body.dataset.theme = 'dark'")
    dark = page.evaluate(ink)
    page.emulate_media(media="print")

    assert light != dark
    assert page.evaluate(ink) == light
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    assert not page.locator(".sidebar-drawer").is_visible()
