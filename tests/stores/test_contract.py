"""What every policy store promises, asked of each."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from robots_guard.core.access import Failed, Failure, Fetched
from robots_guard.core.renewal import begin
from robots_guard.origin import origin_of
from robots_guard.stores.memory import MemoryStore
from robots_guard.stores.sqlite import SqliteStore

A = origin_of("https://a.test")
OTHERS = ["http://a.test", "https://a.test:8443", "https://b.test", "https://www.a.test", "https://[::1]"]


def policy(origin=A, at=1000.0, body=b"User-agent: *\nDisallow: /x\n"):
    return begin(origin, None, "direct").next(Fetched(status=200, body=body), at).policy


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "policies.sqlite")
    yield made
    made.close()


def test_nothing_is_held_at_first(store):
    assert store.get(A) is None
    assert list(store.origins()) == []
    assert store.forget(A) is False


def test_what_is_put_is_held_until_it_is_forgotten(store):
    store.put(policy())

    assert store.get(A) == policy()
    assert list(store.origins()) == [A]
    assert store.forget(A) is True
    assert store.get(A) is None
    assert store.forget(A) is False


@pytest.mark.parametrize("other", OTHERS)
def test_origins_are_apart(store, other):
    store.put(policy())
    other = origin_of(other)

    assert store.get(other) is None
    store.put(policy(other, body=b"other"))
    assert store.get(A).document.body != store.get(other).document.body
    assert store.forget(other)
    assert store.get(A) == policy()


def test_a_later_policy_replaces_an_earlier_one(store):
    store.put(policy(at=1000.0))
    store.put(policy(at=1000.5))

    assert store.get(A).settled_at == 1000.5


def test_an_earlier_policy_never_replaces_a_later_one(store):
    store.put(policy(at=1000.5))
    store.put(policy(at=1000.0, body=b"older"))

    assert store.get(A) == policy(at=1000.5)


def test_of_two_of_the_same_time_the_last_put_stays(store):
    store.put(policy(body=b"first"))
    store.put(policy(body=b"second"))

    assert store.get(A).document.body == b"second"


def test_trouble_is_held_beside_the_last_good_document(store):
    held = policy()
    store.put(held)
    troubled = begin(A, held, "direct").next(Failed(failure=Failure.DNS), 2000.0).policy
    store.put(troubled)

    assert store.get(A) == troubled
    assert store.get(A).document == held.document


def test_a_large_document_is_held(store):
    body = bytes(range(256)) * 2000
    store.put(policy(body=body))

    assert store.get(A).document.body == body


def test_any_thread_may_ask(store):
    """Eight at once, each sees a whole policy and the last one put is the latest."""
    start = threading.Barrier(8)

    def work(number):
        start.wait(10)
        for step in range(40):
            store.put(policy(at=1000.0 + step * 8 + number))
            held = store.get(A)
            assert held is not None
            assert held.settled_at >= 1000.0 + step * 8 + number
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert store.get(A).settled_at == 1000.0 + 39 * 8 + 7
