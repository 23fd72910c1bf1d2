"""Header fields as every fetcher returns them: lower-case names, repeated fields joined, bounded in
size."""

from __future__ import annotations

from collections.abc import Iterable

MAX_FIELDS = 200
MAX_FIELD = 16 * 1024  # bytes of one field
MAX_HEAD = 64 * 1024  # bytes of all fields together
#: The header fields of a project that its fetches of robots.txt inherit: those that identify the
#: crawler, and those that authenticate it to its parent proxy. Any other may make the response
#: unreadable (a coding, a range, "not modified"), or is about pages.
INHERITED = frozenset(
    (
        "user-agent",
        "from",
        "accept-language",
        "proxy-authorization",
        "signature",  # RFC 9421, Web Bot Auth
        "signature-input",
        "signature-agent",
    )
)


class BadFields(Exception):
    """Header fields that no honest robots.txt response has: too many, too long, with NUL, or two
    Locations."""


def joined(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the fields of a response with repeated ones joined. Raises BadFields."""
    fields: dict[str, str] = {}
    size = 0
    for count, (name, value) in enumerate(raw, start=1):
        size += len(name) + len(value) + 4
        if count > MAX_FIELDS or size > MAX_HEAD:
            raise BadFields(f"more than {MAX_FIELDS} fields or {MAX_HEAD} bytes of them")
        if len(name) + len(value) > MAX_FIELD:
            raise BadFields(f"a field of more than {MAX_FIELD} bytes")
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
    """Decode a value as UTF-8 if possible, as for an unescaped Location; else one character per
    byte."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
