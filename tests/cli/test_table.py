"""Tables on a terminal: they fit its width, and what is left out of a value never changes what it names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from support.cost import LINEAR, growth

from robots_guard.audit.record import Record
from robots_guard.cli.audit.records import COLUMNS, row_of
from robots_guard.cli.table import (
    ELLIPSIS,
    TableColumn,
    block_lines,
    folded,
    layout,
    record_lines,
    short_times,
    shorten,
    wrapped,
)

AUTHORITY = re.compile(r"[a-z]+://[^\s/?#]*")
WIDTHS = (80, 100, 132, 200)

labels = st.from_regex(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
hosts = st.one_of(
    st.lists(labels, min_size=1, max_size=6).map(".".join),
    st.from_regex(r"[1-9]{1,3}\.0\.0\.[1-9]", fullmatch=True),
    st.just("[2001:db8:1:2:3:4:5:6]"),
)
ports = st.one_of(st.just(""), st.integers(1, 65535).map(":{}".format))
paths = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x30FF, exclude_characters=ELLIPSIS), max_size=200
)
urls = st.builds("{}://{}{}/{}".format, st.sampled_from(["http", "https"]), hosts, ports, paths)
texts = st.lists(st.one_of(paths, urls), max_size=6).map(" ".join)


def origin_of(url):
    return AUTHORITY.match(url)[0]


def assert_is(shown, text):
    """What is shown is the text, or its beginning and end, with no origin cut between them."""
    if ELLIPSIS not in shown:
        assert shown == text
        return
    before, after = shown.split(ELLIPSIS)
    assert text.startswith(before)
    assert text.endswith(after)
    assert len(before) + len(after) < len(text)
    for found in AUTHORITY.finditer(text):
        for cut in (len(before), len(text) - len(after)):
            assert not found.start() < cut < found.end(), shown


@given(urls, st.integers(1, 200))
def test_shortened_url_has_its_whole_origin_and_its_end(url, width):
    shown = shorten(url, width)

    assert_is(shown, url)
    assert shown.startswith(origin_of(url))
    assert shown[-8:] == url[-8:]
    assert cell_len(shown) <= max(width, cell_len(origin_of(url)) + 13)


@given(texts, st.integers(1, 200))
def test_shortened_text_cuts_no_origin(text, width):
    assert_is(shorten(text, width), text)


@pytest.mark.parametrize(
    "text",
    [
        "Disallow: /private/ (override o-1 of jane@crawler.example: our own site)",
        "127.0.0.1 is not public: allow_private names the networks that may be reached",
        "Disallow: /catalogue/*/some/deep/path/with/many/segments/*.html$",
    ],
)
def test_shortened_text_keeps_as_much_of_its_beginning_as_of_its_end(text):
    before, after = shorten(text, 39).split(ELLIPSIS)

    assert len(before) == len(after) == 19


@pytest.mark.parametrize("port", ["8000", "80", "443"])
@pytest.mark.parametrize("width", range(1, 60))
def test_port_is_never_cut(port, width):
    shown = shorten(f"http://127.2.0.10:{port}/private/reports/2026/november.html", width)

    assert f"127.2.0.10:{port}/" in shown or f"127.2.0.10:{port}{ELLIPSIS}" in shown
    assert shown.endswith("ember.html")


@given(urls, st.integers(12, 120))
def test_wrapped_origin_does_not_end_a_line_as_another_one(url, width):
    pieces = wrapped(url, width)

    assert "".join(pieces) == url
    assert max(map(cell_len, pieces)) <= width
    origin = origin_of(url)
    port = re.search(r":[0-9]+$", origin)
    at = 0
    for piece in pieces[:-1]:
        at += len(piece)
        if at < len(origin):
            assert url[at - 1] == "." or not any(dot in piece.partition("://")[2] for dot in ".")
            assert port is None or not port.start() <= at <= port.end()


@given(
    st.lists(st.sampled_from(["one", "two2", "https://a.test:8000/x", "of", "ümläut"]), min_size=1)
)
def test_text_is_wrapped_between_words(words):
    pieces = wrapped(" ".join(words), 24)

    assert " ".join(pieces).split() == words
    assert max(map(cell_len, pieces)) <= 24


# -- the layout -----------------------------------------------------------------------------------------------


def row(url="https://a.test/private/1", rule="Disallow: /private/", **fields):
    record = Record(
        schema=1,
        at="2026-11-23T02:51:11.120Z",
        component="scrapy",
        id="4e2bd4cefa-12345",
        agent="mybot",
        url=url,
        origin="",
        action="drop",
        reason="disallowed",
        rule=rule,
        line=2,
    )
    values = {name: fields.get(name, getattr(record, name)) for name in Record.__struct_fields__}
    short = short_times("2026-11-23")
    return [short(value) for value in row_of(Record(**values))]


def lines_of(rows, width, columns=COLUMNS):
    """The printed lines of each row."""
    columns = [column._replace(usual=0) for column in columns]
    cells = layout(columns, rows, width)
    assert cells is not None
    return [list(record_lines(columns, each, cells, width)) for each in rows]


def text_of(line):
    return "".join(part for part, _ in line)


LONG = "http://127.2.0.10:8000/private/" + "x" * 300 + "/report.pdf"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("url", ["https://a.test/x", LONG])
@pytest.mark.parametrize("reason", ["disallowed", "ambiguous-authority"])
def test_record_has_one_or_two_lines_with_its_id(width, url, reason):
    shown = lines_of([row(url, reason=reason), row()], width)

    for lines in shown:
        assert len(lines) <= 2
        assert all(cell_len(text_of(line)) <= width for line in lines)
        assert any("4e2bd4cefa-12345" in text_of(line) for line in lines)
        assert any("02:51:11" in text_of(line) for line in lines)


def test_wider_terminal_shows_more():
    shown = [
        sum(len(text_of(line)) for line in lines_of([row(LONG)], width)[0]) for width in WIDTHS
    ]

    assert shown == sorted(set(shown))
    assert len(lines_of([row()], 132)[0]) == 1
    assert len(lines_of([row()], 80)[0]) == 2


def test_long_host_takes_further_lines_and_leaves_the_others_as_they_are():
    host = "https://" + "sub." * 40 + "example.com:8000/x"
    alone = lines_of([row()], 80)[0]
    first, second = lines_of([row(host), row()], 80)

    assert second == alone
    pieces = [part for line in first for part, index in line if index == 5]
    assert "".join(pieces) == host
    assert "example.com:8000/x" in pieces[-1]


def test_url_that_needs_lines_of_its_own_gets_all_of_them():
    """Its origin alone is wider than its column."""
    host = "https://" + "sub." * 20 + "example.com"
    rule = "Disallow: /" + "x" * 60
    url = f"{host}/some/deep/path/page.html"
    for width in (132, 140, 200):
        lines = lines_of([row(url, rule=rule)], width)[0]
        assert url in [part for line in lines for part, _ in line], width


@given(st.lists(urls, min_size=1, max_size=4), st.integers(30, 200), st.data())
def test_every_table_fits_and_names_what_it_lists(found, width, data):
    columns = [
        TableColumn("action", kind="action"),
        TableColumn("url", fit="cut", line=data.draw(st.sampled_from([1, 2]))),
        TableColumn("detail", fit="wrap", line=2),
    ]
    rows = [["drop", url, data.draw(st.sampled_from(["", "a few words"]))] for url in found]
    cells = layout(columns, rows, width)
    assert cells is not None
    for url, each in zip(found, rows, strict=True):
        lines = list(record_lines(columns, each, cells, width))
        assert all(cell_len(text_of(line)) <= width for line in lines)
        shown = "".join(part for line in lines for part, index in line if index == 1)
        assert_is(shown, url)
        assert shown.startswith(origin_of(url))


def test_empty_columns_are_left_out_and_too_many_become_a_list():
    columns = [TableColumn(f"c{number}") for number in range(30)]
    few = [["x", *[""] * 29]]
    many = [[f"value{number}" for number in range(30)]]

    assert layout(columns, few, 80) == ((layout(columns, few, 80)[0][0],),)
    assert layout(columns, many, 80) is None
    shown = [text_of(line) for line in block_lines(columns, many[0], 80)]
    assert shown[0].split() == ["c0", "value0"]
    assert len(shown) == 30


@pytest.mark.parametrize(
    ("moment", "shown"),
    [
        ("2026-11-23T02:51:11.120Z", "02:51:11"),
        ("2026-11-22T02:51:11.120Z", "2026-11-22 02:51:11"),
        ("2026-11-22T02:51:11Z", "2026-11-22 02:51:11"),
        ("", ""),
        ("nonsense", "nonsense"),
    ],
)
def test_time_of_today_has_no_date(moment, shown):
    assert short_times("2026-11-23")(moment) == shown


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "agent      mybot, dialect rfc9309, google",
            ["agent      mybot, dialect", "           rfc9309, google"],
        ),
        (
            "robots.txt:3: warning RG101 name: the line",
            ["robots.txt:3: warning RG101", "  name: the line"],
        ),
        ("    3 | short", ["    3 | short"]),
        (
            "see https://a.test:8000/x and https://b.test",
            ["see https://a.test:8000/x", "  and https://b.test"],
        ),
    ],
)
def test_long_line_goes_on_below_its_value(text, lines):
    assert folded(text, 28) == lines


@given(texts, st.integers(0, 30), st.integers(20, 120))
def test_folded_text_is_complete_and_fits(text, indent, room):
    lines = folded(" " * min(indent, room // 2) + text, room)

    assert max(map(cell_len, lines)) <= room
    assert "".join("".join(lines).split()) == "".join(text.split())


@pytest.mark.parametrize(
    "unit", ["a", "a ", "a.", "/", "http://", "http://a.b:8/ ", "\u0301", "日"]
)
def test_cost_of_a_long_line_is_linear(unit):
    def text(size):
        return unit * size

    assert growth(lambda line: folded(line, 80), text, 5_000) < LINEAR
    assert growth(lambda line: shorten(line, 80), text, 5_000) < LINEAR


def test_value_alone_on_its_line_gets_all_of_it():
    url = "https://a.test/" + "x" * 45 + "/page.html"
    alone, beside = lines_of([row(url, rule=None, line=None), row(url + url)], 80)

    assert text_of(alone[1]).strip() == url
    assert ELLIPSIS in text_of(beside[1])
