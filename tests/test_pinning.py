"""A robots.txt that an override pins for a site: judged by it, recorded, and kept while it breaks."""

from __future__ import annotations

import hashlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_overriding import A, Records, ask, entry

from robots_guard.audit.read.replay import Judgement, replay
from robots_guard.audit.record import record_of, record_of_event
from robots_guard.decisions.access import MAX_BODY, Failed, Failure, Fetched
from robots_guard.decisions.check import judge_offline
from robots_guard.decisions.events import OverridesLoaded, PinnedFileRead
from robots_guard.decisions.policy import Document, Policy
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Question, Terms
from robots_guard.errors import SettingsError
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.overrides import CHECK_EVERY
from robots_guard.guard.stores import open_store
from robots_guard.origin import origin_of
from robots_guard.ports import Clocks
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching

OWN = Fetched(status=200, body=b"User-agent: *\nDisallow: /private/", tls_verified=True)
PIN = entry('robots_file = "pinned.txt"', "pin-1")
OPEN = "User-agent: *\nAllow: /\n"
NARROW = "User-agent: *\nDisallow: /\nAllow: /press/\n"
TERMS = Terms(dialect=dialect("rfc9309"), matching=matching("standard"))


@pytest.fixture
def file(tmp_path):
    """The overrides file, which pins `pinned.txt` beside it."""
    path = tmp_path / "overrides.toml"
    path.write_text(PIN)
    return path


@pytest.fixture
def pinned(tmp_path):
    path = tmp_path / "pinned.txt"
    path.write_text(NARROW)
    return path


@pytest.fixture
def fetcher():
    return ScriptedFetcher({A.robots_url: OWN})


@pytest.fixture
def build(build_guard, clock, file, fetcher):
    def build(**options):
        clocks = Clocks(now=clock, monotonic=clock)
        usual = {"overrides": file, "audit_log": Records()}
        return build_guard(fetcher, clocks=clocks, **{**usual, **options})

    return build


def replace_file(path, text):
    """Write a file as an editor does: the old content is replaced at once."""
    new = path.with_name("new")
    new.write_text(text)
    new.replace(path)


@pytest.fixture
def shared_store(tmp_path):
    return open_store(f"sqlite:///{tmp_path}/store.sqlite")


# -- the verdict ----------------------------------------------------------------------------------


async def test_requests_are_judged_by_the_pinned_file_and_nothing_is_fetched(
    build, pinned, fetcher
):
    guard = build()

    refused = guard.peek(ask("/open"))
    passed = guard.peek(ask("/press/a"))

    assert (refused.verdict.action, refused.verdict.reason) == (Action.DROP, Reason.DISALLOWED)
    assert (refused.verdict.rule.text, refused.verdict.rule.line) == ("Disallow: /", 2)
    assert passed.verdict.action is Action.PASS
    assert fetcher.gets == []


async def test_the_record_says_that_the_pinned_file_decided(build, pinned):
    record = record_of(build().peek(ask("/open")))

    assert (record.override, record.override_owner) == ("pin-1", "jane")
    assert record.sha256 == hashlib.sha256(NARROW.encode()).hexdigest()
    assert (record.via, record.status, record.tls_verified) == ("pinned", 200, None)


async def test_a_pass_is_a_relaxation_while_the_own_file_is_unknown(build, pinned):
    record = record_of(build().peek(ask("/press/a")))
    assert (record.relaxed, record.would) == ("override=pin-1", None)


async def test_a_pass_says_what_the_own_file_would_have_said(build, pinned):
    pinned.write_text(OPEN)
    guard = build()
    await guard.policy(A)

    decision = guard.peek(ask("/private/x"))

    record = record_of(decision)
    assert (record.action, record.reason) == ("pass", "allowed")
    assert (record.relaxed, record.would) == ("override=pin-1", "drop")
    assert record.detail == "the site's own robots.txt: line 2 says 'Disallow: /private/'"
    assert not decision.verdict.is_only_reported


async def test_what_both_files_permit_is_no_relaxation(build, pinned):
    guard = build()
    await guard.policy(A)
    record = record_of(guard.peek(ask("/press/a")))
    assert (record.relaxed, record.would) == (None, None)


async def test_the_own_file_may_be_in_the_store(build, pinned, shared_store):
    pinned.write_text(OPEN)
    await build(overrides=None, store=shared_store).policy(A)
    guard = build(store=shared_store)

    decision = guard.peek(ask("/private/x")) or await guard.check(ask("/private/x"))
    again = guard.peek(ask("/private/y"))

    assert decision.verdict.would is again.verdict.would is Action.DROP


async def test_the_store_is_asked_once_if_it_has_nothing(build, pinned, shared_store):
    guard = build(store=shared_store)
    assert guard.peek(ask("/press/a")) is None
    await guard.check(ask("/press/a"))
    assert guard.peek(ask("/press/b")).verdict.action is Action.PASS


async def test_a_crawl_delay_of_the_pinned_file_counts(build, pinned):
    pinned.write_text("User-agent: *\nCrawl-delay: 7\nAllow: /\n")
    guard = build()
    passed = guard.peek(ask("/a"))
    assert passed.verdict.delay.seconds == 7
    assert (await guard.turn(passed)).is_due
    waits = await guard.turn(guard.peek(ask("/b")))
    assert (waits.verdict.action, waits.verdict.reason) == (Action.DEFER, Reason.CRAWL_DELAY)


async def test_robots_txt_itself_passes_with_the_pinned_delay(build, pinned):
    pinned.write_text("User-agent: *\nCrawl-delay: 7\nDisallow: /\n")
    decision = build().peek(ask("/robots.txt"))
    assert (decision.verdict.action, decision.verdict.delay.seconds) == (Action.PASS, 7)


async def test_another_origin_is_judged_by_its_own(build, pinned, fetcher):
    other = origin_of("https://b.test")
    fetcher.script[other.robots_url] = OWN
    question = Question(origin=other, target="/open", agent="mybot")
    decision = await build().check(question)
    assert (decision.verdict.action, decision.override) == (Action.PASS, None)


async def test_a_suffix_pins_for_every_site_below(build, file, pinned):
    file.write_text(PIN.replace('origin = "https://a.test"', 'suffix = "example.org"'))
    question = Question(
        origin=origin_of("https://www.example.org:8443"), target="/open", agent="mybot"
    )
    assert build().peek(question).verdict.reason is Reason.DISALLOWED


async def test_reservations_of_the_site_still_hold(build, pinned, fetcher):
    """The pin replaces robots.txt, and not tdmrep.json."""
    pinned.write_text(OPEN)
    fetcher.script[f"{A}/.well-known/tdmrep.json"] = Fetched(
        status=200, body=b'[{"location": "/", "tdm-reservation": 1}]', tls_verified=True
    )
    decision = await build(terms={"purposes": "ai-train"}).check(ask("/a"))
    assert (decision.verdict.action, decision.verdict.reason) == (
        Action.DROP,
        Reason.USAGE_RESERVED,
    )


@given(
    body=st.lists(
        st.sampled_from(
            [
                *(
                    "User-agent: *",
                    "User-agent: mybot",
                    "Disallow: /",
                    "Allow: /a",
                    "Disallow: /a/",
                ),
                *("Disallow: /*?x", "Crawl-delay: 3", "", "# note", "Disallow:", "\udcff\x00"),
                *("Allow: /a/b$", "Request-rate: 1/5", "Visit-time: 0100-0200"),
            ]
        ),
        max_size=12,
    ).map(lambda lines: "\n".join(lines).encode("utf-8", "surrogateescape")),
    target=st.sampled_from(["/", "/a", "/a/", "/a/b", "/a/b?x", "/robots.txt", "/c"]),
    name=st.sampled_from(["rfc9309", "google", "strictest(rfc9309, google)"]),
)
def test_a_pinned_text_is_judged_as_if_the_site_had_sent_it(body, target, name):
    terms = Terms(dialect=dialect(name), matching=TERMS.matching)
    fetched, pinned = (
        Document(status=200, url="", sha256="", body=body, fetched_at=0.0, via=via)
        for via in ("direct", "pinned")
    )
    shut = Document(
        status=200, url="", sha256="", body=b"User-agent: *\nDisallow: /", fetched_at=0.0, via="x"
    )
    own = Policy(origin=A, document=shut)
    expected = judge_offline(ask(target), terms, Policy(origin=A, document=fetched), 0.0)

    under_pin = Terms(dialect=terms.dialect, matching=terms.matching, pinned=pinned)
    found = judge_offline(ask(target), under_pin, own, 0.0)

    compared = ("action", "reason", "rule", "group", "form", "until", "delay")
    assert [getattr(found, each) for each in compared] == [
        getattr(expected, each) for each in compared
    ]


# -- the file -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (lambda path: path.write_bytes(b"User-agent: *\n" + b"#" * MAX_BODY), "more than 512000"),
        (lambda path: path.write_text(""), "has no group"),
        (lambda path: path.write_text("<!doctype html><title>Shop</title>"), "has no group"),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_start(build, tmp_path, make, why):
    make(tmp_path / "pinned.txt")
    with pytest.raises(SettingsError, match=why) as found:
        build()
    assert "pin-1" in str(found.value)


def test_an_expired_pin_needs_no_file(build, file):
    file.write_text(entry('robots_file = "pinned.txt"', "pin-1", expires="2020-01-01"))
    build()


async def test_a_change_of_the_pinned_file_takes_effect(build, pinned, clock):
    guard = build()
    assert guard.peek(ask("/open")).verdict.action is Action.DROP

    replace_file(pinned, OPEN)
    clock.advance(CHECK_EVERY)

    assert guard.peek(ask("/open")).verdict.action is Action.PASS


@pytest.mark.parametrize("broken", [None, "", "<html>"])
async def test_a_file_that_breaks_keeps_its_last_content(build, pinned, clock, caplog, broken):
    guard = build()
    if broken is None:
        pinned.unlink()
    else:
        replace_file(pinned, broken)
    for _ in range(3):
        clock.advance(CHECK_EVERY)
        assert guard.peek(ask("/open")).verdict.action is Action.DROP
        assert guard.peek(ask("/press/a")).verdict.action is Action.PASS
    assert caplog.text.count("its last content stays in force") == 1

    replace_file(pinned, OPEN)
    clock.advance(CHECK_EVERY)
    assert guard.peek(ask("/open")).verdict.action is Action.PASS


async def test_a_new_pin_without_a_file_leaves_the_previous_overrides(build, file, pinned, clock):
    file.write_text(entry('action = "drop"', "shut"))
    guard = build()
    replace_file(file, entry('robots_file = "missing.txt"', "pin-2"))
    clock.advance(CHECK_EVERY)
    assert guard.peek(ask("/press/a")).override.id == "shut"


async def test_another_override_takes_effect_while_a_pinned_file_is_missing(
    build, file, pinned, clock
):
    guard = build()
    pinned.unlink()
    other = entry('action = "drop"', "stop").replace("a.test", "b.test")
    replace_file(file, PIN + other)
    clock.advance(CHECK_EVERY)

    stopped = Question(origin=origin_of("https://b.test"), target="/", agent="mybot")
    assert guard.peek(stopped).verdict.reason is Reason.BLOCKED
    assert guard.peek(ask("/open")).verdict.reason is Reason.DISALLOWED


async def test_a_request_that_waits_for_its_turn_is_judged_by_a_new_pin(build, file, pinned, clock):
    file.write_text("")
    guard = build(terms={"min_delay": 1.0})
    passed = await guard.check(ask("/open"))
    assert passed.verdict.action is Action.PASS

    replace_file(file, PIN)
    clock.advance(CHECK_EVERY)

    assert (await guard.turn(passed)).verdict.reason is Reason.DISALLOWED


# -- records --------------------------------------------------------------------------------------


async def test_the_content_is_recorded_once_in_parts(build, pinned, clock):
    body = NARROW.encode() + b"".join(b"Disallow: /%d-\xff\n" % each for each in range(1000))
    pinned.write_bytes(body)
    records = Records()
    guard = build(audit_log=records)
    parts = [each for each in records.events if isinstance(each, PinnedFileRead)]

    assert [each.part for each in parts] == list(range(1, len(parts) + 1))
    assert len(parts) > 1
    assert "".join(each.text for each in parts).encode("latin-1") == body
    assert {(each.override, each.sha256) for each in parts} == {
        ("pin-1", hashlib.sha256(body).hexdigest())
    }
    lines = [record_of_event(each, {}).line_of_json() for each in parts]
    assert max(map(len, lines)) < 32 * 1024

    count = len(records.events)
    os.utime(pinned)
    clock.advance(CHECK_EVERY)
    guard.peek(ask("/open"))
    assert [type(each) for each in records.events[count:]] in ([], [OverridesLoaded])


@pytest.mark.parametrize("target", ["/open", "/press/a"])
async def test_a_decision_is_replayed_by_the_pinned_text(build, pinned, file, target):
    decision = build().peek(ask(target))
    judgement = Judgement(
        record=record_of(decision),
        settings={},
        document=NARROW.encode(),
        overrides=file.read_text(),
    )
    result = replay(judgement)
    assert (result.verdict.action, result.differences) == (decision.verdict.action, [])


async def test_what_the_own_file_would_have_said_is_not_replayed(build, pinned, file):
    pinned.write_text(OPEN)
    guard = build()
    await guard.policy(A)
    record = record_of(guard.peek(ask("/private/x")))
    assert record.would == "drop"

    result = replay(
        Judgement(record=record, settings={}, document=OPEN.encode(), overrides=file.read_text())
    )

    assert result.differences == []
    assert any("the site's own robots.txt" in caveat for caveat in result.caveats)


async def test_report_only_records_what_the_pinned_file_would_have_refused(build, pinned):
    decision = build(report_only=True).peek(ask("/open"))
    assert (decision.verdict.action, decision.verdict.would) == (Action.PASS, Action.DROP)
    assert decision.verdict.is_only_reported
    assert record_of(decision).sha256 == hashlib.sha256(NARROW.encode()).hexdigest()


async def test_an_unreachable_site_is_judged_by_the_pinned_file(build, pinned, fetcher):
    fetcher.script[A.robots_url] = Failed(failure=Failure.DNS)
    guard = build()
    await guard.policy(A)
    decision = guard.peek(ask("/press/a"))
    assert (decision.verdict.action, decision.verdict.would) == (Action.PASS, Action.DEFER)
