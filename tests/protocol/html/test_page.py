"""Pages: the METAs that count for both readers, in the rows of signals.jsonl and in further cases.

The rows expect uses, which `decisions.uses` derives from rules. Here a short table of the rules in these
rows takes its place.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from protocol.rows import rows

from robots_guard.protocol.html import page as page_module
from robots_guard.protocol.html.page import Page, read_page
from robots_guard.protocol.signals.statement import Flag, Signal

URL = "https://example.com/page"
HTML = "text/html"
NOINDEX = '<meta name="robots" content="noindex">'
NOW = datetime(2026, 11, 22, tzinfo=UTC).timestamp()

DENIED = {
    "noindex": {"search", "snippet", "ai-index"},
    "nofollow": {"follow"},
    "none": {"search", "snippet", "ai-index", "follow"},
    "noai": {"ai-input", "ai-train"},
    "unavailable_after": {"search", "snippet", "archive", "ai-index"},
}
ROWS = [
    row for row in rows("signals.jsonl") if "html" in row["input"] or "html_b64" in row["input"]
]
READERS = ("lexbor", "tags")


@pytest.fixture(params=READERS)
def reader(request, monkeypatch):
    """Both readers. An installation without selectolax has `tags` only."""
    if request.param == "tags":
        monkeypatch.setattr(page_module, "tree_type", lambda: None)
    return request.param


def read(html: str | bytes, content_type: str = HTML, url: str = URL, **options) -> Page:
    body = html.encode() if isinstance(html, str) else html
    return read_page(body, content_type, url, **options)


def read_row(row) -> Page:
    given = row["input"]
    body = base64.b64decode(given["html_b64"]) if "html_b64" in given else given["html"].encode()
    fields = {name.lower(): value for name, value in given.get("headers", [])}
    return read(body, fields.get("content-type", HTML), row["url"])


def denied(page: Page, agent: str) -> set[str]:
    found: set[str] = set()
    for each in page.statements:
        is_due = each.rule != "unavailable_after" or each.value <= NOW
        if each.signal is Signal.META_ROBOTS and each.agent in ("*", agent) and is_due:
            found |= DENIED.get(each.rule, set())
    return found


def values(page: Page, signal: Signal) -> list:
    return [each.value for each in page.statements if each.signal is signal and each.value != ""]


def words(page: Page) -> list[tuple[str, str]]:
    return [(each.agent, each.rule) for each in page.statements]


def has_other_headers(row) -> bool:
    return any(name.lower() != "content-type" for name, _ in row["input"].get("headers", []))


# --- The rows ---


def of(*keys: str) -> list:
    found = [row for row in ROWS if any(key in row["expect"] for key in keys)]
    return [pytest.param(row, id=row["id"]) for row in found]


def test_the_rows_are_all_there():
    assert len(ROWS) == 126


@pytest.mark.parametrize("row", of("denied"))
def test_the_metas_of_a_row_deny_its_uses(row, reader):
    if row.get("dialect", "union") != "union" or has_other_headers(row):
        return  # decided in core, by the same statements
    assert denied(read_row(row), row["agent"]) == set(row["expect"]["denied"])


@pytest.mark.parametrize("row", of("flags"))
def test_a_row_has_its_flags(row, reader):
    flags = {flag.value for each in read_row(row).statements for flag in each.flags}

    assert set(row["expect"]["flags"]) <= flags


@pytest.mark.parametrize("row", of("follow"))
def test_a_row_has_its_links(row, reader):
    page = read_row(row)
    if has_other_headers(row):
        return
    may_follow = "follow" not in denied(page, row["agent"])

    assert {url: page.links[url] and may_follow for url in row["expect"]["follow"]} == row[
        "expect"
    ]["follow"]


@pytest.mark.parametrize(
    ("row", "key", "signal"),
    [
        pytest.param(row, key, signal, id=row["id"])
        for row in ROWS
        for key, signal in (
            ("data_nosnippet", Signal.DATA_NOSNIPPET),
            ("document_state", Signal.DOCUMENT_STATE),
            ("canonical", Signal.META_URL),
            ("license", Signal.LICENSE),
        )
        if key in row["expect"]
    ],
)
def test_a_row_states_what_is_recorded(row, key, signal, reader):
    expected = row["expect"][key] or []

    assert values(read_row(row), signal) == (expected if isinstance(expected, list) else [expected])


@pytest.mark.parametrize(
    ("id_", "expected"),
    [
        ("CUH-039", [("train-ai", "n")]),
        ("CUH-040", [("train-ai", "")]),
        ("TDM-023", [("tdm-reservation", 1), ("tdm-policy", "https://p/x.json")]),
        ("TDM-024", [("tdm-reservation", "")]),
        ("TDM-025", [("tdm-reservation", 0)]),
        ("TDM-026", [("tdm-reservation", 1)]),
        ("TDM-027", []),
        ("DST-007", [("revisit-after", "2 days")]),
        ("MET-060", [("noindex", True)]),
        ("MET-069", [("max-snippet", 50)]),
        ("MET-071", [("unavailable_after", 1188072000)]),
        ("MET-015", [("noindex", True), ("nofollow", True), ("all", True)]),
    ],
)
def test_a_row_has_these_statements(id_, expected, reader):
    row = next(each for each in ROWS if each["id"] == id_)

    assert [(each.rule, each.value) for each in read_row(row).statements] == expected


# --- What counts as a META (signals.md section 4) ---

SEEN = {
    "in a paragraph in a table cell": f"<table><tr><td><p>{NOINDEX}</table>",
    "between rows of a table": f"<table>{NOINDEX}<tr><td>x</table>",
    "after an unfinished comment end": f"<!-- a -- > b -->{NOINDEX}",
    "after a comment that ends at once": f"<!--->{NOINDEX}-->",
    "after a comment that is only hyphens": f"<!---->{NOINDEX}-->",
    "after a comment opened twice": f"<!-- <!--> {NOINDEX} -->",
    "after a doctype with a sign in quotes": f'<!doctype html public "a>b">{NOINDEX}',
    "after CDATA outside of SVG": f"<![CDATA[>{NOINDEX}]]>",
    "after an end tag of nothing": f"</>{NOINDEX}",
    "after a bogus comment": f"</ x>{NOINDEX}",
    "after PHP": f"<?php echo '?'; ?>{NOINDEX}",
    "after a lone less-than sign": f"1 < 2 <{NOINDEX}",
    "after a script with a comment": f"<script><!-- if (a) {{}} //--></script>{NOINDEX}",
    "after a script that closes itself, in HTML": f"<script src=x /></script>{NOINDEX}",
    "after a script in a script": f"<script><!--<script></script>--></script>{NOINDEX}",
    "after an escaped script": f"<script><!--<script></script><!-- </script>{NOINDEX}",
    "after a style with a comment": f"<style><!-- </style>{NOINDEX}<!-- -->",
    "after a title with a comment": f"<title><!-- </title>{NOINDEX}",
    "after a title with a like end": f"<title></titles></title>{NOINDEX}",
    "after a textarea end tag with attributes": f"<textarea></textarea a='>'>{NOINDEX}",
    "after a template in a template": f"<template><template></template></template>{NOINDEX}",
    "in the style of an SVG": f"<svg><style>{NOINDEX}</style></svg>",
    "in the script of an SVG": f"<svg><script>{NOINDEX}</script></svg>",
    "in the title of an SVG, after a comment": f"<svg><title><!-- </title> --> {NOINDEX}",
    "in an SVG after CDATA": f"<svg><![CDATA[ > <!-- ]]>{NOINDEX}</svg>",
    "in a template of an SVG": f"<svg><template>{NOINDEX}</template></svg>",
    "in MathML": f"<math><mtext>{NOINDEX}</mtext></math>",
    "with a carriage return": NOINDEX.replace(" ", "\r"),
    "with a form feed": NOINDEX.replace(" ", "\f"),
    "with slashes": NOINDEX.replace(" ", "/"),
    "with blanks around the equals sign": "<meta name = robots content\n=\nnoindex>",
    "with a sign in another value": '<meta data-x="a>b" name="robots" content="noindex">',
    "with a value that is cut after its tag": f"<meta data-x='{NOINDEX}<p' name=robots content=noindex>",
    "with quotes of the other kind": """<meta data-x="'" name='robots' content='noindex'>""",
    "with a value that is a tag": f"<meta data-x='{NOINDEX}' name=robots content=noindex>",
    "with attributes in capitals": '<META CONTENT="NoIndex" NAME="Robots">',
    "with a decimal reference": '<meta name="&#114;obots" content="noindex">',
    "with a reference without a semicolon": '<meta name="robots" content="no&#105ndex">',
    "with a hexadecimal reference": '<meta name="robots" content="no&#X69;ndex">',
    "with a reference of many zeros": f'<meta name="robots" content="no&#{"0" * 9000}105;ndex">',
    "with a tab reference": '<meta name="robots" content="&Tab;noindex&NewLine;">',
    "with an equals sign as a name": '<meta =x name="robots" content="noindex">',
    "with a second meta cut off": NOINDEX + '<meta name="',
    "before an open comment": NOINDEX + "<!-- ",
    "before an open script": NOINDEX + "<script>",
    "before a frameset": f"<html><head>{NOINDEX}</head><frameset><frame></frameset>",
    "in a noscript in the body": f"<body><noscript><p>{NOINDEX}</noscript>",
}  # fmt: skip
HIDDEN = {
    "in a comment with a tag": f"<!-- <b> {NOINDEX} -->",
    "in an open comment": f"<!-- {NOINDEX}",
    "in a comment of a comment": f"<!-- <!-- {NOINDEX} -->",
    "in a doctype": f"<!doctype {NOINDEX[1:-1]}>",
    "in a script in a script": f"<script><!--<script></script>{NOINDEX}--></script>",
    "in an open script": f"<script>{NOINDEX}",
    "in an open title": f"<title>{NOINDEX}",
    "in a noembed": f"<noembed>{NOINDEX}</noembed>",
    "in a noframes": f"<noframes>{NOINDEX}</noframes>",
    "in a template of a template": f"<template><template></template>{NOINDEX}</template>",
    "in an open template": f"<template>{NOINDEX}",
    "in an unquoted value": f"<p title={NOINDEX.replace(' ', '-')[:-1]}>",
    "in a quoted value": f"<p title='{NOINDEX}'>",
    "in JSON": f'<script type="application/ld+json">{{"a": "{NOINDEX}"}}</script>',
    "in an image alternative": f"<img alt='{NOINDEX}'>",
    "escaped twice": NOINDEX.replace("<", "&amp;lt;"),
    "with another name of the tag": NOINDEX.replace("<meta", "<metadata"),
    "with a colon in the tag": NOINDEX.replace("<meta", "<h:meta"),
    "with a name that begins like it": NOINDEX.replace("robots", "robots-x"),
    "with a reference that is none": '<meta name="robots" content="no&notanentity;index">',
    "cut in a quote": '<meta name="robots" content="noindex>',
    "cut after a name": '<meta content=noindex name="robots"',
    "cut with another tag in its value": '<meta name="robots" content="noindex <p>',
}


@pytest.mark.parametrize("html", SEEN.values(), ids=SEEN)
def test_a_meta_that_a_browser_sees_counts(html, reader):
    assert "search" in denied(read(html), "mybot")


@pytest.mark.parametrize("html", HIDDEN.values(), ids=HIDDEN)
def test_a_meta_that_no_browser_sees_does_not_count(html, reader):
    assert denied(read(html), "mybot") == set()


@pytest.mark.parametrize("html", [f"<select>{NOINDEX}</select>", f"<frameset>{NOINDEX}</frameset>"])
def test_without_a_tree_a_doubtful_meta_counts_and_a_doubtful_permission_does_not(
    html, monkeypatch
):
    monkeypatch.setattr(page_module, "tree_type", lambda: None)
    permission = html.replace("noindex", "index, all")

    assert "search" in denied(read(html), "mybot")
    assert words(read(permission)) == []


# --- Names ---


@pytest.mark.parametrize(
    ("name", "agent"),
    [
        ("MyBot", "mybot"),
        ("mybot/2.0", "mybot"),
        ("googlebot-news", "googlebot-news"),
        ("bot_1.x", "bot_1.x"),
        (" Yandex ", "yandex"),
    ],
)
def test_a_meta_can_name_a_crawler(name, agent, reader):
    page = read(f'<meta name="{name}" content="noindex">')

    assert words(page) == [(agent, "noindex")]


@pytest.mark.parametrize(
    "meta",
    [
        '<meta name="description" content="none">',
        '<meta name="keywords" content="index, archive, noindex">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="generator" content="follow">',
        '<meta name="author" content="All">',
        '<meta name="twitter:title" content="none">',
        '<meta name="og:title" content="noindex">',
        '<meta name="mybot" content="a page about rules">',
        '<meta name="mybot" content="">',
        '<meta name="" content="noindex">',
        '<meta name="a=c" content="none">',
        '<meta name="ро́бот" content="noindex">',
        '<meta http-equiv="refresh" content="0; url=noindex">',
        '<meta http-equiv="content-type" content="text/html; charset=utf-8">',
    ],
)
def test_a_meta_of_another_kind_states_nothing(meta, reader):
    assert read(meta).statements == ()


def test_a_list_of_names_is_lenient(reader):
    page = read('<meta name="robots; MyBot/1.0, x:y" content="noindex">')

    assert words(page) == [("*", "noindex"), ("mybot", "noindex")]
    assert {each.flags for each in page.statements} == {(Flag.LENIENT,)}


def test_the_raw_text_is_the_tag(reader):
    (statement,) = read("<p>x<META  NAME=robots CONTENT=noindex>").statements

    assert statement.raw.lower().startswith("<meta")
    assert "noindex" in statement.raw


# --- TDMRep and Content-Usage in METAs: what is doubtful grants nothing ---


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ('<meta name="TDM-Reservation" content=" 1 ">', [1]),
        ('<meta name="tdm-reservation" content="0">' * 2, [0]),
        ('<meta name="tdm-reservation" content="0"><meta name="tdm-reservation" content="1">', ["", 1]),
        ('<meta http-equiv="tdm-reservation" content="0">', []),
        ('<meta http-equiv="tdm-reservation" content="1">', [1]),
        ('<met\0a name="tdm-reservation" content="0">', []),
        ('<met\0a name="tdm-reservation" content="1">', [1]),
        ('<meta name="tdm-reservation" content="0"><met\0a name="tdm-reservation" content="1">', ["", 1]),
        ('<meta property="tdm-reservation" content="1">', []),
    ],
)  # fmt: skip
def test_a_reservation(html, expected, reader):
    page = read(html)

    assert [each.value for each in page.statements if each.rule == "tdm-reservation"] == expected


def test_a_policy_counts_beside_a_reservation_only(reader):
    policy = '<meta name="tdm-policy" content="https://p/x.json">'

    assert values(read(policy), Signal.TDM) == []
    assert values(read(policy + '<meta name="tdm-reservation" content="0">'), Signal.TDM) == [0]


@pytest.mark.parametrize("attribute", ["name", "http-equiv"])
def test_content_signal_and_content_usage_only_deny(attribute, reader):
    html = (
        f'<meta {attribute}="Content-Usage" content="train-ai=n, search=y">'
        f'<meta {attribute}="content-signal" content="search=yes, ai-train=no">'
    )

    found = {(each.rule, each.value) for each in read(html).statements}
    assert found == {("train-ai", "n"), ("search", ""), ("ai-train", "no")}


# --- Licences ---


@pytest.mark.parametrize(
    ("html", "rule", "value"),
    [
        ('<link rel="license" href="/l.html">', "license-other", "https://example.com/l.html"),
        ('<link rel="a LICENSE" type="Application/RSL+XML; x=y" href="l">', "license", "https://example.com/l"),
        ('<base href="//cdn.example/d/"><link rel=license href=l>', "license-other", "https://cdn.example/d/l"),
    ],
)  # fmt: skip
def test_a_licence_link(html, rule, value, reader):
    (statement,) = read(html).statements

    assert (statement.rule, statement.value, statement.agent) == (rule, value, "*")


@pytest.mark.parametrize(
    "html",
    [
        '<link rel="licenses" href="/l">',
        '<link rel="license">',
        '<link rel="license" href="">',
        '<link rel="license" href="mailto:a@b.example">',
        '<template><link rel="license" href="/l"></template>',
    ],
)
def test_no_licence_link(html, reader):
    assert read(html).statements == ()


# --- data-nosnippet ---


@pytest.mark.parametrize(
    ("html", "texts"),
    [
        ("<div data-nosnippet>a <b>b</b>\n c</div>d", ["a b c"]),
        ("<div DATA-NOSNIPPET>a</div>", ["a"]),
        ("<div data-nosnippet>a<span data-nosnippet>b</span></div><span data-nosnippet>c</span>", ["ab", "c"]),
        ("<div data-nosnippet>a<div>b</div>c</div>d", ["abc"]),
        ("<div title='data-nosnippet'>a</div>", []),
        ("<template><div data-nosnippet>a</div></template>", []),
        ("<article data-nosnippet>a</article>", []),
        (f"<div data-nosnippet>{'ab ' * 400}</div>", [("ab " * 400)[:512].strip()]),
    ],
)  # fmt: skip
def test_texts_that_are_not_for_snippets(html, texts, reader):
    assert [value.strip() for value in values(read(html), Signal.DATA_NOSNIPPET)] == texts


# --- Types ---


@pytest.mark.parametrize(
    ("content_type", "body", "is_read"),
    [
        ("text/html", NOINDEX, True),
        ("TEXT/HTML;charset=x", NOINDEX, True),
        (" text/html ; charset=utf-8", NOINDEX, True),
        ("text/html, text/html", NOINDEX, True),
        ("application/json, text/html", NOINDEX, True),
        ("application/xhtml+xml", NOINDEX.replace(">", "/>"), True),
        ("", NOINDEX, True),
        ("", " \n" + NOINDEX, True),
        ("", "\ufeff" + NOINDEX, True),
        ("", "x" + NOINDEX, False),
        ("*/*", NOINDEX, True),
        ("html", NOINDEX, True),
        ("text/plain", NOINDEX, False),
        ("application/xml", NOINDEX, False),
        ("application/rss+xml", NOINDEX, False),
        ("text/html5", NOINDEX, False),
        ("image/svg+xml", f"<svg><title>{NOINDEX}</title></svg>", False),
    ],
)
def test_which_types_are_read(content_type, body, is_read, reader):
    page = read(body, content_type)

    assert bool(page.statements) is is_read


@pytest.mark.parametrize(
    "xhtml",
    [
        '<script src="x"/><meta name="robots" content="noindex"/>',
        '<title/><meta name="robots" content="noindex"/>',
        '<h:html xmlns:h="http://www.w3.org/1999/xhtml"><h:meta name="robots" content="noindex"/></h:html>',
        '<style><![CDATA[ <x ]]></style><meta name="robots" content="noindex"/>',
    ],
)
def test_xhtml_is_read_as_xml_too(xhtml, reader):
    assert "search" in denied(read(xhtml, "application/xhtml+xml"), "mybot")


# --- Charsets ---


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"\xef\xbb\xbf" + NOINDEX.encode(), "text/html; charset=utf-16"),
        (b"\xff\xfe" + NOINDEX.encode("utf-16-le"), "text/html; charset=utf-8"),
        (b"\xfe\xff" + NOINDEX.encode("utf-16-be"), "text/html"),
        (NOINDEX.encode("utf-16-be"), 'text/html; charset="UTF-16BE"'),
        (NOINDEX.encode("utf-16-le"), "text/html; charset=utf-16"),
        (NOINDEX.encode("utf-16-le"), ""),  # closed: no browser reads this
        (b'<meta charset="utf-16">' + NOINDEX.encode(), HTML),
        (NOINDEX.encode(), "text/html; charset=utf-16le"),
        (NOINDEX.encode(), "text/html; charset=utf-7"),
        (NOINDEX.encode(), "text/html; charset=utf-32"),
        (NOINDEX.encode(), "text/html; charset=cp037"),
        (NOINDEX.encode(), "text/html; charset=rot13"),
        (NOINDEX.encode(), "text/html; charset=\0"),
        (NOINDEX.encode(), "text/html; charset=no-such-charset"),
        (b"<p>\x1b$B" + NOINDEX.encode(), "text/html; charset=iso-2022-jp"),
        (b"<p>\x81" + NOINDEX.encode(), "text/html; charset=shift_jis"),
        (b"<p>\x81" + NOINDEX.encode(), "text/html; charset=gb18030"),
        (b"<p>\xfe" + NOINDEX.encode(), "text/html; charset=big5"),
        (b"<p>\x8f" + NOINDEX.encode(), "text/html; charset=euc-jp"),
        (b"<p>\xc8" + NOINDEX.encode(), "text/html; charset=euc-kr"),
        (b"\xff\xfe\x00\x00" + NOINDEX.encode("utf-32-le"), HTML),
    ],
)
def test_a_charset_does_not_hide_a_meta(body, content_type, reader):
    assert "search" in denied(read(body, content_type), "mybot")


@pytest.mark.parametrize("content_type", [HTML, "text/html; charset=utf-7"])
@pytest.mark.parametrize("start", [b"", b'<meta charset="utf-7">', b"+/v8-"])
def test_utf_7_is_never_decoded(start, content_type, reader):
    body = start + b"+ADw-meta name=+ACI-robots+ACI- content=+ACI-noindex+ACI-+AD4-"

    assert denied(read(body, content_type), "mybot") == set()


@pytest.mark.parametrize(
    ("charset", "declared"),
    [("windows-1251", True), ("windows-1251", False), ("utf-8", False), ("utf-8", True), ("gb18030", True)],
)  # fmt: skip
def test_addresses_are_decoded(charset, declared, reader):
    link = '<a rel="nofollow" href="/путь">x</a>'
    start = f"<meta http-equiv=Content-Type content='text/html; charset={charset}'>"
    body = (start if declared else "").encode() + link.encode(charset)
    page = read(body, HTML if declared else f"text/html; charset={charset}")

    assert page.links == {"https://example.com/%D0%BF%D1%83%D1%82%D1%8C": False}


# --- Cut pages ---


@pytest.mark.parametrize("cut", range(1, len(NOINDEX)))
def test_a_tag_that_the_window_cuts_is_dropped(cut, reader):
    page = read(f"<p>x</p>{NOINDEX[:cut]}", is_whole=False)

    assert page.statements == ()
    assert page.is_incomplete


def test_a_whole_page_is_complete(reader):
    assert not read(NOINDEX).is_incomplete
    assert not read(NOINDEX, "text/plain", is_whole=False).is_incomplete


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_window_may_cut_a_character(length, reader):
    body = NOINDEX.encode() + "<p>текст \U0001f600".encode()[:-length]

    assert "search" in denied(read(body, HTML, is_whole=False), "mybot")


# --- Links ---


@pytest.mark.parametrize(
    ("href", "url"),
    [
        ("x", "https://example.com/d/x"),
        (" /x\n", "https://example.com/x"),
        ("/a\tb", "https://example.com/ab"),
        ("../x", "https://example.com/x"),
        ("/a/./b/../c", "https://example.com/a/c"),
        ("/a/..", "https://example.com/"),
        ("/../../x", "https://example.com/x"),
        ("https://example.com/a/../b", "https://example.com/b"),
        ("?q=1", "https://example.com/d/page?q=1"),
        ("#top", "https://example.com/d/page"),
        ("/x#top", "https://example.com/x"),
        ("/x?a=1&amp;b=2", "https://example.com/x?a=1&b=2"),
        ("/x?a=1&copy=2", "https://example.com/x?a=1&copy=2"),
        ("//OTHER.example:443/x", "https://other.example/x"),
        ("HTTP://example.com", "http://example.com/"),
        ("\\x\\y", "https://example.com/x/y"),
        ("/a b", "https://example.com/a%20b"),
        ("/ä", "https://example.com/%C3%A4"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("/%7Ex", "https://example.com/%7Ex"),
    ],
)
def test_an_address_is_made_absolute(href, url, reader):
    page = read(f'<a href="{href}" rel="nofollow">x</a>', url="https://example.com/d/page#f")

    assert page.links == {url: False}


@pytest.mark.parametrize(
    "href",
    ["javascript:x()", "mailto:a@b.example", "data:text/html,x", "http://[x/", "http://a b/", "ftp://e.example/"],
)  # fmt: skip
def test_an_address_of_another_kind_is_no_link(href, reader):
    assert read(f'<a href="{href}">x</a>').links == {}


@pytest.mark.parametrize(
    "html",
    [
        '<link rel="nofollow" href="/x">',
        '<form rel="nofollow" action="/x"></form>',
        '<!-- <a href="/x"> -->',
        '<script>"<a href=/x>"</script>',
        "<a name='x'>x</a>",
        '<template><a href="/x">x</a></template>',
    ],
)
def test_no_link(html, reader):
    assert read(html).links == {}


def test_the_first_base_counts(reader):
    page = read('<base target=x><base href="/d/"><base href="/e/"><a href=x>x</a>')

    assert page.links == {"https://example.com/d/x": True}


@pytest.mark.parametrize("base", ["javascript:x", "data:,x", "http://[/"])
def test_a_base_of_another_kind_is_ignored(base, reader):
    assert read(f'<base href="{base}"><a href="/x">x</a>').links == {"https://example.com/x": True}


def test_a_page_without_a_readable_url(reader):
    assert read('<a href="/x">x</a><a href="http://e.example/">y</a>', url="about:blank").links == {
        "http://e.example/": True
    }


@pytest.mark.parametrize(
    ("html", "url", "expected"),
    [
        ('<a href="/a" rel="nofollow">x</a>', "https://example.com/a#part", False),
        ('<a href="/a" rel="nofollow">x</a>', "https://example.com:443/./a", False),
        ('<a href="/a" rel="no&#102;ollow">x</a>', "https://example.com/a", False),
        ('<a href="/a" rel="NoFollow">x</a>', "https://example.com/b", True),
        ('<a href="/a" rel="nofollow">x</a><a href="/a">y</a>', "https://example.com/a", True),
        ('<a href="/a">x</a>', "https://example.com/a", True),
        ('<a href="/a" rel="nofollow">x</a>', "mailto:a@example.com", True),
    ],
)
def test_a_link_may_be_followed_unless_all_links_to_its_target_are_marked(html, url, expected):
    page = read(html)
    assert page.may_follow(url) is expected
    assert page.links is not None
    assert page.may_follow(url) is expected
