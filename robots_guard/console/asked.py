"""What a page's address asks for: which records, in what order, from where on.

The law of this file: an address is a stranger's. Each value is read into its kind or refused with one sentence; to
the database go parameters only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from robots_guard.audit.query import Filter, moment_meant
from robots_guard.core.verdict import Action, Reason
from robots_guard.errors import MalformedURL, NotGoverned, SettingsError
from robots_guard.origin import Origin, objection, origin_of, split_url

DOORS = ("scrapy", "mitmproxy", "cli")
ACTIONS = tuple(each.value for each in Action)
REASONS = tuple(each.value for each in Reason)
NAMES = ("since", "until", "action", "reason", "origin", "rule", "agent", "door", "override")
PERIODS = {"1h": "1 hour", "24h": "24 hours", "7d": "7 days", "30d": "30 days", "all": "All"}

Key = tuple[str | int, ...]


class Sort(NamedTuple):
    """An order of decisions: by this column first, then by time, writer and number, all in one direction."""

    says: str
    column: str  # SQL; empty: by time alone
    kind: type[str] | type[int] = str
    descending: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """What the order goes by. A record of a hand of its own may have no writer and no number."""
        time = ('"at"', "coalesce(writer, '')", "coalesce(seq, 0)")
        return (self.column, *time) if self.column else time

    @property
    def kinds(self) -> tuple[type, ...]:
        """The kinds of a key's parts."""
        return (self.kind, str, str, int) if self.column else (str, str, int)


SORTS = {
    "newest": Sort("Newest first", "", descending=True),
    "oldest": Sort("Oldest first", ""),
    "origin": Sort("Origin, then time", "coalesce(origin, '')"),
    "reason": Sort("Reason, then time", "coalesce(reason, '')"),
    "agent": Sort("Agent, then time", "coalesce(agent, '')"),
    "slowest": Sort("Slowest decisions first", "coalesce(elapsed_us, 0)", int, descending=True),
}


class Asked(NamedTuple):
    """A list of decisions as it is asked for. `given` is the filter as it was written."""

    given: dict[str, str]
    wanted: Filter
    sort: str = "newest"
    key: Key | None = None
    backwards: bool = False

    def address(self, **others: str) -> str:
        """The query of an address that asks for the same with these values."""
        order = {} if self.sort == "newest" else {"sort": self.sort}
        return urlencode({name: value for name, value in {**self.given, **order, **others}.items() if value})


def asked(query: Mapping[str, str], now: float) -> Asked:
    """What a query asks for. Raises SettingsError for what cannot be read."""
    given = {name: query[name].strip() for name in NAMES if query.get(name, "").strip()}
    sort = query.get("sort") or "newest"
    if sort not in SORTS:
        raise SettingsError(f"sort = {sort[:40]!r} is not known: use one of {', '.join(SORTS)}")
    backwards = bool(query.get("before"))
    key = query.get("before") or query.get("after")
    return Asked(given, filter_of(given, now), sort, _key(key, SORTS[sort]) if key else None, backwards)


def filter_of(given: Mapping[str, str], now: float) -> Filter:
    """The filter that these values make. Raises SettingsError."""
    values = dict(given)
    for name, known in (("action", ACTIONS), ("reason", REASONS)):
        if name in values and values[name] not in known:
            raise SettingsError(f"{name} = {values[name][:40]!r} is not known: use one of {', '.join(known)}")
    for name in ("since", "until"):
        if name in values:
            values[name] = _moment(name, values[name], now)
    if "origin" in values:
        values["origin"] = str(origin_in(values["origin"]))
    if values.get("door") == "proxy":
        values["door"] = "mitmproxy"
    return Filter(**values)


def since(period: str, now: float) -> str | None:
    """When a period up to now begins, to the minute; None for all. Raises SettingsError for one that is not known."""
    if period not in PERIODS:
        raise SettingsError(f"period = {period[:40]!r} is not known: use one of {', '.join(PERIODS)}")
    return None if period == "all" else moment_meant(period, now // 60 * 60)


def origin_in(text: str) -> Origin:
    """The origin of a URL, or of a host alone. Raises SettingsError."""
    text = text.strip()
    try:
        return split_url(text)[0] if "://" in text else origin_of(f"https://{text}")
    except (NotGoverned, MalformedURL) as error:
        raise SettingsError(f"{error}: give an origin such as https://example.com") from None


def absolute(url: str) -> str:
    """The URL. Raises SettingsError, as the commands do, where its scheme is missing or misspelt."""
    sentence = objection(url)
    if sentence is not None:
        raise SettingsError(sentence)
    return url


def _moment(name: str, text: str, now: float) -> str:
    try:
        return moment_meant(text, now)
    except (ValueError, OverflowError):
        raise SettingsError(
            f"{name} = {text[:40]!r} is no time: use a span such as 90s, 30m, 2h, 7d, or 2026-11-20T08:00 (UTC)"
        ) from None


def _key(text: str, sort: Sort) -> Key:
    try:
        parts = msgspec.json.decode(text, type=tuple[str | int, ...])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        parts = ()
    if len(parts) != len(sort.kinds) or not all(map(isinstance, parts, sort.kinds)):
        raise SettingsError("the place in the list cannot be read: go back to the first page")
    return parts


def written(key: Key) -> str:
    """A key as `after` and `before` have it."""
    return msgspec.json.encode(key).decode()
