"""Which recorded URLs name a resource: DuckDB finds those that Python says do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.audit.privacy import Privacy
from robots_guard.audit.read.resource import resource_of
from robots_guard.audit.schema import database

ORIGIN = "https://a.test"
WRITTEN = Privacy(query="keep")
UP = ["..", "%2E.", ".%2e", "%2e%2E"]
NAMES = [
    "",
    "a",
    "%61",
    "b",
    ".b",
    "b.",
    "~",
    "%7e",
    "%2f",
    "%2F",
    "ö",
    "%C3%b6",
    "$",
    "%24",
    "%",
    "%2",
    "...",
    "..%",
]
SEGMENTS = st.sampled_from([*NAMES, *UP, ".", "%2e"])
QUERIES = st.sampled_from(["", "", "?", "?q", "?%71", "?/.", "?a=b/../c", "??"])


@st.composite
def targets(draw):
    """A target. The expression for DuckDB knows two levels of segments that ".." removes."""
    segments = draw(st.lists(SEGMENTS, max_size=5))
    ups = [place for place, segment in enumerate(segments) if segment in UP]
    for place in ups[2:]:
        segments[place] = "b"
    return "/" + "/".join(segments) + draw(QUERIES)


@pytest.fixture(scope="module")
def connection():
    with database() as connection:
        yield connection


@given(asked=targets(), recorded=st.lists(targets(), min_size=1, max_size=40))
def test_duckdb_finds_the_urls_that_name_a_resource(connection, asked, recorded):
    resource = resource_of(ORIGIN + asked)
    urls = sorted({WRITTEN.url(ORIGIN + target) for target in [asked, *recorded]})
    condition, values = resource.spellings.condition

    rows = ", ".join("(?)" for _ in urls)
    sql = f"SELECT url FROM (VALUES {rows}) urls(url) WHERE {condition} ORDER BY 1"
    found = connection.execute(sql, [*urls, *values]).fetchall()

    assert [url for (url,) in found] == [url for url in urls if resource.is_named_by(url)]
