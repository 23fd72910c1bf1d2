"""Header fields as every fetcher gives them: lower-case names, repeated ones joined, and not too much of them."""

from __future__ import annotations

from collections.abc import Iterable

MAX_FIELDS = 200
MAX_FIELD = 16 * 1024  # bytes of one
MAX_HEAD = 64 * 1024  # octets of all fields together


class BadFields(Exception):
    """Header fields that no honest robots.txt has: too much of them, NUL, or two Locations."""


def joined(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The fields of an answer. Raises BadFields."""
    fields: dict[str, str] = {}
    count = octets = 0
    for name, value in raw:
        count, octets = count + 1, octets + len(name) + len(value) + 4
        if count > MAX_FIELDS or octets > MAX_HEAD:
            raise BadFields(f"more than {MAX_FIELDS} fields or {MAX_HEAD} octets of them")
        if len(name) + len(value) > MAX_FIELD:
            raise BadFields(f"a field of more than {MAX_FIELD} octets")
        if b"\0" in value:
            raise BadFields("a field with NUL")
        key, text = name.decode("latin-1").lower(), _text(value)
        if key not in fields:
            fields[key] = text
        elif key != "location":
            fields[key] = f"{fields[key]}, {text}"
        elif fields[key] != text:
            raise BadFields("more than one Location")
    return fields


def _text(value: bytes) -> str:
    """UTF-8 where it is that, as in a Location that was never escaped; else an octet a character."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
