"""Known origins: the result of a look-up serves the requests of an origin for a short time."""

from __future__ import annotations

import pytest

from robots_guard.origin import origin_of
from robots_guard.scrapy.deferral.gate import LOOK_UP_EVERY, MAX_REMEMBERED, KnownOrigins

A, B = origin_of("https://a.test"), origin_of("https://b.test")


class Policies:
    """When the policy of each origin stops being fresh, and the look-ups of it."""

    def __init__(self):
        self.now = 0.0
        self.fresh_until = {}
        self.look_ups = []
        self.known = KnownOrigins(self.fresh_for, lambda: self.now)

    def fresh_for(self, origin):
        self.look_ups.append(origin)
        if origin not in self.fresh_until:
            return None
        return max(0.0, self.fresh_until[origin] - self.now)


@pytest.fixture
def policies():
    return Policies()


def test_a_look_up_serves_for_a_second(policies):
    policies.fresh_until[A] = 1000.0

    assert A in policies.known
    policies.now = LOOK_UP_EVERY - 0.01
    assert A in policies.known
    assert policies.look_ups == [A]

    policies.now = LOOK_UP_EVERY
    assert A in policies.known
    assert policies.look_ups == [A, A]


def test_a_look_up_serves_no_longer_than_the_policy_stays_fresh(policies):
    policies.fresh_until[A] = 0.3
    assert A in policies.known
    del policies.fresh_until[A]

    policies.now = 0.29
    assert A in policies.known
    policies.now = 0.3
    assert A not in policies.known


def test_a_stale_policy_is_looked_up_for_each_request(policies):
    policies.fresh_until[A] = 0.0

    assert [A in policies.known for _ in range(3)] == [True] * 3
    assert policies.look_ups == [A] * 3


def test_an_unknown_origin_is_looked_up_until_it_is_known(policies):
    policies.fresh_until[B] = 1000.0
    assert B in policies.known
    assert A not in policies.known
    assert A not in policies.known

    policies.fresh_until[A] = 1000.0
    assert A in policies.known
    assert policies.look_ups == [B, A, A, A]


# `_known_until` has a bound that shows in nothing else.
def test_a_bounded_number_of_origins_is_remembered(policies):
    origins = [origin_of(f"https://{number}.test") for number in range(2 * MAX_REMEMBERED + 1)]
    for origin in origins:
        policies.fresh_until[origin] = 1000.0
        assert origin in policies.known

    assert 0 < len(policies.known._known_until) <= MAX_REMEMBERED
