"""Every row of signals.jsonl, answered by `robots-guard check --batch` in a process of its own."""

from __future__ import annotations

import pytest
from support.signal_rows import CLOCK, answers, disagreeing, disagreements, rows

ROWS = 442  # of tests/data/signals.jsonl: a new row adds one

RSL = "the terms of an RSL document are not read: the licence is recorded"
IN_FILE = "statements inside of files (CAWG, IPTC) are not read"
TRUST = "trust.txt is not read"

#: Rows that do not agree, because what they are about is recorded at most, and never enforced.
OUT_OF_SCOPE = {
    **{f"RSL-{number:03}": RSL for number in (*range(6, 14), *range(15, 21))},
    **{f"EMB-{number:03}": IN_FILE for number in (1, 2, 3, 4, 5, 6, 8)},
    **{f"TRU-{number:03}": TRUST for number in (1, 2, 3, 5, 6, 7)},
}


@pytest.fixture(scope="module")
def answered():
    """The answers by the ids of their rows."""
    asked = rows()
    return {row["id"]: answer for row, answer in zip(asked, answers(asked), strict=True)}


def test_table_is_complete():
    found = rows()
    assert len(found) == len({row["id"] for row in found}) == ROWS
    assert OUT_OF_SCOPE.keys() <= {row["id"] for row in found}


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in rows()])
def test_row_agrees_unless_it_is_out_of_scope(row, answered):
    differences = disagreements(row["expect"], answered[row["id"]])

    if row["id"] in OUT_OF_SCOPE:
        assert differences, "this row agrees: take it out of OUT_OF_SCOPE"
    else:
        assert differences == {}


def test_order_of_the_rows_does_not_matter(answered):
    asked = rows()[::-1]

    assert {each["id"]: each for each in answers(asked)} == answered


def test_row_without_a_moment_is_about_the_time_of_the_table():
    rule = "unavailable_after: 2026-11-22T00:00:01Z"
    row = {"input": {"headers": [["X-Robots-Tag", rule]]}, "url": "https://a.test/", "agent": "b"}
    row |= {"id": "x", "purposes": [], "expect": {}}

    (answer,) = answers([row])

    assert answer["denied"] == []


def test_moment_of_a_row_is_its_own(answered):
    """Without `at` a question is about now. Only rows that name a date depend on it."""
    later = [row | {"at": row.get("at", "2027-11-22T00:00:00Z")} for row in rows()]

    assert CLOCK < "2027"
    assert disagreeing(later, answers(later)).keys() == OUT_OF_SCOPE.keys()
