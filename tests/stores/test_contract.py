"""What every policy store promises, asked of each: memory, SQLite, Redis (a fake one, a real one, with MACs), and
memory in front of SQLite, which is how every guard holds them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.stores import A, policy, put

from robots_guard.core.access import Failed, Failure, Fetched
from robots_guard.core.freshness import CLOCK_SKEW
from robots_guard.core.renewal import begin
from robots_guard.origin import origin_of

OTHERS = ["http://a.test", "https://a.test:8443", "https://b.test", "https://www.a.test", "https://[::1]"]


def test_nothing_is_held_at_first(store):
    assert store.get(A) is None
    assert list(store.origins()) == []
    assert store.forget(A) is False


def test_what_is_put_is_held_until_it_is_forgotten(store):
    put(store, policy())

    assert store.get(A) == policy()
    assert list(store.origins()) == [A]
    assert store.forget(A) is True
    assert store.get(A) is None
    assert store.forget(A) is False


@pytest.mark.parametrize("other", OTHERS)
def test_origins_are_apart(store, other):
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


def test_a_policy_from_the_future_gives_way(store):
    """A clock was ahead by ten years, and is set right: what it stamped must not stand in the way for ten years."""
    ten_years = 10 * 365 * 86400.0
    put(store, policy(at=1000.0 + ten_years))
    put(store, policy(at=1000.0, body=b"now"))

    assert store.get(A).document.body == b"now"


def test_a_little_ahead_is_not_the_future(store):
    put(store, policy(at=1000.0 + CLOCK_SKEW))
    put(store, policy(at=1000.0, body=b"older"))

    assert store.get(A).settled_at == 1000.0 + CLOCK_SKEW


def test_of_two_of_the_same_time_the_last_put_stays(store):
    put(store, policy(body=b"first"))
    put(store, policy(body=b"second"))

    assert store.get(A).document.body == b"second"


def test_trouble_is_held_beside_the_last_good_document(store):
    held = policy()
    put(store, held)
    troubled = begin(A, held, "direct").next(Failed(failure=Failure.DNS), 2000.0).policy
    put(store, troubled)

    assert store.get(A) == troubled
    assert store.get(A).document == held.document


@pytest.mark.parametrize(
    "outcome",
    [Failed(failure=Failure.TLS), Fetched(status=404, tls_verified=True), Fetched(status=503, tls_verified=True)],
    ids=["trouble alone", "no robots.txt", "not now"],
)
def test_what_has_no_body_is_held(store, outcome):
    held = begin(A, None, "direct").next(outcome, 1000.0).policy
    put(store, held)

    assert store.get(A) == held


def test_a_large_document_is_held(store):
    body = bytes(range(256)) * 2000
    put(store, policy(body=body))

    assert store.get(A).document.body == body


def test_any_thread_may_ask(store):
    """Eight at once, each sees a whole policy and the last one put is the latest."""
    start = threading.Barrier(8)

    def work(number):
        start.wait(60)
        for step in range(40):
            put(store, policy(at=1000.0 + step * 8 + number), now=1400.0)
            held = store.get(A)
            assert held is not None
            assert held.settled_at >= 1000.0 + step * 8 + number
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert store.get(A).settled_at == 1000.0 + 39 * 8 + 7
