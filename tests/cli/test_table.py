"""Tables on a terminal: they fit its width, and show every value whole, on more lines if need be."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from robots_guard.app.cli import terminal
from robots_guard.app.cli.audit.records import COLUMNS, row_of
from robots_guard.app.cli.terminal import Rows, TableColumn, short_time
from robots_guard.audit.record import Record
from robots_guard.text import printable

TODAY = "2026-11-23"
WIDTHS = (80, 100, 132, 200)
LONG = "http://127.2.0.10:8000/private/" + "x" * 300 + "/report.pdf"

words = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x30FF, exclude_categories=["C", "Z", "M"]),
    min_size=1,
    max_size=60,
)
texts = st.lists(words, max_size=6).map(" ".join).map(printable)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def shown(monkeypatch):
    """Print something on a terminal of a width, and return its lines."""

    def shown(width, prints):
        out = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", out)
            patch.setenv("COLUMNS", str(width))
            patch.setenv("NO_COLOR", "1")
            patch.setenv("TERM", "xterm")
            patch.setattr(terminal, "_today", lambda: TODAY)
            prints()
        return [line.rstrip() for line in out.getvalue().splitlines()]

    return shown


def table(columns, rows, **options):
    def prints():
        printed = Rows(*columns, **options)
        for row in rows:
            printed.add(row)
        printed.end()

    return prints


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
    return row_of(Record(**values))


def squeezed(text):
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("url", ["https://a.test/x", LONG])
@pytest.mark.parametrize("reason", ["disallowed", "ambiguous-authority"])
def test_records_fit_and_keep_their_id_and_their_url(shown, width, url, reason, streams):
    lines = shown(width, table(COLUMNS, [row(url, reason=reason), row()], streams=streams))

    assert max(map(cell_len, lines)) <= width
    assert sum("4e2bd4cefa-12345" in line for line in lines) == 2
    assert sum("02:51:11" in line for line in lines) == 2
    assert sum("a time without a date" in line for line in lines) == 1
    assert "2026-11-23T" not in "".join(lines)


@pytest.mark.parametrize("width", [20, *WIDTHS])
def test_long_url_is_shown_whole(shown, width):
    lines = shown(width, table([TableColumn("url", folds=True), "id"], [[LONG, "w-1"]]))
    column = [line.removesuffix("w-1").strip().removeprefix("url").strip() for line in lines]

    assert LONG in "".join(column)


def test_wide_terminal_shows_a_record_on_a_line_and_a_narrow_one_on_several(shown):
    wide = shown(200, table(COLUMNS, [row()]))[1:]
    narrow = shown(80, table(COLUMNS, [row()]))[1:]

    assert [line.split()[0] for line in wide] == ["action", "drop"]
    assert [line.split()[0] for line in narrow] == ["action", "drop", "agent", "url", "rule"]
    assert narrow[3] == "  url    https://a.test/private/1"


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=4), st.integers(30, 200))
def test_every_table_fits_and_is_complete(rows, width):
    with pytest.MonkeyPatch.context() as patch:
        out = Terminal()
        patch.setattr("sys.stdout", out)
        patch.setenv("COLUMNS", str(width))
        patch.setenv("NO_COLOR", "1")
        patch.setenv("TERM", "xterm")
        columns = [TableColumn("one", folds=True), TableColumn("two", folds=True)]
        table(columns, rows, headings=False)()
    lines = out.getvalue().splitlines()
    printed = sorted(squeezed("".join(lines)).replace("one", "").replace("two", ""))
    expected = squeezed("".join(map("".join, rows))).replace("one", "").replace("two", "")

    assert max(map(cell_len, lines), default=0) <= width
    assert printed == sorted(expected)


def test_empty_columns_are_left_out_and_too_many_become_a_list(shown):
    columns = [TableColumn(f"c{number}", folds=True) for number in range(30)]
    few = shown(80, table(columns, [["x", *[""] * 29]]))
    many = shown(80, table(columns, [[f"value{number}" for number in range(30)]]))

    assert few == ["c0", "x"]
    assert [line.split() for line in many] == [
        [f"c{number}", f"value{number}"] for number in range(30)
    ]


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-11-23T02:51:11.120Z", "02:51:11"),
        ("2026-11-22T02:51:11.120Z", "2026-11-22 02:51:11"),
        ("2026-11-22T02:51:11Z", "2026-11-22 02:51:11"),
        ("", ""),
        ("nonsense", "nonsense"),
    ],
)
def test_time_of_today_has_no_date(moment, expected):
    assert short_time(moment, TODAY) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "agent      mybot, dialect rfc9309, google",
            ["agent      mybot, dialect", "           rfc9309, google"],
        ),
        ("robots.txt:3: warning RG101: the line", ["robots.txt:3: warning", "RG101: the line"]),
        ("    3 | short", ["    3 | short"]),
        (
            "see https://a.test:8000/x and https://b.test",
            ["see https://a.test:8000/x", "and https://b.test"],
        ),
    ],
)
def test_long_line_goes_on_below_its_value(shown, text, expected):
    assert shown(28, lambda: terminal.print_lines([(text, "")])) == expected
