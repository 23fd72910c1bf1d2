"""Checks, run state by state; and the state diagram in check.py, compared with the code."""

from __future__ import annotations

import re
import typing

import pytest
from decisions.walking import walk
from msgspec import structs

from robots_guard.decisions import check, lease, renewal
from robots_guard.decisions.access import Failed, Failure, Fetched
from robots_guard.decisions.check import (
    Decided,
    Judging,
    Lookup,
    Renewing,
    TimedOut,
    Timing,
    begin,
    judge_offline,
)
from robots_guard.decisions.pacing import DelaySource
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.renewal import begin as renew
from robots_guard.decisions.verdict import Action, Question, RuleRef, Terms
from robots_guard.origin import origin_of
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching
from robots_guard.protocol.ruleset import compile_rules

A = origin_of("https://a.test")
NOW = 1_800_000_000.0
TERMS = Terms(dialect=dialect("rfc9309"), matching=matching("standard"))
CIRCLE = Failed(failure=Failure.REDIRECT_LOOP)
FILE = (
    b"User-agent: mybot\nDisallow: /private/\nAllow: /private/press\n\nUser-agent: *\nDisallow: /\n"
)


def question(target: str = "/", agent: str = "mybot") -> Question:
    return Question(origin=A, target=target, agent=agent)


def policy_from(outcome, now: float = NOW, before=None):
    return renew(A, before, "direct").next(outcome, now).policy


def rules(body: bytes = FILE, agent: str = "mybot"):
    return compile_rules(body, TERMS.dialect, agent, "standard")


def verdict(
    outcome, target: str = "/", *, terms: Terms = TERMS, now: float = NOW, later: float = 0.0
):
    policy = policy_from(outcome, now)
    body = policy.document.body if policy.document else b""
    judging = Lookup(question(target), terms).next(policy, now + later)
    assert isinstance(judging, Judging)
    return judging.next(rules(body) if judging.document else None, now + later).verdict


def test_a_fresh_policy_is_judged_at_once():
    trail = walk(
        begin(question("/x"), TERMS),
        (policy_from(Fetched(status=200, body=FILE)), NOW),
        (rules(), NOW),
    )

    assert [type(state) for state in trail] == [Lookup, Judging, Decided]
    assert trail[-1].verdict.action is Action.PASS
    assert not trail[-1].renew


def test_a_stale_policy_is_judged_and_renewed_in_the_background():
    policy = policy_from(Fetched(status=200, body=FILE, headers={"cache-control": "max-age=600"}))
    trail = walk(begin(question("/private/x"), TERMS), (policy, NOW + 700), (rules(), NOW + 700))

    assert trail[-1].verdict.action is Action.DROP
    assert trail[-1].renew


@pytest.mark.parametrize("age", [None, 90_000.0])
def test_a_missing_or_expired_policy_is_renewed_first(age):
    policy = None if age is None else policy_from(Fetched(status=200, body=FILE))
    renewed = policy_from(Fetched(status=404), NOW + 90_000)
    trail = walk(
        begin(question(), TERMS),
        (policy, NOW + 90_000),
        (renewed, NOW + 90_000),
        (None, NOW + 90_000),
    )

    assert [type(state) for state in trail] == [Lookup, Renewing, Judging, Decided]
    assert trail[-1].verdict.reason is Reason.UNRESTRICTED


@pytest.mark.parametrize(
    "policy",
    [
        None,
        TimedOut("no answer of the store"),
        Fetched(status=200, body=FILE),
        Fetched(status=403),
        Fetched(status=503),
    ],
)
def test_robots_txt_passes_under_any_cached_policy(policy):
    policy = policy_from(policy) if isinstance(policy, Fetched) else policy
    state = walk(begin(question("/robots.txt"), TERMS), (policy, NOW))[-1]
    state = state.next(rules(), NOW) if isinstance(state, Timing) else state

    assert isinstance(state, Decided)
    assert (state.verdict.action, state.verdict.reason) == (Action.PASS, Reason.ROBOTS_TXT)
    assert state.verdict.delay is None


@pytest.mark.parametrize("later", [0.0, 90_000.0])
def test_robots_txt_keeps_the_cached_delay(later):
    """At any age: an expired policy would be fetched again, which this request is about to do."""
    slow = b"User-agent: *\nCrawl-delay: 7\nVisit-time: 0100-0101\n"
    state = begin(question("/robots.txt"), TERMS).next(
        policy_from(Fetched(status=200, body=slow)), NOW + later
    )
    verdict = state.next(rules(slow), NOW + later).verdict

    assert (verdict.action, verdict.reason) == (Action.PASS, Reason.ROBOTS_TXT)
    assert (verdict.delay.by, verdict.delay.seconds, verdict.delay.line) == (
        DelaySource.CRAWL_DELAY,
        7.0,
        2,
    )


def test_robots_txt_keeps_the_operators_delay_and_the_origins_pause():
    careful = structs.replace(TERMS, min_delay=2.0)

    assert (
        begin(question("/robots.txt"), careful).next(None, NOW).verdict.delay.by
        is DelaySource.MIN_DELAY
    )
    assert (
        begin(question("/robots.txt"), TERMS).next(None, NOW, is_paused=True).verdict.delay.by
        is DelaySource.RETRY_AFTER
    )


def test_robots_txt_of_an_exempt_origin_takes_no_turn():
    exempt = structs.replace(TERMS, action="pass", min_delay=2.0)
    state = begin(question("/robots.txt"), exempt)

    assert isinstance(state, Decided)
    assert (state.verdict.reason, state.verdict.delay) == (Reason.ROBOTS_TXT, None)


@pytest.mark.parametrize(
    "target", ["/robots.txt?x", "/x/../robots.txt", "/Robots.txt", "/robots.txt/"]
)
def test_only_the_exact_path_is_robots_txt(target):
    assert isinstance(begin(question(target), TERMS), Lookup)


@pytest.mark.parametrize(
    "target", ["", "x", "/a b", "/a\\b", "/a\x00", "/a\r\nX: y", "http://a.test/"]
)
def test_a_malformed_target_is_refused_whatever_the_site_says(target):
    state = begin(question(target), TERMS)

    assert isinstance(state, Decided)
    assert state.verdict.action is Action.DROP
    assert state.verdict.reason is Reason.MALFORMED_TARGET


@pytest.mark.parametrize(
    ("outcome", "action", "reason"),
    [
        (Fetched(status=200, body=FILE), Action.PASS, Reason.ALLOWED),
        (Fetched(status=200), Action.PASS, Reason.ALLOWED),
        (Fetched(status=204), Action.PASS, Reason.ALLOWED),
        (Fetched(status=400), Action.PASS, Reason.UNRESTRICTED),
        (Fetched(status=401), Action.DROP, Reason.RESTRICTED),
        (Fetched(status=403), Action.DROP, Reason.RESTRICTED),
        (Fetched(status=404), Action.PASS, Reason.UNRESTRICTED),
        (Fetched(status=410), Action.PASS, Reason.UNRESTRICTED),
        (Fetched(status=451), Action.PASS, Reason.UNRESTRICTED),
        (Fetched(status=429), Action.DEFER, Reason.UNREACHABLE),
        (Fetched(status=500), Action.DEFER, Reason.UNREACHABLE),
        (Fetched(status=503), Action.DEFER, Reason.UNREACHABLE),
        (Failed(failure=Failure.TIMEOUT), Action.DEFER, Reason.UNREACHABLE),
        (Failed(failure=Failure.TLS), Action.DEFER, Reason.FETCHER_FAILED),
        (
            Failed(failure=Failure.CONNECT).on_route("proxy:3128"),
            Action.DEFER,
            Reason.ROUTE_FAILED,
        ),
    ],
)
def test_the_access_table_of_rfc9309_with_default_settings(outcome, action, reason):
    answer = verdict(outcome)

    assert (answer.action, answer.reason) == (action, reason)


def test_a_deferral_says_until_when_and_becomes_a_drop_after_max_defer():
    answer = verdict(Fetched(status=503))
    late = Terms(dialect=TERMS.dialect, matching=TERMS.matching, max_defer=1)

    soon = Terms(dialect=TERMS.dialect, matching=TERMS.matching, max_defer=0.5)

    assert answer.until >= NOW + 1
    assert verdict(Fetched(status=503), terms=soon).until == NOW + 0.5
    ended = verdict(Fetched(status=503), terms=late, later=1)
    assert (ended.action, ended.detail) == (
        Action.DROP,
        "robots.txt answered 503; for 1 s, longer than max_defer",
    )


@pytest.mark.parametrize(
    ("setting", "value", "outcome", "action", "relaxed"),
    [
        ("on_restricted", "allow", Fetched(status=403), Action.PASS, "on_restricted=allow"),
        ("on_unreachable", "allow", Fetched(status=503), Action.PASS, "on_unreachable=allow"),
        ("on_unreachable", "drop", Fetched(status=503), Action.DROP, None),
        ("on_unreachable", "defer", CIRCLE, Action.DEFER, None),
        ("dialect", dialect("google"), Fetched(status=403), Action.PASS, "dialect=google"),
        ("dialect", dialect("google"), CIRCLE, Action.PASS, "dialect=google"),
        ("dialect", dialect("google"), Fetched(status=404), Action.PASS, None),
    ],
)
def test_a_relaxing_setting_is_named_in_the_verdict(setting, value, outcome, action, relaxed):
    terms = Terms(**{"dialect": TERMS.dialect, "matching": TERMS.matching, setting: value})
    answer = verdict(outcome, terms=terms)

    assert (answer.action, answer.relaxed) == (action, relaxed)


def test_the_verdict_names_rule_line_and_group():
    answer = verdict(Fetched(status=200, body=FILE), "/private/x")

    assert answer.rule == RuleRef(2, "Disallow: /private/", "mybot")
    assert verdict(Fetched(status=200, body=FILE), "/private/press").rule.line == 3


def test_in_trouble_the_last_good_document_is_used_and_marked_stale():
    policy = policy_from(
        Failed(failure=Failure.DNS), NOW + 90_000, policy_from(Fetched(status=200, body=FILE))
    )
    judging = Lookup(question("/private/x"), TERMS).next(policy, NOW + 90_000)
    answer = judging.next(rules(), NOW + 90_000).verdict

    assert (answer.action, answer.reason, answer.stale) == (Action.DROP, Reason.DISALLOWED, True)


@pytest.mark.parametrize("module", [check, renewal, lease])
def test_the_state_diagram_matches_the_code(module):
    """The arrows in the module's docstring are the return annotations of its states' `next`."""
    drawn = set(re.findall(r"^ +(\w+) +-> (\w+)", module.__doc__, re.MULTILINE))
    states = {
        name: kind
        for name, kind in vars(module).items()
        if isinstance(kind, type) and hasattr(kind, "next")
    }
    steps = {name: kind.next for name, kind in states.items()} | {"begin": module.begin}
    coded = {
        (name, follower.__name__) for name, step in steps.items() for follower in _followers(step)
    }

    assert drawn == coded


def _followers(step) -> list[type]:
    annotation = typing.get_type_hints(step)["return"]
    return list(typing.get_args(annotation)) or [annotation]


def test_a_timeout_defers_whatever_on_unreachable_says():
    """The site may be reachable: a timeout of the guard neither relaxes nor refuses anything."""
    terms = Terms(dialect=TERMS.dialect, matching=TERMS.matching, on_unreachable="allow")
    decided = Renewing(question("/"), terms, None).next(TimedOut("too long"), NOW)

    assert (decided.verdict.action, decided.verdict.reason) == (Action.DEFER, Reason.UNREACHABLE)
    assert decided.verdict.until == NOW + 1
    assert decided.verdict.detail == "too long"


def test_a_timeout_while_compiling_defers():
    """The verdict has no policy: it does not depend on it, so it cannot be replayed from it."""
    judging = Lookup(question("/"), TERMS).next(policy_from(Fetched(status=200, body=FILE)), NOW)
    decided = judging.next(TimedOut("no thread"), NOW)

    assert (decided.verdict.action, decided.verdict.reason) == (Action.DEFER, Reason.UNREACHABLE)
    assert (decided.verdict.until, decided.verdict.detail) == (NOW + 1, "no thread")
    assert decided.policy is None


def test_robots_txt_passes_although_compiling_times_out():
    careful = structs.replace(TERMS, min_delay=2.0)
    timing = begin(question("/robots.txt"), careful).next(
        policy_from(Fetched(status=200, body=FILE)), NOW
    )
    verdict = timing.next(TimedOut("no thread"), NOW).verdict

    assert (verdict.action, verdict.reason) == (Action.PASS, Reason.ROBOTS_TXT)
    assert verdict.delay.by is DelaySource.MIN_DELAY


def test_an_unresponsive_store_defers_for_the_shortest_pause():
    decided = Lookup(question("/"), TERMS).next(TimedOut("too long"), NOW)

    assert (decided.verdict.action, decided.verdict.until, decided.verdict.detail) == (
        Action.DEFER,
        NOW + 1,
        "too long",
    )


@pytest.mark.parametrize("status", [404, 403])
def test_only_a_file_with_rules_delays_robots_txt(status):
    assert isinstance(
        begin(question("/robots.txt"), TERMS).next(policy_from(Fetched(status=status)), NOW),
        Decided,
    )


def test_robots_txt_keeps_the_delay_of_the_last_good_document():
    slow = Fetched(status=200, body=b"User-agent: *\nCrawl-delay: 7\n")
    policy = policy_from(Failed(failure=Failure.DNS), NOW + 90_000, policy_from(slow))

    assert isinstance(begin(question("/robots.txt"), TERMS).next(policy, NOW + 90_000), Timing)
    assert isinstance(
        begin(question("/robots.txt"), TERMS).next(policy, NOW + 31 * 86_400), Decided
    )


# -- with a policy in hand ------------------------------------------------------------------------------------

SHUT = b"User-agent: *\nDisallow: /private/\nCrawl-delay: 7\nVisit-time: 0100-0101\n"


def by(policy, target: str = "/", **options):
    def rules_of(document):
        assert document is policy.document
        return rules(document.body, "mybot")

    return judge_offline(question(target), TERMS, policy, NOW, rules_of=rules_of, **options)


def test_a_given_policy_is_judged_whatever_its_age():
    old = policy_from(Fetched(status=200, body=SHUT), NOW - 90_000_000)

    assert by(old, "/private/x").rule == RuleRef(2, "Disallow: /private/", "*")


def test_a_given_policy_applies_visiting_times_unless_at_any_time():
    policy = policy_from(Fetched(status=200, body=SHUT))

    assert (by(policy).action, by(policy).reason) == (Action.DEFER, Reason.VISIT_TIME)
    assert by(policy, at_any_time=True).action is Action.PASS
    assert by(policy, at_any_time=True).delay.seconds == 7


def test_a_given_policy_passes_robots_txt_with_its_delay():
    verdict = by(policy_from(Fetched(status=200, body=SHUT)), "/robots.txt")

    assert (verdict.reason, verdict.delay.seconds) == (Reason.ROBOTS_TXT, 7)
    assert by(policy_from(Fetched(status=404)), "/robots.txt").delay is None


def test_a_given_policy_without_rules_compiles_none():
    assert by(policy_from(Fetched(status=404))).reason is Reason.UNRESTRICTED
    assert by(policy_from(Fetched(status=403))).reason is Reason.RESTRICTED
    assert by(policy_from(Failed(failure=Failure.DNS))).reason is Reason.UNREACHABLE


def test_a_question_that_needs_no_policy_ignores_the_given_one():
    assert by(policy_from(Fetched(status=404)), "/a b").reason is Reason.MALFORMED_TARGET


def test_robots_txt_waits_for_a_pause_whatever_its_rules_say():
    state = begin(question("/robots.txt"), TERMS).next(
        policy_from(Fetched(status=200, body=FILE)), NOW, is_paused=True
    )

    assert isinstance(state, Timing)
    assert state.next(rules(), NOW, is_paused=True).verdict.delay.by is DelaySource.RETRY_AFTER
    assert state.next(rules(), NOW).verdict.delay is None
    assert state.next(rules(), NOW).policy is state.policy
