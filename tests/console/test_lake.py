"""The console over a Parquet export: the same figures and decisions, and what it cannot prove."""

from __future__ import annotations

import re

import pytest
from console.conftest import HOST, TOKEN, let_in
from console.material import scene

from robots_guard.audit.lake.export import export
from robots_guard.audit.lake.places import place_at
from robots_guard.audit.read.reader import Unreadable
from robots_guard.console import app


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The sources of a log, and of its export."""
    place = scene(tmp_path_factory.mktemp("scene"), 60)
    lake = place.audit_log.parent / "lake"
    [*export(place.audit_log, place_at(str(lake)), "2027-01-16", Unreadable())]
    yield place.sources, place.sources._replace(audit_log=lake)
    place.store.close()


def text_of(page):
    """A page without the address of its data."""
    return re.sub(r"<footer>.*</footer>|/\S*/(?:audit_log|lake)\b", "", page, flags=re.DOTALL)


@pytest.mark.parametrize(
    "path",
    [
        "/?period=all",
        "/decisions",
        "/decisions?origin=https://shop.example&action=drop",
        "/decisions.csv",
        "/decisions/dropped",
        "/decisions/reserved",
    ],
)
async def test_pages_are_those_of_the_log(places, path):
    pages = []
    for sources in places:
        async with let_in(app(sources, hosts=[HOST], token=TOKEN)) as browser:
            answer = await browser.get(path)
            assert answer.status_code == 200
            pages.append(answer.text)
    assert text_of(pages[0]) == text_of(pages[1])
    if not path.endswith(".csv"):
        assert ["it is a Parquet export, which has no chain" in page for page in pages] == [
            False,
            True,
        ]


async def test_evidence_needs_the_log(places):
    async with let_in(app(places[1], hosts=[HOST], token=TOKEN)) as browser:
        answer = await browser.get("/decisions/dropped/evidence.zip")
    assert answer.status_code >= 400
    assert "is a Parquet export" in answer.text
