"""Policies in memory: how many are kept, and that reading them takes no lock."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from support.stores import A, policy

from robots_guard.guard.stores.memory import MemoryStore
from robots_guard.origin import Origin

# A test holds the private lock, as a thread does that is changing the policies.

ORIGINS = [Origin("https", f"{number}.test", 443) for number in range(8)]
SIZE = policy(A).size


def filled(count, max_bytes):
    store = MemoryStore(max_bytes)
    for origin in ORIGINS[:count]:
        store.put(policy(origin), 1000.0)
    return store


def test_the_policy_that_was_used_longest_ago_gives_way():
    store = filled(3, 3 * SIZE)
    store.get(ORIGINS[0])
    store.put(policy(ORIGINS[1], at=1001.0), 1001.0)
    store.put(policy(ORIGINS[3]), 1000.0)

    assert store.origins() == [ORIGINS[0], ORIGINS[1], ORIGINS[3]]


def test_the_bytes_are_those_of_the_policies_that_are_kept():
    """After replacing, forgetting and evicting policies, exactly three of the same size fit."""
    store = filled(3, 3 * SIZE)
    store.put(policy(ORIGINS[0], at=1001.0, body=b"x" * SIZE), 1001.0)
    store.put(policy(ORIGINS[0], at=1002.0), 1002.0)
    assert store.forget(ORIGINS[0])
    for origin in ORIGINS:
        store.put(policy(origin), 1000.0)

    assert store.origins() == ORIGINS[-3:]


def test_a_policy_that_is_too_large_is_not_kept():
    store = filled(1, 2 * SIZE)
    store.put(policy(ORIGINS[1], body=b"x" * 3 * SIZE), 1000.0)

    assert ORIGINS[1] not in store.origins()


def test_a_policy_is_read_while_another_thread_writes():
    store = filled(1, 10 * SIZE)
    with store._policies_lock:  # private, but to hold it is what a writer does
        assert store.get(ORIGINS[0]) == policy(ORIGINS[0])


def test_readers_meet_policies_that_come_and_go():
    """They are put, forgotten and evicted meanwhile; the bytes are right afterwards."""
    store = MemoryStore(3 * SIZE)

    def work(number):
        for step in range(2000):
            origin = ORIGINS[(step * (number + 1)) % len(ORIGINS)]
            found = store.get(origin)
            assert found is None or found.origin == origin
            if number % 2:
                store.put(policy(origin), 1000.0)
                store.forget(ORIGINS[step % len(ORIGINS)])
            store.origins()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(interval)
    for origin in ORIGINS:
        store.put(policy(origin), 1000.0)

    assert store.origins() == ORIGINS[-3:]
