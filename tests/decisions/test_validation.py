"""Policies from a file: invalid ones are rejected."""

from __future__ import annotations

import hashlib
import math

import msgspec
import pytest

from robots_guard.decisions import renewal
from robots_guard.decisions.access import Failed, Failure, Fetched
from robots_guard.decisions.policy import objection
from robots_guard.origin import Origin, origin_of

A = origin_of("https://a.test")
NOW = 1_800_000_000.0
replace = msgspec.structs.replace


def settled(outcome):
    return renewal.begin(A, None, "direct").next(outcome, NOW).policy


READ = settled(
    Fetched(status=200, body=b"User-agent: *\nDisallow: /", headers={"cache-control": "max-age=60"})
)
NONE = settled(Fetched(status=404))
TROUBLE = settled(Failed(failure=Failure.DNS))


@pytest.mark.parametrize("policy", [READ, NONE, TROUBLE, replace(READ, trouble=TROUBLE.trouble)])
def test_settled_policies_are_valid(policy):
    assert objection(policy, NOW) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"body": b"User-agent: *\nAllow: /"}, "sha256"),
        ({"body": b"x" * 512_001}, "longer"),
        ({"sha256": "0" * 64}, "sha256"),
        ({"status": 503}, "status 503"),
        ({"status": 0}, "status 0"),
        ({"status": 404}, "status 404"),
        ({"fetched_at": NOW + 301}, "in the future"),
        ({"etag": "x" * 8193}, "too long"),
        ({"stated_lifetime": 2.0**31 + 1}, "lifetime"),
        ({"fetched_at": -1.0}, "in the future"),
        ({"fetched_at": math.nan}, "in the future"),
        ({"stated_lifetime": -1.0}, "lifetime"),
        ({"stated_lifetime": math.inf}, "lifetime"),
        ({"url": "x" * 9000}, "too long"),
        ({"etag": "x" * 9000}, "too long"),
        ({"redirects": ("https://a.test/",) * 21}, "too long"),
        ({"url": "file:///etc/passwd"}, "http"),
        ({"redirects": ("javascript:1",)}, "http"),
    ],
)
def test_invalid_documents_are_rejected(changes, why):
    assert why in objection(replace(READ, document=replace(READ.document, **changes)), NOW)


@pytest.mark.parametrize(
    "changes",
    [
        {"status": 200},
        {"status": 299},
        {"fetched_at": 0.0},
        {"fetched_at": NOW + 300},
        {"stated_lifetime": 0.0},
        {"stated_lifetime": 2.0**31},
        {"stated_lifetime": None},
        {"url": "https://a.test/".ljust(8192, "x")},
        {"redirects": ("https://a.test/",) * 20},
    ],
)
def test_documents_at_the_limits_are_valid(changes):
    assert objection(replace(READ, document=replace(READ.document, **changes)), NOW) is None


def test_a_document_without_a_body_may_have_the_status_of_any_answer():
    for status in (200, 300, 499):
        assert objection(replace(NONE, document=replace(NONE.document, status=status)), NOW) is None
    for status in (199, 500):
        assert (
            objection(replace(NONE, document=replace(NONE.document, status=status)), NOW)
            is not None
        )
    assert objection(replace(READ, document=replace(READ.document, status=300)), NOW) is not None


def test_a_body_may_be_as_long_as_the_cap():
    body = b"#" * 512_000
    document = replace(READ.document, body=body, sha256=hashlib.sha256(body).hexdigest())

    assert objection(replace(READ, document=document), NOW) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"attempts": 1},
        {"attempts": 2**31},
        {"status": 100},
        {"status": 999},
        {"at": NOW + 300, "retry_at": NOW + 330},
        {"since": 0.0},
        {"retry_at": NOW},
        {"retry_at": NOW + 7200},
        {"detail": "x" * 8192},
    ],
)
def test_trouble_at_the_limits_is_valid(changes):
    assert objection(replace(TROUBLE, trouble=replace(TROUBLE.trouble, **changes)), NOW) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"retry_at": NOW + 7201}, "next try"),
        ({"attempts": 2**31 + 1}, "attempts"),
        ({"detail": "x" * 8193}, "attempts"),
        ({"status": 99}, "status 99"),
        ({"status": 1000}, "status 1000"),
        ({"attempts": 2**70}, "attempts"),
        ({"status": 2**70}, "status"),
        ({"status": -5}, "status -5"),
        ({"at": NOW + 301, "retry_at": NOW + 400}, "in the future"),
        ({"since": NOW + 1}, "in the future"),
        ({"since": math.nan}, "not a number"),
        ({"retry_at": math.inf}, "not a number"),
        ({"retry_at": NOW + 100_000}, "next try"),
        ({"retry_at": NOW - 1}, "next try"),
        ({"attempts": 0}, "attempts"),
        ({"detail": "x" * 9000}, "attempts"),
    ],
)
def test_invalid_trouble_is_rejected(changes, why):
    assert why in objection(replace(TROUBLE, trouble=replace(TROUBLE.trouble, **changes)), NOW)


@pytest.mark.parametrize(
    "origin",
    [
        Origin("https", "A.test", 443),
        Origin("https", "a.test.", 443),
        Origin("gopher", "a.test", 70),
        Origin("http", "a.test", 0),
        Origin("http", "a.test", 70_000),
        Origin("http", "a.test/x", 80),
        Origin("http", "u@a.test", 80),
        Origin("http", "127.1", 80),
        Origin("http", "", 80),
    ],
)
def test_a_non_canonical_origin_is_rejected(origin):
    assert "origin" in objection(replace(NONE, origin=origin), NOW)


def test_an_empty_policy_is_rejected():
    assert "neither" in objection(replace(NONE, document=None), NOW)
