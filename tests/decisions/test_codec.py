"""Policies as bytes: whatever does not decode to a policy of the requested origin is a miss."""

from __future__ import annotations

import functools
import hashlib
import zlib
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robots_guard.decisions import codec
from robots_guard.decisions.access import MAX_RESERVATIONS, Failed, Failure, Fetched
from robots_guard.decisions.policy import Reservations
from robots_guard.decisions.renewal import begin
from robots_guard.origin import origin_of

A = origin_of("https://a.test")
POLICY = (
    begin(A, None, "direct")
    .next(Fetched(status=200, body=b"User-agent: *\nDisallow: /x\n" * 50), 1.0)
    .policy
)
VALUE = codec.encode(POLICY)


PACKED = codec.pack(POLICY.document.body)
BOMB = "a bomb"  # stands for what `bomb` returns, so that it is made only by the tests that use it
BARE = msgspec.structs.replace(POLICY, document=msgspec.structs.replace(POLICY.document, body=b""))
FULL = Fetched(
    status=200,
    body=b"User-agent: *\nDisallow: /x",
    headers={
        "content-type": "text/plain",
        "etag": '"1"',
        "last-modified": "Fri, 01 Jan 2027 00:00:00 GMT",
        "cache-control": "max-age=7",
    },
    truncated=True,
    tls_verified=True,
)


@functools.cache
def bomb():
    return codec.pack(bytes(50_000_000))


@pytest.mark.parametrize(
    "outcomes",
    [
        pytest.param([Fetched(status=200, body=b"User-agent: *")], id="a file"),
        pytest.param([FULL], id="every field"),
        pytest.param(
            [Fetched(status=301, headers={"location": "https://b.test/robots.txt"}), FULL],
            id="after a redirect",
        ),
        pytest.param([Fetched(status=404, body=b"not here")], id="none"),
        pytest.param([Failed(failure=Failure.DNS, detail="no such host")], id="trouble"),
    ],
)
def test_decode_inverts_encode(outcomes):
    state = begin(A, None, "direct")
    for outcome in outcomes:
        state = state.next(outcome, 1.5)
    policy = state.policy
    assert isinstance(outcomes[-1], Failed) or policy.document is not None
    packed = codec.pack(policy.document.body) if policy.document else None

    assert codec.with_body(codec.decode(codec.encode(policy), A), packed) == policy


RESERVED = Reservations(
    attempted_at=9.0,
    failure="status 503",
    failed_for="mybot",
    status=200,
    fetched_at=8.0,
    body=b'[{"location": "/", "tdm-reservation": 1}]',
    etag='"t"',
    last_modified="Fri, 01 Jan 2027 00:00:00 GMT",
)


@pytest.mark.parametrize(
    "reservations",
    [
        RESERVED,
        Reservations(attempted_at=9.0, failure="dns"),
        Reservations(attempted_at=9.0, status=404, fetched_at=9.0),
        Reservations(attempted_at=9.0, status=200, body=bytes(range(256)) * 1024, fetched_at=9.0),
    ],
    ids=["every field", "failed", "none", "the longest"],
)
@pytest.mark.parametrize("in_trouble", [False, True])
def test_reservations_survive_encoding(reservations, in_trouble):
    policy = msgspec.structs.replace(POLICY, reservations=reservations)
    if in_trouble:
        policy = begin(A, policy, "direct").next(Failed(failure=Failure.DNS), 2.0).policy
    decoded = codec.with_body(codec.decode(codec.encode(policy), A), PACKED)

    assert decoded == policy
    assert decoded.reservations == reservations


def test_the_longest_reservations_that_do_not_compress_fit_into_a_value():
    noise = Random(1).randbytes(MAX_RESERVATIONS)
    policy = msgspec.structs.replace(
        POLICY, reservations=msgspec.structs.replace(RESERVED, body=noise)
    )

    assert codec.decode(codec.encode(policy), A).reservations.body == noise


@pytest.mark.parametrize(
    "packed",
    [
        b"x",
        codec.pack(b"[]")[:-1],
        codec.pack(b"[]") + b"x",
        codec.pack(bytes(MAX_RESERVATIONS + 1)),
        BOMB,
    ],
    ids=["no zlib", "cut", "longer", "one byte too long", "bomb"],
)
def test_reservations_that_cannot_be_unpacked_are_a_miss(packed, monkeypatch):
    packed = bomb() if packed is BOMB else packed
    monkeypatch.setattr(codec, "pack", lambda _: packed)
    value = codec.encode(msgspec.structs.replace(POLICY, reservations=RESERVED))

    assert codec.decode(value, A) is None


def test_trouble_with_a_document_survives_encoding():
    trouble = (
        begin(A, POLICY, "direct")
        .next(Failed(failure=Failure.DNS, detail="no such host"), 2.0)
        .policy
    )

    assert codec.with_body(codec.decode(codec.encode(trouble), A), PACKED) == trouble


@pytest.mark.parametrize(
    "packed",
    [
        None,
        b"",
        PACKED[:-1],
        PACKED + b"x",
        codec.pack(b"another body"),
        BOMB,
        b"x" * 700_000,
    ],
    ids=["missing", "empty", "cut", "longer", "another's", "bomb", "huge"],
)
def test_a_body_with_another_digest_is_a_miss(packed):
    assert codec.with_body(BARE, bomb() if packed is BOMB else packed) is None


def test_adler_32_alone_would_accept_a_crafted_body():
    """Two bodies with one Adler-32: the checksum inside zlib is not cryptographic, the digest is."""
    honest, crafted = b"Disallow: /" + b"\x01\x00\x01", b"Disallow: /" + b"\x00\x02\x00"

    assert zlib.adler32(honest) == zlib.adler32(crafted)
    assert codec.unpack(zlib.compress(crafted), hashlib.sha256(honest).hexdigest()) is None


@pytest.mark.parametrize("other", ["http://a.test", "https://a.test:8443", "https://b.test"])
def test_another_origins_policy_is_a_miss(other):
    assert codec.decode(VALUE, origin_of(other)) is None


@pytest.mark.parametrize("version", [b"RG1\n", b"RG2\n", b"RG9\n"])
def test_another_version_is_a_miss(version):
    assert codec.decode(version + VALUE[4:], A) is None


def test_a_huge_value_is_a_miss():
    plain = VALUE[20:] + b"\0" * 700_000

    assert (
        codec.decode(b"RG3\n" + hashlib.blake2b(plain, digest_size=16).digest() + plain, A) is None
    )


@pytest.mark.parametrize("length", range(len(VALUE)))
def test_every_truncation_is_a_miss(length):
    assert codec.decode(VALUE[:length], A) is None


@given(place=st.integers(0, len(VALUE) * 8 - 1))
def test_every_flipped_bit_is_a_miss(place):
    damaged = bytearray(VALUE)
    damaged[place // 8] ^= 1 << place % 8

    assert codec.decode(bytes(damaged), A) is None


@given(st.binary(max_size=300))
def test_any_bytes_decode_to_nothing(value):
    assert codec.decode(value, A) is None
    assert (
        codec.decode(b"RG3\n" + hashlib.blake2b(value, digest_size=16).digest() + value, A) is None
    )


ENCODED = (
    "5247330a7b8eb78030ae7de93ce6f2a4b035ad529f93a56874747073a6612e74657374cd01bbc0ccc8c42061332b5daa"
    "20cc8b1f1df9885a4dbed280506ed15fea57990a8bd80c399e7c0ecb3ff0000000000000a6646972656374c2c0a0a0a0"
    "a0c290c0"
)


def test_the_encoding_does_not_change_within_a_version():
    """Stored policies stay readable: a change of these bytes needs another version."""
    assert codec.encode(POLICY).hex() == ENCODED
    assert codec.decode(bytes.fromhex(ENCODED), A) == BARE


def test_a_value_of_the_largest_size_is_read_and_a_larger_one_is_not():
    assert codec.unpack(PACKED + bytes(codec.MAX_VALUE), POLICY.document.sha256) is None
    assert codec.decode(VALUE + bytes(codec.MAX_VALUE), A) is None
