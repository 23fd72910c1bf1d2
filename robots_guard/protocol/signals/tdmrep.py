"""TDMRep: whether a site reserves its rights to text and data mining.

The final report of the W3C community group (10 May 2024) names four places. A header field or META
element has `tdm-reservation` with 1 or 0, or `tdm-policy` with a URL. /.well-known/tdmrep.json is
an array of objects with these names and a `location`; of those that match a path, the first counts.
The fourth place is inside EPUB and PDF files, which are not read here.

Invariant: a 0 counts only in the form of the report, and only if nothing else at the same place can
be a reservation. A value in another form can be read as 1, but never as 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from robots_guard.protocol.paths import matching as matching_of
from robots_guard.protocol.signals.patterns import (
    NO_RULE,
    TOO_COMPLEX,
    Form,
    PathPatterns,
    other_forms,
    written_form,
)
from robots_guard.protocol.signals.statement import RAW_CAP, Flag, Place, Signal, Statement, bounded

RESERVATION = "tdm-reservation"
POLICY = "tdm-policy"
URL_CAP = 2_048  # characters of a policy's URL
_MEMBERS = ("location", RESERVATION, POLICY)  # of an entry of the file

_SEPARATORS = re.compile(r"[\s,;\"']+")
_ONES = frozenset(("1", "1.0", "01", "+1"))


class ReservationValue(NamedTuple):
    """The value of a reservation: 1, 0, or "" if it is neither."""

    value: int | str
    flags: tuple[Flag, ...] = ()


def read_values(
    reservations: Sequence[str], policies: Sequence[str], *, place: Place, raws: Sequence[str] = ()
) -> tuple[Statement, ...]:
    """The statements of all `tdm-reservation` and `tdm-policy` values of one header or page.

    `raws` are the texts of the headers or tags, if they are not the values. A policy without a
    reservation is ignored.
    """
    readings = [_read_text(text) for text in reservations]
    if any(reading.value != 0 for reading in readings):
        readings = list(map(_without_zero, readings))
    statements = [
        _statement(reading, place, raw)
        for reading, raw in zip(readings, raws or reservations, strict=True)
    ]
    if any(reading.value == 1 for reading in readings):
        statements += _policies(policies, place)
    return bounded(statements)


def _read_text(text: str) -> ReservationValue:
    value = text.strip()
    if value in ("0", "1"):
        return ReservationValue(int(value))
    if _ONES.intersection(_SEPARATORS.split(value)):
        return ReservationValue(1, (Flag.LENIENT,))
    return ReservationValue("", (Flag.MALFORMED,))


def _without_zero(reading: ReservationValue) -> ReservationValue:
    """The reading of one value among several, if one of them is not 0: a 0 is then ignored."""
    if reading.value == 0:
        return ReservationValue("", (*reading.flags, Flag.MALFORMED))
    return reading


def _statement(reading: ReservationValue, place: Place, raw: str) -> Statement:
    return Statement(
        signal=Signal.TDM,
        place=place,
        rule=RESERVATION,
        value=reading.value,
        raw=raw.strip()[:RAW_CAP],
        flags=reading.flags,
    )


def _policies(urls: Iterable[Any], place: Place) -> Iterator[Statement]:
    for url in urls:
        if isinstance(url, str) and url.strip():
            # JSON can contain lone surrogates, which a record cannot.
            value = url.strip().encode("utf-8", "replace").decode()
            yield Statement(
                signal=Signal.TDM,
                place=place,
                rule=POLICY,
                value=value[:URL_CAP],
                raw=value[:RAW_CAP],
            )


# --- tdmrep.json ---


class _Location(NamedTuple):
    """One object of the file, for the paths that match `pattern`."""

    pattern: bytes
    reading: ReservationValue
    policy: Any
    raw: str


class TdmFile:
    """The entries of a tdmrep.json, compiled for questions about paths."""

    def __init__(self, entries: Sequence[_Location], *, is_malformed: bool) -> None:
        self._entries = entries
        self._is_malformed = is_malformed
        self._patterns = PathPatterns([each.pattern for each in entries], "first")
        # The entries with a readable value: an entry without one does not hide those after it.
        self._readable = [place for place, each in enumerate(entries) if each.reading.value != ""]
        self._readable_patterns = PathPatterns(
            [entries[place].pattern for place in self._readable], "first"
        )

    def statements(self, target: str, matching: str = "standard") -> tuple[Statement, ...]:
        """The statements for a target, such as `/a?b`. Never raises.

        `matching` is the profile that determines which other forms of the target are looked up too.
        """
        found: list[Statement] = []
        if self._is_malformed:
            found.append(_statement(_UNREADABLE, Place.TDMREP_FILE, ""))
        if self._entries:
            found += self._written(written_form(target))
            for form in other_forms(target, matching_of(matching)):
                found += (each for each in self._at(self._readable_place(form)) if _reserves(each))
        return bounded(found)

    def _written(self, form: Form) -> list[Statement]:
        place = self._readable_place(form)
        first = self._patterns.choose(form)
        if first in (NO_RULE, TOO_COMPLEX) or first == place:
            return self._at(place)
        # The first matching entry has no readable value, so a 0 of a later entry is ignored.
        found = [self._statement(first, self._entries[first].reading)]
        if place in (NO_RULE, TOO_COMPLEX):
            return found + self._at(place)
        reading = _without_zero(self._entries[place].reading)
        return [*found, *self._at(place, reading)]

    def _readable_place(self, form: Form) -> int:
        place = self._readable_patterns.choose(form)
        if place in (NO_RULE, TOO_COMPLEX):
            return place
        return self._readable[place]

    def _at(self, place: int, reading: ReservationValue | None = None) -> list[Statement]:
        if place == NO_RULE:
            return []
        if place == TOO_COMPLEX:
            reserves = any(each.reading.value == 1 for each in self._entries)
            doubtful = ReservationValue(1 if reserves else "", (Flag.MALFORMED,))
            return [_statement(doubtful, Place.TDMREP_FILE, "too complex")]
        entry = self._entries[place]
        statements = [self._statement(place, reading or entry.reading)]
        if entry.reading.value == 1:
            statements += _policies((entry.policy,), Place.TDMREP_FILE)
        return statements

    def _statement(self, place: int, reading: ReservationValue) -> Statement:
        return _statement(reading, Place.TDMREP_FILE, self._entries[place].raw)


def _reserves(statement: Statement) -> bool:
    return statement.rule == POLICY or statement.value == 1


_UNREADABLE = ReservationValue("", (Flag.MALFORMED,))


def read_file(body: bytes) -> TdmFile:
    """Read a tdmrep.json. Never raises.

    Some tools write an object in place of the array. It can reserve rights, but not grant them, and
    neither can a file that is not quite JSON.
    """
    try:
        content, is_json = _parsed(body)
    except (ValueError, RecursionError):
        return TdmFile((), is_malformed=True)
    if isinstance(content, list):
        return _file_of(content, is_json=is_json)
    if isinstance(content, dict):
        return _file_of_object(content)
    return TdmFile((), is_malformed=True)


def _parsed(body: bytes) -> tuple[Any, bool]:
    """The content of the file, and whether it is valid JSON: a file with control characters or
    bytes that are not UTF-8 in its texts is read too. Raises ValueError, RecursionError."""
    try:
        return json.loads(body, object_pairs_hook=_object), True
    except ValueError:
        text = body.decode("utf-8-sig", "replace")
        return json.loads(text, object_pairs_hook=_object, strict=False), False


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object by its names in lower case. If a name is repeated, its last value counts, unless
    that would withdraw a reservation."""
    content: dict[str, Any] = {}
    for written, value in pairs:
        name = written.lower().replace("_", "-")
        if name == RESERVATION and (name != written or name in content):
            value = _doubtful_value(value, content.get(name))
        content[name] = value
    return content


def _doubtful_value(value: Any, earlier: Any) -> Any:
    """The value of a reservation whose name is misspelt or repeated. It is never read as 0."""
    if _is_one(value):
        return "1"
    if _is_one(earlier):
        return earlier
    return str(value)  # text is read as 1 or not at all


def _is_one(value: Any) -> bool:
    return _read_value(value).value == 1


def _read_value(value: Any) -> ReservationValue:
    if type(value) is int and value in (0, 1):
        return ReservationValue(value)
    if isinstance(value, str) and value.strip() in _ONES:
        return ReservationValue(1, (Flag.LENIENT,))
    if type(value) is float and value == 1:
        return ReservationValue(1, (Flag.LENIENT,))
    return _UNREADABLE


def _file_of(content: list[Any], *, is_json: bool) -> TdmFile:
    entries = [entry for each in content if (entry := _entry_of(each)) is not None]
    if not is_json:
        entries = [entry._replace(reading=_lenient(entry.reading)) for entry in entries]
    return TdmFile(entries, is_malformed=len(entries) < len(content) or not is_json)


def _entry_of(source: Any) -> _Location | None:
    """The entry of an array element, or None if the element names no location."""
    if not isinstance(source, dict):
        return None
    location = source.get("location")
    if not isinstance(location, str) or not location.strip():
        return None
    reading = _read_value(source.get(RESERVATION))
    return _Location(_pattern(location.strip()), reading, source.get(POLICY), _raw(source))


def _raw(source: dict[str, Any]) -> str:
    """The text of an entry: its members that TDMRep defines, unless they are objects or arrays.

    The others may be deeper than can be written.
    """
    members = {name: source[name] for name in _MEMBERS if name in source}
    plain = {name: each for name, each in members.items() if not isinstance(each, dict | list)}
    return json.dumps(plain)[:RAW_CAP]


_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


def _pattern(location: str) -> bytes:
    """The pattern of a location. Of a URL the path counts. A missing slash is added."""
    path = _AUTHORITY.sub("", location, count=1)
    if not path.startswith(("/", "*")):
        path = "/" + path
    return path.encode("utf-8", "replace")


def _file_of_object(content: dict[str, Any]) -> TdmFile:
    """The file for an object: the object is an entry itself, or has arrays of entries."""
    sources = [content] if RESERVATION in content else []
    for value in content.values():
        if isinstance(value, list):
            sources += value
    entries = []
    for source in sources:
        if isinstance(source, dict):
            entry = _entry_of({"location": "/", **source})
            if entry is not None:
                entries.append(entry._replace(reading=_lenient(entry.reading)))
    return TdmFile(entries, is_malformed=not entries)


def _lenient(reading: ReservationValue) -> ReservationValue:
    flags = tuple(dict.fromkeys((*reading.flags, Flag.LENIENT)))
    return ReservationValue("" if reading.value == 0 else reading.value, flags)
