"""Verdicts and decisions: their properties, and how statuses, settings and times affect them."""

from __future__ import annotations

import pytest

from robots_guard.decisions.access import Failure
from robots_guard.decisions.pacing import DelaySource, RequiredDelay, Turn, Wait
from robots_guard.decisions.policy import Document, FetchTrouble, Policy
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import (
    Action,
    Decision,
    Deferral,
    Question,
    RuleRef,
    Terms,
    Verdict,
    as_report_only,
    judge,
    not_yet,
    paced,
)
from robots_guard.errors import SettingsError
from robots_guard.origin import origin_of
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching
from robots_guard.protocol.ruleset import compile_rules

A = origin_of("https://a.test")
NOW = 1_800_000_000.0
PACE = RequiredDelay(by=DelaySource.CRAWL_DELAY, seconds=5.0, line=2, text="Crawl-delay: 5")
ALLOWED = Verdict(action=Action.PASS, reason=Reason.ALLOWED)


def terms(name: str = "rfc9309", **settings) -> Terms:
    return Terms(dialect=dialect(name), matching=matching("standard"), **settings)


def question_with(**options) -> Question:
    return Question(**{"origin": A, "target": "/", "agent": "mybot", **options})


def decision(verdict: Verdict, turn: Turn | None = None, **options) -> Decision:
    return Decision(
        id="x-1",
        at=NOW,
        component="test",
        question=question_with(**options),
        verdict=verdict,
        turn=turn,
    )


def answered(status: int, body: bytes = b"") -> Policy:
    document = Document(status=status, url="", sha256="", body=body, fetched_at=NOW, via="direct")
    return Policy(origin=A, document=document)


def failed(failure: Failure, since: float = NOW, **options) -> Policy:
    found = FetchTrouble(
        failure=failure, since=since, at=since, attempts=1, retry_at=since + 30, **options
    )
    return Policy(origin=A, trouble=found)


# -- decisions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "delay", "would", "has_turn", "is_due"),
    [
        (Action.PASS, None, None, False, True),
        (Action.PASS, PACE, None, False, False),
        (Action.PASS, PACE, None, True, True),
        (Action.PASS, None, None, True, True),
        (Action.PASS, PACE, Action.DEFER, False, True),  # only reported: it waits for nothing
        (Action.PASS, None, Action.DROP, False, True),
        (Action.DROP, None, None, False, False),
        (Action.DROP, None, None, True, False),
        (Action.DROP, PACE, None, True, False),
        (Action.DEFER, PACE, None, False, False),
        (Action.DEFER, PACE, None, True, False),
    ],
)
def test_a_request_is_due_if_it_was_let_pass_and_has_its_turn_if_it_needs_one(
    action, delay, would, has_turn, is_due
):
    verdict = Verdict(action=action, reason=Reason.ALLOWED, delay=delay, would=would)

    assert decision(verdict, Turn(stamp=NOW) if has_turn else None).is_due is is_due


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize(
    ("action", "would", "is_allowed"),
    [(Action.PASS, None, True), (Action.PASS, Action.DROP, False), (Action.DROP, None, False)],
)
def test_a_request_has_escaped_if_it_was_sent_and_is_not_allowed(sent, action, would, is_allowed):
    verdict = Verdict(action=action, reason=Reason.DISALLOWED, would=would)

    assert decision(verdict, sent=sent).has_escaped is (sent and not is_allowed)


def test_a_report_only_verdict_has_the_action_it_would_be():
    dropped = Verdict(action=Action.DROP, reason=Reason.DISALLOWED, detail="why")
    report = as_report_only(dropped)

    assert (report.action, report.would, report.relaxed) == (
        Action.PASS,
        Action.DROP,
        "report_only",
    )
    assert (report.reason, report.detail) == (Reason.DISALLOWED, "why")
    assert as_report_only(ALLOWED) is ALLOWED


# -- statuses and failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "detail"),
    [
        (400, None),
        (401, "robots.txt answered 401"),
        (402, None),
        (403, "robots.txt answered 403"),
        (404, None),
    ],
)
def test_a_dialect_that_allows_401_and_403_is_named_in_the_verdict(status, detail):
    verdict = judge(question_with(), answered(status), None, terms("google"), NOW)

    assert (verdict.action, verdict.reason) == (Action.PASS, Reason.UNRESTRICTED)
    assert (verdict.detail, verdict.relaxed) == (detail, "dialect=google" if detail else None)


@pytest.mark.parametrize("status", [401, 403])
def test_a_restricted_verdict_has_the_status(status):
    verdict = judge(question_with(), answered(status), None, terms(), NOW)
    opened = judge(question_with(), answered(status), None, terms(on_restricted="allow"), NOW)

    assert (verdict.action, verdict.reason) == (Action.DROP, Reason.RESTRICTED)
    assert (opened.action, opened.reason, opened.relaxed) == (
        Action.PASS,
        Reason.RESTRICTED,
        "on_restricted=allow",
    )
    assert verdict.detail == opened.detail == f"robots.txt answered {status}"


def test_allowed_redirect_limits_are_named():
    circle = failed(Failure.REDIRECT_LOOP, detail="6 hops")
    by_setting = judge(question_with(), circle, None, terms(on_unreachable="allow"), NOW)
    by_dialect = judge(question_with(), circle, None, terms("google"), NOW)

    assert (by_setting.action, by_setting.reason) == (Action.PASS, Reason.UNREACHABLE)
    assert by_setting.detail == "redirect-loop: 6 hops"
    assert (by_dialect.action, by_dialect.reason) == (Action.PASS, Reason.UNRESTRICTED)
    assert (by_dialect.detail, by_dialect.relaxed) == ("redirect-loop: 6 hops", "dialect=google")


def test_an_unreachable_verdict_has_the_failure_under_every_setting():
    found = failed(Failure.DNS, detail="no such host")
    for choice, action in (("defer", Action.DEFER), ("drop", Action.DROP), ("allow", Action.PASS)):
        verdict = judge(question_with(), found, None, terms(on_unreachable=choice), NOW)

        assert (verdict.action, verdict.reason) == (action, Reason.UNREACHABLE)
        assert verdict.detail == "dns: no such host"
        assert verdict.relaxed == ("on_unreachable=allow" if choice == "allow" else None)


def test_an_unreachable_origin_defers_until_its_next_try_and_for_max_defer_at_most():
    found = failed(Failure.DNS, detail="no such host")

    assert judge(question_with(), found, None, terms(max_defer=900.0), NOW).until == NOW + 30
    assert judge(question_with(), found, None, terms(max_defer=20.0), NOW + 19).until == NOW + 20
    ended = judge(question_with(), found, None, terms(max_defer=20.0), NOW + 20)
    assert (ended.action, ended.until) == (Action.DROP, None)
    assert ended.detail == "dns: no such host; for 20 s, longer than max_defer"


def test_an_empty_policy_drops():
    verdict = judge(question_with(), Policy(origin=A), None, terms(), NOW)

    assert (verdict.action, verdict.reason, verdict.detail) == (
        Action.DROP,
        Reason.UNREACHABLE,
        None,
    )


@pytest.mark.parametrize("status", [200, 404, 403])
def test_a_verdict_by_the_last_good_document_is_stale_and_one_without_trouble_is_not(status):
    calm = answered(status, b"User-agent: *\nDisallow: /")
    both = Policy(origin=A, document=calm.document, trouble=failed(Failure.DNS).trouble)
    rules = (
        compile_rules(calm.document.body, dialect("rfc9309"), "mybot", "standard")
        if status == 200
        else None
    )

    assert judge(question_with(), both, rules, terms(), NOW).stale
    assert not judge(question_with(), calm, rules, terms(), NOW).stale


# -- deferring disallowed requests ----------------------------------------


def test_disallowed_requests_are_deferred_until_renewal_and_at_most_max_defer():
    policy = answered(200, b"User-agent: *\nDisallow: /")
    rules = compile_rules(policy.document.body, dialect("rfc9309"), "mybot", "standard")

    def verdict(max_defer: float, since: float | None = None, now: float = NOW) -> Verdict:
        earlier = Deferral("x-0", since) if since is not None else None
        settings = terms(on_disallowed="defer", max_defer=max_defer)
        return judge(question_with(deferral=earlier), policy, rules, settings, now)

    expires = policy.expires_at(dialect("rfc9309"))
    patient = 2 * (expires - NOW)
    assert (verdict(patient).action, verdict(patient).until) == (Action.DEFER, expires)
    assert verdict(100.0).until == NOW + 100
    assert verdict(100.0, since=NOW - 60).until == NOW + 40
    assert verdict(patient, now=expires + 5).until == expires + 35  # at least the shortest pause
    assert (verdict(100.0, since=NOW - 100).action, verdict(100.0, since=NOW - 100).until) == (
        Action.DROP,
        None,
    )
    assert verdict(100.0).reason is Reason.DISALLOWED
    assert verdict(100.0, since=NOW + 3600).until == NOW + 100  # the clock was set back since


# -- time -----------------------------------------------------------------------------------------------------


def rules_with(*lines: str):
    return compile_rules(
        "\n".join(("User-agent: *", *lines)).encode(), dialect("rfc9309"), "mybot", "standard"
    )


def test_a_robots_txt_without_a_delay_requires_none():
    assert paced(ALLOWED, rules_with("Disallow: /x"), terms(), NOW) is ALLOWED
    assert paced(ALLOWED, None, terms(), NOW) is ALLOWED


def test_refused_requests_and_robots_txt_are_not_paced():
    slow = rules_with("Crawl-delay: 5")
    for verdict in (
        Verdict(action=Action.DROP, reason=Reason.DISALLOWED),
        Verdict(action=Action.PASS, reason=Reason.ROBOTS_TXT),
    ):
        assert paced(verdict, slow, terms(), NOW) is verdict


def test_a_pause_alone_requires_a_turn():
    paused = paced(ALLOWED, None, terms(), NOW, is_paused=True)
    slow = paced(ALLOWED, rules_with("Crawl-delay: 5"), terms(), NOW, is_paused=True)

    assert paused.delay == RequiredDelay(by=DelaySource.RETRY_AFTER, seconds=0.0)
    assert (slow.delay.by, slow.delay.seconds) == (DelaySource.CRAWL_DELAY, 5.0)


def test_a_delay_for_a_time_of_day_applies_then():
    midnight = NOW - NOW % 86_400
    rated = rules_with("Request-rate: 1/9s 0600-0845")

    assert paced(ALLOWED, rated, terms(), midnight).delay is None
    assert paced(ALLOWED, rated, terms(), midnight + 6 * 3600).delay.seconds == 9


def test_only_a_limited_delay_names_the_setting():
    slow = rules_with("Crawl-delay: 50")

    assert paced(ALLOWED, slow, terms(max_delay=20.0), NOW).relaxed == "max_delay=20"
    assert paced(ALLOWED, slow, terms(max_delay=50.0), NOW).relaxed is None


def test_an_unreadable_delay_is_the_detail_unless_there_is_another():
    odd = rules_with("Crawl-delay: soon", "Crawl-delay: 5", "Crawl-delay: later")
    other = Verdict(action=Action.PASS, reason=Reason.ALLOWED, detail="something else")

    assert (
        paced(ALLOWED, odd, terms(), NOW).detail
        == "line 2 is unreadable and ignored: Crawl-delay: soon"
    )
    assert paced(other, odd, terms(), NOW).detail == "something else"
    assert paced(ALLOWED, rules_with("Crawl-delay: 5"), terms(), NOW).detail is None


def test_outside_its_visiting_time_a_site_is_deferred_by_the_line_that_says_so():
    midnight = NOW - NOW % 86_400
    shut = rules_with("Visit-time: 0600-0845", "Crawl-delay: 5")
    allowed = Verdict(action=Action.PASS, reason=Reason.ALLOWED, group="*")

    verdict = paced(allowed, shut, terms(), midnight)
    ignored = paced(allowed, shut, terms(visit_time="ignore"), midnight)
    always = paced(allowed, shut, terms(), midnight, at_any_time=True)

    assert (verdict.action, verdict.reason, verdict.until) == (
        Action.DEFER,
        Reason.VISIT_TIME,
        midnight + 6 * 3600,
    )
    assert (verdict.rule, verdict.group) == (RuleRef(2, "Visit-time: 0600-0845", "*"), "*")
    assert (ignored.action, ignored.relaxed, ignored.delay.seconds) == (
        Action.PASS,
        "visit_time=ignore",
        5.0,
    )
    assert (always.action, always.relaxed, always.delay.seconds) == (Action.PASS, None, 5.0)
    assert paced(allowed, shut, terms(visit_time="ignore"), midnight + 7 * 3600).relaxed is None


def test_a_request_without_its_turn_is_deferred_by_the_source_of_the_delay():
    verdict = Verdict(
        action=Action.PASS,
        reason=Reason.ALLOWED,
        group="*",
        delay=PACE,
        relaxed="max_delay=5",
        stale=True,
    )
    waits = not_yet(verdict, Wait(seconds=3.0), NOW)
    paused = not_yet(verdict, Wait(seconds=60.0, by_retry_after=True), NOW)

    assert waits == Verdict(
        action=Action.DEFER,
        reason=Reason.CRAWL_DELAY,
        rule=RuleRef(2, "Crawl-delay: 5", "*"),
        group="*",
        until=NOW + 3,
        relaxed="max_delay=5",
        stale=True,
        delay=PACE,
    )
    assert (paused.reason, paused.rule, paused.until) == (Reason.RETRY_AFTER, None, NOW + 60)


def test_a_delay_of_the_operator_names_no_line():
    own = Verdict(
        action=Action.PASS,
        reason=Reason.ALLOWED,
        delay=RequiredDelay(by=DelaySource.MIN_DELAY, seconds=2.0),
    )

    assert not_yet(own, Wait(seconds=2.0), NOW).rule is None
    assert not_yet(own, Wait(seconds=2.0), NOW).reason is Reason.MIN_DELAY


# -- settings -------------------------------------------------------------------------------------------------

CHOICES = {
    "on_disallowed": ("drop", "defer"),
    "visit_time": ("keep", "ignore"),
    "on_restricted": ("drop", "allow"),
    "on_unreachable": ("defer", "drop", "allow"),
}


@pytest.mark.parametrize(
    ("setting", "value"),
    [(setting, value) for setting, values in CHOICES.items() for value in values],
)
def test_every_documented_value_is_accepted(setting, value):
    assert getattr(terms(**{setting: value}), setting) == value


@pytest.mark.parametrize("setting", CHOICES)
def test_an_unknown_value_is_refused_and_the_valid_ones_are_named(setting):
    with pytest.raises(SettingsError) as error:
        terms(**{setting: "perhaps"})

    *most, last = CHOICES[setting]
    assert str(error.value) == f"{setting} 'perhaps' is not known: use {', '.join(most)} or {last}"
