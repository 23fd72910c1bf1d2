"""The lease, run state by state: acquire it, check the store again, fetch."""

from __future__ import annotations

import pytest
from decisions.walking import walk

from robots_guard.decisions.access import Failed, Failure, Fetched
from robots_guard.decisions.lease import (
    LONGEST_PAUSE,
    Found,
    Granted,
    Looking,
    Taking,
    Waiting,
    begin,
)
from robots_guard.decisions.renewal import begin as fetch
from robots_guard.origin import origin_of
from robots_guard.protocol.dialect import dialect

A = origin_of("https://a.test")
RFC = dialect("rfc9309")
NOW = 1_800_000_000.0
DAY = 86400.0
PATIENCE = 70.0


def good(at: float = NOW):
    return (
        fetch(A, None, "direct").next(Fetched(status=200, body=b"", tls_verified=True), at).policy
    )


def trouble(at: float = NOW, known=None):
    return fetch(A, known, "direct").next(Failed(failure=Failure.DNS), at).policy


def test_with_the_lease_and_nothing_new_the_fetch_is_granted():
    trail = walk(begin(None, RFC, PATIENCE), (True,), (None, NOW))

    assert [type(state) for state in trail] == [Taking, Looking, Granted]
    assert trail[-1].cached is None


def test_a_policy_stored_before_the_lease_was_acquired_is_found():
    """Check again: another process may have fetched and released its lease in between."""
    trail = walk(begin(None, RFC, PATIENCE), (True,), (good(), NOW))

    assert trail[-1] == Found(good())


def test_while_another_process_holds_the_lease_the_pauses_grow():
    state = begin(None, RFC, PATIENCE)
    pauses = []
    for _ in range(6):
        state = walk(state, (False,), (None, NOW))[-1]
        assert isinstance(state, Waiting)
        pauses.append(state.pause)
        state = state.next()

    assert pauses == [0.02, 0.04, 0.08, 0.16, LONGEST_PAUSE, LONGEST_PAUSE]


def test_a_policy_of_another_process_is_found_without_the_lease():
    trail = walk(begin(None, RFC, PATIENCE), (False,), (None, NOW), (), (False,), (good(), NOW))

    assert trail[-1] == Found(good())


def test_the_lease_of_a_dead_process_is_acquired_eventually():
    trail = walk(begin(None, RFC, PATIENCE), (False,), (None, NOW), (), (True,), (None, NOW + 35))

    assert isinstance(trail[-1], Granted)


def test_a_lease_that_never_ends_is_waited_for_only_within_patience():
    state, waited = begin(None, RFC, PATIENCE), 0.0
    while not isinstance(state, Granted):
        state = walk(state, (False,), (None, NOW))[-1]
        if isinstance(state, Waiting):
            waited += state.pause
            state = state.next()

    assert PATIENCE <= waited < PATIENCE + LONGEST_PAUSE


@pytest.mark.parametrize(
    ("known", "found", "now", "expected"),
    [
        pytest.param(good(), good(), NOW + DAY, Granted, id="the expired one itself"),
        pytest.param(
            good(), good(NOW + DAY), NOW + DAY, Found, id="a fresh one instead of an expired one"
        ),
        pytest.param(
            good(), good(), NOW + 10, Granted, id="to be renewed although fresh: not by itself"
        ),
        pytest.param(
            good(),
            good(NOW + 5),
            NOW + 10,
            Found,
            id="to be renewed although fresh: by a later one",
        ),
        pytest.param(
            good(NOW + 5),
            good(),
            NOW + 10,
            Granted,
            id="to be renewed although fresh: by no earlier one",
        ),
        pytest.param(
            good(),
            trouble(NOW + DAY, good()),
            NOW + DAY + 0.5,
            Found,
            id="another has found trouble",
        ),
        pytest.param(
            good(),
            trouble(NOW + DAY, good()),
            NOW + DAY + 50,
            Granted,
            id="... and it is time to try again",
        ),
        pytest.param(
            good(NOW + 9 * DAY),
            good(),
            NOW,
            Found,
            id="ours was stamped by a clock that has jumped",
        ),
        pytest.param(None, good(NOW + 9 * DAY), NOW, Granted, id="theirs was"),
    ],
)
def test_which_policy_counts_as_a_renewal(known, found, now, expected):
    assert isinstance(walk(begin(known, RFC, PATIENCE), (True,), (found, now))[-1], expected)


def test_the_fetch_starts_from_the_latest_policy():
    """The later policy has the current validators and number of attempts."""
    later = trouble(NOW + DAY, good())

    assert walk(begin(good(), RFC, PATIENCE), (True,), (later, NOW + DAY + 50))[-1].cached == later
    assert walk(begin(later, RFC, PATIENCE), (True,), (good(), NOW + DAY + 50))[-1].cached == later
    assert walk(begin(later, RFC, PATIENCE), (True,), (None, NOW + DAY + 50))[-1].cached == later


def test_the_previous_policy_is_still_known_after_waiting():
    later = trouble(NOW + DAY, good())
    trail = walk(
        begin(later, RFC, PATIENCE),
        (False,),
        (None, NOW + DAY + 50),
        (),
        (True,),
        (None, NOW + DAY + 50),
    )

    assert trail[-1] == Granted(later)


def test_no_wait_after_patience_is_used_up():
    assert walk(begin(None, RFC, 0.0), (False,), (None, NOW))[-1] == Granted(None)
    assert isinstance(walk(begin(None, RFC, 0.01), (False,), (None, NOW))[-1], Waiting)
