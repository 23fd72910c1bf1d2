"""The rows of the seeds about META elements: Koster's FAQ, Alikberov, Rambler 2003 and Yandex 2003.

Two parts answer them: the engine that judges pages, and the linter, for what a document calls
wrong. Each row is asked of a whole page.
"""

from __future__ import annotations

from html import escape

import pytest
from protocol.rows import rows

from robots_guard.configuration.settings import Settings
from robots_guard.decisions.signal_settings import Use
from robots_guard.decisions.uses import Uses, UseState, read_uses
from robots_guard.protocol.html.page import read_page
from robots_guard.protocol.lint.response import lint_response
from robots_guard.protocol.signals.statement import Signal

ROWS = [row for row in rows("dialects.jsonl") if row["kind"] == "meta"]

#: KEYWORDS describe what a page is about. They say nothing of its use, and no part of the package
#: indexes pages.
OUT_OF_SCOPE = {"KOL-065"}

#: Of these documents only Alikberov's says something that the others do not (NOINDEX and links, ALL).
PAGE_DIALECTS = {"kollar1996": "kollar1996"}
#: The codes of the linter for what Rambler's page and Alikberov call wrong.
FAULTS = {"RG701", "RG702", "RG713"}


def page_of(row):
    metas = "".join(
        f'<META NAME="{escape(meta["name"])}" CONTENT="{escape(meta["content"])}">\n'
        for meta in row["input"]["meta"]
    )
    return f"<html><head><title>t</title>\n{metas}</head><body>x</body></html>".encode()


def uses_of(row) -> Uses:
    url = row["input"].get("page_url", "http://a.test/page")
    page = read_page(page_of(row), "text/html", url)
    settings = Settings(
        agent="mybot", page_dialect=PAGE_DIALECTS.get(row["dialect"], "union")
    ).terms()
    return read_uses(page.statements, row["user_agent"] or "mybot", settings, 0.0)


def value_of(uses, signal):
    found = [each.statement.value for each in uses.evidence if each.statement.signal is signal]
    return found[0] or None if found else None


def document_state(uses):
    """What a page states of itself. Without a statement it is STATIC (Alikberov)."""
    return value_of(uses, Signal.DOCUMENT_STATE) or "STATIC"


ANSWERS = {
    "index": lambda row: uses_of(row).states[Use.SEARCH] is not UseState.DENY,
    "follow": lambda row: uses_of(row).may_follow,
    "document_state": lambda row: document_state(uses_of(row)),
    # The robot does not keep the URL of a page that is made anew each time.
    "keep_url": lambda row: document_state(uses_of(row)) != "DYNAMIC",
    "canonical": lambda row: value_of(uses_of(row), Signal.META_URL),
    "revisit_after": lambda row: "denied" if uses_of(row).denied else "ignored",
    "valid": lambda row: (
        not {
            each.code
            for each in lint_response([(1, "Content-Type", "text/html")], page_of(row)).page
        }
        & FAULTS
    ),
}


def test_all_rows_are_here():
    assert len(ROWS) == 38
    assert {row["id"] for row in ROWS} >= OUT_OF_SCOPE


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS])
def test_row_has_its_answer(row):
    expect = row["expect"]
    if row["id"] in OUT_OF_SCOPE:
        assert not expect.keys() & ANSWERS.keys()
        return

    answers = {key: ANSWERS[key](row) for key in expect}

    for key, expected in expect.items():
        if expected == "unspecified":  # KOL-058: the robot's choice. Here the page is not indexed.
            assert answers[key] is False
        else:
            assert answers[key] == expected, row["why"]


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row["id"]) for row in ROWS if "valid" not in row["expect"]]
)
def test_row_that_is_not_called_wrong_is_valid_unless_it_contradicts_itself(row):
    contradicts = row["id"] in {"KOL-055", "KOL-056", "KOL-057", "KOL-058"}

    assert ANSWERS["valid"](row) is not contradicts
