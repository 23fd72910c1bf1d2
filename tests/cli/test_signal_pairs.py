"""Two things that a site says, on one page: neither opens what the other closes."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from support.signal_rows import answers, rows

PAIRS = 1_500
#: Within these, one statement can replace another: the nearer of TDMRep, a path of a robots.txt, a
#: later member of a dictionary.
REPLACING = {"tdmrep", "content-usage", "content-signal", "disallowaitraining", "rsl"}
KINDS = ("headers", "html", "robots_txt", "wellknown")


@pytest.fixture(scope="module")
def judged():
    """Pairs of rows with their answers, apart and together."""
    single = [row for row in rows() if len(row["input"]) == 1 and "dialect" not in row]
    chosen = [row for row in single if set(row["input"]) <= set(KINDS) and "status" not in row]
    found = {row["id"]: answer for row, answer in zip(chosen, answers(chosen), strict=True)}
    pairs = list(islice((each for each in _pairs(chosen) if _can_be_joined(*each)), PAIRS))
    joined = answers([_joined(*pair) for pair in pairs])
    return [
        (first, second, found[first["id"]], found[second["id"]], answer)
        for (first, second), answer in zip(pairs, joined, strict=True)
    ]


def _pairs(chosen):
    chance = random.Random(14)
    while True:
        pair = chance.sample(chosen, 2)
        yield pair[0], pair[1]


def _can_be_joined(first, second):
    same = ("agent", "url", "at")
    if any(first.get(key) != second.get(key) for key in same):
        return False
    kinds = [*first["input"], *second["input"]]
    return kinds == ["headers", "headers"] or len(set(kinds)) == 2


def _joined(first, second):
    headers = first["input"].get("headers", []) + second["input"].get("headers", [])
    given = first["input"] | second["input"]
    if headers:
        given = given | {"headers": headers}
    return first | {"id": f"{first['id']}+{second['id']}", "input": given, "purposes": []}


def _is_replaced(first, second):
    return first["signal"] == second["signal"] and first["signal"] in REPLACING


def test_denials_of_both_remain(judged):
    assert len(judged) == PAIRS
    for first, second, one, other, both in judged:
        if _is_replaced(first, second):
            continue
        if _is_no_page(first, second):
            continue
        kept = {*one["denied"], *other["denied"]}
        assert kept <= set(both["denied"]), both["id"]


def _is_no_page(*pair):
    """A header of one row can say that the body of the other is no page."""
    names = [name.lower() for row in pair for name, _ in row["input"].get("headers", ())]
    return "content-type" in names


def test_limits_and_dates_only_become_stricter(judged):
    for first, second, one, other, both in judged:
        if _is_no_page(first, second):
            continue
        for each in (one, other):
            if each["unavailable_after"] is not None:
                assert both["unavailable_after"] <= each["unavailable_after"], both["id"]
            length = each["limits"].get("max-snippet", -1)
            if length >= 0:
                assert 0 <= both["limits"]["max-snippet"] <= length, both["id"]


def test_nothing_is_permitted_that_one_of_them_denies(judged):
    for first, second, one, other, both in judged:
        if _is_replaced(first, second) or _is_no_page(first, second):
            continue
        for use in {*one["denied"], *other["denied"]}:
            assert both["uses"][use] == "deny", both["id"]
