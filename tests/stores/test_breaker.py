"""The circuit breaker (closed, open, half open), with a clock and a random source set by the test."""

from __future__ import annotations

import contextlib
import threading

import pytest
from support.stores import in_a_fork

from robots_guard.errors import StoreError
from robots_guard.guard.stores.breaker import FIRST_PAUSE, JITTER, MAX_PAUSE, Breaker, CircuitOpen

# A test holds the private `_lock`, as a thread does when its process forks.


@pytest.fixture
def breaker(clock):
    return Breaker(clock, lambda: 0.0)


def fail(breaker: Breaker, why: str = "slow") -> None:
    """Make an attempt that fails, as a store does."""
    with contextlib.suppress(OSError), breaker.attempt():
        breaker.trip(why)
        raise OSError(why)


def is_open(breaker: Breaker) -> bool:
    try:
        breaker.check()
    except StoreError:
        return True
    return False


def test_it_opens_for_a_second_and_a_successful_attempt_closes_it(breaker, clock):
    fail(breaker)
    # the cause, and nothing else
    with pytest.raises(CircuitOpen, match=r"^slow$") as raised, breaker.attempt():
        pytest.fail("not to be tried")
    assert raised.value.seconds == FIRST_PAUSE
    clock.advance(FIRST_PAUSE)
    with breaker.attempt():
        pass

    with breaker.attempt(), breaker.attempt():  # any number at once
        pass


def test_the_pause_doubles_after_each_consecutive_failure(breaker, clock):
    lengths = []
    for _ in range(8):
        fail(breaker)
        began = clock.now
        while is_open(breaker):
            clock.advance(0.5)
        lengths.append(clock.now - began)

    assert lengths == [1, 2, 4, 8, 16, 30, 30, 30]
    with breaker.attempt():
        pass
    fail(breaker)
    clock.advance(FIRST_PAUSE)
    assert not is_open(breaker)


def test_the_pause_is_shortened_at_random(clock):
    breaker = Breaker(clock, lambda: 0.5)
    fail(breaker)
    clock.advance(FIRST_PAUSE * (1 - JITTER / 2))

    assert not is_open(breaker)
    assert MAX_PAUSE * (1 - JITTER) > MAX_PAUSE / 2


def test_one_caller_probes_and_the_others_fail_at_once(breaker, clock):
    fail(breaker)
    clock.advance(FIRST_PAUSE)
    with breaker.attempt():
        with pytest.raises(CircuitOpen, match=r"^slow$"), breaker.attempt():
            pytest.fail("not to be tried")
        with pytest.raises(CircuitOpen, match=r"^slow$"):
            breaker.check()
    with breaker.attempt():
        pass


def test_a_probe_that_raises_lets_the_next_caller_probe(breaker, clock):
    fail(breaker)
    clock.advance(FIRST_PAUSE)
    with pytest.raises(KeyboardInterrupt), breaker.attempt():
        raise KeyboardInterrupt
    fail(breaker)
    clock.advance(1.5)

    assert is_open(breaker)  # for 2 s: nothing was forgotten


def test_concurrent_failures_count_as_one(breaker, clock):
    """As when four threads wait for a server that goes down."""
    began = threading.Barrier(4)

    def call() -> None:
        with breaker.attempt():
            began.wait(60)
            breaker.trip("away")

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert is_open(breaker)
    clock.advance(FIRST_PAUSE)
    assert not is_open(breaker)


def test_a_child_forked_during_a_probe_may_probe(breaker, clock):
    fail(breaker)
    clock.advance(FIRST_PAUSE)

    def child() -> bool:
        with breaker.attempt():
            return True

    with breaker.attempt(), breaker._lock:
        assert in_a_fork(child)
