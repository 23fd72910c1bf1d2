"""Flights, walked: look, take the lease, look again, fetch."""

from __future__ import annotations

import pytest
from core.walking import walk

from robots_guard.core.access import Failed, Failure, Fetched
from robots_guard.core.flight import LONGEST_PAUSE, Found, Granted, Looking, Taking, Waiting, begin
from robots_guard.core.renewal import begin as fetch
from robots_guard.origin import origin_of
from robots_guard.rep.dialect import dialect

A = origin_of("https://a.test")
RFC = dialect("rfc9309")
NOW = 1_800_000_000.0
DAY = 86400.0
PATIENCE = 70.0


def good(at: float = NOW):
    return fetch(A, None, "direct").next(Fetched(status=200, body=b"", tls_verified=True), at).policy


def trouble(at: float = NOW, held=None):
    return fetch(A, held, "direct").next(Failed(failure=Failure.DNS), at).policy


def test_with_the_lease_and_nothing_new_it_is_ours_to_fetch():
    trail = walk(begin(None, RFC, PATIENCE), (True,), (None, NOW))

    assert [type(state) for state in trail] == [Taking, Looking, Granted]
    assert trail[-1].held is None


def test_what_another_has_put_before_the_lease_was_ours_is_found():
    """Look again: between looking and taking, another may have fetched and given its lease back."""
    trail = walk(begin(None, RFC, PATIENCE), (True,), (good(), NOW))

    assert trail[-1] == Found(good())


def test_while_another_holds_the_lease_we_look_and_wait_ever_longer():
    state = begin(None, RFC, PATIENCE)
    pauses = []
    for _ in range(6):
        state = walk(state, (False,), (None, NOW))[-1]
        assert isinstance(state, Waiting)
        pauses.append(state.pause)
        state = state.next()

    assert pauses == [0.02, 0.04, 0.08, 0.16, LONGEST_PAUSE, LONGEST_PAUSE]


def test_what_the_other_puts_is_found_without_the_lease():
    trail = walk(begin(None, RFC, PATIENCE), (False,), (None, NOW), (), (False,), (good(), NOW))

    assert trail[-1] == Found(good())


def test_when_the_other_has_died_the_lease_is_ours_in_the_end():
    trail = walk(begin(None, RFC, PATIENCE), (False,), (None, NOW), (), (True,), (None, NOW + 35))

    assert isinstance(trail[-1], Granted)


def test_a_lease_that_does_not_end_is_not_waited_for_any_longer_than_patience_lasts():
    state, waited = begin(None, RFC, PATIENCE), 0.0
    while not isinstance(state, Granted):
        state = walk(state, (False,), (None, NOW))[-1]
        if isinstance(state, Waiting):
            waited += state.pause
            state = state.next()

    assert PATIENCE <= waited < PATIENCE + LONGEST_PAUSE


@pytest.mark.parametrize(
    ("held", "found", "now", "expected"),
    [
        pytest.param(good(), good(), NOW + DAY, Granted, id="the expired one itself"),
        pytest.param(good(), good(NOW + DAY), NOW + DAY, Found, id="a fresh one instead of an expired one"),
        pytest.param(good(), good(), NOW + 10, Granted, id="to be renewed although fresh: not by itself"),
        pytest.param(good(), good(NOW + 5), NOW + 10, Found, id="to be renewed although fresh: by a later one"),
        pytest.param(good(NOW + 5), good(), NOW + 10, Granted, id="to be renewed although fresh: by no earlier one"),
        pytest.param(good(), trouble(NOW + DAY, good()), NOW + DAY + 5, Found, id="another has found trouble"),
        pytest.param(good(), trouble(NOW + DAY, good()), NOW + DAY + 50, Granted, id="... and it is time to try again"),
        pytest.param(good(NOW + 9 * DAY), good(), NOW, Found, id="ours was stamped by a clock that has jumped"),
        pytest.param(None, good(NOW + 9 * DAY), NOW, Granted, id="theirs was"),
    ],
)
def test_what_renews_what(held, found, now, expected):
    assert isinstance(walk(begin(held, RFC, PATIENCE), (True,), (found, now))[-1], expected)


def test_the_fetch_begins_from_the_latest_there_is():
    """Validators, and how often it was tried already, are in the later of the two."""
    later = trouble(NOW + DAY, good())

    assert walk(begin(good(), RFC, PATIENCE), (True,), (later, NOW + DAY + 50))[-1].held == later
    assert walk(begin(later, RFC, PATIENCE), (True,), (good(), NOW + DAY + 50))[-1].held == later
    assert walk(begin(later, RFC, PATIENCE), (True,), (None, NOW + DAY + 50))[-1].held == later


def test_what_was_held_is_still_known_after_waiting():
    later = trouble(NOW + DAY, good())
    trail = walk(begin(later, RFC, PATIENCE), (False,), (None, NOW + DAY + 50), (), (True,), (None, NOW + DAY + 50))

    assert trail[-1] == Granted(later)


def test_one_whose_patience_is_at_an_end_waits_no_more():
    assert walk(begin(None, RFC, 0.0), (False,), (None, NOW))[-1] == Granted(None)
    assert isinstance(walk(begin(None, RFC, 0.01), (False,), (None, NOW))[-1], Waiting)
