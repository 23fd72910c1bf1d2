"""Pacing as a function of (last turn, delay, now), without a store or a clock."""

from __future__ import annotations

import heapq
import math
import random
from calendar import timegm
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.turns import wait_of

from robots_guard.decisions.pacing import (
    LONGEST_PAUSE,
    MAX_FUTURE,
    MAX_QUEUE,
    MAX_TURN_AGE,
    PLACE_GRACE,
    DelaySource,
    RequiredDelay,
    Share,
    Turn,
    Wait,
    Waiter,
    has_lapsed,
    is_old,
    lapsed,
    least,
    moved_stamp,
    next_turn,
    queue_turn,
    reopening,
    required_delay,
    room,
    window,
)
from robots_guard.protocol.directives import pace_of
from robots_guard.protocol.lines import Line

NEVER = -math.inf


def pace(*lines: str):
    pairs = [line.split(": ") for line in lines]
    return pace_of(
        Line(number, field.lower(), value, f"{field}: {value}")
        for number, (field, value) in enumerate(pairs, 2)
    )


def at(clock: str) -> float:
    return timegm((2026, 11, 20, int(clock[:2]), int(clock[2:4]), 0))


# -- what binds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "min_delay", "by", "seconds", "line"),
    [
        (["Crawl-delay: 5"], 0, DelaySource.CRAWL_DELAY, 5, 2),
        (["Crawl-delay: 5", "Crawl-delay: 9"], 0, DelaySource.CRAWL_DELAY, 9, 3),
        (["Crawl-delay: 5", "Request-rate: 1/20s"], 0, DelaySource.REQUEST_RATE, 20, 3),
        (["Crawl-delay: 5"], 8, DelaySource.MIN_DELAY, 8, None),
        (["Crawl-delay: 5"], 2, DelaySource.CRAWL_DELAY, 5, 2),
    ],
)
def test_the_longest_delay_applies(lines, min_delay, by, seconds, line):
    found = required_delay(pace(*lines), min_delay, 300, at("1200"))

    assert (found.by, found.seconds, found.line, found.bounded) == (by, seconds, line, False)


@pytest.mark.parametrize("value", ["inf", "nan", "1e9", "301"])
def test_a_delay_that_is_too_long_is_bounded_and_marked(value):
    found = required_delay(pace(f"Crawl-delay: {value}"), 0, 300, at("1200"))

    assert (found.seconds, found.bounded, found.text) == (300, True, f"Crawl-delay: {value}")


@pytest.mark.parametrize(
    ("lines", "min_delay", "by", "seconds"),
    [
        (["Crawl-delay: 300", "Request-rate: 1/600s"], 0, DelaySource.REQUEST_RATE, 300),
        (["Crawl-delay: 600"], 400, DelaySource.MIN_DELAY, 400),
    ],
)
def test_an_unmet_delay_is_marked_whatever_else_applies(lines, min_delay, by, seconds):
    found = required_delay(pace(*lines), min_delay, 300, at("1200"))

    assert (found.by, found.seconds, found.bounded) == (by, seconds, True)


def test_a_delay_equal_to_the_limit_is_not_bounded():
    assert required_delay(pace("Crawl-delay: 300"), 0, 300, at("1200")) == RequiredDelay(
        by=DelaySource.CRAWL_DELAY, seconds=300, line=2, text="Crawl-delay: 300"
    )
    assert not required_delay(pace("Crawl-delay: 5"), 5, 300, at("1200")).bounded


def test_the_operators_delay_applies_only_if_it_is_longer():
    assert required_delay(pace("Crawl-delay: 5"), 5, 300, at("1200")).by is DelaySource.CRAWL_DELAY
    assert (
        required_delay(pace("Crawl-delay: 600"), 300, 300, at("1200")).by is DelaySource.CRAWL_DELAY
    )
    assert required_delay(None, 2, 300, at("1200")) == RequiredDelay(
        by=DelaySource.MIN_DELAY, seconds=2
    )


def test_a_limit_of_0_drops_the_delay_and_marks_it():
    found = required_delay(pace("Crawl-delay: 10"), 0, 0, at("1200"))

    assert (found.seconds, found.bounded) == (0, True)


@pytest.mark.parametrize(
    "lines", [[], ["Crawl-delay: 0"], ["Crawl-delay: soon"], ["Request-rate: 1/9s 1300-1400"]]
)
def test_no_delay_applies(lines):
    assert required_delay(pace(*lines), 0, 300, at("1200")) is None


def test_a_rate_for_a_time_of_day_applies_then():
    paced = pace("Request-rate: 1/9s 1300-1400", "Crawl-delay: 1")

    assert required_delay(paced, 0, 300, at("1259")).seconds == 1
    assert required_delay(paced, 0, 300, at("1300")).seconds == 9
    assert required_delay(paced, 0, 300, at("1400")).seconds == 1


# -- visiting times -------------------------------------------------------------------------------------------


def test_open_and_closed():
    visits = pace("Visit-time: 0600-0845", "Visit-time: 2200-0400")

    assert reopening(visits, at("0600")) is None
    assert reopening(visits, at("2359")) is None
    assert reopening(visits, at("0359")) is None
    line, opens = reopening(visits, at("0845"))
    assert (line.number, opens) == (3, at("2200"))
    line, opens = reopening(visits, at("0400"))
    assert (line.number, opens) == (2, at("0600"))


def test_a_site_without_visiting_times_is_open():
    assert reopening(None, at("1200")) is None
    assert reopening(pace("Crawl-delay: 5", "Visit-time: always"), at("1200")) is None


@given(st.floats(0, 4e9), st.integers(0, 1439), st.integers(0, 1439))
def test_it_opens_within_a_day_and_is_open_then(now, begins, ends):
    visits = pace(f"Visit-time: {begins // 60:02}{begins % 60:02}-{ends // 60:02}{ends % 60:02}")
    shut = reopening(visits, now)

    assume(shut is not None)

    assert now < shut[1] <= now + 86_400
    assert reopening(visits, shut[1] + 0.001) is None


# -- turns ----------------------------------------------------------------------------------------------------


def test_the_first_turn_is_now():
    assert next_turn(NEVER, NEVER, 10, 1000.0) == Turn(stamp=1000.0, asked=1000.0)


def test_the_next_turn_comes_after_the_delay():
    assert next_turn(1000.0, NEVER, 10, 1004.0) == Wait(seconds=6.0, asked=1004.0)
    assert next_turn(1000.0, NEVER, 10, 1010.0) == Turn(stamp=1010.0, asked=1010.0)


def test_a_pause_delays_the_turn():
    assert next_turn(1000.0, 1060.0, 10, 1004.0) == Wait(
        seconds=56.0, by_retry_after=True, asked=1004.0, pause=56.0
    )
    assert next_turn(1000.0, 1006.0, 10, 1004.0) == Wait(seconds=6.0, asked=1004.0, pause=2.0)
    assert next_turn(NEVER, 1004.5, 10, 1004.0) == Wait(
        seconds=0.5, by_retry_after=True, asked=1004.0, pause=0.5
    )


def test_a_past_pause_is_not_the_reason():
    assert next_turn(NEVER, 990.0, 10, 1000.0) == Turn(stamp=1000.0, asked=1000.0)
    assert next_turn(990.0, 1000.0, 10, 1000.0) == Turn(stamp=1000.0, asked=1000.0)
    assert not next_turn(1000.0, 1010.0, 10, 1004.0).by_retry_after  # the delay asks for as much


def test_times_too_far_in_the_future_are_ignored():
    assert wait_of(next_turn(1000.0 + MAX_FUTURE, NEVER, 10, 1000.0)) == 10 + MAX_FUTURE
    assert (
        wait_of(next_turn(NEVER, 1000.0 + LONGEST_PAUSE + MAX_FUTURE, 10, 1000.0))
        == LONGEST_PAUSE + MAX_FUTURE
    )


def test_a_turn_may_be_used_for_a_quarter_of_a_second_and_is_old_after_half_of_that():
    turn = Turn(stamp=1000.0, asked=1000.0)

    assert not is_old(turn, 1000.0 + MAX_TURN_AGE / 2)
    assert is_old(turn, 1000.0 + MAX_TURN_AGE / 2 + 0.001)
    assert not has_lapsed(turn, 1000.0 + MAX_TURN_AGE)
    assert has_lapsed(turn, 1000.0 + MAX_TURN_AGE + 0.001)


def test_after_a_lapse_the_next_request_waits_for_the_delay():
    turn = Turn(stamp=1000.0, asked=1000.0)

    assert lapsed(turn, 10.0, 1004.0) == Wait(seconds=6.0, asked=1000.0)
    assert lapsed(turn, 10.0, 1020.0) == Wait(seconds=MAX_TURN_AGE, asked=1000.0)


def test_a_clock_that_was_set_back_does_not_stop_an_origin():
    assert wait_of(next_turn(1000.0 + MAX_FUTURE + 1, NEVER, 10, 1000.0)) == 0
    assert wait_of(next_turn(NEVER, 1001.0 + LONGEST_PAUSE + MAX_FUTURE, 10, 1000.0)) == 0


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_invalid_times_are_ignored(odd):
    assert wait_of(next_turn(odd, odd, 10, 1000.0)) == 0


def test_a_turn_is_moved_no_further_than_the_accepted_skew():
    assert moved_stamp(1000.0, 0.1) == 1000.1
    assert moved_stamp(1000.0, 60.0) == 1000.0 + MAX_FUTURE
    assert wait_of(next_turn(moved_stamp(1000.0, 60.0), NEVER, 10, 1000.0)) == 10 + MAX_FUTURE
    assert moved_stamp(1000.0, -60.0) == 1000.0


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 5)), max_size=40), st.floats(0.01, 10))
def test_turns_are_never_closer_than_the_delay(steps, delay):
    """Askers come at any times; each that gets a turn is at least the delay behind the one before."""
    now, last, taken = 1000.0, NEVER, []
    for step, _ in steps:
        now += step
        turn = next_turn(last, NEVER, delay, now)
        if not wait_of(turn):
            last = turn.stamp
            taken.append(now)
        else:
            assert wait_of(next_turn(last, NEVER, delay, now + wait_of(turn) + 1e-6)) == 0
    assert all(later - earlier >= delay - 1e-6 for earlier, later in pairwise(taken))


@given(st.lists(st.floats(0, 0.2), min_size=2, max_size=6), st.floats(0.25, 10))
def test_waiting_processes_are_served_equally(lags, delay):
    """Each asks again later than it may, by its lag."""
    comes = dict(enumerate(lags))  # when each asks next
    last, places, served = NEVER, (), []
    while len(served) < 20 * len(lags):
        name = min(comes, key=comes.__getitem__)
        now = comes[name]
        turn, places = queue_turn(
            places, f"n{name}", next_turn(last, NEVER, delay, now), delay, now
        )
        if not wait_of(turn):
            assert now - last >= delay - 1e-6
            last = now
            served.append(name)
        comes[name] = now + wait_of(turn) + max(lags[name], 1e-3)

    counts = [served.count(name) for name in comes]
    assert max(counts) - min(counts) <= 2  # at the start some have not requested a turn yet


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)), max_size=9
    )
)
def test_no_queue_starves_a_process(made_up):
    places, now = tuple(Waiter(*each) for each in made_up), 0.0
    for _ in range(200):
        turn, places = queue_turn(places, "me", next_turn(NEVER, NEVER, 1.0, now), 1.0, now)
        if not wait_of(turn):
            break
        now += wait_of(turn)

    assert now <= (MAX_QUEUE + 2) * PLACE_GRACE


def test_simultaneous_requests_are_served_in_order():
    first, places = queue_turn((), "a", next_turn(1000.0, NEVER, 10, 1000.0), 10, 1000.0)
    second, places = queue_turn(places, "b", next_turn(1000.0, NEVER, 10, 1000.0), 10, 1000.0)

    assert (wait_of(first), first.crowd) == (10, 1)
    assert (wait_of(second), second.crowd) == (10 + PLACE_GRACE, 2)
    assert [place.name for place in places] == ["a", "b"]


@pytest.mark.parametrize("delay", [0.5, PLACE_GRACE, 10.0])
def test_each_place_ahead_costs_at_most_its_grace(delay):
    places = tuple(Waiter(name, 1000.0, 1000.0 + PLACE_GRACE) for name in "abc")

    turn, _ = queue_turn(places, "d", next_turn(NEVER, NEVER, delay, 1000.0), delay, 1000.0)

    assert turn == Wait(seconds=3 * min(delay, PLACE_GRACE), asked=1000.0, crowd=4, rank=3)


def test_a_returning_process_keeps_its_place():
    places = tuple(Waiter(name, 1000.0, 1000.0 + PLACE_GRACE) for name in "abc")

    turn, places = queue_turn(places, "b", next_turn(NEVER, NEVER, 1.0, 1000.5), 1.0, 1000.5)

    assert (wait_of(turn), turn.crowd) == (1.0, 3)
    assert [place.name for place in places] == ["a", "b", "c"]
    assert places[1] == Waiter("b", 1000.5, 1000.5 + 1.0 + PLACE_GRACE)


def test_a_place_that_is_not_due_delays_nothing():
    """A place is for a moment: whoever may have the turn before that has it."""
    later = Waiter("a", 1005.0, 1005.0 + PLACE_GRACE)

    turn, places = queue_turn((later,), "b", next_turn(NEVER, NEVER, 2.0, 1000.0), 2.0, 1000.0)

    assert (turn.stamp, turn.crowd) == (1000.0, 2)
    assert places[0] == later


def test_a_served_process_is_counted_for_two_delays_and_delays_nothing():
    turn, places = queue_turn((), "a", next_turn(NEVER, NEVER, 2.0, 1000.0), 2.0, 1000.0)
    until = 1000.0 + 2 * 2.0 + PLACE_GRACE

    assert (wait_of(turn), places) == (0.0, (Waiter("a", until, until),))
    next_one, _ = queue_turn(places, "b", next_turn(NEVER, NEVER, 2.0, until), 2.0, until)
    assert (wait_of(next_one), next_one.crowd) == (0.0, 2)
    assert (
        queue_turn(places, "b", next_turn(NEVER, NEVER, 2.0, until), 2.0, until + 0.001)[0].crowd
        == 1
    )
    assert queue_turn(places, "a", next_turn(NEVER, NEVER, 2.0, until), 2.0, until)[0].crowd == 1


def test_the_crowd_counts_waiting_and_served_processes_and_the_requester():
    places = (Waiter("a", 1005.0, 1010.0), Waiter("b", 1010.0, 1010.0), Waiter("c", 1010.0, 1010.0))

    assert queue_turn(places, "d", next_turn(NEVER, NEVER, 2.0, 1000.0), 2.0, 1000.0)[0].crowd == 4
    assert queue_turn(places, "", next_turn(NEVER, NEVER, 2.0, 1000.0), 2.0, 1000.0)[0].crowd == 4


def test_without_a_name_or_a_delay_a_turn_leaves_no_place():
    waits = next_turn(999.0, NEVER, 2.0, 1000.0)

    assert queue_turn((), "", next_turn(NEVER, NEVER, 2.0, 1000.0), 2.0, 1000.0)[1] == ()
    assert queue_turn((), "", waits, 2.0, 1000.0) == (Wait(seconds=1.0, asked=1000.0), ())
    assert queue_turn((), "a", next_turn(NEVER, NEVER, 0.0, 1000.0), 0.0, 1000.0)[1] == ()


def test_without_a_delay_no_process_waits_for_others():
    places = (Waiter("a", 1000.0, 1000.0 + PLACE_GRACE),)

    assert (
        wait_of(queue_turn(places, "b", next_turn(NEVER, NEVER, 0.0, 1000.0), 0.0, 1000.0)[0]) == 0
    )


def test_expired_and_forged_places_are_dropped():
    waiter = Waiter("a", 1000.0, 1000.0 + PLACE_GRACE)
    longest = Waiter("a", 1000.0, 1000.0 + (MAX_QUEUE + 1) * PLACE_GRACE)

    def wait(place: Waiter, now: float) -> float:
        return wait_of(queue_turn((place,), "b", next_turn(NEVER, NEVER, 2.0, now), 2.0, now)[0])

    assert wait(waiter, 1000.0 + PLACE_GRACE) == 2.0
    assert wait(waiter, 1000.1 + PLACE_GRACE) == 0
    assert wait(longest, 1000.0) == 2.0
    assert wait(longest._replace(until=longest.until + 1), 1000.0) == 0


# -- a fleet in line ------------------------------------------------------------------------------------------


def served(count, delay, rounds, *, late, ahead=lambda _: 0.0, gone=0):
    """How often each process of a fleet is served in so many rounds. Each asks `late` seconds later than it may, by
    a clock that is `ahead`; and `gone` others have asked once."""
    chance, places, last = random.Random(count), (), NEVER
    for number in range(gone):
        _, places = queue_turn(places, f"g{number}", next_turn(0.0, NEVER, delay, 0.0), delay, 0.0)
    comes = [(chance.random() * delay, number) for number in range(count)]
    heapq.heapify(comes)
    times = [0] * count
    while comes[0][0] < rounds * count * delay:
        at, number = heapq.heappop(comes)
        now = at + ahead(number)
        turn, places = queue_turn(
            places, f"n{number}", next_turn(last, NEVER, delay, now), delay, now
        )
        if not wait_of(turn):
            last = turn.stamp
            times[number] += 1
        heapq.heappush(comes, (at + (wait_of(turn) or delay) + late(number, chance) + 1e-6, number))
    return times


@pytest.mark.parametrize("delay", [0.5, 2.0])
def test_a_large_fleet_is_served_equally(delay):
    times = served(90, delay, 8, late=lambda *_: 0.01)

    assert max(times) - min(times) <= 1
    assert min(times) >= 7


def test_one_that_is_late_for_whole_seconds_is_not_starved_by_clocks_that_differ():
    """A client that obeys a Retry-After comes up to a second late, and the clocks of the others are ahead."""
    times = served(
        8,
        2.0,
        40,
        late=lambda number, chance: 1.2 * chance.random() if number == 7 else 0.01,
        ahead=lambda number: 0.0 if number == 7 else 1.0,
    )

    assert max(times) - min(times) <= 2


@given(
    st.lists(st.floats(0, 1), min_size=8, max_size=8),
    st.lists(st.floats(0, 1), min_size=8, max_size=8),
)
@settings(max_examples=30)
def test_clocks_that_differ_by_a_second_starve_no_process(late, ahead):
    times = served(8, 3.0, 10, late=lambda number, _: late[number], ahead=ahead.__getitem__)

    assert max(times) - min(times) <= 2


def test_names_that_never_come_back_cost_their_places_once():
    delay, gone, count = 2.0, 60, 4

    times = served(count, delay, 40, late=lambda *_: 0.01, gone=gone)

    lost = (gone + 1) * PLACE_GRACE / delay / count
    assert min(times) >= 40 - lost - 2


def test_a_queue_is_bounded():
    places = ()
    for number in range(MAX_QUEUE + 10):
        turn, places = queue_turn(places, f"n{number}", next_turn(0.0, NEVER, 10, 0.0), 10, 0.0)

    assert len(places) == MAX_QUEUE
    assert wait_of(turn) == 10 + MAX_QUEUE * PLACE_GRACE


# -- a share of an origin -------------------------------------------------------------------------------------


def test_a_turn_has_the_rank_of_the_requesters_name():
    places = (Waiter("b", 1000.0, 1010.0), Waiter("d", 1010.0, 1010.0))
    ranks = [
        queue_turn(places, name, next_turn(NEVER, NEVER, 2.0, 1000.0), 2.0, 1000.0)[0].rank
        for name in ("a", "b", "c", "e")
    ]

    assert ranks == [0, 0, 1, 2]


def test_a_share_is_derived_from_the_last_reply():
    turn = Wait(seconds=3.0, asked=1000.0, crowd=5, rank=2, skew=0.5)

    assert Share.of(turn, 900.0) == Share(5, 2, 900.5)
    assert Share(5, 2, 900.5).spacing(10.0) == 50.0


def test_a_share_is_one_slot_per_crowd():
    share = Share(3, 1, 0.0)

    assert [share.wait(10.0, at) for at in (0.0, 10.0, 10.4, 10.6, 39.0)] == [
        10.0,
        0.0,
        0.0,
        29.4,
        1.0,
    ]


def test_slots_are_those_of_the_stores_clock():
    assert Share(3, 1, 995.0).wait(10.0, 0.0) == 5.0
    assert Share(3, 2, 995.0).wait(10.0, 0.0) == 15.0
    assert Share(3, 1, -5.0).wait(10.0, 10.0) == 5.0


@given(
    st.floats(0.5, 100),
    st.integers(2, 16),
    st.lists(st.floats(-1e6, 2e9), min_size=2, max_size=16),
    st.floats(0, 1e6),
)
def test_no_two_processes_are_in_a_slot_at_once_and_any_two_keep_the_delay(delay, crowd, skews, at):
    slots = []
    for rank in range(crowd):
        skew = skews[rank % len(skews)]
        share, ours = Share(crowd, rank, skew), at - skew
        for _ in range(3):
            begins = share.slot(delay, ours)
            assert begins >= ours - room(delay) - 1e-3
            slots.append(begins + skew)
            ours = begins + delay
    slots.sort()
    assert all(later - earlier > delay - 1e-3 for earlier, later in pairwise(slots))


def test_a_slot_that_starts_immediately_has_started():
    share = Share(2, 0, 0.0)

    assert share.wait(10.0, 20.0 - 1e-6) == 0
    assert share.wait(10.0, 20.0 - 1e-3) == pytest.approx(1e-3)


def test_a_share_comes_into_force_a_delay_after_the_first_failure():
    share = Share(2, 0, 0.0).in_force(10.0, 1001.0)

    assert share == Share(2, 0, 0.0, 1011.0, is_in_force=True)
    assert share.in_force(10.0, 1015.0) == share
    assert share.wait(10.0, 1001.0) == 19.0
    assert Share(2, 0, 0.0, 1000.1, is_in_force=True).wait(10.0, 1000.2) == pytest.approx(19.8)


def test_a_share_stays_in_force_until_all_processes_see_the_store():
    away = Share(2, 0, 0.0).in_force(10.0, 1001.0)
    back = away.returning(10.0, 1020.0, 30.0)

    assert not away.is_returning
    assert back == away._replace(ends=1070.0)
    assert back.returning(10.0, 1040.0, 30.0) == back
    assert back.in_force(10.0, 1041.0) == away._replace(since=1051.0), "and the store fails again"


@pytest.mark.parametrize(("delay", "seconds"), [(0.1, 0.05), (0.5, 0.25), (1.0, 0.75), (10.0, 9.0)])
def test_a_late_turn_does_not_block_the_next_slot(delay, seconds):
    assert least(delay) == seconds


def test_a_request_waits_for_the_store_for_half_of_the_time_in_which_its_slot_may_be_taken():
    share = Share(2, 0, 0.0)

    assert share.time_to_look(1.0, 1000.0) == pytest.approx(MAX_TURN_AGE / 4)
    assert share.time_to_look(1.0, 1000.05) == pytest.approx(MAX_TURN_AGE / 4 - 0.05)
    assert share.time_to_look(1.0, 1000.1) == 0


def test_without_a_delay_there_are_no_slots():
    assert Share(2, 1, 0.0).wait(0.0, 1000.3) == 0


@pytest.mark.parametrize(
    ("delay", "sent_within", "taken_within"),
    [
        (0.1, MAX_TURN_AGE, 0.05),
        (1.0, 0.25, 0.125),
        (2.0, 0.5, 0.25),
        (4.0, 1.0, 0.5),
        (300.0, 1.0, 0.5),
    ],
)
def test_a_request_is_sent_within_a_quarter_of_its_slot(delay, sent_within, taken_within):
    assert window(delay) == sent_within
    assert room(delay) == taken_within


def test_a_turn_lapses_with_its_slot():
    turn = Turn(stamp=1000.0, asked=1000.1, until=1000.25)

    assert not has_lapsed(turn, 1000.25)
    assert has_lapsed(turn, 1000.26)


def test_the_skew_is_that_of_the_fastest_reply():
    quick = Share.of(Turn(stamp=0.0, crowd=2, skew=0.5, doubt=0.001), 100.0)
    stalled = Share.of(Turn(stamp=0.0, crowd=3, rank=1, skew=1.4, doubt=0.9), 100.0, quick)
    assert (stalled.skew, stalled.doubt, stalled.crowd, stalled.rank) == (100.5, 0.001, 3, 1)
    assert Share.of(Turn(stamp=0.0, crowd=2, skew=0.6, doubt=0.0005), 100.0, stalled).skew == 100.6


def test_the_skew_is_that_of_the_last_reply_if_a_clock_was_set():
    quick = Share.of(Turn(stamp=0.0, crowd=2, skew=0.5, doubt=0.001), 100.0)
    assert Share.of(Turn(stamp=0.0, crowd=2, skew=7.0, doubt=0.9), 100.0, quick).skew == 107.0
