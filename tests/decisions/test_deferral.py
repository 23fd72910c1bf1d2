"""Deferral: the state diagram compared with the code, single transitions, and random crawls."""

from __future__ import annotations

import itertools
import re
import typing

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from robots_guard.decisions import deferral
from robots_guard.decisions.deferral import (
    OPEN,
    SHORTEST,
    AwaitingPolicy,
    Deferrals,
    Open,
    Probing,
    Sending,
    Shut,
    group_due,
)

A, B = "http://a.test", "http://b.test"
REMEMBERED = 2


@pytest.fixture
def deferrals() -> Deferrals:
    return Deferrals(remembered=3)


def test_the_state_diagram_matches_the_code():
    """The arrows in the module's docstring are the return annotations of the states' events."""
    drawn = set(re.findall(r"^ +(\w+) +-> (\w+)", deferral.__doc__, re.MULTILINE))
    states = {kind: kind.__name__ for kind in typing.get_args(deferral.State)}
    coded = {
        (name, states[following])
        for kind, name in states.items()
        for event in (getattr(kind, word) for word in dir(kind) if not word.startswith("_"))
        if callable(event)
        for following in _followers(event)
        if following in states and following is not kind
    }

    assert drawn == coded


def _followers(event) -> tuple[type, ...]:
    annotation = typing.get_type_hints(event)["return"]
    return typing.get_args(annotation) or (annotation,)


# -- single transitions ---------------------------------------------------------------------------------------


def test_one_request_probes_for_the_policy_while_others_wait(deferrals):
    assert deferrals.admit(1, A, 0, known=False)
    assert not deferrals.admit(2, A, 0, known=False)
    assert deferrals.admit(3, B, 0, known=True)

    assert deferrals.is_probing(1)
    assert deferrals.fetch(1) == A
    assert not deferrals.admit(2, A, 0, known=True), "known, but not said to be fetched"
    deferrals.fetched(A, 0)
    assert deferrals.admit(2, A, 0, known=True)
    assert deferrals.state(A) == Sending(OPEN.until, 2), "it may be the one to shut the origin"
    deferrals.free(2, 0)
    assert [deferrals.admit(ticket, A, 0, known=True) for ticket in (4, 5)] == [True, True]


def test_an_uncacheable_policy_is_probed_once_per_request(deferrals):
    """It may be too large to cache: the request then waits in the middleware instead of being requeued forever."""
    deferrals.admit(1, A, 0, known=False)
    deferrals.fetch(1)
    deferrals.fetched(A, 0)

    assert deferrals.admit(1, A, 0, known=False)
    assert not deferrals.is_probing(1)


def test_a_paced_origin_sends_one_request_and_then_waits(deferrals):
    deferrals.note_paced(A)
    assert deferrals.admit(1, A, 0, known=True)
    assert not deferrals.admit(2, A, 0, known=True)

    deferrals.shut(A, 5, 0)
    deferrals.free(1, 0)
    assert (deferrals.state(A), deferrals.due) == (Shut(5), 5)
    assert not deferrals.admit(2, A, 4.9, known=True)
    assert deferrals.admit(2, A, 5, known=True)
    deferrals.note_unpaced(A)
    deferrals.free(2, 5)
    assert [deferrals.admit(ticket, A, 5, known=True) for ticket in (3, 4)] == [True, True]


def test_a_pause_set_meanwhile_outlasts_the_ticket_and_the_fetch(deferrals):
    deferrals.admit(1, A, 0, known=False)
    deferrals.shut(A, 10, 0)
    assert deferrals.state(A) == Probing(10, 1)
    deferrals.fetch(1)
    deferrals.shut(A, 7, 0)
    assert deferrals.state(A) == AwaitingPolicy(10), "never for less than was said before"

    deferrals.fetched(A, 1)
    assert deferrals.state(A) == Shut(10)
    deferrals.settle(10)
    assert len(deferrals) == 0


def test_an_end_at_the_exact_moment_leaves_the_origin_open(deferrals):
    """The moment has been settled by then, so nothing else would open the origin again."""
    deferrals.admit(1, A, 0, known=False)
    deferrals.shut(A, 10, 0)
    deferrals.free(1, 10)

    assert (deferrals.state(A), deferrals.due) == (OPEN, None)


def test_a_deferred_group_blocks_only_itself(deferrals):
    group = f"{A}#16"
    deferrals.admit(1, A, 0, known=True)
    deferrals.send_back(1, group, 16, 0)
    assert not deferrals.admit(1, A, 1, known=True, group=group)
    assert deferrals.admit(2, A, 1, known=True, group=A)

    deferrals.shut(A, 20, 1)
    assert not deferrals.admit(1, A, 16, known=True, group=group)
    assert deferrals.admit(1, A, 20, known=True, group=group)


def test_requeuing_is_not_a_busy_loop(deferrals):
    deferrals.admit(1, A, 0, known=True)
    deferrals.send_back(1, A, 0, 0)

    assert deferrals.due == SHORTEST


def test_a_ticket_admitted_again_while_out_leaves_no_origin_shut(deferrals):
    """A component has changed the URL of a request and handed it to the scheduler again."""
    deferrals.admit(1, A, 0, known=False)

    assert deferrals.admit(1, B, 0, known=False)
    assert (deferrals.state(A), deferrals.state(B)) == (OPEN, Probing(OPEN.until, 1))


@pytest.mark.parametrize("wait", [0.01, 1.0, 60.0, 900.0])
def test_deferred_requests_form_few_groups_and_are_never_early(wait):
    asked_at = [1000 + wait * part / 500 for part in range(500)]
    dues = [group_due(at, wait) for at in asked_at]

    assert len(set(dues)) <= 17
    assert all(
        0 <= due - at - wait <= max(wait, SHORTEST) / 8
        for at, due in zip(asked_at, dues, strict=True)
    )


# -- what is kept ---------------------------------------------------------------------------------------------


def count_items(deferrals: Deferrals) -> int:
    """The number of stored items, in all containers."""
    return sum(len(value) for value in vars(deferrals).values() if hasattr(value, "__len__"))


def probe(deferrals: Deferrals, origin: str) -> None:
    deferrals.admit(origin, origin, 0, known=False)
    deferrals.fetch(origin)
    deferrals.fetched(origin, 0)


def test_origins_without_further_requests_are_forgotten(deferrals):
    for number in range(100):
        deferrals.note_paced(f"http://{number}.test")
        probe(deferrals, f"http://{number}.test")

    assert count_items(deferrals) == 6


def test_recently_used_origins_are_remembered(deferrals):
    origins = [f"http://{number}.test" for number in range(4)]
    for origin in origins[:3]:
        deferrals.note_paced(origin)
    deferrals.admit("asks", origins[0], 0, known=True)
    deferrals.free("asks", 0)
    deferrals.note_paced(origins[3])

    for origin in origins:
        deferrals.admit(origin, origin, 0, known=True)
    assert [isinstance(deferrals.state(origin), Sending) for origin in origins] == [
        True,
        False,
        True,
        True,
    ]


def test_a_moment_postponed_repeatedly_is_stored_once(deferrals):
    for second in range(1000):
        deferrals.shut(A, second + 10, second)
        assert deferrals.state(A) == Shut(second + 10)

    assert count_items(deferrals) == 2, "its state and its moment"
    deferrals.settle(1008)
    assert (deferrals.state(A), deferrals.due) == (Shut(1009), 1009)
    deferrals.shut(A, 1020, 1010)
    assert count_items(deferrals) == 2


def test_nothing_is_kept_when_the_crawl_is_over(deferrals):
    deferrals.note_paced(A)
    probe(deferrals, A)
    deferrals.admit(1, B, 0, known=False)
    deferrals.shut(A, 10, 0)
    deferrals.clear()

    assert (count_items(deferrals), deferrals.due) == (0, None)
    deferrals.fetched(B, 0)  # whatever was under way may still end
    deferrals.free(1, 0)
    assert count_items(deferrals) == 0


# -- any history ----------------------------------------------------------------------------------------------

origins = st.sampled_from([A, B, "http://c.test"])
seconds = st.sampled_from([0.0, 0.01, 1.0, 1.0, 2.5, 60.0])


class Crawl(RuleBasedStateMachine):
    """A crawl with arbitrary events in any order; a simple model says what may leave when."""

    out = Bundle("out")  # tickets that have left and not ended, with their origins

    @initialize()
    def begin(self) -> None:
        self.deferrals = Deferrals(REMEMBERED)
        self.now = 100.0
        self.names = itertools.count()
        self.shut: dict[str, float] = {}  # by key, the latest moment ever said
        self.alone: dict[str, int] = {}  # by origin, the ticket for which it is shut
        self.fetching: set[str] = set()
        self.known: set[str] = set()

    def reason(self, origin: str, group: str) -> str | None:
        """Why nothing may leave now."""
        if any(self.shut.get(key, 0) > self.now for key in (origin, group)):
            return "shut"
        if origin in self.alone:
            return "out"
        return "fetching" if origin in self.fetching else None

    def forget(self, ticket: int) -> None:
        self.alone = {origin: alone for origin, alone in self.alone.items() if alone != ticket}

    def note_shut(self, key: str, wait: float) -> None:
        self.shut[key] = max(self.shut.get(key, 0), self.now + wait)

    # -- the scheduler

    @rule(target=out, origin=origins, group=st.sampled_from(["", "", "#16"]))
    def ask(self, origin: str, group: str) -> tuple[int, str]:
        ticket, group = next(self.names), origin + group
        known = origin in self.known
        left = self.deferrals.admit(ticket, origin, self.now, known=known, group=group)
        assert left == (self.reason(origin, group) is None)
        state = self.deferrals.state(origin)
        if left and not isinstance(state, Open):
            assert state.ticket == ticket
            self.alone[origin] = ticket
        assert known or not left or origin in self.alone, "several for want of one policy"
        return ticket, origin

    @rule(passed=seconds)
    def wait(self, passed: float) -> None:
        """Advance like the timer does: nothing is settled between two of its moments."""
        end = self.now + passed
        while (due := self.deferrals.due) is not None and due <= end:
            assert due >= self.now
            self.now = due
            self.deferrals.settle(due)
            assert self.deferrals.due != due, "a timer that rings for ever"
        self.now = end

    # -- the middlewares

    @rule(sent=consumes(out))
    def reach_the_middleware(self, sent: tuple[int, str]) -> None:
        ticket, origin = sent
        if not self.deferrals.is_probing(ticket) or origin in self.known:
            return self.end(sent)
        assert self.deferrals.fetch(ticket) == origin
        del self.alone[origin]
        self.fetching.add(origin)
        return None

    @rule(origin=origins, is_kept=st.booleans())
    def fetched(self, origin: str, is_kept: bool) -> None:
        self.deferrals.fetched(origin, self.now)
        self.fetching.discard(origin)
        if is_kept:
            self.known.add(origin)

    @rule(origin=origins)
    def expire(self, origin: str) -> None:
        self.known.discard(origin)

    @rule(sent=consumes(out), wait=seconds, group=st.sampled_from(["", "#16"]))
    def send_back(self, sent: tuple[int, str], wait: float, group: str) -> None:
        ticket, origin = sent
        self.deferrals.send_back(ticket, origin + group, wait, self.now)
        self.note_shut(origin + group, max(SHORTEST, wait))
        self.forget(ticket)

    @rule(sent=out)
    def free(self, sent: tuple[int, str]) -> None:
        was_alone = sent[0] in self.alone.values()
        assert self.deferrals.free(sent[0], self.now) == was_alone
        self.forget(sent[0])

    @rule(sent=consumes(out))
    def end(self, sent: tuple[int, str]) -> None:
        """Refused, answered, cancelled, or ended by another component."""
        self.free(sent)

    # -- the wire

    @rule(sent=out, delay=seconds)
    def send(self, sent: tuple[int, str], delay: float) -> None:
        ticket, origin = sent
        self.deferrals.shut(origin, self.now + delay, self.now)
        self.deferrals.free(ticket, self.now)
        self.note_shut(origin, delay)
        self.forget(ticket)

    @rule(origin=origins, delay=seconds)
    def note_pause(self, origin: str, delay: float) -> None:
        self.deferrals.shut(origin, self.now + delay, self.now)
        self.note_shut(origin, delay)

    @rule(origin=origins)
    def note_paced(self, origin: str) -> None:
        self.deferrals.note_paced(origin)

    @rule(origin=origins)
    def note_unpaced(self, origin: str) -> None:
        self.deferrals.note_unpaced(origin)

    # -- what always holds

    @invariant()
    def what_is_not_open_has_a_ticket_out_a_fetch_under_way_or_a_moment(self) -> None:
        for key in (A, B, "http://c.test", f"{A}#16"):
            match self.deferrals.state(key):
                case Probing() | Sending() as state:
                    assert self.alone[key] == state.ticket
                case AwaitingPolicy():
                    assert key in self.fetching
                case Shut(until=until):
                    assert self.deferrals.due is not None
                    assert self.deferrals.due <= until == self.shut[key]
                case Open():
                    assert key not in {*self.alone, *self.fetching}
                    assert self.shut.get(key, 0) <= self.now

    @invariant()
    def no_more_is_kept_than_is_needed(self) -> None:
        shut = [key for key, until in self.shut.items() if until > self.now]
        not_open = {*shut, *self.alone, *self.fetching}
        assert len(self.deferrals) <= len(not_open)
        assert (
            count_items(self.deferrals)
            <= len(not_open) + len(shut) + len(self.alone) + 2 * REMEMBERED
        )

    def teardown(self) -> None:
        """After all tickets have ended and time has passed, nothing remains."""
        if not hasattr(self, "deferrals"):
            return
        for ticket in list(self.alone.values()):
            self.deferrals.free(ticket, self.now)
        for origin in self.fetching:
            self.deferrals.fetched(origin, self.now)
        self.deferrals.settle(max([self.now, *self.shut.values()]))
        assert (len(self.deferrals), self.deferrals.due) == (0, None)
        assert count_items(self.deferrals) <= 2 * REMEMBERED


TestAnyHistory = Crawl.TestCase
