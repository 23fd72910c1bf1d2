"""The account of body memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from robots_guard.mitmproxy.bodies import BodyMemory

CLIENTS, KEYS, SIZES = st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 60)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), CLIENTS, KEYS, SIZES),
        st.tuples(st.just("give_back"), CLIENTS, KEYS, SIZES),
        st.tuples(st.just("release"), CLIENTS, KEYS),
        st.tuples(st.just("forget"), CLIENTS),
    )
)


@given(STEPS)
def test_the_count_stays_within_the_limit_and_ends_at_zero(steps):
    memory = BodyMemory(100)
    for name, *arguments in steps:
        getattr(memory, name)(*arguments)
        assert 0 <= memory.used <= 100
    for client in "ab":
        memory.forget(client)
    assert (memory.used, len(memory)) == (0, 0)


def test_a_rejected_piece_is_not_counted():
    memory = BodyMemory(100)
    assert (memory.take("a", "x", 100), memory.take("b", "y", 1)) == (True, False)
    memory.release("a", "x")
    assert (memory.used, memory.take("b", "y", 1)) == (0, True)


def test_no_more_is_released_than_was_counted():
    memory = BodyMemory(100)
    memory.take("a", "x", 10)
    memory.take("a", "y", 10)
    memory.give_back("a", "x", 50)
    assert memory.used == 10
