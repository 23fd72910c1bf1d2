"""Reservations, fetched state by state: a site's /.well-known/tdmrep.json after its robots.txt."""

from __future__ import annotations

import msgspec
import pytest
from decisions.walking import walk
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.decisions import check, lease
from robots_guard.decisions import policy as policies
from robots_guard.decisions.access import MAX_RESERVATIONS, Failed, Failure, Fetched
from robots_guard.decisions.check import (
    Comparing,
    Decided,
    Judging,
    Lookup,
    Overridden,
    Renewing,
)
from robots_guard.decisions.freshness import STALE_IF_ERROR, Freshness
from robots_guard.decisions.lease import Found, Granted
from robots_guard.decisions.policy import Policy, Reservations
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.renewal import (
    Fetching,
    FetchingReservations,
    JudgingReservations,
    Settled,
    begin,
)
from robots_guard.decisions.verdict import Action, Question, Terms, Verdict
from robots_guard.origin import origin_of
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching
from robots_guard.protocol.ruleset import compile_rules
from robots_guard.protocol.signals.statement import Place
from robots_guard.protocol.signals.tdmrep import read_file

A, B = origin_of("https://a.test"), origin_of("https://b.test")
NOW = 1_800_000_000.0
RFC = dialect("rfc9309")
FILE = b'[{"location": "/", "tdm-reservation": 1}]'
YES = Verdict(action=Action.PASS, reason=Reason.ALLOWED)
NO = Verdict(action=Action.DROP, reason=Reason.DISALLOWED)
LATER = Verdict(action=Action.DEFER, reason=Reason.CRAWL_DELAY, until=NOW + 60, detail="60 s")
RULES = Fetched(status=200, body=b"User-agent: *\nDisallow: /x", tls_verified=True)
RESERVED = Fetched(status=200, body=FILE, tls_verified=True)
TERMS = Terms(dialect=RFC, matching=matching("standard"))


class NeedyTerms(Terms, frozen=True, kw_only=True):
    """Terms that need reservations."""

    @property
    def needs_reservations(self) -> bool:
        return True


NEEDY = NeedyTerms(dialect=RFC, matching=matching("standard"))


def moved(url: str, **more) -> Fetched:
    return Fetched(status=301, headers={"location": url}, **more)


def walked(*answers, cached=None, now=NOW, **options):
    start = begin(A, cached, "direct", reservations_for="mybot", **options)
    return walk(start, *((answer, now) for answer in answers))


def settle(*answers, **options) -> Policy:
    last = walked(*answers, **options)[-1]
    assert isinstance(last, Settled)
    return last.policy


def with_reservations(at: float = NOW, body: bytes = FILE, **headers: str) -> Policy:
    answer = Fetched(status=200, body=body, headers=headers, tls_verified=True)
    return settle(RULES, YES, answer, now=at)


# -- the way there ----------------------------------------------------------------------------------


def test_the_file_is_fetched_after_a_document_that_allows_it():
    trail = walked(RULES, YES, RESERVED)
    judging, fetching, settled = trail[1:]

    assert [type(state) for state in trail] == [
        Fetching,
        JudgingReservations,
        FetchingReservations,
        Settled,
    ]
    assert (judging.target, judging.policy.origin) == ("/.well-known/tdmrep.json", A)
    assert judging.policy.document.body == RULES.body
    assert fetching.url == "https://a.test/.well-known/tdmrep.json"
    assert (fetching.file, fetching.judged, trail[0].file) == ("tdmrep.json", True, "robots.txt")
    assert settled.policy.reservations == Reservations(
        attempted_at=NOW, status=200, fetched_at=NOW, body=FILE
    )


def test_a_renewal_without_them_fetches_the_document_only():
    assert isinstance(begin(A, None, "direct").next(RULES, NOW), Settled)


@pytest.mark.parametrize("status", [404, 403, 401, 204])
def test_the_verdict_by_the_new_document_decides(status):
    assert isinstance(walked(Fetched(status=status))[-1], JudgingReservations)


@pytest.mark.parametrize(
    "outcome", [Failed(failure=Failure.DNS), Fetched(status=503), Fetched(status=429)]
)
def test_without_a_document_they_are_not_fetched(outcome):
    assert settle(outcome).reservations is None


@pytest.mark.parametrize(("verdict", "failure"), [(NO, "disallowed"), (LATER, "crawl-delay: 60 s")])
def test_what_the_rules_forbid_or_delay_is_not_fetched(verdict, failure):
    trail = walked(RULES, verdict)

    assert [type(state) for state in trail] == [Fetching, JudgingReservations, Settled]
    assert trail[-1].policy.reservations == Reservations(
        attempted_at=NOW, failure=failure, failed_for="mybot"
    )
    assert trail[-1].policy.trouble is None


@pytest.mark.parametrize("status", [404, 410, 451, 400])
def test_a_missing_file_says_nothing(status):
    answer = Fetched(status=status, body=FILE)

    assert settle(RULES, YES, answer).reservations == Reservations(
        attempted_at=NOW, status=status, fetched_at=NOW
    )


@pytest.mark.parametrize(
    ("outcome", "failure"),
    [
        (Fetched(status=503), "status 503"),
        (Fetched(status=429), "status 429"),
        (Fetched(status=403), "status 403"),
        (Fetched(status=401), "status 401"),
        (Fetched(status=206, body=FILE), "status 206"),
        (Fetched(status=304), "status 304"),
        (Fetched(status=302), "status 302"),
        (Failed(failure=Failure.TIMEOUT), "timeout"),
        (Failed(failure=Failure.REFUSED, detail="not public"), "refused: not public"),
        (Fetched(status=200, body=b"[", truncated=True), "longer than 262144 bytes"),
        (Fetched(status=200, body=b" " * (MAX_RESERVATIONS + 1)), "longer than 262144 bytes"),
        (moved("https://b.test/.well-known/tdmrep.json"), "redirect-refused: to https://b.test"),
        (moved("http://a.test/.well-known/tdmrep.json"), "redirect-refused: to http://a.test"),
        (moved("file:///etc/passwd"), "redirect-refused: file: is not http or https"),
        (moved("/a\tb"), "redirect-refused: its Location is not a URL"),
        (moved("/.well-known/tdmrep.json"), "redirect-loop"),
    ],
)
def test_a_failure_is_recorded_and_does_not_invalidate_the_document(outcome, failure):
    policy = settle(RULES, YES, outcome)

    assert policy.reservations.status is None
    assert policy.reservations.body == b""
    assert policy.reservations.failure == failure
    assert policy.document.body == RULES.body
    assert policy.trouble is None


def test_a_file_of_the_largest_size_is_kept():
    body = b" " * MAX_RESERVATIONS

    assert settle(RULES, YES, Fetched(status=200, body=body)).reservations.body == body


def test_redirects_within_the_origin_are_judged_and_followed():
    trail = walked(RULES, YES, moved("/tdm/r.json?v=\u00e9", public=True), YES, RESERVED)

    assert [type(state) for state in trail[2:]] == [
        FetchingReservations,
        JudgingReservations,
        FetchingReservations,
        Settled,
    ]
    assert trail[3].target == trail[4].url.removeprefix(str(A)) == "/tdm/r.json?v=%C3%A9"
    assert (trail[2].public_only, trail[4].public_only) == (False, True)
    assert trail[-1].policy.reservations.body == FILE


def test_five_redirects_are_followed_and_a_sixth_is_not():
    hops = [step for number in range(6) for step in (YES, moved(f"/{number}"))]

    assert settle(RULES, *hops[:10], YES, RESERVED).reservations.status == 200
    assert settle(RULES, *hops).reservations.failure == "redirect-limit"


def test_a_redirect_that_the_fetcher_has_followed_is_marked():
    assert walked(RULES, YES, moved("/x", was_followed=True))[-1].was_followed


def test_addresses_stay_public_where_the_renewal_is_public():
    assert walked(RULES, YES, public_only=True)[-1].public_only


# -- the next time ----------------------------------------------------------------------------------


def test_a_renewal_asks_whether_the_file_has_changed():
    known = with_reservations(etag='"1"', **{"last-modified": "Fri, 01 Jan 2027 00:00:00 GMT"})
    fetching = walked(RULES, YES, cached=known, now=NOW + 9)[-1]
    renewed = fetching.next(Fetched(status=304), NOW + 9).policy.reservations

    assert fetching.conditions == (
        ("If-None-Match", '"1"'),
        ("If-Modified-Since", "Fri, 01 Jan 2027 00:00:00 GMT"),
    )
    assert renewed == msgspec.structs.replace(
        known.reservations, attempted_at=NOW + 9, fetched_at=NOW + 9
    )


def test_validators_are_not_sent_to_another_url_nor_with_line_breaks():
    known = with_reservations(etag='"1"')
    broken = msgspec.structs.replace(
        known, reservations=msgspec.structs.replace(known.reservations, etag="1\r\nCookie: x")
    )

    assert walked(RULES, YES, moved("/x"), YES, cached=known)[-1].conditions == ()
    assert walked(RULES, YES, cached=broken)[-1].conditions == ()
    assert settle(RULES, YES, moved("/x"), YES, RESERVED).reservations.etag == ""


@pytest.mark.parametrize("answer", [Fetched(status=503), Failed(failure=Failure.DNS)])
def test_the_last_answer_holds_for_thirty_days_while_there_is_no_other(answer):
    known = with_reservations()
    soon = settle(RULES, YES, answer, cached=known, now=NOW + 86_400)
    again = settle(RULES, NO, cached=soon, now=NOW + STALE_IF_ERROR)
    late = settle(RULES, YES, answer, cached=again, now=NOW + STALE_IF_ERROR + 1)

    assert (soon.reservations.body, soon.reservations.fetched_at) == (FILE, NOW)
    assert soon.reservations.attempted_at == NOW + 86_400
    assert again.reservations.body == FILE
    assert again.reservations.failure == "disallowed"
    assert (late.reservations.body, late.reservations.status) == (b"", None)


def test_a_file_that_was_removed_no_longer_holds():
    assert settle(RULES, YES, Fetched(status=404), cached=with_reservations()).reservations == (
        Reservations(attempted_at=NOW, status=404, fetched_at=NOW)
    )


def test_trouble_keeps_them_with_the_document():
    known = with_reservations()
    trouble = settle(Failed(failure=Failure.DNS), cached=known, now=NOW + 90_000)
    alone = settle(Failed(failure=Failure.DNS), now=NOW + 90_000)

    assert trouble.reservations == known.reservations
    assert alone.with_last_good_document(known, NOW + 90_000).reservations == known.reservations
    assert known.size > msgspec.structs.replace(known, reservations=None).size


# -- what they state --------------------------------------------------------------------------------


def test_they_are_compiled_once_and_state_what_the_file_says_about_a_target(monkeypatch):
    read = []
    monkeypatch.setattr(policies, "read_file", lambda body: read.append(body) or read_file(body))
    body = b'[{"location": "/a/*", "tdm-reservation": 1, "tdm-policy": "https://a.test/p"}]'
    held = with_reservations(body=body)
    stated = held.reservation_statements("/a/x")

    assert [(each.rule, each.value) for each in stated] == [
        ("tdm-reservation", 1),
        ("tdm-policy", "https://a.test/p"),
    ]
    assert {each.place for each in stated} == {Place.TDMREP_FILE}
    assert held.reservation_statements("/b") == ()
    assert held.reservation_statements("/a/./x") == stated
    assert read == [body]


@pytest.mark.parametrize("answer", [Fetched(status=404), Fetched(status=503)])
def test_without_a_file_nothing_is_stated(answer):
    assert settle(RULES, YES, answer).reservation_statements("/a/x") == ()
    assert begin(A, None, "direct").next(RULES, NOW).policy.reservation_statements("/") == ()


def test_the_last_answer_states_what_it_said():
    held = settle(RULES, NO, cached=with_reservations())

    assert [each.value for each in held.reservation_statements("/a")] == [1]


# -- when they are needed ---------------------------------------------------------------------------


def test_a_policy_without_them_has_expired_where_they_are_needed():
    bare = begin(A, None, "direct").next(RULES, NOW).policy
    had = begin(A, with_reservations(NOW - 99), "direct").next(RULES, NOW).policy
    for held in (bare, had):
        assert held.lacks_reservations
        assert held.freshness(NOW, RFC) is Freshness.FRESH
        assert held.freshness(NOW, RFC, needs_reservations=True) is Freshness.EXPIRED
    assert had.reservations.body == FILE, "kept, in case no newer ones can be obtained"


def test_a_policy_in_trouble_lacks_none():
    """Nothing can be fetched at present, so another renewal would change nothing."""
    bare = begin(A, None, "direct").next(RULES, NOW - 90_000).policy
    trouble = begin(A, bare, "direct").next(Failed(failure=Failure.DNS), NOW).policy

    assert trouble.freshness(NOW, RFC, needs_reservations=True) is Freshness.FRESH


OUTCOMES = st.sampled_from(
    [
        RULES,
        RESERVED,
        moved("/x"),
        moved("/y"),
        moved("https://b.test/z"),
        Fetched(status=304),
        Fetched(status=404),
        Fetched(status=403),
        Fetched(status=503),
        Failed(failure=Failure.TIMEOUT),
    ]
)


@given(
    outcomes=st.lists(OUTCOMES, min_size=30, max_size=30),
    verdicts=st.lists(st.sampled_from([YES, YES, NO, LATER]), min_size=30, max_size=30),
    steps=st.lists(st.floats(-1e6, 1e6), min_size=30, max_size=30),
    cached=st.sampled_from([None, with_reservations(NOW - 1e5), with_reservations(NOW + 1e5)]),
)
def test_every_renewal_ends_with_reservations_or_trouble(outcomes, verdicts, steps, cached):
    """Even if the clock jumps between any two steps."""
    state, now = begin(A, cached, "direct", reservations_for="mybot"), NOW
    for outcome, verdict, step in zip(outcomes, verdicts, steps, strict=True):
        if isinstance(state, Settled):
            break
        needs_outcome = isinstance(state, Fetching | FetchingReservations)
        state, now = state.next(outcome if needs_outcome else verdict, now), now + step

    assert isinstance(state, Settled)
    assert not state.policy.lacks_reservations


def test_a_check_renews_a_policy_that_lacks_them_once():
    question = Question(origin=A, target="/", agent="mybot")
    bare = begin(A, None, "direct").next(RULES, NOW).policy
    trail = walk(check.begin(question, NEEDY), (bare, NOW), (with_reservations(), NOW))

    assert [type(state) for state in trail] == [Lookup, Renewing, Judging]
    assert isinstance(Lookup(question, NEEDY).next(with_reservations(), NOW), Judging)
    assert isinstance(Lookup(question, TERMS).next(bare, NOW), Judging)


def test_the_guards_own_requests_need_none():
    own = Question(origin=A, target="/x.txt", agent="mybot", robots_txt_of=B)
    bare = begin(A, None, "direct").next(RULES, NOW).policy

    assert isinstance(Lookup(own, NEEDY).next(bare, NOW), Judging)


def test_an_exempted_request_keeps_the_policy_with_its_reservations():
    """A renewal in the background begins with it."""
    question = Question(origin=A, target="/", agent="mybot")
    exempting = msgspec.structs.replace(NEEDY, action="pass")
    known = with_reservations()
    rules = compile_rules(RULES.body, RFC, "mybot", "standard")
    trail = walk(check.begin(question, exempting), (known, NOW), (rules, NOW))

    assert [type(state) for state in trail] == [Overridden, Comparing, Decided]
    assert trail[-1].policy is known
    assert trail[-1].verdict.would is Action.PASS


def test_a_check_under_a_given_policy_fetches_nothing():
    question = Question(origin=A, target="/", agent="mybot", robots_txt_of=A)
    old = begin(A, None, "direct").next(RULES, NOW - 1e6).policy

    assert isinstance(check.begin_under(question, NEEDY, old, NOW), Judging)


@pytest.mark.parametrize("leased", [True, False])
def test_the_lease_waits_for_a_policy_that_has_them(leased):
    bare = begin(A, None, "direct").next(RULES, NOW).policy

    def after(found: Policy | None, cached: Policy | None = bare):
        start = lease.begin(cached, RFC, 0.0, needs_reservations=True)
        return walk(start, (leased,), (found, NOW))[-1]

    assert after(with_reservations()) == Found(with_reservations()), (
        "at the same time, by the clock"
    )
    assert isinstance(after(bare), Granted)
    assert isinstance(after(bare, None), Granted)
    assert after(with_reservations(), None) == Found(with_reservations())


@pytest.mark.parametrize(
    ("answers", "is_shared"),
    [
        ((YES, RESERVED), True),
        ((YES, Fetched(status=503)), True),
        ((YES, Failed(failure=Failure.DNS)), True),
        ((YES, Failed(failure=Failure.REFUSED)), False),
        ((YES, Failed(failure=Failure.TLS)), False),
        ((NO,), False),
        ((LATER,), False),
    ],
)
def test_a_failure_of_one_agent_is_attempted_again_for_another(answers, is_shared):
    policy = settle(RULES, *answers, cached=with_reservations())

    assert policy.as_read_by("mybot") is policy
    assert policy.as_read_by("another").lacks_reservations is not is_shared
    assert policy.as_read_by("another").reservations.body == FILE


def test_a_later_answer_is_for_all_agents_again():
    refused = settle(RULES, NO, cached=with_reservations(etag='"1"'))

    assert refused.reservations.failed_for == "mybot"
    for answer in (Fetched(status=304), RESERVED, Fetched(status=503)):
        renewed = settle(RULES, YES, answer, cached=refused)
        assert renewed.reservations.failed_for is None


# -- from a file ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "objection"),
    [
        ({"body": b" " * (MAX_RESERVATIONS + 1)}, "longer"),
        ({"status": 404}, "without a status of success"),
        ({"status": 503, "body": b""}, "does not fit"),
        ({"attempted_at": NOW + 1e6}, "future"),
        ({"fetched_at": float("nan")}, "future"),
        ({"failure": "x" * 10_000}, "too long"),
    ],
)
def test_imported_reservations_are_validated(change, objection):
    policy = with_reservations()
    changed = msgspec.structs.replace(
        policy, reservations=msgspec.structs.replace(policy.reservations, **change)
    )

    assert policies.objection(policy, NOW) is None
    assert objection in policies.objection(changed, NOW)
