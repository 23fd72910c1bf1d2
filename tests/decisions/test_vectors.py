"""The vectors from the seed documents: the meaning of a fetch, the place of the file, the life of a copy."""

from __future__ import annotations

import pytest
from decisions.walking import walk
from protocol.rows import rows

from robots_guard.decisions import renewal
from robots_guard.decisions.access import Access, Failed, Failure, Fetched, access_of
from robots_guard.decisions.freshness import Freshness, freshness, lifetime, stated_lifetime
from robots_guard.decisions.renewal import Fetching
from robots_guard.origin import split_url
from robots_guard.protocol.dialect import DAY, DIALECTS, dialect

ROWS = rows("dialects.jsonl")
NOW = 1_800_000_000.0
MEANS = {
    "parse": Access.RULES,
    "allow_all": Access.UNRESTRICTED,
    "disallow_all": Access.RESTRICTED,
    "defer": Access.UNREACHABLE,
}
FAILURES = {"timeout": Failure.TIMEOUT, "connect_error": Failure.CONNECT}
# docs/dialects.md says what was chosen where the source is silent.
CHOSEN = {
    400: Access.UNRESTRICTED,
    402: Access.UNRESTRICTED,
    410: Access.UNRESTRICTED,
    429: Access.UNREACHABLE,
    451: Access.UNRESTRICTED,
    500: Access.UNREACHABLE,
    501: Access.UNREACHABLE,
}
# Of 206 the draft says no more than that it is a success. It is not the whole file, whatever the dialect.
STRICTER = {"K96-113": Access.UNREACHABLE}
NO_FETCH = {"request_rate": "K94-102", "page_status": "RAM-045"}  # speak of pages, not of the file


def of(kind, *keys):
    found = [
        row
        for row in ROWS
        if row["kind"] == kind and any(key in row.get("input", {}) for key in keys)
    ]
    return [pytest.param(row, id=row["id"]) for row in found]


def begin(row, known=None):
    origin, _ = split_url("http://www.example.com/")
    return renewal.begin(origin, known, "direct")


@pytest.mark.parametrize("row", of("access", "status"))
def test_statuses_have_the_meaning_of_the_source(row):
    status = row["input"]["status"]
    if row["expect"] == "follow":
        outcome = Fetched(status=status, headers={"location": row["input"]["location"]})
        followed = begin(row).next(outcome, NOW)
        assert isinstance(followed, Fetching)
        assert followed.url == row["input"]["location"]
    else:
        expected = CHOSEN[status] if row["expect"] == "unspecified" else MEANS[row["expect"]]
        expected = STRICTER.get(row["id"], expected)
        settled = walk(begin(row), (Fetched(status=status), NOW))[-1]
        assert settled.policy.access(NOW, dialect(row["dialect"]))[0] is expected


@pytest.mark.parametrize("row", of("access", "error"))
def test_failures_have_the_meaning_of_the_source(row):
    settled = walk(begin(row), (Failed(failure=FAILURES[row["input"]["error"]]), NOW))[-1]

    assert settled.policy.access(NOW, dialect(row["dialect"]))[0] is MEANS[row["expect"]]


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row["id"])
        for row in ROWS
        if row["kind"] == "access"
        and isinstance(row["expect"], dict)
        and "enqueue" not in row["expect"]
    ],
)
def test_robots_txt_is_at_the_root_of_its_origin(row):
    origin, target = split_url(row["url"])
    if "robots_url" in row["expect"]:
        assert origin.robots_url == row["expect"]["robots_url"]
    else:
        assert (target == "/robots.txt") is row["expect"]["is_robots_url"]


def test_every_access_row_is_tested_or_excluded():
    tested = {parameter.id for parameter in of("access", "status", "error")}
    places = {
        row["id"] for row in ROWS if row["kind"] == "access" and isinstance(row["expect"], dict)
    }
    access = {row["id"] for row in ROWS if row["kind"] == "access"}

    assert access - tested - places == {NO_FETCH["request_rate"]}
    assert NO_FETCH["page_status"] in places


@pytest.mark.parametrize("row", of("expiry", "headers"))
def test_a_copy_is_fresh_for_as_long_as_the_source_says(row):
    headers = {name.lower(): value for name, value in row["input"]["headers"].items()}
    stated, kept = stated_lifetime(headers, 0.0), dialect(row["dialect"])
    if "default_ttl_s" in row["expect"]:
        assert lifetime(stated, kept) == row["expect"]["default_ttl_s"]
    else:
        fresh = freshness(row["input"]["age_s"], stated, kept) is Freshness.FRESH
        assert fresh is row["expect"]["fresh"]


# --- RFC 9309 section 2.3.1, dialect by dialect: what differs is data ---

OPEN_AT_403 = {"google"}


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize(
    ("status", "access"),
    [
        *((status, Access.RULES) for status in (200, 203, 204, 205, 299)),
        *(
            (status, Access.UNRESTRICTED)
            for status in (400, 402, 404, 405, 406, 410, 418, 422, 451, 499)
        ),
        *(
            (status, Access.UNREACHABLE)
            for status in (100, 199, 206, 226, 304, 429, 500, 501, 502, 503, 504, 521, 599, 600)
        ),
    ],
)
def test_what_a_status_means_in_every_dialect(name, status, access):
    assert access_of(status, dialect(name)) is access


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("status", [401, 403])
def test_a_site_that_keeps_crawlers_out(name, status):
    expected = Access.UNRESTRICTED if name in OPEN_AT_403 else Access.RESTRICTED

    assert access_of(status, dialect(name)) is expected


@pytest.mark.parametrize("name", DIALECTS)
def test_no_dialect_but_that_of_1996_keeps_a_copy_beyond_a_day(name):
    assert lifetime(400 * DAY, dialect(name)) == (400 * DAY if name == "koster1996" else DAY)
    assert lifetime(0.0, dialect(name)) == 300
