"""Pacing: how long a site, or its operator, must be left alone between two requests.

Knows no clock and no store: (last turn, delay, now) -> next turn.

    demand      of all that is asked for, what binds: the longest
    closed      when a site with visiting times opens again
    next_turn   how long until the origin's next turn, or that it is now
    in_line     whose it is, of several processes that share a store: first come, first served
    Share       which moments of an origin are a process's own while the shared store is away

A turn is the right to send one request to an origin. It is taken when the request is sent, never in advance: who
must wait asks again. A request that is sent later than `SLACK` after its turn was granted needs that turn moved to now
first, or another one (`has_lapsed`). A turn counts from when the answer begins; but at most `SLACK` after the request
was sent, so that a slow site is not asked less often than it allows.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

import msgspec

from robots_guard.rep.lines import Line
from robots_guard.rep.pace import DAY, Delay, Pace, Visit, Window

SLACK = 0.25  # seconds between a turn and its request, and between that and what the turn counts from
AHEAD = 5.0  # seconds: a turn from further in the future was stamped by a clock that has since been set back
LONGEST_DELAY = 86_400.0  # seconds an operator may set, or allow a file
LONGEST_HOLD_OFF = 3600.0  # seconds an origin's Retry-After is honoured
SKEW = 1.0  # seconds by which the clocks of two processes may differ
KEPT = 1.0 + SKEW + SLACK  # seconds a place in the line is kept for a late process: a Retry-After is in whole seconds
LINE = 1024  # places in one origin's line; a process that finds none has to be lucky
LONGEST_WINDOW = 1.0  # seconds after its slot begins in which a request may be sent, however long the delay
AT_ONCE = 1e-5  # seconds: a slot that begins this soon has begun, for moments are rounded
_LONGEST_PLACE = (LINE + 1) * KEPT  # seconds; who says more has made it up


class Pacer(StrEnum):
    """What asks for time."""

    CRAWL_DELAY = "crawl-delay"
    REQUEST_RATE = "request-rate"
    VISIT_TIME = "visit-time"
    RETRY_AFTER = "retry-after"  # of a 429 or 503, to robots.txt or to a page
    MIN_DELAY = "min-delay"  # the operator's own


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """`seconds` between two requests, and who asks for them: a line of the file, or nobody but ourselves.

    `bounded` is whether the file asks for more.
    """

    by: Pacer
    seconds: float
    line: int | None = None
    text: str = ""
    bounded: bool = False


class Turn(NamedTuple):
    """The answer to who asks for an origin's turn: after `wait` seconds, or, at 0, now.

    `stamp` names a turn that was taken. `by_retry_after`: the origin itself has asked to be left alone. `asked` is when
    the store granted it or said to wait, by the asker's clock; a store may have another. `crowd` is how many processes
    stand in the origin's line, the asker included, and `rank` how many of them have a name that sorts before the
    asker's. `skew` is by how many seconds the store's clock is ahead of the asker's.
    `is_shared`: the store that all processes share knows of it. `until` is when the slot ends for which it was taken,
    by the asker's clock; its request may not be sent later. `pause` is for how many seconds from `asked` the origin
    has asked to be left alone, which may be less than `wait`. `doubt` is by how many seconds `skew` may be wrong.
    """

    wait: float
    stamp: float = 0.0
    by_retry_after: bool = False
    asked: float = 0.0
    crowd: int = 1
    rank: int = 0
    skew: float = 0.0
    is_shared: bool = True
    until: float = math.inf
    pause: float = 0.0
    doubt: float = 0.0


def demand(pace: Pace | None, min_delay: float, max_delay: float, now: float) -> Demand | None:
    """The longest of what binds at `now` (seconds since 1970): the file's delays, at most `max_delay` seconds each,
    and our own `min_delay`. None if nothing does."""
    asked = [delay for delay in pace.delays if _holds(delay.window, now)] if pace else []
    longest = max(asked, key=lambda each: each.seconds, default=None)
    wanted = longest.seconds if longest is not None else 0.0
    if min_delay > min(wanted, max_delay):
        return Demand(by=Pacer.MIN_DELAY, seconds=min_delay, bounded=wanted > min_delay)
    return _bounded(longest, max_delay) if longest is not None and wanted > 0 else None


def _bounded(delay: Delay, most: float) -> Demand:
    line = delay.line
    return Demand(
        by=Pacer(line.field),
        seconds=min(delay.seconds, most),
        line=line.number,
        text=line.text,
        bounded=delay.seconds > most,
    )


def closed(pace: Pace | None, now: float) -> tuple[Line, float] | None:
    """If the site wants no visits at `now`: the line that says when it next does, and that moment."""
    if pace is None or not pace.visits or any(_holds(visit.window, now) for visit in pace.visits):
        return None
    first = min(pace.visits, key=lambda visit: _until(visit, now))
    return first.line, now + _until(first, now)


def _until(visit: Visit, now: float) -> float:
    """Seconds until a window opens, never 0."""
    return ((visit.window.begins - _minute_of_day(now)) % DAY) * 60.0


def _holds(window: Window | None, now: float) -> bool:
    return window is None or window.has(_minute_of_day(now))


def _minute_of_day(now: float) -> float:
    return now / 60.0 % DAY


def next_turn(last: float, not_before: float, delay: float, now: float) -> Turn:
    """The turn of who asks at `now`. `last` is when the last was taken, `not_before` what the origin has asked for;
    both in seconds since 1970, -inf for never, and neither believed where no clock that runs right can have set it.
    """
    paced = last + delay if last <= now + AHEAD else -math.inf
    held_off = not_before if not_before <= now + LONGEST_HOLD_OFF + AHEAD else -math.inf
    pause = max(0.0, held_off - now)
    wait = max(pause, paced - now)
    return Turn(wait, 0.0 if wait else now, by_retry_after=wait > 0 and held_off > paced, asked=now, pause=pause)


class Place(NamedTuple):
    """A process's place in an origin's line. It counts from `due`, when its holder may have the turn, until `until`,
    when he has lost it for not having come.

    A process that has just had its turn keeps a place of which both are the same moment: it comes behind all others,
    and holds up none of them, but is still counted as one of the crowd.
    """

    name: str
    due: float
    until: float

    @property
    def is_served(self) -> bool:
        """Whether its holder has had the turn, and has not asked again."""
        return self.due == self.until


Places = tuple[Place, ...]


def in_line(places: Places, name: str, turn: Turn, delay: float, now: float) -> tuple[Turn, Places]:
    """What `next_turn` says, of several who ask, each by a `name` of its own; and the line as it is from now on.
    Without a name one waits for the others, and has no place.

    Without it the turn would be his who happens to ask first when it is due, and one who always comes a millisecond
    after another would never have it. Who must wait has a place; who has none comes behind. Whoever is not the first
    is told to come again when all before him may have been served, or have not come.
    """
    due = now + turn.wait
    held = [place for place in places if now <= place.until <= place.due + _LONGEST_PLACE]
    standing = [place for place in held if not place.is_served]
    at = next((at for at, place in enumerate(standing) if place.name == name), len(standing))
    others = [place for place in standing if place.name != name]
    served = [place for place in held if place.is_served and place.name != name]
    ahead = sum(place.due <= due for place in others[:at])
    rank = sum(place.name < name for place in (*others, *served))
    turn = turn._replace(crowd=len(others) + len(served) + 1, rank=rank)
    if not turn.wait and (not ahead or not delay):
        if name and delay:
            served.append(_served(name, now + 2 * delay + KEPT))
        return turn, (*others, *served)[:LINE]
    wait = turn.wait + ahead * min(delay, KEPT)
    if name:
        others.insert(at, Place(name, due, now + wait + KEPT))
    return turn._replace(wait=wait, stamp=0.0), (*others, *served)[:LINE]


def _served(name: str, until: float) -> Place:
    """The place of a process that has had its turn, kept for as long as it takes to ask for the next, and as long
    again for one that is late."""
    return Place(name, until, until)


class Share(NamedTuple):
    """Which moments of an origin are a process's own when the shared store is away, by the store's last answer.

    The time of the store's clock is divided into slots of one delay each, which the `crowd` of processes use in turn:
    slot k is that of the process whose `rank` is k modulo `crowd`. So processes that know the same crowd keep
    the delay between them without a word, however long their calls to the store take to fail. A request goes within a
    window at the beginning of a slot; one that is held up beyond it waits for the next slot of its process.

    `skew` is by how many seconds the store's clock is ahead of the process's monotonic clock, and `doubt` by how many
    it may be wrong: an answer that took long says little about the moment at which that clock was read. The share is in
    force while the store is away, and no slot that begins before `since` (by the monotonic clock) is used: until the
    store failed it may have granted turns to other processes. When the store answers again, the share stays in force
    until `ends`, and a turn needs both its slot and the store: other processes may still be without it.
    """

    crowd: int
    rank: int
    skew: float
    since: float = -math.inf
    is_in_force: bool = False
    ends: float = math.inf
    doubt: float = 0.0

    @classmethod
    def of(cls, turn: Turn, ahead: float, before: Share | None = None) -> Share:
        """By the store's last answer. `ahead` is by how many seconds the clock of the turn is ahead of the monotonic
        clock. The skew of the share `before` stays if it is known better, and agrees with that answer: if not, a clock
        has been set since."""
        share = cls(turn.crowd, turn.rank, turn.skew + ahead, doubt=turn.doubt)
        if before is None or before.doubt > share.doubt:
            return share
        agrees = abs(before.skew - share.skew) <= before.doubt + share.doubt
        return share._replace(skew=before.skew, doubt=before.doubt) if agrees else share

    def in_force(self, delay: float, at: float) -> Share:
        """The share from when the store fails. One that is in force since then stays as it is."""
        if self.is_in_force and not self.is_returning:
            return self
        return self._replace(is_in_force=True, since=at + delay, ends=math.inf)

    def returning(self, delay: float, at: float, rest: float) -> Share:
        """The share from when the store answers again: until all other processes have asked it, too, which may leave it
        alone for `rest` seconds."""
        return self if self.is_returning else self._replace(ends=at + rest + self.spacing(delay))

    @property
    def is_returning(self) -> bool:
        """Whether the store has answered again."""
        return self.ends < math.inf

    def spacing(self, delay: float) -> float:
        """Seconds between two slots of the process."""
        return delay * self.crowd

    def slot(self, delay: float, at: float) -> float:
        """When the first slot begins, or has begun, that the process may take at `at` or later."""
        if not delay:
            return at
        earliest = max(self.since, at - room(delay)) - AT_ONCE
        number = math.ceil((earliest + self.skew) / delay)
        number += (self.rank - number) % self.crowd
        return number * delay - self.skew

    def wait(self, delay: float, at: float) -> float:
        """Seconds until the process may take a slot."""
        left = self.slot(delay, at) - at
        return left if left > AT_ONCE else 0.0

    def time_to_look(self, delay: float, at: float) -> float:
        """Seconds for which a request in its slot may wait to hear whether the store has come back."""
        return max(0.0, self.slot(delay, at) + room(delay) / 2 - at)


def window(delay: float) -> float:
    """Seconds after the beginning of a slot in which its request may be sent: a quarter of the delay. A request cannot
    be sure to go within less than `SLACK`."""
    return min(max(SLACK, delay / 4), LONGEST_WINDOW)


def least(delay: float) -> float:
    """Seconds that the store must see between the turns of two neighbouring slots, of which the first may be late."""
    return max(delay / 2, delay - window(delay))


def room(delay: float) -> float:
    """Seconds after the beginning of a slot in which it may be taken; the rest of the window is for the sending. Less
    than the delay, so that no slot is taken twice."""
    return min(window(delay) / 2, delay / 2)


def has_lapsed(turn: Turn, now: float) -> bool:
    """Whether a turn is too old to send a request by: the next might come less than a delay after that request."""
    return now - turn.asked > SLACK or now > turn.until


def is_old(turn: Turn, now: float) -> bool:
    """Whether a turn should be moved to now before its request goes, lest it lapse on the way."""
    return now - turn.asked > SLACK / 2


def lapsed(turn: Turn, delay: float, now: float) -> Turn:
    """The answer to a process whose turn came too late to be used: when to ask again."""
    return turn._replace(wait=max(SLACK, turn.asked + delay - now), stamp=0.0)


def counted_from(stamp: float, since: float) -> float:
    """When a turn taken at `stamp` counts from, if it is moved by `since` seconds: at most by `AHEAD`, for one from
    further in the future would not be believed, should the clock that says so have jumped."""
    return stamp + min(max(0.0, since), AHEAD)
