"""Origins in the store: their policies, how fresh these are, when the next turn is, and the verdict on a URL that is
tried.

Invariant: reading takes no turn, fetches and refreshes no policy, records nothing and removes none. If an integration
would first have to fetch the robots.txt, the page of a tried URL says so.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from robots_guard.app.console.document import Listing, listing
from robots_guard.app.console.sources import Sources
from robots_guard.audit.read.search import DECISIONS, Search
from robots_guard.audit.record import moment
from robots_guard.audit.show.policy import PolicyView
from robots_guard.decisions import check
from robots_guard.decisions.check import compiled
from robots_guard.decisions.component import ANSWERING
from robots_guard.decisions.explanation import Explanation, explain
from robots_guard.decisions.pacing import (
    RequiredDelay,
    as_wait,
    next_turn,
    reopening,
    required_delay,
)
from robots_guard.decisions.policy import Document
from robots_guard.decisions.signal_settings import uses_in
from robots_guard.decisions.verdict import Question, Terms, Verdict, needs_no_policy
from robots_guard.errors import StoreError
from robots_guard.origin import Origin, origin_of
from robots_guard.ports import SharedStore
from robots_guard.protocol.dialect import Dialect, dialect

SIZE = 50  # rows per page
TREND = 14  # days of refusals that are shown
DAY = 86400.0  # seconds
MOST_SORTED = 20_000  # origins that are sorted by refusals; the others follow by name
LONGEST_NAME = 300  # characters of a name that numbers are looked for in
NAMES_LIFETIME = 10.0  # seconds for which the list of all origins is cached
_NUMBERS = re.compile(r"([0-9]{1,18})")
_REFUSED = f"""
    (SELECT origin, time FROM records
     WHERE "at" >= ? AND "at" <= ? AND action = 'drop' AND {DECISIONS})
"""
_BY_DAY = f"""
    SELECT origin, floor((epoch(time) - ?) / ?), count(*) FROM {_REFUSED}
    WHERE origin IN (SELECT unnest(?)) GROUP BY ALL
"""
_MOST_REFUSED = f"""
    SELECT origin, count(*) FROM {_REFUSED} WHERE origin IS NOT NULL
    GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {MOST_SORTED}
"""


class StoredPolicy(NamedTuple):
    """The stored policy of an origin, under its terms now. `trouble` says why it, or the overrides, cannot be read."""

    origin: Origin
    view: PolicyView | None
    trouble: str
    terms: Terms
    now: float

    def in_dialect(self, dialect: Dialect) -> StoredPolicy:
        """The same policy, read in another dialect."""
        view = self.view._replace(dialect=dialect) if self.view else None
        return self._replace(view=view, terms=msgspec.structs.replace(self.terms, dialect=dialect))

    @property
    def rules(self) -> Document | None:
        """The document whose rules apply, or None."""
        if self.view:
            return self.view.rules
        return None


class NextTurn(NamedTuple):
    """When the next request may be sent: seconds to wait, the required delay, and when a closed site opens again."""

    wait: float
    delay: RequiredDelay | None
    by_retry_after: bool
    closed_until: float | None


class Refusals(NamedTuple):
    """How often an origin refused requests in the last `TREND` days, and on each of them."""

    dropped: int
    days: list[int]  # the oldest first


class Origins:
    """The origins of a store, sorted and divided into pages."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._lock = threading.Lock()
        self._names: list[str] = []
        self._until = 0.0

    def page(
        self, store: SharedStore, part: str, after: str, first: Sequence[str] = ()
    ) -> tuple[list[Origin], str, int]:
        """Return the origins after `after` whose name contains `part`, the name after which the next page begins (or
        an empty string), and the total number. Raises StoreError.

        Those in `first` come first, in this order; the others follow by name, with the numbers in names as numbers.
        """
        names = [name for name in self._all(store) if part in name] if part else self._all(store)
        if first:
            names = _reordered(names, first)
        begins = _position(names, after, is_by_name=not first) if after else 0
        some = names[begins : begins + SIZE]
        return (
            [origin_of(name) for name in some],
            some[-1] if begins + SIZE < len(names) else "",
            len(names),
        )

    def forget(self) -> None:
        """Read the list anew next time."""
        self._until = 0.0

    def _all(self, store: SharedStore) -> list[str]:
        now = self._sources.clocks.monotonic()
        with self._lock:
            if now >= self._until:
                self._names = sorted(set(map(str, store.origins())), key=by_number)
                self._until = now + NAMES_LIFETIME
            return self._names


def by_number(name: str) -> list[tuple[int, str]]:
    """A key that sorts names with the numbers in them as numbers: host-9 before host-10."""
    return [
        (int(part), "") if part.isdigit() else (-1, part)
        for part in _NUMBERS.split(name[:LONGEST_NAME])
        if part
    ] + [(-1, name)]


def _reordered(names: list[str], first: Sequence[str]) -> list[str]:
    among = set(names)
    leading = dict.fromkeys(name for name in first if name in among)
    return [*leading, *(name for name in names if name not in leading)]


def _position(names: list[str], after: str, *, is_by_name: bool) -> int:
    """The position of the name after this one; it need not be there if the names are sorted."""
    if is_by_name:
        return bisect_right(names, by_number(after), key=by_number)
    try:
        return names.index(after) + 1
    except ValueError:
        return len(names)


def refusals_of(search: Search, now: float, names: Sequence[str]) -> dict[str, Refusals]:
    """Return how often these origins refused requests, for those that did."""
    since = now - TREND * DAY
    rows = search.rows(_BY_DAY, [since, DAY, *_period(now), list(names)])
    days: dict[str, list[int]] = {}
    for origin, day, number in rows:
        counts = days.setdefault(origin, [0] * TREND)
        counts[min(TREND - 1, max(0, int(day)))] += int(number)
    return {origin: Refusals(sum(counts), counts) for origin, counts in days.items()}


def most_refused(search: Search, now: float) -> list[str]:
    """Return the origins that refused requests in the last `TREND` days, most refusals first."""
    return [origin for origin, _ in search.rows(_MOST_REFUSED, [*_period(now)])]


def _period(now: float) -> tuple[str, str]:
    return moment(now - TREND * DAY) or "", moment(now) or ""


def look_up(sources: Sources, *origins: Origin) -> list[StoredPolicy]:
    """Return the stored policies of origins."""
    terms, trouble = sources.terms_now()
    return [_look_up(sources, origin, terms(origin), trouble) for origin in origins]


def _look_up(sources: Sources, origin: Origin, terms: Terms, trouble: str) -> StoredPolicy:
    policy, now = None, sources.clocks.now()
    if sources.store is not None:
        try:
            policy = sources.store.get(origin)
        except StoreError as error:
            trouble = f"the store {error}"
    view = PolicyView(policy, terms.dialect, now) if policy else None
    return StoredPolicy(origin, view, trouble, terms, now)


def next_turn_of(sources: Sources, it: StoredPolicy, agent: str) -> NextTurn | None:
    """Return an agent's next turn at an origin; None without a shared store. Raises StoreError."""
    if sources.store is None:
        return None
    document = it.terms.pinned or it.rules
    rules = compiled(document, it.terms, agent) if document else None
    pace = rules.pace if rules else None
    opening = reopening(pace, it.now) if it.terms.visit_time == "keep" else None
    delay = required_delay(pace, it.terms.min_delay, it.terms.max_delay, it.now)
    wait = as_wait(
        next_turn(*sources.store.last_turn(it.origin), delay.seconds if delay else 0.0, it.now)
    )
    return NextTurn(wait.seconds, delay, wait.by_retry_after, opening[1] if opening else None)


# -- a URL that is tried ---------------------------------------------------------------------------


class TryResult(NamedTuple):
    """The verdict on a URL. `verdict` is None if no policy is stored, and then there is no
    explanation; `stored` is None if the URL has no origin."""

    url: str
    agent: str
    verdict: Verdict | None
    stored: StoredPolicy | None = None
    why: Explanation | None = None
    listing: Listing | None = None


def recorded_purposes(search: Search) -> str:
    """Return the purposes that the crawler or proxy declared which started last; empty if it declared none."""
    found = search.rows(
        "SELECT settings->>'$.purposes' FROM records WHERE kind = 'start'"
        ' AND component NOT IN (?, ?) ORDER BY "at" DESC LIMIT 1',
        [each.value for each in ANSWERING],
    )
    return next((purposes for (purposes,) in found if purposes), "")


def try_url(
    sources: Sources, url: str, agent: str, dialect_name: str, purposes: str = ""
) -> TryResult:
    """Judge a URL for a crawler with these purposes, separated by commas. Raises SettingsError for an unknown dialect
    or purpose."""
    uses_in("purposes", purposes)
    read = check.read_url(url)
    if isinstance(read, Verdict):
        return TryResult(url, agent, read)
    origin, target = read
    (it,) = look_up(sources, origin)
    if dialect_name:
        it = it.in_dialect(dialect(dialect_name))
    it = it._replace(terms=msgspec.structs.replace(it.terms, purposes=purposes))
    question = Question(origin=origin, target=target, agent=agent)
    policy = check.applied_policy(origin, it.view.policy if it.view else None, it.terms)
    if policy is None:
        return TryResult(url, agent, needs_no_policy(question, it.terms), it)
    own = it.view.policy if it.view else policy
    verdict = check.judge_offline(question, it.terms, own, it.now)
    why = explain(question, verdict, policy, it.terms, it.now)
    line = verdict.rule.line if verdict.rule else None
    shown = listing(why.document.body, line) if why.document else None
    return TryResult(url, agent, verdict, it, why, shown)
