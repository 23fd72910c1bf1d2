"""Overrides: exceptions that people make, each with an owner, a reason and an expiry.

    [[override]]
    id = "shop-2026"                  # included in every record of a decision that it affects
    origin = "https://shop.example"   # or suffix = "example.org": that domain and its subdomains,
                                      # any port, http and https
    owner = "jane@crawler.example"
    reason = "contract of 12 May: may crawl at one request a second"
    expires = 2027-03-31              # until the end of that day in UTC; or a time with an offset
    max_delay = 1

With `robots_file = "shop.txt"`, requests are judged by that file instead of the site's own robots.txt.
This module does not read it: `Overrides.with_pinned` puts its content into the terms.

Invariant: an override changes the terms under which questions are judged, and nothing else. Owner,
reason and expiry are never inferred. An invalid or expired override has no effect and is reported.
If several match an origin, only the most specific applies: its own, then the longest suffix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import msgspec

from robots_guard.decisions.policy import Document
from robots_guard.decisions.site_settings import SiteSettings, types_of
from robots_guard.decisions.verdict import Exemption, Terms
from robots_guard.errors import MalformedURL, NotGoverned, SettingsError
from robots_guard.origin import Origin, origin_of, parse_authority
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching
from robots_guard.text import did_you_mean, wrong_type
from robots_guard.toml import parse_toml

SOON = 14 * 86400.0  # seconds
ROBOTS_FILE = "robots_file"  # the key
#: The end of the calendar.
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC).timestamp()


class State(StrEnum):
    """The state of an override at a moment."""

    IN_FORCE = "in force"
    EXPIRES_SOON = "expires soon"
    EXPIRED = "expired"


class Override(NamedTuple):
    """A valid override: the origins it applies to, and the terms it sets.

    `expiry` is its last day or moment, as the operator wrote it.
    """

    place: Origin | str  # an origin, or a suffix
    terms: Terms
    changes: Mapping[str, Any]
    expiry: str

    @property
    def exemption(self) -> Exemption:
        """The owner, reason and expiry."""
        assert self.terms.override is not None
        return self.terms.override

    @property
    def robots_file(self) -> str | None:
        """The path of the pinned robots.txt, as the operator wrote it; None if there is none."""
        path: str | None = self.changes.get(ROBOTS_FILE)
        return path

    def with_pinned(self, document: Document) -> Override:
        """This override with the content of its pinned robots.txt."""
        return self._replace(terms=msgspec.structs.replace(self.terms, pinned=document))

    @property
    def where(self) -> str:
        """The place as text for people."""
        if isinstance(self.place, str):
            return f"*.{self.place}"
        return str(self.place)

    def state(self, now: float) -> State:
        """The state at `now`."""
        left = self.exemption.expires - now
        if left <= 0:
            return State.EXPIRED
        if left <= SOON:
            return State.EXPIRES_SOON
        return State.IN_FORCE


class Fault(NamedTuple):
    """An override that is not used, and why."""

    which: str
    why: str


class Overrides(NamedTuple):
    """All overrides of a file. `sha256` is the digest of the file, and `text` its content."""

    entries: tuple[Override, ...] = ()
    faults: tuple[Fault, ...] = ()
    by_place: Mapping[Origin | str, Override] = {}
    sha256: str = ""
    text: str = ""

    def with_pinned(self, documents: Mapping[str, Document]) -> Overrides:
        """These overrides with the contents of their pinned files, by the id of the override."""
        entries = tuple(
            each.with_pinned(documents[each.exemption.id])
            if each.exemption.id in documents
            else each
            for each in self.entries
        )
        return self._replace(entries=entries, by_place={each.place: each for each in entries})

    def without(self, faults: Mapping[str, str]) -> Overrides:
        """These overrides without some, which are faults: why, by the id of the override."""
        entries = tuple(each for each in self.entries if each.exemption.id not in faults)
        found = tuple(Fault(which, why) for which, why in faults.items())
        return self._replace(
            entries=entries,
            by_place={each.place: each for each in entries},
            faults=self.faults + found,
        )

    def expired(self, now: float) -> tuple[Fault, ...]:
        """The overrides that have expired at `now`."""
        return tuple(
            Fault(each.exemption.id, "it has expired: renew it or remove it")
            for each in self.entries
            if each.state(now) is State.EXPIRED
        )

    def terms(self, origin: Origin, otherwise: Terms, now: float) -> Terms:
        """The terms for an origin at `now`.

        They are those of the most specific override that has not expired, otherwise `otherwise`.
        """
        if not self.by_place:
            return otherwise
        places: tuple[Origin | str, ...] = (origin, *_suffixes(origin.host))
        for place in places:
            found = self.by_place.get(place)
            if found is not None and now < found.exemption.expires:
                return found.terms
        return otherwise


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of an override that are not settings."""

    id: str
    owner: str
    reason: str
    expires: Any  # a date or a datetime, which msgspec does not distinguish
    origin: str | None = None
    suffix: str | None = None
    action: Literal["pass", "drop"] | None = None
    robots_file: str | None = None


_ABOUT = {field.name: field.type for field in msgspec.structs.fields(_Entry)}
_SETTINGS = types_of(SiteSettings)
_KEYS = _ABOUT | _SETTINGS


def parse(text: str, base: Terms) -> Overrides:
    """Parse the overrides of a file, as changes to `base`.

    An invalid override becomes one of the faults. Raises SettingsError if the text is not TOML with
    `[[override]]` tables only.
    """
    entries: dict[Origin | str, Override] = {}
    faults: list[Fault] = []
    ids: set[str] = set()
    for number, row in enumerate(_rows(text), 1):
        which = _which(row, number)
        try:
            override = _override(row, base)
            if which in ids:
                raise SettingsError("this id is already used: give each override its own")
            if override.place in entries:
                same = entries[override.place].exemption.id
                raise SettingsError(f"{same!r} is for the same place: merge the two")
        except SettingsError as error:
            faults.append(Fault(which, str(error)))
        else:
            entries[override.place] = override
        ids.add(which)
    return Overrides(tuple(entries.values()), tuple(faults), entries)


def _rows(text: str) -> list[Any]:
    try:
        table = parse_toml(text)
    except ValueError as error:
        raise SettingsError(f"not valid TOML: {error}") from None
    unknown = [name for name in table if name != "override"]
    if unknown:
        raise SettingsError(f"{unknown[0]!r} is not known: begin each override with [[override]]")
    rows = table.get("override", [])
    if not isinstance(rows, list):
        raise SettingsError("[override] is a single table: begin each override with [[override]]")
    return rows


def _which(row: Any, number: int) -> str:
    name = row.get("id") if isinstance(row, dict) else None
    if isinstance(name, str) and name.strip():
        return name
    return f"number {number}"


def _override(row: Any, base: Terms) -> Override:
    if fault := _fault(row):
        raise SettingsError(fault)
    entry = msgspec.convert({name: value for name, value in row.items() if name in _ABOUT}, _Entry)
    for name in ("id", "owner", "reason"):
        if not getattr(entry, name).strip():
            raise SettingsError(f"{name} is empty: state {_REQUIRED[name]}")
    exemption = Exemption(
        id=entry.id, owner=entry.owner, reason=entry.reason, expires=_end(entry.expires)
    )
    changes = _changes(row, entry)
    terms = _terms(base, changes, exemption)
    if entry.origin is not None and entry.suffix is not None:
        raise SettingsError("give either origin or suffix, not both")
    place = (
        origin_place(entry.origin) if entry.origin is not None else suffix_place(entry.suffix or "")
    )
    return Override(place, terms, changes, str(entry.expires))


def _fault(row: Any) -> str | None:
    """What is wrong with the keys of an override, and the remedy, which msgspec's messages lack."""
    if not isinstance(row, dict):
        return f"{row!r} is not a table: begin each override with [[override]]"
    if faults := [*_missing_keys(row), *_unknown_key(row)]:
        return "; ".join(faults)
    for name, value in row.items():
        if objection := wrong_type(value, _KEYS[name]):
            return f"{name} = {value!r} {objection}"
    return None


def _missing_keys(row: dict[str, Any]) -> Iterator[str]:
    """Yield one sentence that names all missing keys, if any are missing."""
    remedies = {name: remedy for name, remedy in _REQUIRED.items() if name not in row}
    if "origin" not in row and "suffix" not in row:
        remedies["origin"] = _SITE
    if not remedies:
        return
    verb = "is"
    if len(remedies) > 1:
        verb = "are"
    yield f"{', '.join(remedies)} {verb} missing: state {', '.join(remedies.values())}"


def _unknown_key(row: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence about the first unknown key, if there is one. One is enough, because the
    remedy can be a long list."""
    for name in row:
        if name not in _KEYS:
            yield f"{name!r} is not known: {did_you_mean(name, tuple(_KEYS))}"
            return


def _changes(row: dict[str, Any], entry: _Entry) -> dict[str, Any]:
    changes = {
        name: msgspec.convert(row[name], kind) for name, kind in _SETTINGS.items() if name in row
    }
    if entry.robots_file is not None:
        if not entry.robots_file.strip() or "\0" in entry.robots_file:
            raise SettingsError(f"{ROBOTS_FILE} names no file: write the path of a robots.txt")
        changes = {ROBOTS_FILE: entry.robots_file, **changes}
    if entry.action is None:
        return changes
    return {"action": entry.action, **changes}


_REQUIRED = {
    "id": "a name for this override",
    "owner": "who is responsible for it",
    "reason": "why it is needed",
    "expires": "the last day on which it applies, such as 2027-03-31",
}
_SITE = "the site, such as https://example.com (or suffix, a domain with all below it)"


def _end(expires: Any) -> float:
    """The moment at which the override expires, in seconds since 1970."""
    if not isinstance(expires, date):
        raise SettingsError(
            f"expires = {expires!r} is not a date: write one such as 2027-03-31, without quotes"
        )
    if not isinstance(expires, datetime):
        day = datetime(expires.year, expires.month, expires.day, tzinfo=UTC)
        return min(day.timestamp() + timedelta(days=1).total_seconds(), _LAST)
    if expires.tzinfo is None:
        raise SettingsError(f"expires = {expires} has no offset: append Z, or write the date only")
    return expires.timestamp()


def expiry(expires: float) -> str:
    """Return an expiry as people write it: the last day on which the override applies, or, if it
    ends during a day, the moment in UTC."""
    end = datetime.fromtimestamp(expires, UTC)
    if expires == _LAST:
        return f"{end:%Y-%m-%d}"
    if end.time() == time(0):
        return f"{end - timedelta(days=1):%Y-%m-%d}"
    return f"{end:%Y-%m-%d %H:%M:%S} UTC"


_AFTER_AUTHORITY = re.compile(r"[/?#]")


def origin_place(origin: str) -> Origin:
    """The origin that an override names. Raises SettingsError."""
    try:
        return origin_of(_whole_site(origin))
    except (MalformedURL, NotGoverned) as error:
        raise SettingsError(f"{error}: {_SITES}") from None


def suffix_place(suffix: str) -> str:
    """The domain that an override names, with all below it. Raises SettingsError."""
    try:
        host = parse_authority("http", _whole_site(suffix).removeprefix(".")).host
    except (MalformedURL, NotGoverned) as error:
        raise SettingsError(f"{error}: {_SITES}") from None
    if ":" in suffix:
        raise SettingsError(
            f"suffix = {suffix!r} has a port, but applies to all: remove it, or use origin"
        )
    if "." not in host:
        raise SettingsError(f"suffix = {suffix!r} is a top-level domain: name a domain below it")
    return host


_SITES = "write an origin as https://host, a suffix as host"


def _whole_site(place: str) -> str:
    place = place.removesuffix("/")
    if _AFTER_AUTHORITY.search(place.rpartition("://")[2]):
        raise SettingsError(
            f"{place!r} has a path, but an override applies to whole sites: {_SITES}"
        )
    return place


def _terms(base: Terms, changes: dict[str, Any], exemption: Exemption) -> Terms:
    if not changes:
        names = ", ".join(("action", ROBOTS_FILE, *_SETTINGS))
        raise SettingsError(f"it changes nothing: set one of {names}")
    if "action" in changes and len(changes) > 1:
        other = next(name for name in changes if name != "action")
        raise SettingsError(
            f"{other} has no effect with action = {changes['action']}: remove one of them"
        )
    values: dict[str, Any] = {"override": exemption, **changes}
    values.pop(ROBOTS_FILE, None)
    if "dialect" in values:
        values["dialect"] = dialect(values["dialect"])
    if "matching" in values:
        values["matching"] = matching(values["matching"])
    return msgspec.structs.replace(base, **values)


def _suffixes(host: str) -> list[str]:
    """A host and its parent domains, the longest first."""
    labels = host.split(".")
    return [".".join(labels[at:]) for at in range(len(labels))]
