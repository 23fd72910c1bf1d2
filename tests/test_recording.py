"""Records of a guard other than decisions, and its behaviour when it cannot write."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest
from audit.decisions import AT, audit_log_in
from support.stores import LeasingStore

from robots_guard.audit.read.reader import Filter, entries, kind_of
from robots_guard.configuration.settings import NAMES, Settings
from robots_guard.decisions.access import Failed, Failure, Fetched
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action, Question, Verdict
from robots_guard.errors import SettingsError, StoreReset
from robots_guard.guard.fetch.script import ScriptedFetcher
from robots_guard.origin import Origin, origin_of
from robots_guard.ports import Clocks

RULES = Fetched(status=200, body=b"User-agent: *\nDisallow: /private/", tls_verified=True)
MOVED = Fetched(
    status=301, headers={"location": "https://www.a.test/robots.txt"}, tls_verified=True
)
A = "https://a.test"


@pytest.fixture
def build(build_guard, tmp_path):
    def build(outcomes, audit="all", **options):
        audit_log = audit_log_in(tmp_path, audit=audit, component="test")
        clocks = Clocks(now=lambda: AT, monotonic=lambda: 7.0)
        return build_guard(ScriptedFetcher(outcomes), audit_log=audit_log, clocks=clocks, **options)

    return build


def ask(target="/", origin=A):
    return Question(origin=origin_of(origin), target=target, agent="mybot")


def read_records(directory):
    return [entry for entry in entries(directory, Filter(kind=None)) if kind_of(entry) != "start"]


@pytest.fixture
def full(monkeypatch):
    """A disk that is full for a while."""
    whole = os.write

    def no_space(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    def switch(on):
        monkeypatch.setattr(os, "write", no_space if on else whole)

    return switch


@pytest.mark.parametrize("at_once", [False, True])
async def test_each_hop_of_a_fetch_is_recorded_before_the_decision_that_rests_on_it(
    build, tmp_path, at_once
):
    guard = build(
        {f"{A}/robots.txt": MOVED, "https://www.a.test/robots.txt": RULES},
        records_fetches_at_once=at_once,
    )
    decision = await guard.check(ask("/private/"))
    first, second, made = read_records(tmp_path)

    assert (first.url, first.status, first.location) == (
        f"{A}/robots.txt",
        301,
        "https://www.a.test/robots.txt",
    )
    assert (second.url, second.origin, second.status) == ("https://www.a.test/robots.txt", A, 200)
    assert (made.id, made.sha256) == (decision.id, second.sha256)


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_fetch_is_used_though_it_cannot_be_recorded(build, full, tmp_path, at_once):
    guard = build({f"{A}/robots.txt": RULES}, records_fetches_at_once=at_once)
    full(True)
    refused = await guard.check(ask("/private/"))
    full(False)

    assert refused.verdict.reason is Reason.DISALLOWED
    assert guard.counts["audit_log/error"] == 2


async def test_a_fetch_that_failed_is_recorded_with_its_failure(build, tmp_path):
    guard = build({f"{A}/robots.txt": Failed(failure=Failure.DNS, detail="no such host")})
    await guard.check(ask())

    assert [getattr(entry, "failure", None) for entry in read_records(tmp_path)] == ["dns", "dns"]


async def test_where_the_audit_is_required_an_allowance_without_a_record_is_refused(
    build, full, tmp_path
):
    guard = build({f"{A}/robots.txt": RULES}, audit_required=True)
    await guard.check(ask())
    full(True)
    allowed, refused = guard.peek(ask("/open")), guard.peek(ask("/private/"))
    full(False)
    after = guard.peek(ask("/later"))

    assert (allowed.verdict.action, allowed.verdict.reason) == (Action.DROP, Reason.UNRECORDED)
    assert (refused.verdict.action, refused.verdict.reason) == (Action.DROP, Reason.DISALLOWED)
    assert after.verdict.action is Action.PASS
    assert guard.counts["drop/unrecorded"] == 1
    assert guard.counts["audit_log/error"] == 2
    assert [entry.seq for entry in read_records(tmp_path)] == [2, 3, 6]
    assert {kind_of(entry) for entry in read_records(tmp_path)} == {"fetch", "decision"}


async def test_an_allowance_that_needs_no_record_needs_no_audit_log(build, full):
    guard = build({f"{A}/robots.txt": RULES}, audit_required=True, audit="refusals")
    await guard.check(ask())
    full(True)

    assert guard.peek(ask("/open")).verdict.action is Action.PASS
    full(False)


async def test_unrecorded_pass_is_returned_and_recorded_later(build, full, tmp_path, caplog):
    guard = build({f"{A}/robots.txt": RULES})
    await guard.check(ask())
    full(True)
    released = [guard.peek(ask(f"/{number}")) for number in range(3)]
    full(False)
    guard.peek(ask("/later"))
    recorded = read_records(tmp_path)[-1]

    assert {decision.verdict.action for decision in released} == {Action.PASS}
    assert (kind_of(recorded), recorded.relaxed, recorded.count) == (
        "fail-open",
        "audit_required",
        3,
    )
    assert "could not be recorded" in caplog.text


async def test_replaced_store_is_recorded(build, tmp_path):
    class Damaged(LeasingStore):
        def get(self, origin):
            raise StoreReset("was damaged and has been recreated")

    guard = build({f"{A}/robots.txt": RULES}, store=Damaged())
    await guard.check(ask())

    assert "store-reset" in {kind_of(entry) for entry in read_records(tmp_path)}


async def test_each_reading_of_the_overrides_is_recorded(build, tmp_path):
    file = tmp_path / "overrides.toml"
    file.write_text('[[override]]\nid = "x"\nowner = "ann"\n')
    build({}, overrides=file)
    (loaded,) = read_records(tmp_path)

    assert (kind_of(loaded), loaded.source, loaded.count) == ("overrides", str(file), 0)
    assert len(loaded.problems) == 1


SOUND = Question(origin=origin_of(A), target="/x", agent="mybot")
DROP = Verdict(action=Action.DROP, reason=Reason.NOT_HTTP)


@pytest.mark.parametrize(
    "question",
    [
        None,
        msgspec.structs.replace(SOUND, origin=None),
        msgspec.structs.replace(SOUND, origin=Origin("ftp", "a.test", 21)),
        msgspec.structs.replace(SOUND, target=None),
        msgspec.structs.replace(SOUND, target=b"/x"),
        msgspec.structs.replace(SOUND, agent=None),
        msgspec.structs.replace(SOUND, client=7),
    ],
)
@pytest.mark.parametrize("ask_guard", ["decide", "peek", "check"])
async def test_question_of_wrong_types_is_refused_and_recorded(
    build, tmp_path, question, ask_guard
):
    guard = build({f"{A}/robots.txt": RULES})
    if ask_guard == "decide":
        refused = guard.decide(question, DROP)
    elif ask_guard == "peek":
        refused = guard.peek(question) or await guard.check(question)
    else:
        refused = await guard.check(question)
    recorded = read_records(tmp_path)[-1]

    assert (refused.verdict.action, refused.verdict.reason) == (Action.DROP, Reason.INTERNAL_ERROR)
    assert (recorded.id, recorded.action, recorded.reason) == (refused.id, "drop", "internal-error")
    assert refused.question.origin.authority


async def test_verdict_of_a_wrong_type_is_refused_and_recorded(build, tmp_path):
    refused = build({}).decide(ask("/x"), None)
    (recorded,) = read_records(tmp_path)

    assert (refused.verdict.action, refused.verdict.reason) == (Action.DROP, Reason.INTERNAL_ERROR)
    assert (recorded.id, recorded.url) == (refused.id, f"{A}/x")


async def test_question_of_wrong_types_passes_in_report_only_mode(build, tmp_path):
    passed = await build({}, report_only=True).check(msgspec.structs.replace(ask(), target=None))
    (recorded,) = read_records(tmp_path)

    assert (passed.verdict.action, passed.verdict.would) == (Action.PASS, Action.DROP)
    assert (recorded.id, recorded.would) == (passed.id, "drop")


@pytest.mark.parametrize(
    ("choice", "component", "required"),
    [
        ("proxy", "proxy", True),
        ("proxy", "serve", True),
        ("proxy", "scrapy", False),
        ("proxy", "cli", False),
        ("proxy", "console", False),
        ("proxy", "envoy", True),  # an integration that no other line of the package names
        ("always", "scrapy", True),
        ("never", "proxy", False),
        ("never", "envoy", False),
    ],
)
def test_where_the_audit_is_required(choice, component, required):
    assert Settings(agent="mybot", audit_required=choice).requires_audit(component) is required


def test_recorded_settings_contain_no_password():
    settings = Settings(
        agent="mybot", store="redis://:hunter2@r.test/0", fetch_proxy="http://me:hunter2@p.test:1"
    )
    recorded = settings.writing("cli").settings

    assert "hunter2" not in repr(recorded)
    assert recorded["agent"] == "mybot"
    assert set(recorded) == set(NAMES)


def test_a_command_removes_nothing_of_an_audit_log_that_others_keep_longer():
    settings = Settings(agent="mybot", audit_retention_days=30)

    assert settings.log_options("cli").retention is None
    assert (
        settings.log_options("scrapy").retention.days
        == settings.log_options("proxy").retention.days
        == 30
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("audit", "some"),
        ("audit_retention_days", -1),
        ("audit_retention_bytes", -1),
    ],
)
def test_a_value_that_does_not_fit_is_one_sentence_with_the_remedy(name, value):
    with pytest.raises(SettingsError, match=rf"^{name} .*: use "):
        Settings(agent="mybot", **{name: value})


def test_the_docs_have_no_setting_that_is_gone():
    docs = Path(__file__).parents[1] / "docs"

    assert not [path.name for path in docs.glob("*.md") if "audit_log_passes" in path.read_text()]
