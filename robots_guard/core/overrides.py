"""Overrides: exceptions that people make, each with who, why and until when.

    [[override]]
    id = "shop-2026"                  # stands in every record it bears on
    origin = "https://shop.example"   # or suffix = "example.org": the domain and all below it, any port, http and https
    owner = "jane@crawler.example"
    reason = "contract of 12 May: may crawl at one request a second"
    expires = 2027-03-31              # to the end of that day in UTC; or a moment with an offset
    max_delay = 1

The law of this file: an override changes the terms questions are judged under, and nothing else; who, why and until
when are never inferred; what is invalid or has expired has no effect and is shown. Of several that fit an origin the
closest holds alone: its own, then the longest suffix.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import msgspec

from robots_guard.core.pacing import LONGEST_DELAY
from robots_guard.core.verdict import Exemption, Terms
from robots_guard.errors import MalformedURL, NotGoverned, SettingsError
from robots_guard.origin import Origin, origin_of, parse_authority
from robots_guard.plain import meant, unfit
from robots_guard.rep.dialect import dialect
from robots_guard.rep.paths import matching

SOON = 14 * 86400.0  # seconds
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC).timestamp()  # where the calendar ends


class State(StrEnum):
    """How an override stands at a moment."""

    IN_FORCE = "in force"
    EXPIRES_SOON = "expires soon"
    EXPIRED = "expired"


class Override(NamedTuple):
    """One that can be used: for which origins, under what terms. `expires` is in seconds since 1970."""

    place: Origin | str  # an origin, or a suffix
    terms: Terms
    changes: Mapping[str, Any]

    @property
    def exemption(self) -> Exemption:
        """Who, why and until when."""
        assert self.terms.override is not None
        return self.terms.override

    @property
    def where(self) -> str:
        """Its place as people read it."""
        return f"*.{self.place}" if isinstance(self.place, str) else str(self.place)

    def state(self, now: float) -> State:
        """How it stands at `now`."""
        left = self.exemption.expires - now
        return State.EXPIRED if left <= 0 else State.EXPIRES_SOON if left <= SOON else State.IN_FORCE


class Fault(NamedTuple):
    """One that cannot be used: which, and why."""

    which: str
    why: str


class Overrides(NamedTuple):
    """All of a file. `sha256` is of its octets."""

    entries: tuple[Override, ...] = ()
    faults: tuple[Fault, ...] = ()
    by_place: Mapping[Origin | str, Override] = {}
    sha256: str = ""

    def expired(self, now: float) -> tuple[Fault, ...]:
        """Those whose time is over."""
        return tuple(
            Fault(each.exemption.id, "it has expired: renew it or take it out")
            for each in self.entries
            if each.state(now) is State.EXPIRED
        )

    def terms(self, origin: Origin, otherwise: Terms, now: float) -> Terms:
        """The terms for an origin at `now`: those of the closest override that has not expired, else `otherwise`."""
        if not self.by_place:
            return otherwise
        places: tuple[Origin | str, ...] = (origin, *_suffixes(origin.host))
        for place in places:
            found = self.by_place.get(place)
            if found is not None and now < found.exemption.expires:
                return found.terms
        return otherwise


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An override as it is written."""

    id: str
    owner: str
    reason: str
    expires: Any  # a date or a datetime, which msgspec does not tell apart
    origin: str | None = None
    suffix: str | None = None
    action: Literal["pass", "drop"] | None = None
    dialect: str | None = None
    matching: Literal["spec", "standard", "strict"] | None = None
    on_restricted: Literal["drop", "allow"] | None = None
    on_unreachable: Literal["defer", "drop", "allow"] | None = None
    on_redirect_limit: Literal["unreachable", "allow"] | None = None
    on_disallowed: Literal["drop", "defer"] | None = None
    max_defer: float | None = None
    min_delay: float | None = None
    max_delay: float | None = None
    visit_time: Literal["keep", "ignore"] | None = None


_ABOUT = ("id", "owner", "reason", "expires", "origin", "suffix")
_CHANGES = tuple(name for name in _Entry.__struct_fields__ if name not in _ABOUT)
_SECONDS = ("max_defer", "min_delay", "max_delay")


def parse(text: str, base: Terms) -> Overrides:
    """All overrides of a file, as changes to `base`. Raises SettingsError for what is no TOML with `[[override]]`s;
    one that cannot be used is among the faults."""
    entries: dict[Origin | str, Override] = {}
    faults: list[Fault] = []
    ids: set[str] = set()
    for number, row in enumerate(_rows(text), 1):
        which = _which(row, number)
        try:
            made = _override(row, base)
            if which in ids:
                raise SettingsError("this id is taken: give each override its own")
            if made.place in entries:
                raise SettingsError(f"{entries[made.place].exemption.id!r} is for the same place: make one of them")
        except SettingsError as error:
            faults.append(Fault(which, str(error)))
        else:
            entries[made.place] = made
        ids.add(which)
    return Overrides(tuple(entries.values()), tuple(faults), entries)


def _rows(text: str) -> list[Any]:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"no TOML: {error}") from None
    strange = [name for name in table if name != "override"]
    if strange:
        raise SettingsError(f"{strange[0]!r} is nothing known: begin each override with [[override]]")
    rows = table.get("override", [])
    if not isinstance(rows, list):
        raise SettingsError("[override] is one table: begin each override with [[override]]")
    return rows


def _which(row: Any, number: int) -> str:
    name = row.get("id") if isinstance(row, dict) else None
    return name if isinstance(name, str) and name.strip() else f"number {number}"


def _override(row: Any, base: Terms) -> Override:
    try:
        entry = msgspec.convert(row, _Entry)
    except msgspec.ValidationError as error:
        raise SettingsError(_unread(row) or str(error)) from None
    for name in ("id", "owner", "reason"):
        if not getattr(entry, name).strip():
            raise SettingsError(f"{name} is empty: say {_ASKED[name]}")
    exemption = Exemption(id=entry.id, owner=entry.owner, reason=entry.reason, expires=_end(entry.expires))
    changes = {name: value for name in _CHANGES if (value := getattr(entry, name)) is not None}
    return Override(_place(entry), _terms(base, changes, exemption), changes)


def _unread(row: Any) -> str | None:
    """What is wrong with the keys of an override, in our words: msgspec's name no remedy."""
    if not isinstance(row, dict):
        return f"{row!r} is no table: begin each override with [[override]]"
    for name in row:
        if name not in _Entry.__struct_fields__:
            return f"{name!r} is nothing known: {meant(name, _Entry.__struct_fields__)}"
    for field in msgspec.structs.fields(_Entry):
        if field.required and field.name not in row:
            return f"{field.name} is missing: say {_ASKED[field.name]}"
        try:
            msgspec.convert(row.get(field.name, field.default), field.type)
        except msgspec.ValidationError:
            if field.name in row:
                return f"{field.name} = {row[field.name]!r} {unfit(field.type)}"
    return None


_ASKED = {
    "id": "which this is",
    "owner": "who answers for it",
    "reason": "why it is made",
    "expires": "until when it holds, as a day such as 2027-03-31",
}


def _end(expires: Any) -> float:
    """The moment from which it does not hold any more."""
    if not isinstance(expires, date):
        raise SettingsError(f"expires = {expires!r} is no day: write one such as 2027-03-31, without quotes")
    if not isinstance(expires, datetime):
        day = datetime(expires.year, expires.month, expires.day, tzinfo=UTC)
        return min(day.timestamp() + timedelta(days=1).total_seconds(), _LAST)
    if expires.tzinfo is None:
        raise SettingsError(f"expires = {expires} has no offset: write it with Z behind it, or the day only")
    return expires.timestamp()


def _place(entry: _Entry) -> Origin | str:
    if (entry.origin is None) == (entry.suffix is None):
        raise SettingsError("give one of origin and suffix")
    try:
        if entry.origin is not None:
            return origin_of(entry.origin)
        assert entry.suffix is not None
        found = parse_authority("http", entry.suffix.removeprefix("."))
    except (MalformedURL, NotGoverned) as error:
        raise SettingsError(f"{error}: write an origin as https://host, a suffix as host") from None
    if ":" in entry.suffix:
        raise SettingsError(f"suffix = {entry.suffix!r} is for every port: name a host without one, or an origin")
    host = found.host
    if "." not in host:
        raise SettingsError(f"suffix = {entry.suffix!r} is a whole top-level domain: name a domain below it")
    return host


def _terms(base: Terms, changes: dict[str, Any], exemption: Exemption) -> Terms:
    if not changes:
        raise SettingsError(f"it changes nothing: set one of {', '.join(_CHANGES)}")
    if "action" in changes and len(changes) > 1:
        raise SettingsError(f"action = {changes['action']} leaves nothing for {_other(changes)} to change")
    for name in _SECONDS:
        if not 0 <= changes.get(name, 0) <= LONGEST_DELAY:
            raise SettingsError(f"{name} = {changes[name]} is no number of seconds: use 0 to {LONGEST_DELAY:g}")
    made: dict[str, Any] = {"override": exemption, **changes}
    if "dialect" in made:
        made["dialect"] = dialect(made["dialect"])
    if "matching" in made:
        made["matching"] = matching(made["matching"])
    return msgspec.structs.replace(base, **made)


def _other(changes: dict[str, Any]) -> str:
    return next(name for name in changes if name != "action")


def _suffixes(host: str) -> list[str]:
    """A host and the domains above it, the longest first."""
    labels = host.split(".")
    return [".".join(labels[at:]) for at in range(len(labels))]
