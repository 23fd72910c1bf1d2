"""What strangers wrote is shown as text: in an audit log that somebody else wrote into, in files, in addresses."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from audit.decisions import AT
from console.conftest import HOST, TOKEN, let_in
from console.material import HOSTILE, plant, policy, scene

from robots_guard.audit.show.markup import visible
from robots_guard.console import app

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
    "/overrides",
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


async def test_unreadable_lines_are_reported(planted):
    async with let_in(app(planted.sources, hosts=[HOST], token=TOKEN)) as browser:
        page = (await browser.get("/", params={"period": "all"})).text

    assert "Not all of the audit log could be read: 1 unreadable line in planted.jsonl" in page


async def test_query_cannot_inject_sql(planted):
    injection = "x' OR '1'='1"
    async with let_in(app(planted.sources, hosts=[HOST], token=TOKEN)) as browser:
        for name in ("rule", "agent", "override"):
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
