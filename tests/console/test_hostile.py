"""What strangers wrote is shown as text: in an audit log that somebody else wrote into, in files, in addresses."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from audit.decisions import AT
from console.conftest import HOST, TOKEN, let_in
from console.material import HEADER_ID, HOSTILE, plant, policy, scene

from robots_guard.app.console import app
from robots_guard.app.console.markup import TEMPLATES
from robots_guard.audit.bundle.archive import bundle_name
from robots_guard.audit.show.markup import visible

BODY = (
    b"User-agent: *\n"
    b"Disallow: /<script>alert(6)</script>\n"
    b"# \x1b[31mred\x1b[0m \xe2\x80\xaegnp.exe \x00\x07\n"
    b"Disallow: /" + b"a" * 90_000 + b"\n\xff\xfe"
)
OURS = {
    "script",
    "link",
    "meta",
    "svg",
    "rect",
    "path",
    "line",
    "text",
    "a",
    "b",
    "table",
    "mark",
    "code",
    "title",
    "i",
    "u",
    "q",
    "img",
}
FETCH = f"/fetches/{quote('w<w>/../x', safe='')}/3"
PAGES = [
    "/",
    "/?period=all",
    "/overview.json?period=all",
    "/decisions",
    "/decisions?sort=origin",
    "/decisions?origin=https://evil.example",
    "/decisions/evil%3Cscript%3Ealert(4)%3C%2Fscript%3E",
    "/origins?part=evil",
    "/origin?name=https://evil.example&agent=<script>alert(7)</script>",
    f"/decisions/{quote(HEADER_ID, safe='')}",
    "/decisions?url=evil.example&sort=slowest",
    "/decisions?url=<script>alert(1)</script>",
    "/decisions?url=https://evil.example/<script>alert(1)</script>*",
    "/decisions?url=https://evil.example/%1b]0;x%07&job=<script>&agent=%E2%80%AE",
    FETCH,
    "/fetches/<script>alert(1)</script>/1",
    f"/fetches/w/{2**64}",
    "/try?url=https://evil.example/&purposes=<script>",
    "/overrides",
    "/overrides/pin?origin=https://a.test&file=<script>alert(1)</script>&owner='\"&reason=%E2%80%AE&until=x",
    "/try?url=https://evil.example/<script>alert(1)</script>&agent=%1b]0;x%07",
    "/try?url=<script>&agent=<script>",
    "/decisions?rule=<script>alert(1)</script>&agent=%E2%80%AE&override='\"><script>",
    "/decisions?since=<script>alert(1)</script>",
    "/decisions/<script>alert(1)</script>",
    "/origin?name=<script>alert(1)</script>",
    "/<script>alert(1)</script>",
]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    made = scene(tmp_path_factory.mktemp("planted"), 20)
    plant(made.audit_log)
    made.store.put(policy("https://evil.example/", BODY), AT)
    yield made
    made.store.close()


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.handlers = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs).get("src", "")))
        self.handlers += [
            name for name, value in attrs if name.startswith("on") or "javascript:" in (value or "")
        ]


@pytest.mark.parametrize("path", PAGES)
async def test_markup_and_controls_are_shown_as_text(planted, path):
    async with let_in(app(planted.sources, hosts=[HOST], token=TOKEN)) as browser:
        answer = await browser.get(path)
    text = (
        answer.json()["figures"]
        if answer.headers["content-type"] == "application/json"
        else answer.text
    )
    found = _Tags()
    found.feed(text)

    assert answer.status_code < 500
    assert [src for tag, src in found.tags if tag in ("script", "img", "iframe", "object")] in (
        ["/static/console.js"],
        [],
    )
    assert not {"i", "u", "q"} & {tag for tag, _ in found.tags}
    assert found.handlers == []
    assert not re.search(
        r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", text
    )
    assert len(text) < 400_000


async def test_untrusted_text_is_shown_escaped(planted):
    async with let_in(app(planted.sources, hosts=[HOST], token=TOKEN)) as browser:
        listed = (await browser.get("/decisions", params={"origin": "https://evil.example"})).text
        one = (await browser.get("/decisions/evil%3Cscript%3Ealert(4)%3C%2Fscript%3E")).text
        page = (await browser.get("/origin", params={"name": "https://evil.example"})).text

    assert HOSTILE[:30].replace("<", "&lt;").replace(">", "&gt;") in listed
    assert "\\x1b[31m\\u202egnp.exe\\x07" in listed
    assert "drop\\u202e&lt;i&gt;" in one
    assert "aaaa…" in one
    assert "\\x1b[31mred" in page
    assert "Disallow: /&lt;script&gt;alert(6)&lt;/script&gt;" in page


async def test_csv_is_no_formula_and_no_control(planted):
    async with let_in(app(planted.sources, hosts=[HOST], token=TOKEN)) as browser:
        answer = await browser.get("/decisions.csv", params={"origin": "https://evil.example"})
    rows = {row["id"]: row for row in csv.DictReader(io.StringIO(answer.text))}
    formula = next(row for row in rows.values() if row["url"].endswith("formula"))

    assert len(rows) == 2
    assert formula["agent"] == "'=cmd|' /C calc'!A0"
    assert formula["job"] == "'@SUM(1)"
    assert formula["reason"] == "'+1"
    assert formula["rule"] == "'-2\\x0d\\x0a=3"
    assert formula["method"] == "\\x09X"
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", answer.text)


async def test_archive_outside_the_audit_log_is_not_read(planted):
    async with let_in(app(planted.sources, hosts=[HOST], token=TOKEN)) as browser:
        page = await browser.get(FETCH)
        archived = await browser.get(f"{FETCH}/response.warc.gz")

    assert page.status_code == 200
    assert "no longer in the audit log" in page.text
    assert "Download the response" not in page.text
    assert archived.status_code == 404


def test_id_cannot_add_a_header_field():
    assert bundle_name(HEADER_ID) == ("robots-guard-bundle-xfilenameevilexeSet-Cookieowned1y.zip")


async def test_forged_record_has_no_evidence(planted):
    """Its writer's name is not one that a writer can have."""
    async with let_in(app(planted.sources, hosts=[HOST], token=TOKEN)) as browser:
        page = await browser.get(f"/decisions/{quote(HEADER_ID, safe='')}")
        (address,) = re.findall(r'href="([^"]+evidence.zip)"', page.text)
        answer = await browser.get(address)

    assert answer.status_code == 400
    assert "there is no decision" in answer.text
    assert not {"set-cookie", "content-disposition"} & set(answer.headers)


async def test_unreadable_lines_are_reported(planted):
    async with let_in(app(planted.sources, hosts=[HOST], token=TOKEN)) as browser:
        page = (await browser.get("/", params={"period": "all"})).text

    assert "Not all of the audit log could be read: 1 unreadable line in planted.jsonl" in page


async def test_query_cannot_inject_sql(planted):
    injection = "x' OR '1'='1"
    async with let_in(app(planted.sources, hosts=[HOST], token=TOKEN)) as browser:
        for name in ("rule", "agent", "override", "job"):
            page = (await browser.get("/decisions", params={name: injection})).text
            assert "<b>0</b>" in page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é", "plain é"),
        ("a\x00b", "a\\x00b"),
        ("\ud800", "\\ud800"),
        ("\U000e0001", "\\U000e0001"),
        ("a\nb", "a\nb"),
        (3, 3),
        (None, ""),
    ],
)
def test_unprintable_characters_are_escaped(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize(("name", "shown"), [("x", "x"), (" ", "(blank)"), ("\u2003", "(blank)")])
def test_a_link_has_a_name(name, shown):
    text = '{% from "parts.html" import to_decisions with context %}{{ to_decisions(name, {}) }}'
    made = TEMPLATES.from_string(text).render(root="", name=name)

    assert made == f'<a href="/decisions?">{shown}</a>'


async def test_a_link_in_the_overview_is_recognised_without_its_colour(planted):
    """Nothing but the link stands in its cell."""
    async with let_in(app(planted.sources, hosts=[HOST], token=TOKEN)) as browser:
        page = (await browser.get("/", params={"period": "all"})).text

    assert re.search(r'<td><a href="[^"]*override=shop-2026">override shop-2026</a></td>', page)
