"""The additional contract of shared stores: leases, documents by digest, and validation of all
stored values.
"""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.stores import LONG, MEDIUM, A, B, policy, put

from robots_guard.decisions import codec
from robots_guard.decisions.lease import Taken
from robots_guard.errors import DamagedValue
from robots_guard.origin import origin_of

# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        b"RG2\n",
        b"\0" * 100,
        b"\xff" * 700_000,
        codec.encode(policy())[:-1],
        codec.encode(policy(B)),
        b"RG9\n" + codec.encode(policy())[4:],
    ],
    ids=["bare", "zeros", "huge", "cut", "another origin's", "another version's"],
)
def test_an_invalid_value_is_never_returned_and_can_be_replaced(shared, write_raw, value):
    write_raw(A, value)

    stored = None
    with pytest.raises(DamagedValue, match=r"https://a\.test"):
        stored = shared.get(A)
    assert stored is None
    put(shared, policy())
    assert shared.get(A) == policy()


def test_every_flipped_bit_is_noticed(shared, write_raw, read_raw):
    put(shared, policy())
    value = read_raw(A)
    for place in range(len(value) * 8):
        damaged = bytearray(value)
        damaged[place // 8] ^= 1 << place % 8
        write_raw(A, bytes(damaged))
        with pytest.raises(DamagedValue):
            shared.get(A)


def test_a_value_copied_from_another_origin_is_noticed(shared, write_raw, read_raw):
    """An attacker with write access but without the key can only copy values, and a copy is
    invalid.
    """
    put(shared, policy(B, body=b"User-agent: *\nAllow: /"))
    put(shared, policy())
    write_raw(A, read_raw(B))

    with pytest.raises(DamagedValue):
        shared.get(A)


# -- leases ----------------------------------------------------------------------------------------


def test_a_lease_has_one_holder_until_it_is_released(shared):
    assert shared.take(A, "one", 1000.0, 35.0)
    assert not shared.take(A, "two", 1001.0, 35.0)
    assert shared.take(B, "two", 1001.0, 35.0)
    shared.release(A, "one")
    assert shared.take(A, "two", 1002.0, 35.0)


def test_only_its_holder_can_release_a_lease(shared):
    shared.take(A, "one", 1000.0, 35.0)
    shared.release(A, "two")
    shared.release(B, "one")

    assert not shared.take(A, "two", 1001.0, 35.0)


def test_a_later_call_with_an_earlier_time_does_not_get_the_lease(shared):
    """The time is read before the call, and another process may come in between."""
    assert shared.take(A, "one", 1000.0, 35.0)
    assert not shared.take(A, "two", 995.0, 35.0)


def test_the_stored_policy_comes_with_the_lease(shared, write_raw):
    """Another process may have stored it after it was looked for."""
    assert shared.take_and_get(A, "one", 1000.0, 35.0) == Taken(True)
    assert shared.take_and_get(A, "two", 1001.0, 35.0) == Taken(False)
    for body in (policy().document.body, MEDIUM, LONG):
        put(shared, policy(B, body=body))
        assert shared.take_and_get(B, "one", 1000.0, 35.0) == Taken(True, policy(B, body=body))
        assert not shared.take(B, "two", 1001.0, 35.0)
        assert shared.take_and_get(B, "two", 1001.0, 35.0) == Taken(False, policy(B, body=body))
        shared.release(B, "one")
        shared.forget(B)
    write_raw(A, b"no policy")
    taken = shared.take_and_get(A, "two", 1001.0, 35.0)
    assert (taken.is_ours, taken.policy) == (False, None)
    assert "damaged" in taken.damage or "no valid MAC" in taken.damage


def test_a_lease_is_no_policy(shared):
    shared.take(A, "one", 1000.0, 35.0)

    assert shared.get(A) is None
    assert list(shared.origins()) == []


def test_of_many_concurrent_takers_one_gets_the_lease(shared):
    start = threading.Barrier(8)

    def taken(number):
        start.wait(60)
        return [
            shared.take(origin_of(f"https://{n}.test"), f"{number}", 1000.0, 35.0)
            for n in range(30)
        ]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(taken, range(8)))
    assert [sum(column) for column in zip(*answers, strict=True)] == [1] * 30


# -- documents -------------------------------------------------------------------------------------


def test_a_document_outlives_its_policy_and_is_found_by_its_digest(shared):
    body = b"User-agent: *\nDisallow: /old\n"
    put(shared, policy(body=body))
    put(shared, policy(at=2000.0, body=b"new"))

    assert shared.document(hashlib.sha256(body).hexdigest()) == body
    assert shared.document(hashlib.sha256(b"new").hexdigest()) == b"new"
    shared.forget(A)
    assert shared.document(hashlib.sha256(b"new").hexdigest()) == b"new"
    assert shared.document(hashlib.sha256(b"never").hexdigest()) is None


def test_many_origins_share_one_document(shared):
    origins = [origin_of(f"https://{n}.test") for n in range(20)]
    for origin in origins:
        put(shared, policy(origin))

    assert all(shared.get(origin) == policy(origin) for origin in origins)
    assert shared.forget(origins[0])
    assert shared.get(origins[1]) == policy(origins[1])
