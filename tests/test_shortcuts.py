"""Shortcuts of a guard: it answers a question as a new guard does, also if it was asked before.

A new guard has no shortcut, so it drives the check through all of its states.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support.guards import make_guard

from robots_guard.audit.write.log import FileAuditLog, LogOptions
from robots_guard.audit.write.writer import WriterOptions
from robots_guard.decisions.access import Failure
from robots_guard.decisions.check import Judging, compiled
from robots_guard.decisions.policy import Document, FetchTrouble, Policy, Reservations
from robots_guard.decisions.shortcut import MOST_RESULTS, Shortcut, shortcut_of
from robots_guard.decisions.verdict import Deferral, Question
from robots_guard.guard import checks
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.origin import Origin
from robots_guard.ports import Clocks
from robots_guard.protocol.dialect import DIALECTS, dialect
from robots_guard.protocol.paths import matching
from robots_guard.testing import CapturingAuditLog

NOW = 1_800_000_000.0
ORIGINS = (Origin("https", "a.test", 443), Origin("http", "b.test", 8080))
AGENTS = ("mybot", "other", "")

# -- any history -----------------------------------------------------------------------------------

paths = st.sampled_from(
    ("", "/", "/a", "/a/b", "/A", "/*.pdf$", "/a*b", "/%61", "/a/../b", "/x?q=1", "/robots.txt")
)
lines = st.one_of(
    st.builds("{}: {}".format, st.sampled_from(("Allow", "Disallow")), paths),
    st.sampled_from(
        (
            "Crawl-delay: 2",
            "Crawl-delay: 9999",
            "Crawl-delay: odd",
            "Request-rate: 1/10s 0900-1700",
            "Visit-time: 0600-0845",
            "Content-Signal: ai-train=no",
            "Content-Usage: train-ai=n",
            "Host: main.test",
            "",
        )
    ),
)
groups = st.builds(
    "User-agent: {}\n{}\n".format,
    st.sampled_from(("*", "mybot", "other", "GPTBot")),
    st.lists(lines, max_size=5).map("\n".join),
)
bodies = st.lists(groups, max_size=3).map(lambda texts: "\n".join(texts).encode())
dialects = st.one_of(st.sampled_from(sorted(DIALECTS)), st.just("strictest(rfc9309, koster1994)"))
seconds = st.sampled_from((0.0, 0.5, 299.0, 300.0, 301.0, 3600.0, 86_399.0, 86_400.0, 90_000.0))
times = st.one_of(seconds, st.floats(0, 4e6)).flatmap(lambda each: st.sampled_from((each, -each)))
moves = st.one_of(st.sampled_from((1.0, 100.0, -1.0, -100.0, -299.0)), times)
terms_changed = st.fixed_dictionaries(
    {"dialect": dialects.map(dialect), "matching": st.sampled_from(("spec", "standard", "strict")).map(matching)},
    optional={
        "min_delay": st.sampled_from((0.0, 3.0)),
        "max_delay": st.sampled_from((0.0, 300.0)),
        "visit_time": st.sampled_from(("keep", "ignore")),
        "on_disallowed": st.sampled_from(("drop", "defer")),
        "on_restricted": st.sampled_from(("drop", "allow")),
        "purposes": st.sampled_from(("", "ai-train")),
        "purpose_tokens": st.sampled_from(("", "ai-train=GPTBot")),
        "signals": st.sampled_from(("auto", "off", "record")),
    },
)  # fmt: skip
overrides = st.lists(
    st.tuples(
        st.sampled_from(('origin = "https://a.test"', 'suffix = "b.test"')),
        times,
        st.sampled_from(
            ('action = "pass"', 'action = "drop"', "min_delay = 4", 'dialect = "koster1994"')
        ),
    ),
    max_size=2,
    unique_by=lambda each: each[0],
)
targets = st.one_of(
    paths, st.sampled_from(("/a/b.pdf", "//a", "/a%2Fb", "/a;x/b", "/é", "/a b", "/x?", "/a#b"))
)
questions = st.fixed_dictionaries(
    {"origin": st.sampled_from(ORIGINS), "target": targets, "agent": st.sampled_from(AGENTS)},
    optional={
        "deferral": st.builds(Deferral, st.just("w-1"), times.map(NOW.__add__)),
        "robots_txt_of": st.just(ORIGINS[1]),
        "sent": st.booleans(),
    },
).map(lambda fields: Question(**fields))
documents = st.builds(
    lambda body, status, age, stated: {
        "body": body if status < 300 else b"",
        "status": status,
        "age": age,
        "stated_lifetime": stated,
    },
    bodies,
    st.sampled_from((200, 200, 200, 404, 401, 403, 429, 503)),
    times,
    st.one_of(st.none(), seconds),
)
troubles = st.tuples(st.sampled_from((Failure.DNS, Failure.REDIRECT_LOOP)), times, seconds)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), questions),
        st.tuples(st.just("ask"), questions),
        st.tuples(st.just("ask again"), st.none()),
        st.tuples(st.just("ask again"), st.none()),
        st.tuples(st.just("ask again"), st.none()),
        st.tuples(st.just("move the clock"), moves),
        st.tuples(
            st.just("put"),
            st.tuples(
                st.sampled_from(ORIGINS),
                st.one_of(st.none(), documents),
                st.one_of(st.none(), st.none(), troubles),
                st.booleans(),
            ),
        ),
        st.tuples(st.just("forget"), st.sampled_from(ORIGINS)),
        st.tuples(st.just("pause"), st.tuples(st.sampled_from(ORIGINS), seconds)),
        st.tuples(st.just("override"), overrides),
    ),
    min_size=5,
    max_size=25,
)


def document(fields, now):
    return Document(
        url="https://a.test/robots.txt",
        sha256=hashlib.sha256(fields["body"]).hexdigest(),
        fetched_at=now - fields["age"],
        via="direct",
        tls_verified=True,
        status=fields["status"],
        body=fields["body"],
        stated_lifetime=fields["stated_lifetime"],
    )


def policy(origin, now, fields=None, trouble=None, *, reserved=False):
    troubles = None
    if trouble is not None:
        failure, age, wait = trouble
        at = now - age
        troubles = FetchTrouble(failure=failure, since=at, at=at, attempts=1, retry_at=at + wait)
    reservations = Reservations(attempted_at=now + 1e7, status=404) if reserved else None
    return Policy(
        origin=origin,
        document=document(fields, now) if fields is not None else None,
        trouble=troubles,
        reservations=reservations,
    )


class History:
    """A guard to which a sequence of events is applied, and for each question a new guard in the
    same state, which must give the same answer.

    `shortcuts` is the number of answers whose verdict is the same object as an earlier one. The
    first answer for a rule comes from a check, the second creates the result of the shortcut, and
    later ones return that.
    """

    def __init__(self, folder, terms, **options):
        self.now, self.asked, self.answers, self.shortcuts = NOW, None, 0, 0
        self.verdicts = []
        self.memory, self.file = MemoryStore(), Path(folder) / "overrides.toml"
        self.options = {"terms": terms, "overrides": self.file, **options}
        self.file.write_text("")
        self.log = CapturingAuditLog()
        self.guard = self.new_guard(self.log)

    def new_guard(self, log=None):
        return make_guard(
            ScriptedFetcher({}),
            memory=self.memory,
            audit_log=log,
            clocks=Clocks(now=lambda: self.now, monotonic=lambda: 0.0),
            **self.options,
        )

    def apply(self, what, value):
        match what:
            case "ask":
                self.ask(value)
            case "ask again":
                if self.asked is not None:
                    self.ask(self.asked)
            case "move the clock":
                self.now += value
            case "put":
                origin, fields, trouble, reserved = value
                self.memory.put(
                    policy(origin, self.now, fields, trouble, reserved=reserved), self.now
                )
            case "forget":
                self.memory.forget(value)
            case "pause":
                self.memory.note_pause(*value, self.now)
            case "override":
                self.override(value)

    def override(self, entries):
        text = "".join(
            f'[[override]]\nid = "o{number}"\n{place}\nowner = "jane"\nreason = "because"\n'
            f"expires = {datetime.fromtimestamp(self.now + left, UTC).isoformat()}\n{change}\n"
            for number, (place, left, change) in enumerate(entries)
        )
        replacement = self.file.with_suffix(".new")
        replacement.write_text(text)
        replacement.replace(self.file)
        self.guard.reload_overrides()

    def ask(self, question):
        self.asked = question
        found, expected = self.guard.peek(question), self.new_guard().peek(question)
        assert _without_id(found) == _without_id(expected)
        if found is not None:
            self.answers += 1
            self.shortcuts += any(found.verdict is each for each in self.verdicts)
            self.verdicts.append(found.verdict)
            record = self.log.records[-1]
            assert (record.id, record.action) == (found.id, found.verdict.action.value)
        assert len(self.log.records) == self.answers


def _without_id(decision):
    return decision and msgspec.structs.replace(decision, id="")


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(terms=terms_changed, report_only=st.booleans(), first=documents, history=steps)
def test_after_any_history_an_old_guard_answers_as_a_new_one(terms, report_only, first, history):
    async def run():  # a stale policy is renewed by a task, which never begins
        with tempfile.TemporaryDirectory() as folder:
            guarded = History(folder, terms, report_only=report_only)
            for origin in ORIGINS:
                guarded.apply("put", (origin, first | {"age": 0.0}, None, False))
            for what, value in history:
                guarded.apply(what, value)
            event(f"answers: {min(guarded.answers, 5)}")
            event(f"by a shortcut: {min(guarded.shortcuts, 5)}")

    asyncio.run(run())


# -- particular cases ------------------------------------------------------------------------------

RULES = {"body": b"User-agent: *\nDisallow: /private/\nAllow: /public/\n", "status": 200}
SOON = {**RULES, "age": 0.0, "stated_lifetime": 3600.0}


@pytest.fixture
def history(tmp_path):
    guarded = History(tmp_path, {})
    guarded.apply("put", (ORIGINS[0], SOON, None, False))
    return guarded


def asked(target="/", agent="mybot"):
    return Question(origin=ORIGINS[0], target=target, agent=agent)


def test_later_questions_are_answered_by_a_shortcut(history):
    for target in ("/1", "/2", "/public/1", "/private/1", "/public/2", "/private/2"):
        history.ask(asked(target))

    assert history.shortcuts == 2
    assert history.guard.counts == {"pass/allowed": 4, "drop/disallowed": 2}


@pytest.mark.parametrize("recording", [LogOptions(audit="summary"), LogOptions(audit="all")])
def test_the_audit_log_of_shortcuts_is_that_of_whole_checks(tmp_path, monkeypatch, recording):
    """Each octet, whether PASSes are counted or recorded."""
    by_shortcuts = _log_of_a_crawl(tmp_path / "shortcuts", recording)
    monkeypatch.setattr(Shortcut, "decide", lambda *_: None)
    by_checks = _log_of_a_crawl(tmp_path / "checks", recording)

    assert by_shortcuts == by_checks
    # Counted by origin, agent, digest and minute; the second minute of one origin has two digests.
    assert by_shortcuts.count(b'"action":"pass"') == (18 if recording.audit == "summary" else 160)
    assert by_shortcuts.count(b'"action":"drop"') == 80


def _log_of_a_crawl(directory, recording):
    """The file of a crawl of two origins, as two agents, for four minutes. The robots.txt of one
    origin is replaced in the second minute."""
    memory, now = MemoryStore(), NOW
    clocks = Clocks(now=lambda: now, monotonic=lambda: 7.0)
    written_as = WriterOptions(component="test")
    log = FileAuditLog(directory, clocks, recording, written_as, tokens=lambda size: "ab" * size)
    guard = make_guard(
        ScriptedFetcher({}),
        memory=memory,
        audit_log=log,
        clocks=clocks,
        tokens=lambda size: "cd" * size,
    )
    for origin in ORIGINS:
        memory.put(policy(origin, now, SOON), now)
    for number in range(240):
        now = NOW + number
        if number == 90:
            changed = {**SOON, "body": SOON["body"] + b"# changed"}
            memory.put(policy(ORIGINS[0], now, changed), now)
        question = Question(
            origin=ORIGINS[number % 2],
            target=("/", "/private/1", "/public/1")[number % 3],
            agent=AGENTS[number // 8 % 2],
        )
        assert guard.peek(question) is not None
    guard.close()
    (file,) = directory.glob("*.jsonl")
    return file.read_bytes()


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("put", (ORIGINS[0], {**SOON, "body": b"User-agent: *\nDisallow: /"}, None, False)),
        ("forget", ORIGINS[0]),
        ("pause", (ORIGINS[0], 60.0)),
        ("move the clock", 3600.0),
        ("move the clock", -301.0),
        ("override", [('origin = "https://a.test"', 60.0, 'action = "drop"')]),
    ],
)
async def test_a_change_ends_a_shortcut(history, what, value):
    for _ in range(3):
        history.ask(asked())
    assert history.shortcuts == 1

    history.apply(what, value)
    history.ask(asked())

    assert history.shortcuts == 1


def test_a_shortcut_ends_with_the_override_it_is_based_on(history):
    history.apply("override", [('origin = "https://a.test"', 60.0, "min_delay = 4")])
    for _ in range(3):
        history.ask(asked())
    assert history.shortcuts == 1

    history.apply("move the clock", 60.0)
    history.ask(asked())

    assert history.shortcuts == 1


def test_the_results_of_a_shortcut_are_limited(history):
    rules = "".join(f"Allow: /{each}/\n" for each in range(3 * MOST_RESULTS))
    body = f"User-agent: *\n{rules}".encode()
    history.apply("put", (ORIGINS[0], {**SOON, "body": body}, None, False))
    policy, terms = history.memory.get(ORIGINS[0]), history.guard.terms(ORIGINS[0])
    ruleset = compiled(policy.document, terms, "mybot")
    shortcut = shortcut_of(Judging(asked(), terms, policy, policy.document), ruleset)

    for each in range(3 * MOST_RESULTS):
        decided = shortcut.decide(asked(f"/{each}/"), terms, NOW)
        assert decided.verdict.rule.line == each + 2
        assert len(shortcut.results) <= MOST_RESULTS


# `_shortcuts` is private: only its entries tell whether others were dropped.
def test_a_shortcut_that_replaces_another_uses_no_more_memory(history, monkeypatch):
    history.ask(asked(agent="first"))
    size = history.guard._checks._shortcuts[ORIGINS[0], "first"].size
    monkeypatch.setattr(checks, "SHORTCUTS_BYTES", 3 * size)
    history.apply("pause", (ORIGINS[0], 60.0))  # so that each question is checked in full
    for _ in range(5):
        history.ask(asked(agent="second"))

    assert len(history.guard._checks._shortcuts) == 2


def test_shortcuts_are_dropped_before_they_use_too_much_memory(history, monkeypatch):
    policy = history.memory.get(ORIGINS[0])
    monkeypatch.setattr(checks, "SHORTCUTS_BYTES", 4 * policy.size)
    for number in range(20):
        for _ in range(3):
            history.ask(asked(agent=f"agent{number}"))

    assert history.shortcuts == 20
    shortcuts = [each for each in gc.get_objects() if isinstance(each, Shortcut)]
    assert 1 <= len([each for each in shortcuts if each.policy is policy]) <= 4
