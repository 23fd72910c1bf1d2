"""The contract of every policy store: memory, SQLite, Redis (fake, real, with MACs, a cluster), and
memory in front of SQLite, as in a guard.
"""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from msgspec.structs import replace
from support.stores import A, in_a_fork, policy, put
from support.turns import wait_of

from robots_guard.decisions.access import MAX_RESERVATIONS, Failed, Failure, Fetched
from robots_guard.decisions.freshness import CLOCK_SKEW
from robots_guard.decisions.policy import Reservations
from robots_guard.decisions.renewal import begin
from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.origin import origin_of

# A test holds the private locks, as a thread does when its process forks.

OTHERS = [
    "http://a.test",
    "https://a.test:8443",
    "https://b.test",
    "https://www.a.test",
    "https://[::1]",
]


def test_a_new_store_is_empty(store):
    assert store.get(A) is None
    assert list(store.origins()) == []
    assert store.forget(A) is False


def test_a_policy_is_stored_until_it_is_forgotten(store):
    put(store, policy())

    assert store.get(A) == policy()
    assert list(store.origins()) == [A]
    assert store.forget(A) is True
    assert store.get(A) is None
    assert store.forget(A) is False


@pytest.mark.parametrize("other", OTHERS)
def test_similar_origins_are_separate(store, other):
    put(store, policy())
    other = origin_of(other)

    assert store.get(other) is None
    put(store, policy(other, body=b"other"))
    assert store.get(A).document.body != store.get(other).document.body
    assert set(store.origins()) == {A, other}
    assert store.forget(other)
    assert store.get(A) == policy()


def test_a_later_policy_replaces_an_earlier_one(store):
    put(store, policy(at=1000.0))
    put(store, policy(at=1000.5))

    assert store.get(A).settled_at == 1000.5


def test_an_earlier_policy_never_replaces_a_later_one(store):
    put(store, policy(at=1000.5))
    put(store, policy(at=1000.0, body=b"older"), now=1001.0)

    assert store.get(A) == policy(at=1000.5)


def test_a_policy_from_the_future_is_replaced(store):
    """After a clock that was ten years ahead is corrected, its policies must not stay for ten
    years.
    """
    ten_years = 10 * 365 * 86400.0
    put(store, policy(at=1000.0 + ten_years))
    put(store, policy(at=1000.0, body=b"now"))

    assert store.get(A).document.body == b"now"


def test_a_small_clock_skew_is_not_the_future(store):
    put(store, policy(at=1000.0 + CLOCK_SKEW))
    put(store, policy(at=1000.0, body=b"older"))

    assert store.get(A).settled_at == 1000.0 + CLOCK_SKEW


def test_of_two_policies_with_the_same_time_the_last_put_wins(store):
    put(store, policy(body=b"first"))
    put(store, policy(body=b"second"))

    assert store.get(A).document.body == b"second"


def test_trouble_is_stored_with_the_last_good_document(store):
    stored = policy()
    put(store, stored)
    troubled = begin(A, stored, "direct").next(Failed(failure=Failure.DNS), 2000.0).policy
    put(store, troubled)

    assert store.get(A) == troubled
    assert store.get(A).document == stored.document


@pytest.mark.parametrize(
    "outcome",
    [
        Failed(failure=Failure.TLS),
        Fetched(status=404, tls_verified=True),
        Fetched(status=503, tls_verified=True),
    ],
    ids=["trouble alone", "no robots.txt", "not now"],
)
def test_a_policy_without_a_body_is_stored(store, outcome):
    stored = begin(A, None, "direct").next(outcome, 1000.0).policy
    put(store, stored)

    assert store.get(A) == stored


def test_a_large_document_is_stored(store):
    body = bytes(range(256)) * 2000
    put(store, policy(body=body))

    assert store.get(A).document.body == body


RESERVATIONS = [
    Reservations(attempted_at=1000.0, failure="dns: no such host"),
    Reservations(
        attempted_at=2000.0,
        failure="status 503",
        status=200,
        fetched_at=1000.0,
        body=Random(1).randbytes(MAX_RESERVATIONS),
        etag='"1"',
        last_modified="Fri, 01 Jan 2027 00:00:00 GMT",
    ),
]


@pytest.mark.parametrize("reservations", RESERVATIONS, ids=["failed", "the longest"])
def test_reservations_are_stored_with_the_document(store, reservations):
    stored = replace(policy(), reservations=reservations)
    put(store, stored)
    troubled = begin(A, stored, "direct").next(Failed(failure=Failure.DNS), 2000.0).policy

    assert store.get(A) == stored
    put(store, troubled)
    assert store.get(A) == troubled
    assert store.get(A).reservations == reservations


def test_any_thread_may_use_the_store(store):
    """Eight threads at once always see a whole policy, and the latest one remains."""
    start = threading.Barrier(8)

    def work(number):
        start.wait(60)
        for step in range(40):
            put(store, policy(at=1000.0 + step * 8 + number), now=1400.0)
            stored = store.get(A)
            assert stored is not None
            assert stored.settled_at >= 1000.0 + step * 8 + number
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert store.get(A).settled_at == 1000.0 + 39 * 8 + 7


def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent():
    store = MemoryStore()

    def child() -> bool:
        signal.alarm(20)
        return wait_of(store.reserve(A, 1.0, lambda: 0.0)) == 0.0 and store.get(A) is None

    for lock in (store._lock, store._policies_lock):
        with lock:
            assert in_a_fork(child)
