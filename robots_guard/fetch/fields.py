"""Header fields as every fetcher gives them: lower-case names, repeated ones joined, and not too much of them."""

from __future__ import annotations

from collections.abc import Iterable

MAX_FIELDS = 200
MAX_HEAD = 64 * 1024  # octets of all fields together


class TooLarge(Exception):
    """More header fields than any honest robots.txt has."""


def joined(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The fields of an answer. Raises TooLarge."""
    fields: dict[str, str] = {}
    count = octets = 0
    for name, value in raw:
        count, octets = count + 1, octets + len(name) + len(value) + 4
        if count > MAX_FIELDS or octets > MAX_HEAD:
            raise TooLarge(f"more than {MAX_FIELDS} fields or {MAX_HEAD} octets of them")
        key = name.decode("latin-1").lower()
        fields[key] = f"{fields[key]}, {_text(value)}" if key in fields else _text(value)
    return fields


def _text(value: bytes) -> str:
    """UTF-8 where it is that, as in a Location that was never escaped; else an octet a character."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
