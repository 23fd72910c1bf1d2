"""The query in a page's address: filter, order, and position in the list.

Invariant: the address is untrusted. Each value is converted to its type or refused with one sentence; only parameters
reach the database, never text of the query inside SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from robots_guard.audit.read.reader import COMPONENTS, Filter, moment_meant, period_meant
from robots_guard.audit.read.resource import place_of
from robots_guard.decisions.reasons import Reason
from robots_guard.decisions.verdict import Action
from robots_guard.errors import MalformedURL, NotGoverned, SettingsError
from robots_guard.origin import Origin, objection, origin_of, split_url

ACTIONS = tuple(each.value for each in Action)
REASONS = tuple(each.value for each in Reason)
MAIN = ("url", "since", "until", "action", "agent")  # the others are shown on demand
NAMES = (*MAIN, "job", "reason", "component", "origin", "rule", "override")
PERIODS = {"1h": "1 hour", "24h": "24 hours", "7d": "7 days", "30d": "30 days", "all": "All"}

Key = tuple[str | int, ...]


class Sort(NamedTuple):
    """An order of decisions: by this column, then by time, writer and sequence number, all in one direction."""

    label: str
    column: str  # SQL; empty: by time alone
    kind: type[str] | type[int] = str
    descending: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The SQL of the columns to sort by. A record of foreign origin may lack writer and sequence number."""
        time = ('"at"', "coalesce(writer, '')", "coalesce(seq, 0)")
        if self.column:
            return (self.column, *time)
        return time

    @property
    def kinds(self) -> tuple[type, ...]:
        """The types of a key's parts."""
        if self.column:
            return (self.kind, str, str, int)
        return (str, str, int)


SORTS = {
    "newest": Sort("Newest first", "", descending=True),
    "oldest": Sort("Oldest first", ""),
    "origin": Sort("Origin, then time", "coalesce(origin, '')"),
    "reason": Sort("Reason, then time", "coalesce(reason, '')"),
    "agent": Sort("Agent, then time", "coalesce(agent, '')"),
    "slowest": Sort("Slowest decisions first", "coalesce(elapsed_us, 0)", int, descending=True),
}


class DecisionQuery(NamedTuple):
    """A query for a page of decisions. `given` is the filter as the user wrote it."""

    given: dict[str, str]
    wanted: Filter
    sort: str = "newest"
    key: Key | None = None
    backwards: bool = False

    @property
    def cache_key(self) -> tuple[Filter, str, Key | None, bool]:
        """What the page depends on: all but the wording of the filter."""
        return self.wanted, self.sort, self.key, self.backwards

    @property
    def more(self) -> bool:
        """Whether the filter has values that the form shows on demand only."""
        return any(name not in MAIN for name in self.given)

    def with_key(self, key: str) -> DecisionQuery:
        """Return the same query for an audit log that hashes values with this key, in hexadecimal."""
        return self._replace(wanted=msgspec.structs.replace(self.wanted, key=key))

    def after(self, key: str) -> DecisionQuery:
        """Return the query for the rows after a key, as `encode_key` returns it."""
        return self._replace(key=_parse_key(key, SORTS[self.sort]), backwards=False)

    def address(self, **changes: str) -> str:
        """Return the query string for the same query with these changes."""
        order = {} if self.sort == "newest" else {"sort": self.sort}
        return urlencode(
            {name: value for name, value in {**self.given, **order, **changes}.items() if value}
        )


def filter_in(query: Mapping[str, str]) -> dict[str, str]:
    """Return the filter in the query of an address, as the user wrote it, without empty fields."""
    return {name: query[name].strip() for name in NAMES if query.get(name, "").strip()}


def parse_query(query: Mapping[str, str], now: float) -> DecisionQuery:
    """Parse a query. Raises SettingsError for an invalid value."""
    given = filter_in(query)
    sort = query.get("sort") or "newest"
    if sort not in SORTS:
        raise SettingsError(f"sort = {sort[:40]!r} is not known: use one of {', '.join(SORTS)}")
    backwards = bool(query.get("before"))
    key = query.get("before") or query.get("after")
    parsed = _parse_key(key, SORTS[sort]) if key else None
    return DecisionQuery(given, filter_of(given, now), sort, parsed, backwards)


def filter_of(given: Mapping[str, str], now: float) -> Filter:
    """Return the filter for these values, by name.

    `action`, `reason` and `component` must have known values, `since` and `until` must be times,
    `origin` an origin or a URL, and `url` a URL, the beginning of URLs or a host; others may be any
    text. A span such as 24h ends at the last
    whole minute, so that the results of a repeated query are found in the cache.

    Raises SettingsError for an invalid value.
    """
    values = dict(given)
    for name, known in (("action", ACTIONS), ("reason", REASONS), ("component", COMPONENTS)):
        if name in values and values[name] not in known:
            raise SettingsError(
                f"{name} = {values[name][:40]!r} is not known: use one of {', '.join(known)}"
            )
    values |= _period(values, now)
    if "origin" in values:
        values["origin"] = str(origin_in(values["origin"]))
    if "url" in values:
        place = place_of(values.pop("url"))
        named = zip(place._fields, place, strict=True)
        values |= {name: value for name, value in named if value is not None}
    return Filter(**values)


def _period(given: Mapping[str, str], now: float) -> dict[str, str]:
    """Return the moments that `since` and `until` mean. A named period, such as "last night", has an end."""
    found: dict[str, str] = {}
    if "since" in given:
        begins, ends = period_meant(given["since"], _whole_minute(now))
        found["since"] = begins
        if ends is not None:
            found["until"] = ends
    if "until" in given:
        found["until"] = moment_meant(given["until"], _whole_minute(now))
    return found


def since(period: str, now: float) -> str | None:
    """Return when a period up to now begins, to the minute; None for all. Raises SettingsError for an unknown one."""
    if period not in PERIODS:
        raise SettingsError(
            f"period = {period[:40]!r} is not known: use one of {', '.join(PERIODS)}"
        )
    if period == "all":
        return None
    return moment_meant(period, _whole_minute(now))


def _whole_minute(now: float) -> float:
    return now // 60 * 60


def origin_in(text: str) -> Origin:
    """Return the origin of a URL, or of a bare host. Raises SettingsError."""
    text = text.strip()
    try:
        if "://" in text:
            return split_url(text)[0]
        return origin_of(f"https://{text}")
    except (NotGoverned, MalformedURL) as error:
        raise SettingsError(f"{error}: give an origin such as https://example.com") from None


def absolute(url: str) -> str:
    """Return the URL. Raises SettingsError, as the commands do, if its scheme is missing or misspelt."""
    sentence = objection(url)
    if sentence is not None:
        raise SettingsError(sentence)
    return url


def _parse_key(text: str, sort: Sort) -> Key:
    try:
        parts = msgspec.json.decode(text, type=tuple[str | int, ...])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        parts = ()
    if len(parts) != len(sort.kinds) or not all(map(isinstance, parts, sort.kinds)):
        raise SettingsError("the position in the list is invalid: go back to the first page")
    return parts


def encode_key(key: Key) -> str:
    """Return a key as text for `after` and `before`."""
    return msgspec.json.encode(key).decode()
