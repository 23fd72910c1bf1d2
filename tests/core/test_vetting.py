"""Policies from a file: what cannot be is not taken."""

from __future__ import annotations

import math

import msgspec
import pytest

from robots_guard.core import renewal
from robots_guard.core.access import Failed, Failure, Fetched
from robots_guard.core.vetting import objection
from robots_guard.origin import Origin, origin_of

A = origin_of("https://a.test")
NOW = 1_800_000_000.0
replace = msgspec.structs.replace


def settled(outcome):
    return renewal.begin(A, None, "direct").next(outcome, NOW).policy


READ = settled(Fetched(status=200, body=b"User-agent: *\nDisallow: /", headers={"cache-control": "max-age=60"}))
NONE = settled(Fetched(status=404))
TROUBLE = settled(Failed(failure=Failure.DNS))


@pytest.mark.parametrize("policy", [READ, NONE, TROUBLE, replace(READ, trouble=TROUBLE.trouble)])
def test_what_we_settled_on_is_right(policy):
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
        ({"fetched_at": NOW + 301}, "no time that has been"),
        ({"fetched_at": -1.0}, "no time that has been"),
        ({"fetched_at": math.nan}, "no time that has been"),
        ({"stated_lifetime": -1.0}, "lifetime"),
        ({"stated_lifetime": math.inf}, "lifetime"),
        ({"url": "x" * 9000}, "says more"),
        ({"etag": "x" * 9000}, "says more"),
        ({"redirects": ("https://a.test/",) * 21}, "says more"),
        ({"url": "file:///etc/passwd"}, "http"),
        ({"redirects": ("javascript:1",)}, "http"),
    ],
)
def test_a_document_that_cannot_be(changes, why):
    assert why in objection(replace(READ, document=replace(READ.document, **changes)), NOW)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"attempts": 2**70}, "trouble"),
        ({"status": 2**70}, "status"),
        ({"status": -5}, "status -5"),
        ({"at": NOW + 301, "retry_at": NOW + 400}, "no time that has been"),
        ({"since": NOW + 1}, "no time that has been"),
        ({"since": math.nan}, "times are none"),
        ({"retry_at": math.inf}, "times are none"),
        ({"retry_at": NOW + 100_000}, "too long"),
        ({"retry_at": NOW - 1}, "too long"),
        ({"attempts": 0}, "trouble is none"),
        ({"detail": "x" * 9000}, "trouble is none"),
    ],
)
def test_trouble_that_cannot_be(changes, why):
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
def test_an_origin_that_is_not_written_as_one(origin):
    assert "origin" in objection(replace(NONE, origin=origin), NOW)


def test_a_policy_of_nothing():
    assert "neither" in objection(replace(NONE, document=None), NOW)
