"""Policies as bytes: what does not decode to a policy of the origin asked for is a miss."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.core import codec
from robots_guard.core.access import Failed, Failure, Fetched
from robots_guard.core.renewal import begin
from robots_guard.origin import origin_of

A = origin_of("https://a.test")
POLICY = begin(A, None, "direct").next(Fetched(status=200, body=b"User-agent: *\nDisallow: /x\n" * 50), 1.0).policy
VALUE = codec.encode(POLICY)


def test_what_goes_in_comes_out():
    trouble = begin(A, POLICY, "direct").next(Failed(failure=Failure.DNS, detail="no such host"), 2.0).policy

    assert codec.decode(VALUE, A) == POLICY
    assert codec.decode(codec.encode(trouble), A) == trouble


@pytest.mark.parametrize("other", ["http://a.test", "https://a.test:8443", "https://b.test"])
def test_another_origins_policy_is_a_miss(other):
    assert codec.decode(VALUE, origin_of(other)) is None


def test_another_version_is_a_miss():
    assert codec.decode(b"RG9\n" + VALUE[4:], A) is None


def test_a_bomb_is_a_miss():
    assert codec.decode(b"RG1\n" + zlib.compress(b"\0" * 50_000_000, 9), A) is None
    assert codec.decode(VALUE + b"\0" * 700_000, A) is None


@pytest.mark.parametrize("length", range(len(VALUE)))
def test_every_truncation_is_a_miss(length):
    assert codec.decode(VALUE[:length], A) is None


@given(place=st.integers(0, len(VALUE) * 8 - 1))
def test_every_flipped_bit_is_a_miss(place):
    damaged = bytearray(VALUE)
    damaged[place // 8] ^= 1 << place % 8

    assert codec.decode(bytes(damaged), A) in (None, POLICY)


@given(st.binary(max_size=300))
def test_any_bytes_decode_to_nothing(value):
    assert codec.decode(value, A) is None
    assert codec.decode(b"RG1\n" + zlib.compress(value), A) is None
