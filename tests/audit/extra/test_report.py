"""What the report says to a reader who does not know robots_guard."""

from __future__ import annotations

import re
from html import unescape

import msgspec
import pytest
from audit.decisions import AT, DEFER, DROP, PASS, audit_log_in, decision, policy

from robots_guard.app.cli.main import run
from robots_guard.audit.read.reader import Unreadable
from robots_guard.audit.read.search import Search
from robots_guard.audit.read.verify import LogFinding, WriterFinding
from robots_guard.audit.show.figures import summary
from robots_guard.audit.show.overview import overview
from robots_guard.audit.show.report import (
    TITLE,
    last_day,
    result,
    sentences_of,
    setting,
    verification_from,
)
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Exemption, Verdict
from robots_guard.guard.stores.sqlite import SqliteStore

DAY = 86400
NOW = "2027-01-16T00:00:00.000Z"
BYPASSED = Verdict(action=Action.PASS, reason=Reason.BYPASSED, relaxed="override=shop")
OPENED = Verdict(
    action=Action.PASS, reason=Reason.UNREACHABLE, relaxed="on_unreachable=allow", detail="timeout"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """20 refusals, 1 deferral, 1 pass by an exception, 1 by a setting; and the store."""
    directory = tmp_path_factory.mktemp("report")
    log = audit_log_in(directory / "audit_log", chain=True)
    shop = Exemption(
        id="shop", owner="ann@crawler.example", reason="contract <b>7</b>", expires=AT + 16 * 3600
    )
    document = policy()
    for number in range(20):
        made = decision(f"https://a.test/private/{number}", at=AT + number, policy=document)
        log.write(msgspec.structs.replace(made, id=f"r-{number}"))
    log.write(decision("https://c.test/", verdict=DEFER, at=AT + 21))
    log.write(decision("https://d.test/", verdict=BYPASSED, override=shop, at=AT + 22))
    log.write(decision("https://e.test/", verdict=OPENED, at=AT + 23))
    log.close()
    store = SqliteStore(directory / "policies.sqlite")
    store.put(document, AT)
    store.close()
    return directory


def reported(place, *options):
    """The text of the report that the command writes, without its style."""
    target = place / "report.html"
    where = ["--audit-log", str(place / "audit_log"), "-o", str(target)]
    assert run(["audit", "report", *where, *options]) == 0
    page = target.read_text("utf-8").partition("</style>")[2]
    return re.sub(r"\s+", " ", unescape(re.sub("<[^>]+>", " ", page)))


@pytest.fixture(scope="module")
def whole(place):
    options = ("--title", "January <i>", "--author", "Jane Doe")
    return reported(place, *options, "--store", f"sqlite:///{place / 'policies.sqlite'}")


def test_cover_says_what_it_is_about_and_who_made_it(whole):
    cover = whole.partition("Over time")[0]

    assert "January <i> Period 2027-01-15 08:00:00 UTC to 2027-01-15 08:00:23 UTC" in cover
    assert "Crawler mybot Covers All decisions in the audit log Made by Jane Doe" in cover
    assert re.search(r"Made on \d{4}-\d\d-\d\d .* UTC, by robots_guard \d", cover)


def test_summary_is_in_words(whole):
    for sentence in (
        "20 requests were refused and 1 deferred. How many requests passed is not recorded",
        "with 20 refusals: A rule of the site's robots.txt forbids the request.",
        "1 exception for single sites let 1 request through; their owners: ann@crawler.example.",
        "1 request passed only because a setting is less strict than the default.",
        "The audit log was verified: 26 records of 1 writer, without a gap or a change.",
    ):
        assert sentence in whole


def test_exception_has_owner_reason_and_last_day(whole):
    table = whole.partition("Exceptions ")[2].partition("Let through by a setting")[0]

    assert "shop ann@crawler.example contract <b>7</b> 2027-01-15" in table
    assert "on_unreachable=allow" in whole
    assert "The site's robots.txt could not be fetched, and such requests are permitted" in whole


def test_one_refusal_is_shown_in_full(whole):
    shown = whole.partition("One refusal in full")[2].partition("Results and their reasons")[0]

    assert (
        "mybot was not allowed to fetch https://a.test/private/19 at 08:00:19 UTC on 2027-01-15:"
        " line 2 of its robots.txt, fetched at 07:59:00 UTC on 2027-01-15, says"
        " Disallow: /private/." in shown
    )
    assert "1 User-agent: * 2 Disallow: /private/" in shown
    assert "robots-guard audit bundle r-19" in shown


def test_words_are_for_people(whole):
    assert "Refused A rule of the site's robots.txt forbids the request. disallowed 20" in whole
    for jargon in ("Failed open", "bypassed 1 drop", " drop 20", " pass 1 "):
        assert jargon not in whole
    assert "There were no entries for: Uses that sites deny; Would have been refused." in whole


def test_report_without_store_and_verification_says_so(place):
    nowhere = f"sqlite:///{place / 'none.sqlite'}"
    page = reported(place, "--no-verify", "--store", nowhere)

    assert "The document cannot be shown: " in page
    assert "none.sqlite' does not exist" in page
    assert "The audit log was not verified for this report." in page
    assert TITLE in page
    assert "Made by" not in page


def test_shares_are_known_where_passes_are_recorded(tmp_path):
    log = audit_log_in(tmp_path, audit="all")
    for number in range(40):
        log.write(decision(f"https://a.test/{number}", DROP if number < 10 else PASS, at=AT))
    log.close()
    with Search(tmp_path) as search:
        first, *_ = sentences_of(summary(search, NOW), None)

    assert first == "Of 40 requests, 10 were refused (25.0 %), 0 were deferred, and 30 passed."


@pytest.mark.parametrize(("audit", "known"), [("summary", True), ("refusals", False)])
def test_that_nothing_passed_is_known_from_the_settings(tmp_path, audit, known):
    log = audit_log_in(tmp_path, component="proxy", settings={"audit": audit})
    log.write(decision(verdict=DROP, at=AT))
    log.close()
    with Search(tmp_path) as search:
        assert summary(search, NOW).counts.has_passes is known
        assert overview(search, None, NOW).now.has_passes is known


@pytest.mark.parametrize(
    ("findings", "lines", "sentence"),
    [
        ([], {}, "The audit log was verified: 0 records of 0 writers, without a gap"),
        (
            [WriterFinding("a", records=5, chain="whole"), WriterFinding("b", records=2)],
            {},
            "7 records of 2 writers, without a gap, and without a change by 1 of them",
        ),
        (
            [WriterFinding("a", records=5, problems=["4 is missing"])],
            {"x.jsonl": 1},
            "5 records of 1 writer, with 2 problems.",
        ),
    ],
)
def test_verification_is_one_sentence(findings, lines, sentence):
    assert (
        sentence
        in verification_from(LogFinding(writers=findings), Unreadable(lines=lines)).sentence
    )


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (last_day("2026-12-01T00:00:00.000Z"), "2026-11-30"),
        (last_day("2026-12-01T12:30:00.000Z"), "2026-12-01 12:30:00 UTC"),
        (last_day("0001-01-01T00:00:00.000Z"), "0001-01-01T00:00:00.000Z"),
        (last_day("never"), "never"),
        (last_day(None), ""),
        (result("drop"), "Refused"),
        (result("<i>"), "<i>"),
        (setting("override=x"), ""),
        (setting("report_only"), "Refusals are only reported"),
    ],
)
def test_values_are_written_for_people(shown, text):
    assert shown == text
