"""Hostile pages: no bytes raise, the time is linear, and the reader without a tree sees what a tree
shows."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser
from support.cost import FACTOR, LINEAR, growth

from robots_guard.protocol.html import page as page_module
from robots_guard.protocol.html.links import LINKS
from robots_guard.protocol.html.markup import read_tags, read_tree
from robots_guard.protocol.html.page import TREE_TAGS, is_small_tree, read_page, relevant_length
from robots_guard.protocol.html.tokenizer import Tokenizer
from robots_guard.protocol.signals.rules import FIELD_CAP
from robots_guard.protocol.signals.statement import STATEMENTS, is_restrictive

URL = "https://example.com/page"
HTML = "text/html"
NOINDEX = '<meta name="robots" content="noindex">'
READERS = ("tree", "tags")


@pytest.fixture(params=READERS)
def reader(request, monkeypatch):
    if request.param == "tags":
        monkeypatch.setattr(page_module, "tree_type", lambda: None)
    return request.param


def read(html: str | bytes, content_type: str = HTML):
    body = html.encode() if isinstance(html, str) else html
    page = read_page(body, content_type, URL)
    return page, page.links


# --- Growth ---

REPEATED = {
    "metas": '<meta name="robots" content="noindex">',
    "metas of crawlers": '<meta name="bot{n}" content="noindex">',
    "metas without rules": '<meta name="x{n}" content="a b c d">',
    "silent metas": '<meta property="og:x" content="a">',
    "open metas": '<meta name="a ',
    "metas with an open quote": "<meta x='",
    "silent metas with an open quote": '<meta content="',
    "metas in metas": '<meta a="<meta b=',
    "tables": "<table><tr><td>",
    "divisions": "<div>",
    "lists": "<dl><dd>",
    "paragraphs with formatting": "<p><b x={n}>",
    "anchors": '<a href="/{n}" rel="nofollow">x</a>',
    "open anchors": '<a href="/{n}">',
    "attributes": "a{n} ",
    "slashes": "/",
    "less-than signs": "<",
    "open comments": "<!--",
    "comments": "<!-- x -->",
    "declarations": "<!",
    "CDATA": "<![CDATA[",
    "scripts": "<script>x</script>",
    "open scripts": "<script><!--",
    "scripts in scripts": "<script><!--<script>",
    "SVG with open styles": "<svg><style>",
    "SVG with open titles": "<svg><title><!--",
    "SVG with open scripts": "<svg><script>",
    "SVG with CDATA": "<svg><![CDATA[",
    "SVG with open quotes": "<svg><title><a x='</title>",
    "templates": "<template>",
    "texts not for snippets": "<div data-nosnippet>x",
    "closed texts not for snippets": "<div data-nosnippet>x</div>",
    "references": "&#105;",
    "NULs": "<\0meta name=robots content=noindex>",
    "licences": '<link rel="license" href="/{n}">',
    "open links": '<link rel="license" href="',
    "selects": "<select><option>",
}
START = {
    "attributes": '<meta name="robots" content="noindex" ',
    "slashes": '<meta name="robots" content="noindex" ',
    "references": '<meta name="robots" content="',
}


#: How often the short page repeats a text. A page of few tags is read by the tree, which is several
#: times as fast as the tokenizer, so the short page, too, must have too many for it.
COUNT = TREE_TAGS + 100
#: Of silent METAs most are not read, and the tree also reads a tag of few bytes.
COUNTS = {"silent metas": 3_200, "slashes": 3_200}


def page_of(kind: str, count: int) -> bytes:
    repeated = REPEATED[kind]
    text = "".join(repeated.replace("{n}", str(n)) for n in range(count))
    return f"{START.get(kind, '')}{text}".encode()


@pytest.mark.parametrize("kind", REPEATED)
def test_the_time_is_linear(kind, reader):
    count = COUNTS.get(kind, COUNT)
    pages = [page_of(kind, count * times) + NOINDEX.encode() for times in (1, FACTOR)]
    ratio = growth(read, lambda size: pages[size > count], count)

    assert is_small_tree(pages[0]) == is_small_tree(pages[1])
    assert ratio < LINEAR


def test_the_memory_of_a_small_tree_is_bounded():
    # Each paragraph repeats the formatting elements that are open.
    page = page_of("paragraphs with formatting", TREE_TAGS // 2 - 1) + NOINDEX.encode()
    assert is_small_tree(page)
    assert not is_small_tree(page + b"<p>" * 2)

    LexborHTMLParser(page)  # 22 MB; without the limit, 64 KiB need gigabytes


@pytest.mark.parametrize(
    ("page", "is_small"),
    [
        (b"<p>" * TREE_TAGS, True),
        (b"<p>" * (TREE_TAGS + 1), False),
        (b"<style>" + b"a{b:c}" * 10_000 + b"</style>", True),
        (b"<a " + b"b " * 2_000 + b">", False),
        (b"<a x='>' " + b"b " * 2_000 + b">", False),
        (b"<p>" + b"<a x='" + b"b " * 2_000, False),
        (b"x" * 600_000, False),
    ],
)
def test_a_tree_of_few_tags_and_attributes_is_small(page, is_small):
    assert is_small_tree(page) is is_small


def test_one_hundred_thousand_nested_tables(reader):
    page, links = read("<table><tr><td>" * 100_000 + NOINDEX)

    assert [each.rule for each in page.statements] == ["noindex"]
    assert links == {}


# --- Bounds ---


def test_ten_thousand_metas_lose_no_denial(reader):
    html = "".join(f'<meta name="bot{n}" content="max-snippet:{n + 5}">' for n in range(10_000))
    page, _ = read(html + '<meta name="bot10001" content="noai">' + NOINDEX)
    rules = {each.rule for each in page.statements if each.agent == "*" and is_restrictive(each)}

    assert len(page.statements) < STATEMENTS + 20
    assert {"noai", "noindex"} <= rules


def test_a_content_that_is_too_long_denies_what_it_can(reader):
    """It is not read, because reading it takes 1.5 s for each megabyte."""
    page, _ = read(f'<meta name=robots content="{"a," * FIELD_CAP}">')
    rules = {each.rule for each in page.statements if each.agent == "*" and is_restrictive(each)}
    assert {"noindex", "noai", "nosnippet", "noarchive"} <= rules


def test_links_are_bounded_and_those_with_nofollow_are_kept(reader):
    html = "".join(f"<a href=/{n}>x</a>" for n in range(LINKS + 10))
    _, links = read(html + "<a href=/last rel=nofollow>x</a>")

    assert len(links) == LINKS
    assert links["https://example.com/last"] is False


def test_addresses_take_no_more_memory_than_their_limit(reader):
    base = f'<base href="https://example.com/{"x" * 7_000}/">'
    html = base + "".join(f"<a href={n}>x</a>" for n in range(4_000))
    tracemalloc.start()
    try:
        _, links = read(html)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert len(links) > 1_000
    assert peak < 60_000_000


# --- No input raises ---

PIECES = st.sampled_from(
    [
        *("<", ">", "/", "!", "-", "--", "=", '"', "'", " ", "\n", "\0", "&", ";", ",", ":", "x"),
        *("<!--", "-->", "--!>", "<![CDATA[", "]]>", "<?", "</", "/>", "<!doctype ", "&#", "&#x"),
        *(
            "<meta ",
            "name=",
            "robots",
            "content=",
            "noindex",
            "http-equiv=",
            "tdm-reservation",
            "1",
        ),
        *("<link rel=license href=/l>", "<base href=/b>", "<a href=x>", "<a rel=nofollow href=x>"),
        *(f"<{name}>" for name in ("svg", "math", "select", "frameset", "table", "td", "p", "b")),
        *(f"<{name}>" for name in ("title", "textarea", "style", "xmp", "iframe", "noscript")),
        *(f"</{name}>" for name in ("svg", "math", "select", "frameset", "table", "td", "p", "b")),
        *(f"</{name}>" for name in ("title", "textarea", "style", "xmp", "iframe", "noscript")),
        *("<script>", "</script>", "<template>", "</template>", "<noembed>", "</noembed>"),
        *("<plaintext>", "<noframes>", "</noframes>", "<foreignObject>", "</foreignObject>"),
        *("<desc>", "</desc>", "<mtext>", "<body>", "</body>", "<html>", "</html>", "<head>"),
        *("<div data-nosnippet>", "</div>", "<script/>", "<title/>", "<svg/>", "<option>"),
        *(NOINDEX, NOINDEX, '<meta name=mybot content="nofollow">'),
    ]
)
SOUP = st.lists(PIECES, max_size=25).map("".join)
TYPES = st.sampled_from(
    [
        *("text/html", "", "application/xhtml+xml", "text/html; charset=utf-16", "text/plain"),
        *(
            "text/html; charset=iso-2022-jp",
            "text/html; charset=shift_jis",
            "text/html;charset=utf-7",
        ),
        *('text/html; charset="', "text/html; charset=\ud800", "text/html; charset=gb18030"),
    ]
)


@given(body=st.binary() | SOUP.map(lambda text: text.encode()), content_type=TYPES | st.text())
def test_no_bytes_raise(body, content_type):
    for is_whole in (True, False):
        page = read_page(body, content_type, URL, is_whole=is_whole)
        assert isinstance(page.links, dict)


@given(SOUP, st.text() | st.sampled_from(["", "about:blank", "http://[", "https://a/\ud800"]))
def test_no_url_raises(html, url):
    page = read_page(html.encode(), HTML, url)

    assert isinstance(page.links, dict)


@given(SOUP)
def test_no_bytes_raise_without_a_tree(html):
    read_tags(html.encode())
    read_tags(html.encode(), is_xml=True)


# --- Both readers ---


def closing(markup) -> set[tuple[str, str]]:
    return {
        (meta.get("name").lower(), meta.get("content").lower())
        for meta in markup.metas
        if meta.get("name")
    }


def certain(markup) -> set[tuple[str, str]]:
    return closing(markup._replace(metas=[meta for meta in markup.metas if meta.is_certain]))


@given(SOUP)
def test_each_meta_of_the_tree_is_found_without_it(html):
    document = html.encode().replace(b"\0", b"")
    tree = read_tree(LexborHTMLParser, document)

    assert closing(tree) <= closing(read_tags(document))


@given(SOUP)
def test_what_is_certain_without_a_tree_is_in_the_tree(html):
    document = html.encode().replace(b"\0", b"")
    tree = read_tree(LexborHTMLParser, document)

    assert certain(read_tags(document)) <= closing(tree)


@given(SOUP)
def test_a_cut_document_has_the_metas_of_the_whole(html):
    document = html.encode().replace(b"\0", b"")
    end = relevant_length(document)
    whole = read_tree(LexborHTMLParser, document)
    part = read_tree(LexborHTMLParser, document[:end], is_cut=True)

    if part is not None:
        assert closing(part) >= {each for each in closing(whole) if each[1]}
    tags = read_tags(document[:end], is_cut=True)
    if tags is not None:
        assert closing(tags) >= {each for each in closing(whole) if each[1]}


@given(SOUP)
def test_each_link_of_the_tree_is_found(html):
    document = html.encode().replace(b"\0", b"")
    tree = LexborHTMLParser(document)
    hrefs = {node.attributes["href"] or "" for node in tree.css("a[href]")}
    names = frozenset({b"a"})
    found = {tag.attributes().get("href") for tag in Tokenizer(document, names).tags()}

    assert hrefs <= found


@given(SOUP)
def test_no_text_before_a_meta_hides_it(html):
    """If a browser sees a META at the end of a document, the reader finds it."""
    tree = LexborHTMLParser(html.encode() + NOINDEX.encode())
    is_seen = any(
        node.attributes.get("content") == "noindex" for node in tree.css("meta[name=robots]")
    )
    page = read_page(html.encode() + NOINDEX.encode(), HTML, URL)

    assert not is_seen or any(each.rule == "noindex" for each in page.statements)


@pytest.mark.parametrize(
    "text",
    [
        "<script>show('{}')</script>",
        "<textarea>{}</textarea>",
        "<template>{}</template>",
        "<!-- {} -->",
        "<title>{}</title>",
    ],
)
@pytest.mark.parametrize("before", ["<svg><title>a</title></svg>", "<select></select>"])
def test_a_tree_tells_text_from_tags_wherever_the_page_goes_on(before, text):
    page, _ = read(before + text.replace("{}", NOINDEX) + "<p>more" * 2 * TREE_TAGS)

    assert page.statements == ()
