"""Other projects' test suites as data: a robots.txt, a crawler, and the URLs that the suite allows and forbids.

From google/robotstxt-spec-test (Apache-2.0), crawler-commons (Apache-2.0), robots-parser 3.0.1 (MIT) and CPython 3.13
(PSF-2.0). `differs` are URLs whose answer here is another, with the reason.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from robots_guard import RobotsFile

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "suites.jsonl").read_text().splitlines()
]
PAGE = Path(__file__).parents[2] / "docs" / "dialects.md"


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row['suite']}-{row['case']}-{row['agent']}"
)
def test_the_answers_are_the_suites_but_for_those_that_differ(row):
    # Bytes that are no UTF-8 are lone surrogates (PEP 383).
    robots = RobotsFile.parse(row["robots_txt"].encode("utf-8", "surrogateescape"))
    wanted = dict.fromkeys(row.get("allowed", ()), True)
    wanted |= dict.fromkeys(row.get("forbidden", ()), False)

    found = {url: robots.can_fetch(row["agent"], url) for url in wanted}

    assert [url for url in wanted if found[url] != wanted[url]] == row.get("differs", [])


def test_the_page_counts_the_answers():
    lines = PAGE.read_text().splitlines()
    asked, agreeing = Counter(), Counter()
    for row in ROWS:
        count = len(row.get("allowed", ())) + len(row.get("forbidden", ()))
        asked[row["suite"]] += count
        agreeing[row["suite"]] += count - len(row.get("differs", ()))

    for suite, count in asked.items():
        assert any(
            f"| {suite} |" in line and f"| {agreeing[suite]} of {count} |" in line for line in lines
        ), (
            suite,
            agreeing[suite],
            count,
        )
