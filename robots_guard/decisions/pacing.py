"""Pacing: the delay between two requests to an origin, as required by the site or the operator.

It uses no clock and no store: (last turn, delay, now) -> next turn.

    demand      the required delay: the longest of those that apply
    reopening   when a site with visiting times opens again
    next_turn   the origin's next turn, or the wait until it
    in_line     the same among several processes that share a store: first come, first served
    Share       the time slots of an origin that a process may use while the shared store is
                unavailable

A turn is the right to send one request to an origin. It is taken when the request is sent, never in
advance; a request that must wait asks again. If a request is sent later than `MAX_TURN_AGE` after its turn
was granted, it first needs the turn moved to now, or another turn (`has_lapsed`). A turn counts
from the beginning of the response, but from at most `MAX_TURN_AGE` after the request was sent, so that a
slow site is not visited less often than it allows.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from robots_guard.protocol.directives import DAY, Delay, Pace, Visit, Window
from robots_guard.protocol.lines import Line

#: Most seconds from a turn to its request, and from the request to the turn's start.
MAX_TURN_AGE = 0.25
MAX_FUTURE = 5.0  # seconds: a turn from further in the future means that a clock has been set back
LONGEST_DELAY = 86_400.0  # seconds an operator may set, or permit a file to require
LONGEST_PAUSE = 3600.0  # seconds for which an origin's Retry-After is honoured
SKEW = 1.0  # seconds by which the clocks of two processes may differ
#: Seconds a late process keeps its place; Retry-After is in whole seconds.
PLACE_GRACE = 1.0 + SKEW + MAX_TURN_AGE
MAX_QUEUE = 1024  # places in one origin's queue; a process that gets none competes for a free turn
LONGEST_WINDOW = 1.0  # seconds after the start of a slot in which a request may be sent, at most
AT_ONCE = 1e-5  # seconds: a slot that starts this soon has started; times are rounded
#: Seconds; a longer stored value is corrupt or forged.
_MAX_PLACE_AGE = (MAX_QUEUE + 1) * PLACE_GRACE


class DelaySource(StrEnum):
    """The source of a required delay."""

    CRAWL_DELAY = "crawl-delay"
    REQUEST_RATE = "request-rate"
    VISIT_TIME = "visit-time"
    RETRY_AFTER = "retry-after"  # of a 402, 429 or 503, for robots.txt or a page
    MIN_DELAY = "min-delay"  # the operator's setting


class RequiredDelay(msgspec.Struct, frozen=True, kw_only=True):
    """The required delay: `seconds` between two requests, and its source.

    `line` and `text` are those of the line that requires it, unless the source is the operator.
    `bounded`: the file requires more than is enforced.
    """

    by: DelaySource
    seconds: float
    line: int | None = None
    text: str = ""
    bounded: bool = False


class TurnReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a request for an origin's turn: a `Turn` or a `Wait`.

    `asked` is when the store replied, by the clock of the requesting process; a store may have
    another.
    `crowd` is the number of processes in the origin's queue, including the requesting one, and
    `rank` the number of those whose name sorts before its name.
    `skew` is how many seconds the store's clock is ahead of that of the process, and `doubt` the
    error of `skew` in seconds.
    """

    asked: float = 0.0
    crowd: int = 1
    rank: int = 0
    skew: float = 0.0
    doubt: float = 0.0


class Turn(TurnReply, frozen=True, kw_only=True):
    """The right to send the next request to an origin.

    `stamp` identifies it in the store.
    `is_shared`: it is recorded in the store that all processes share.
    `until` is the end of the slot for which it was taken, by the clock of the process; its request
    must not be sent later.
    """

    stamp: float
    is_shared: bool = True
    until: float = math.inf


class Wait(TurnReply, frozen=True, kw_only=True):
    """How long to wait before the turn is requested again, in seconds.

    `by_retry_after`: the wait is due to a pause that the origin has asked for.
    `pause` is the rest of that pause in seconds from `asked`, which may be less than the wait.
    """

    seconds: float
    by_retry_after: bool = False
    pause: float = 0.0


def required_delay(
    pace: Pace | None, min_delay: float, max_delay: float, now: float
) -> RequiredDelay | None:
    """The delay required at `now` (seconds since 1970), or None.

    It is the longest of the file's delays, each limited to `max_delay` seconds, and `min_delay`.
    """
    longest, stated = None, 0.0
    if pace is not None:
        delays = (delay for delay in pace.delays if _applies(delay.window, now))
        longest = max(delays, key=lambda each: each.seconds, default=None)
    if longest is not None:
        stated = longest.seconds
    if min_delay > min(stated, max_delay):
        return RequiredDelay(
            by=DelaySource.MIN_DELAY, seconds=min_delay, bounded=stated > min_delay
        )
    if longest is None or stated <= 0:
        return None
    return _bounded(longest, max_delay)


def _bounded(delay: Delay, most: float) -> RequiredDelay:
    line = delay.line
    return RequiredDelay(
        by=DelaySource(line.field),
        seconds=min(delay.seconds, most),
        line=line.number,
        text=line.text,
        bounded=delay.seconds > most,
    )


def reopening(pace: Pace | None, now: float) -> tuple[Line, float] | None:
    """The line of the next visiting time, and when it begins; None if `now` is in a visiting time or
    there are none."""
    if pace is None or not pace.visits or any(_applies(visit.window, now) for visit in pace.visits):
        return None
    first = min(pace.visits, key=lambda visit: _until(visit, now))
    return first.line, now + _until(first, now)


def _until(visit: Visit, now: float) -> float:
    """Seconds until a window opens, never 0."""
    return ((visit.window.begins - _minute_of_day(now)) % DAY) * 60.0


def _applies(window: Window | None, now: float) -> bool:
    return window is None or window.has(_minute_of_day(now))


def _minute_of_day(now: float) -> float:
    return now / 60.0 % DAY


def next_turn(last: float, not_before: float, delay: float, now: float) -> Turn | Wait:
    """The reply to a request made at `now`.

    `last` is when the last turn was taken, `not_before` the end of the origin's pause; both in
    seconds since 1970, or -inf. A value so far in the future that only a wrong clock can have set
    it is ignored.
    """
    paced = is_paused = -math.inf
    if last <= now + MAX_FUTURE:
        paced = last + delay
    if not_before <= now + LONGEST_PAUSE + MAX_FUTURE:
        is_paused = not_before
    pause = max(0.0, is_paused - now)
    seconds = max(pause, paced - now)
    if not seconds:
        return Turn(stamp=now, asked=now)
    return Wait(seconds=seconds, asked=now, by_retry_after=is_paused > paced, pause=pause)


def as_wait(reply: Turn | Wait) -> Wait:
    """The reply as a wait: that of a granted turn is 0 seconds long."""
    if isinstance(reply, Wait):
        return reply
    return Wait(seconds=0.0, asked=reply.asked)


class Waiter(NamedTuple):
    """A process's place in an origin's queue. The process may take the turn from `due` until
    `until`.

    After that it loses the place. A process that has just taken its turn keeps a place for which
    both are the same moment: it is behind all others and delays none, but still counts towards the
    crowd.
    """

    name: str
    due: float
    until: float

    @property
    def is_served(self) -> bool:
        """Whether the process has taken its turn and has not requested another."""
        return self.due == self.until


Places = tuple[Waiter, ...]


def queue_turn(
    places: Places,
    name: str,
    reply: Turn | Wait,
    delay: float,
    now: float,
) -> tuple[Turn | Wait, Places]:
    """The reply of `next_turn` to one of several processes, each with its own `name`, and the new
    queue.

    A process without a name waits for the others, but gets no place.

    Without a queue, the first process to ask at the due moment would win, and one that always asks
    a millisecond later would starve. A process that must wait gets a place; one without a place
    goes to the back. One that is not first waits until all before it can have been served or have
    lost their place.
    """
    wait = as_wait(reply)
    due = now + wait.seconds
    valid = [place for place in places if now <= place.until <= place.due + _MAX_PLACE_AGE]
    waiting = [place for place in valid if not place.is_served]
    at = next((at for at, place in enumerate(waiting) if place.name == name), len(waiting))
    others = [place for place in waiting if place.name != name]
    served = [place for place in valid if place.is_served and place.name != name]
    ahead = sum(place.due <= due for place in others[:at])
    rank = sum(place.name < name for place in (*others, *served))
    crowd = len(others) + len(served) + 1
    if isinstance(reply, Turn) and (not ahead or not delay):
        if name and delay:
            served.append(_served(name, now + 2 * delay + PLACE_GRACE))
        return replace(reply, crowd=crowd, rank=rank), (*others, *served)[:MAX_QUEUE]
    seconds = wait.seconds + ahead * min(delay, PLACE_GRACE)
    if name:
        others.insert(at, Waiter(name, due, now + seconds + PLACE_GRACE))
    return replace(wait, seconds=seconds, crowd=crowd, rank=rank), (*others, *served)[:MAX_QUEUE]


def _served(name: str, until: float) -> Waiter:
    """The place of a process that has taken its turn, which counts towards the crowd until
    `until`."""
    return Waiter(name, until, until)


class Share(NamedTuple):
    """The time slots of an origin that a process may use while the shared store is unavailable.

    The time of the store's clock is divided into slots of one delay each, which the `crowd` of
    processes use in turn: slot k belongs to the process whose `rank` is k modulo `crowd`. Processes
    that know the same crowd thus keep the delay among them without communicating, however long
    their calls to the store take to fail. A request is sent in a window at the beginning of a slot;
    one that misses it waits for the next slot of its process.

    `skew` is how many seconds the store's clock is ahead of the process's monotonic clock, and
    `doubt` the error of that in seconds: after a slow reply it is uncertain when that clock was
    read. The share is in force while the store is unavailable. No slot that begins before `since`
    (by the monotonic clock) is used, because the store may have granted turns to other processes
    until it failed. When the store replies again, the share stays in force until `ends`, and a turn
    needs both its slot and the store, because other processes may still be without it.
    """

    crowd: int
    rank: int
    skew: float
    since: float = -math.inf
    is_in_force: bool = False
    ends: float = math.inf
    doubt: float = 0.0

    @classmethod
    def of(cls, reply: Turn | Wait, ahead: float, before: Share | None = None) -> Share:
        """The share by the store's last reply.

        `ahead` is how many seconds the clock of the reply is ahead of the monotonic clock. The skew
        of the share `before` is kept if it is more precise and agrees with the reply; if it does
        not agree, a clock has been set since.
        """
        share = cls(reply.crowd, reply.rank, reply.skew + ahead, doubt=reply.doubt)
        if before is None or before.doubt > share.doubt:
            return share
        agrees = abs(before.skew - share.skew) <= before.doubt + share.doubt
        if agrees:
            return share._replace(skew=before.skew, doubt=before.doubt)
        return share

    def in_force(self, delay: float, at: float) -> Share:
        """The share after the store has failed. If it is already in force, it stays as it is."""
        if self.is_in_force and not self.is_returning:
            return self
        return self._replace(is_in_force=True, since=at + delay, ends=math.inf)

    def returning(self, delay: float, at: float, rest: float) -> Share:
        """The share after the store has replied again.

        It stays in force until all other processes have contacted the store, which may take `rest`
        seconds.
        """
        if self.is_returning:
            return self
        return self._replace(ends=at + rest + self.spacing(delay))

    @property
    def is_returning(self) -> bool:
        """Whether the store has replied again."""
        return self.ends < math.inf

    def spacing(self, delay: float) -> float:
        """Seconds between two slots of the process."""
        return delay * self.crowd

    def slot(self, delay: float, at: float) -> float:
        """The beginning of the first slot that the process may take at `at` or later."""
        if not delay:
            return at
        earliest = max(self.since, at - room(delay)) - AT_ONCE
        number = math.ceil((earliest + self.skew) / delay)
        number += (self.rank - number) % self.crowd
        return number * delay - self.skew

    def wait(self, delay: float, at: float) -> float:
        """Seconds until the process may take a slot."""
        left = self.slot(delay, at) - at
        if left > AT_ONCE:
            return left
        return 0.0

    def time_to_look(self, delay: float, at: float) -> float:
        """Seconds for which a request in its slot may wait to see whether the store is back."""
        return max(0.0, self.slot(delay, at) + room(delay) / 2 - at)


def window(delay: float) -> float:
    """Seconds after the beginning of a slot in which its request may be sent: a quarter of the
    delay.

    It is at least `MAX_TURN_AGE`, because sending may take that long.
    """
    return min(max(MAX_TURN_AGE, delay / 4), LONGEST_WINDOW)


def least(delay: float) -> float:
    """Seconds that the store must see between the turns of two adjacent slots, of which the first
    may be late."""
    return max(delay / 2, delay - window(delay))


def room(delay: float) -> float:
    """Seconds after the beginning of a slot in which it may be taken; the rest of the window is for
    sending.

    It is less than the delay, so that no slot is taken twice.
    """
    return min(window(delay) / 2, delay / 2)


def has_lapsed(turn: Turn, now: float) -> bool:
    """Whether a turn is too old to send a request: the next one might follow within less than a
    delay."""
    return now - turn.asked > MAX_TURN_AGE or now > turn.until


def is_old(turn: Turn, now: float) -> bool:
    """Whether a turn should be moved to now before its request is sent, so that it does not lapse
    on the way."""
    return now - turn.asked > MAX_TURN_AGE / 2


def lapsed(turn: Turn, delay: float, now: float) -> Wait:
    """The reply to a process whose turn came too late to be used: when to ask again."""
    return Wait(seconds=max(MAX_TURN_AGE, turn.asked + delay - now), asked=turn.asked)


def moved_stamp(stamp: float, since: float) -> float:
    """When a turn taken at `stamp` counts from, if it is moved by `since` seconds.

    It is moved by at most `MAX_FUTURE`, because one from further in the future would be ignored.
    """
    return stamp + min(max(0.0, since), MAX_FUTURE)
