"""No response stops the linter, and its findings point into the response."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from robots_guard.protocol.dialect import DIALECTS
from robots_guard.protocol.lint.response import KINDS, RobotsOfPage, lint_response, lint_tdmrep

CODES = {each.code for each in KINDS}
WORDS = st.sampled_from(
    [
        "noindex",
        "index",
        "none",
        "all",
        "mybot:",
        "a b:",
        ",",
        ";",
        ":",
        "max-snippet:",
        "0",
        "-1",
        "unavailable_after:",
        "2020-01-01",
        "06/05/2010",
        "train-ai=n",
        "ai-train=no",
        "�",
        '"',
    ]
)
VALUES = st.one_of(st.text(max_size=40), st.lists(WORDS, max_size=8).map(" ".join))
NAMES = st.sampled_from(
    [
        "X-Robots-Tag",
        "Robots-Tag",
        "Content-Usage",
        "Content-Signal",
        "tdm-reservation",
        "Content-Type",
        "Link",
        "Server",
        "",
    ]
)
FIELDS = st.lists(st.tuples(st.integers(1, 50), NAMES, VALUES), max_size=6)
META = st.builds('<meta name="{}" content="{}">\n'.format, st.sampled_from(["robots", "x"]), VALUES)
PAGES = st.one_of(
    st.binary(max_size=60),
    st.lists(META, max_size=5).map(lambda metas: "".join(metas).encode("utf-8", "replace")),
)


@given(FIELDS, st.none() | PAGES, st.binary(max_size=60), st.sampled_from(["", "mybot"]))
def test_no_response_stops_the_linter(fields, page, robots, agent):
    of_page = RobotsOfPage(robots, "/a", [DIALECTS["rfc9309"]])

    found = lint_response(fields, page, robots=of_page, agent=agent)

    lines = {number for number, _, _ in fields}
    assert {line for each in found.headers for line in each.lines} <= lines
    assert all(each.code in CODES for each in (*found.headers, *found.page))
    assert all(
        line <= (page or b"").count(b"\n") + 60 for each in found.page for line in each.lines
    )


@given(st.binary(max_size=80) | st.text(alphabet='[]{}":,01aloctindm-rev/', max_size=60))
def test_no_tdmrep_file_stops_the_linter(body):
    text = body.encode("utf-8", "replace") if isinstance(body, str) else body

    assert all(each.code == "RG712" for each in lint_tdmrep(text))
