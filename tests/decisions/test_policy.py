"""What a policy means at a moment: its document, its trouble, and which of two policies is later."""

from __future__ import annotations

import math

import pytest

from robots_guard.decisions.access import Access, Failure
from robots_guard.decisions.freshness import (
    CLOCK_SKEW,
    LONGEST_BACKOFF,
    STALE_IF_ERROR,
    UNTRIED,
    Freshness,
)
from robots_guard.decisions.policy import Document, FetchTrouble, Policy
from robots_guard.origin import origin_of
from robots_guard.protocol.dialect import dialect

A = origin_of("https://a.test")
RFC, GOOGLE = dialect("rfc9309"), dialect("google")
NOW = 1_800_000_000.0


def document(
    status: int = 200, at: float = NOW, body: bytes = b"", stated: float | None = None
) -> Document:
    return Document(
        status=status,
        url="",
        sha256="",
        body=body,
        fetched_at=at,
        via="direct",
        stated_lifetime=stated,
    )


def trouble(
    failure: Failure = Failure.DNS,
    at: float = NOW,
    retry_at: float = NOW + 30,
    status: int | None = None,
) -> FetchTrouble:
    return FetchTrouble(
        failure=failure, status=status, since=at, at=at, attempts=1, retry_at=retry_at
    )


def policy(document: Document | None = None, trouble: FetchTrouble | None = None) -> Policy:
    return Policy(origin=A, document=document, trouble=trouble)


# -- access ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "access"),
    [(200, Access.RULES), (404, Access.UNRESTRICTED), (403, Access.RESTRICTED)],
)
def test_without_trouble_the_document_says_the_access_however_old_it_is(status, access):
    stored = document(status)

    assert policy(stored).access(NOW, RFC) == (access, stored)
    assert policy(stored).access(NOW + 2 * STALE_IF_ERROR, RFC) == (access, stored)


@pytest.mark.parametrize(
    ("status", "access"),
    [(200, Access.RULES), (404, Access.UNRESTRICTED), (403, Access.RESTRICTED)],
)
def test_in_trouble_the_last_good_document_says_the_access_for_30_days(status, access):
    stored = document(status)
    both = policy(stored, trouble(at=NOW + 60))

    assert both.access(NOW + STALE_IF_ERROR, RFC) == (access, stored)
    assert both.access(NOW + STALE_IF_ERROR + 1, RFC) == (Access.UNREACHABLE, None)


def test_in_trouble_without_a_document_the_origin_is_unreachable():
    assert policy(trouble=trouble()).access(NOW, RFC) == (Access.UNREACHABLE, None)


def test_an_empty_policy_makes_the_origin_unreachable():
    assert policy().access(NOW, RFC) == (Access.UNREACHABLE, None)


def test_a_dialect_that_defines_the_trouble_ignores_the_document():
    both = policy(document(), trouble(Failure.REDIRECT_LOOP))

    assert both.access(NOW, GOOGLE) == (Access.UNRESTRICTED, None)
    assert both.access(NOW, RFC)[0] is Access.RULES


def test_trouble_by_a_status_means_what_the_dialect_says_of_the_status():
    # What a store may hold: the status is what counts.
    failed = trouble(Failure.REDIRECT_LOOP, status=503)

    assert policy(trouble=failed).access(NOW, GOOGLE) == (Access.UNREACHABLE, None)


# -- freshness ------------------------------------------------------------------------------------------------


def test_trouble_is_fresh_until_its_next_try_then_stale_with_a_document_and_expired_without():
    alone, both = policy(trouble=trouble()), policy(document(), trouble())

    assert alone.freshness(NOW, RFC) is both.freshness(NOW, RFC) is Freshness.FRESH
    assert alone.freshness(NOW + 29.9, RFC) is Freshness.FRESH
    assert alone.freshness(NOW + 30, RFC) is Freshness.EXPIRED
    assert both.freshness(NOW + 30, RFC) is Freshness.STALE
    assert both.freshness(NOW + STALE_IF_ERROR + 1, RFC) is Freshness.EXPIRED


def test_trouble_from_the_future_is_accepted_within_clock_skew():
    assert policy(trouble=trouble()).freshness(NOW - CLOCK_SKEW, RFC) is Freshness.FRESH
    assert policy(trouble=trouble()).freshness(NOW - CLOCK_SKEW - 1, RFC) is Freshness.EXPIRED


def test_a_document_from_the_future_is_used_within_clock_skew():
    both = policy(document(), trouble(at=NOW - 600))

    assert both.last_good(NOW - CLOCK_SKEW) is both.document
    assert both.last_good(NOW - CLOCK_SKEW - 1) is None


def test_an_empty_policy_has_expired():
    assert policy().freshness(NOW, RFC) is Freshness.EXPIRED
    assert policy().expires_at(RFC) == 0


def test_a_policy_expires_with_its_document_or_with_the_next_try():
    assert policy(document(stated=600.0)).expires_at(RFC) == NOW + 600
    assert policy(document(stated=600.0), trouble()).expires_at(RFC) == NOW + 30


# -- trouble --------------------------------------------------------------------------------------------------


def test_the_next_try_is_no_later_than_a_guard_can_have_set_it():
    assert trouble(retry_at=NOW + LONGEST_BACKOFF).next_try == NOW + LONGEST_BACKOFF
    assert trouble(retry_at=NOW + LONGEST_BACKOFF + 1).next_try == NOW + LONGEST_BACKOFF
    assert trouble(retry_at=math.nan).next_try == NOW + LONGEST_BACKOFF


def test_trouble_continues_if_retried_within_15_minutes_of_the_due_time():
    assert trouble().continues(NOW + 30 + UNTRIED)
    assert not trouble().continues(NOW + 30 + UNTRIED + 1)


@pytest.mark.parametrize(
    ("failure", "detail", "says"),
    [
        (Failure.DNS, "", "dns"),
        (Failure.DNS, "no such host", "dns: no such host"),
        (Failure.STATUS, "status 503", "status 503"),
        (Failure.STATUS, "", "status"),
    ],
)
def test_trouble_has_a_short_description(failure, detail, says):
    failed = FetchTrouble(
        failure=failure, detail=detail, since=NOW, at=NOW, attempts=1, retry_at=NOW
    )

    assert failed.says == says


# -- the later of two -----------------------------------------------------------------------------------------


def test_trouble_keeps_the_stored_document():
    stored = document()
    found = policy(trouble=trouble(at=NOW + 60))

    assert found.with_last_good_document(policy(stored), NOW + 60) == policy(stored, found.trouble)


def test_trouble_keeps_the_later_of_two_documents():
    ours, theirs = document(at=NOW + 10), document(at=NOW)

    assert (
        policy(ours, trouble()).with_last_good_document(policy(theirs), NOW + 60).document is ours
    )
    assert (
        policy(theirs, trouble()).with_last_good_document(policy(ours), NOW + 60).document is ours
    )


def test_a_document_is_not_merged_and_trouble_may_have_none():
    answer, found = policy(document()), policy(trouble=trouble())

    assert answer.with_last_good_document(policy(document(at=NOW + 10)), NOW + 60) is answer
    assert found.with_last_good_document(None, NOW) is found
    assert found.with_last_good_document(policy(trouble=trouble()), NOW) is found


def test_a_document_from_the_future_is_not_kept_with_trouble():
    found = policy(trouble=trouble())

    assert (
        found.with_last_good_document(policy(document(at=NOW + CLOCK_SKEW)), NOW).document
        is not None
    )
    assert found.with_last_good_document(policy(document(at=NOW + CLOCK_SKEW + 1)), NOW) is found


def test_settled_at_is_the_time_of_the_last_fetch():
    assert policy(document()).settled_at == NOW
    assert policy(document(), trouble(at=NOW + 60)).settled_at == NOW + 60
    assert policy().settled_at == 0


def test_an_earlier_policy_never_replaces_a_later_one():
    early, late = policy(document()), policy(document(at=NOW + 1))

    assert early.may_be_replaced_by(late, NOW + 1)
    assert early.may_be_replaced_by(early, NOW + 1)
    assert not late.may_be_replaced_by(early, NOW + 1)


def test_a_policy_from_the_future_may_be_replaced():
    early, late = policy(document()), policy(document(at=NOW + 1000))

    assert not late.may_be_replaced_by(early, NOW + 1000 - CLOCK_SKEW)
    assert late.may_be_replaced_by(early, NOW + 999 - CLOCK_SKEW)


def test_the_size_is_the_body_and_a_kibibyte():
    assert policy(document(body=b"x" * 100)).size == 1124
    assert policy(trouble=trouble()).size == 1024
