"""The breaker: a state machine of closed, open and half open, by a clock and a random source that the test holds."""

from __future__ import annotations

import contextlib
import threading

import pytest
from support.stores import in_a_fork

from robots_guard.errors import StoreError
from robots_guard.stores.breaker import FIRST, JITTER, LONGEST, Breaker, LeftAlone


@pytest.fixture
def breaker(clock):
    return Breaker(clock, lambda: 0.0)


def fail(breaker: Breaker, why: str = "slow") -> None:
    """An attempt that fails, as a store's does."""
    with contextlib.suppress(OSError), breaker.attempt():
        breaker.trip(why)
        raise OSError(why)


def is_open(breaker: Breaker) -> bool:
    try:
        breaker.check()
    except StoreError:
        return True
    return False


def test_it_is_open_for_a_second_and_then_one_attempt_closes_it(breaker, clock):
    fail(breaker)
    with pytest.raises(LeftAlone, match=r"^slow$") as raised, breaker.attempt():  # the cause, and nothing else
        pytest.fail("not to be tried")
    assert raised.value.seconds == FIRST
    clock.advance(FIRST)
    with breaker.attempt():
        pass

    with breaker.attempt(), breaker.attempt():  # any number at once
        pass


def test_it_is_open_for_twice_as_long_after_each_failure_in_succession(breaker, clock):
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
    clock.advance(FIRST)
    assert not is_open(breaker)


def test_the_time_is_shortened_at_random(clock):
    breaker = Breaker(clock, lambda: 0.5)
    fail(breaker)
    clock.advance(FIRST * (1 - JITTER / 2))

    assert not is_open(breaker)
    assert LONGEST * (1 - JITTER) > LONGEST / 2


def test_one_caller_tries_and_the_others_fail_at_once(breaker, clock):
    fail(breaker)
    clock.advance(FIRST)
    with breaker.attempt():
        with pytest.raises(LeftAlone, match=r"^slow$"), breaker.attempt():
            pytest.fail("not to be tried")
        with pytest.raises(LeftAlone, match=r"^slow$"):
            breaker.check()
    with breaker.attempt():
        pass


def test_an_attempt_that_ends_otherwise_leaves_the_next_to_try(breaker, clock):
    fail(breaker)
    clock.advance(FIRST)
    with pytest.raises(KeyboardInterrupt), breaker.attempt():
        raise KeyboardInterrupt
    fail(breaker)
    clock.advance(1.5)

    assert is_open(breaker)  # for 2 s: nothing was forgotten


def test_failures_of_one_moment_count_as_one(breaker, clock):
    """Four threads wait for a server that goes away."""
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
    clock.advance(FIRST)
    assert not is_open(breaker)


def test_a_child_forked_during_an_attempt_may_try_itself(breaker, clock):
    fail(breaker)
    clock.advance(FIRST)

    def child() -> bool:
        with breaker.attempt():
            return True

    with breaker.attempt(), breaker._lock:
        assert in_a_fork(child)
