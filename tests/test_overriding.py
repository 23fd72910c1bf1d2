"""The overrides file of a running guard: reread when it changes, kept when it breaks, named in
records."""

from __future__ import annotations

import asyncio
import hashlib
import os

import msgspec
import pytest

from robots_guard.audit.read.replay import Judgement, replay
from robots_guard.audit.record import LONGEST_FILE, record_of, record_of_event
from robots_guard.decisions.access import Failed, Failure, Fetched
from robots_guard.decisions.events import OverridesLoaded
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Question
from robots_guard.errors import SettingsError
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.overrides import CHECK_EVERY, MAX_BYTES
from robots_guard.origin import origin_of
from robots_guard.ports import Clocks

# The private `_renewals` show that a fetch was begun once.

A = origin_of("https://a.test")
RULES = Fetched(
    status=200, body=b"User-agent: *\nCrawl-delay: 10\nDisallow: /private/", tls_verified=True
)


def entry(changes: str, name: str = "one", expires: str = "2030-01-01") -> str:
    return (
        f'[[override]]\nid = "{name}"\norigin = "https://a.test"\nowner = "jane"\nreason = "because"\n'
        f"expires = {expires}\n{changes}\n"
    )


class Records(list):
    def __init__(self):
        self.events = []

    def write(self, decision):
        self.append(decision)

    def note(self, event, **named):
        self.events.append(event)

    def close(self):
        pass


@pytest.fixture
def file(tmp_path):
    return tmp_path / "overrides.toml"


@pytest.fixture
def build(build_guard, clock, file):
    def build(fetcher=None, **options):
        fetcher = fetcher or ScriptedFetcher({A.robots_url: RULES})
        clocks = Clocks(now=clock, monotonic=clock)
        usual = {"overrides": file, "audit_log": Records()}
        return build_guard(fetcher, clocks=clocks, **{**usual, **options})

    return build


class HangingFetcher:
    """A fetcher whose sites never answer."""

    via = "hanging"

    async def fetch(self, get):
        await asyncio.Event().wait()


def ask(target: str) -> Question:
    return Question(origin=A, target=target, agent="mybot")


async def test_override_begins_changes_and_ends_without_a_restart(build, file, clock):
    file.write_text(entry('action = "pass"'))
    guard = build()
    first = await guard.check(ask("/private/x"))

    file.write_text(entry('action = "drop"', "two"))
    clock.advance(CHECK_EVERY)
    second = await guard.check(ask("/open"))

    file.write_text("")
    clock.advance(CHECK_EVERY)
    third = await guard.check(ask("/private/x"))

    assert (first.verdict.action, first.verdict.reason, first.verdict.relaxed) == (
        Action.PASS,
        Reason.BYPASSED,
        "override=one",
    )
    assert (second.verdict.action, second.verdict.reason, second.override.id) == (
        Action.DROP,
        Reason.BLOCKED,
        "two",
    )
    assert (third.verdict.reason, third.override) == (Reason.DISALLOWED, None)


async def test_a_record_names_who_why_and_until_when(build, file):
    file.write_text(entry("max_delay = 1"))

    record = record_of(await build().check(ask("/a")))

    assert (
        record.override,
        record.override_owner,
        record.override_reason,
        record.override_expires,
    ) == (
        "one",
        "jane",
        "because",
        "2030-01-02T00:00:00.000Z",
    )
    assert (record.delay, record.relaxed) == (1.0, "max_delay=1")


async def test_a_dialect_for_one_site(build, file):
    file.write_text(entry('dialect = "koster1994"'))

    decision = await build().check(ask("/private/x"))

    assert (decision.dialect, decision.verdict.action) == ("koster1994", Action.DROP)


async def test_broken_file_leaves_the_previous_overrides(build, file, clock, caplog):
    file.write_text(entry('action = "drop"'))
    guard = build()

    # Python reads no integer of more than 4300 digits.
    for broken in ("[[override", "x" * (MAX_BYTES + 1), f"a = 1{'0' * 5000}"):
        file.write_text(broken)
        clock.advance(CHECK_EVERY)
        assert (await guard.check(ask("/a"))).verdict.reason is Reason.BLOCKED
    assert "the previous overrides stay in force" in caplog.text

    file.unlink()
    clock.advance(CHECK_EVERY)
    assert (await guard.check(ask("/a"))).verdict.reason is Reason.BLOCKED

    file.write_text("")
    clock.advance(CHECK_EVERY)
    assert (await guard.check(ask("/a"))).verdict.reason is Reason.ALLOWED


async def test_pipe_instead_of_the_file_blocks_no_question(build, file, clock):
    file.write_text(entry('action = "drop"'))
    guard = build()
    file.unlink()
    os.mkfifo(file)
    clock.advance(CHECK_EVERY)

    assert (await guard.check(ask("/a"))).verdict.reason is Reason.BLOCKED
    with pytest.raises(SettingsError, match="not a regular file"):
        build()


async def test_last_day_of_the_calendar_is_valid(build, file):
    file.write_text(entry('action = "drop"', expires="9999-12-31"))
    decision = await build().check(ask("/a"))

    assert decision.verdict.reason is Reason.BLOCKED
    assert record_of(decision).override_expires == "9999-12-31T23:59:59.999Z"


def test_a_suffix_with_a_port_does_not_open_every_port(build, file, caplog):
    file.write_text(
        entry('action = "pass"')
        .replace('origin = "https://', 'suffix = "')
        .replace(".test", ".test:8443")
    )
    build()

    assert "has a port, but applies to all" in caplog.text


def test_a_reading_is_recorded_with_what_was_read(build, file, caplog):
    expired = entry('action = "pass"', "two", "2001-01-01").replace("a.test", "b.test")
    file.write_text(entry('action = "drop"') + expired)
    audit_log = Records()
    build(audit_log=audit_log)
    (event,) = (event for event in audit_log.events if isinstance(event, OverridesLoaded))

    assert event.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert event.text == file.read_text()
    assert (event.count, event.problems) == (1, ("two: it has expired: renew it or remove it",))
    assert "override 'two' has no effect: it has expired" in caplog.text


def test_the_record_has_the_text_of_the_file_unless_it_is_long():
    """A line must stay readable: its length counts, in which a line break takes two bytes."""
    names = {"at": 0.0, "source": "x", "count": 0, "sha256": "0" * 64}
    texts = ["", "a = 1\n", "#" * (LONGEST_FILE - 2), "#" * (LONGEST_FILE - 1), "\n" * 20_000]
    found = [record_of_event(OverridesLoaded(**names, text=text), {}).text for text in texts]

    assert found == [*texts[:3], None, None]


async def test_invalid_override_is_logged_and_has_no_effect(build, file, caplog):
    file.write_text(entry('action = "drop"', expires='"never"'))

    assert (await build().check(ask("/a"))).verdict.reason is Reason.ALLOWED
    assert "override 'one' has no effect" in caplog.text


def test_a_file_that_cannot_be_read_stops_the_start(build, file):
    with pytest.raises(
        SettingsError, match=r"overrides: '.*' cannot be used \(No such file or directory\)"
    ):
        build()


async def test_a_record_names_the_terms_it_was_judged_under_not_those_that_came_meanwhile(
    build, file, clock
):
    """The file changes while the robots.txt is fetched."""
    file.write_text(entry('dialect = "koster1994"'))

    class Slow(ScriptedFetcher):
        async def fetch(self, get):
            file.write_text(entry('dialect = "google"', "two"))
            clock.advance(CHECK_EVERY)
            return await super().fetch(get)

    decision = await build(Slow({A.robots_url: RULES})).check(ask("/private/x"))

    assert (decision.dialect, decision.override.id) == ("koster1994", "one")


# -- reporting only -------------------------------------------------------------------------------------------


async def test_in_report_only_mode_nothing_is_refused_and_the_record_says_what_would_be(
    build, file
):
    file.write_text("")
    guard = build(report_only=True)

    would = (await guard.check(ask("/private/x"))).verdict

    assert (would.action, would.would, would.reason, would.relaxed) == (
        Action.PASS,
        Action.DROP,
        Reason.DISALLOWED,
        "report_only",
    )
    assert (await guard.check(ask("/a"))).verdict.would is None
    first, second = [await guard.turn(guard.peek(ask("/a"))) for _ in range(2)]
    assert first.turn is not None
    assert (second.verdict.action, second.verdict.would) == (Action.PASS, Action.DEFER)


# -- what an exempted request would have been --------------------------------------------------------


async def bypassed(guard, target="/private/x"):
    """The record of a decision on an exempted request, made at once."""
    decision = await guard.check(ask(target))
    assert (decision.verdict.action, decision.verdict.reason) == (Action.PASS, Reason.BYPASSED)
    assert decision.is_due
    assert not decision.has_escaped
    return record_of(decision)


async def test_an_exempted_request_records_what_the_robots_txt_would_have_said(build, file):
    file.write_text(entry('action = "pass"'))
    guard = build()
    unknown = await bypassed(guard)
    await guard.policy(A)  # when the fetch in the background has ended
    closed, open_ = await bypassed(guard), await bypassed(guard, "/open")

    assert (unknown.would, unknown.rule, unknown.sha256) == (None, None, None)
    assert (closed.would, closed.rule, closed.line, closed.group, closed.form) == (
        "drop",
        "Disallow: /private/",
        3,
        "*",
        "spec",
    )
    assert (closed.sha256, closed.source, closed.override, closed.relaxed) == (
        hashlib.sha256(RULES.body).hexdigest(),
        "memory",
        "one",
        "override=one",
    )
    assert (open_.would, open_.rule, open_.delay) == ("pass", None, None)


async def test_an_exempted_request_does_not_wait_for_the_site(build, file):
    """Its robots.txt is requested once in the background, and never answers."""
    hanging = HangingFetcher()
    file.write_text(entry('action = "pass"'))
    guard = build(hanging)

    for _ in range(3):
        assert guard.peek(ask("/private/x")).verdict.would is None
    assert (await bypassed(guard)).would is None
    assert len(guard._renewals) == 1


async def test_an_exempted_request_records_that_the_robots_txt_is_unreachable(build, file):
    file.write_text(entry('action = "pass"'))
    guard = build(ScriptedFetcher({A.robots_url: Failed(failure=Failure.CONNECT)}))
    await bypassed(guard)
    await guard.policy(A)  # when the fetch in the background has ended
    record = await bypassed(guard)

    assert (record.would, record.failure, record.rule) == ("defer", "connect", None)


async def test_an_exempted_request_uses_no_outdated_policy(build, file, clock):
    file.write_text(entry('action = "pass"', expires="2099-01-01"))
    guard = build()
    await bypassed(guard)
    await guard.policy(A)  # when the fetch in the background has ended
    clock.advance(2 * 86_400)
    outdated = await bypassed(guard)
    await guard.policy(A)  # when the fetch in the background has ended

    assert outdated.would is None
    assert (await bypassed(guard)).would == "drop"


async def test_an_exempted_request_waits_for_no_pause(build, file):
    file.write_text(entry('action = "pass"'))
    guard = build()
    await bypassed(guard)
    await guard.policy(A)  # when the fetch in the background has ended
    decision = await guard.check(ask("/private/x"))
    await guard.note_pause(A, 60.0)

    assert guard.recheck_pause(decision) is decision
    assert (await guard.check(ask("/private/x"))).is_due


async def test_report_only_does_not_change_an_exemption(build, file):
    file.write_text(entry('action = "pass"'))
    guard = build(report_only=True)
    await bypassed(guard)
    await guard.policy(A)  # when the fetch in the background has ended
    record = await bypassed(guard)

    assert (record.reason, record.would, record.relaxed) == ("bypassed", "drop", "override=one")


async def test_an_exempted_request_is_replayed(build, file):
    file.write_text(entry('action = "pass"'))
    guard = build()
    unknown = await bypassed(guard)
    await guard.policy(A)  # when the fetch in the background has ended
    record = await bypassed(guard)
    judgement = Judgement(record=record, settings={}, document=RULES.body)
    forged = msgspec.structs.replace(record, would="pass", rule=None)

    assert replay(judgement).differences == []
    assert replay(judgement).verdict.would is Action.DROP
    assert [
        text.partition(":")[0]
        for text in replay(msgspec.structs.replace(judgement, record=forged)).differences
    ] == ["rule", "would"]
    with pytest.raises(SettingsError, match="nothing to replay"):
        replay(msgspec.structs.replace(judgement, record=unknown, document=None))
