"""Pinned texts: robots.txt files of the operator, as the audit log has them.

A record of kind `pinned` has a part of a file. Invariant: a text is returned only if it has the
SHA-256 that its records state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from robots_guard.audit.record import AnyRecord, PinnedRecord


def pinned_texts(entries: Iterable[AnyRecord]) -> dict[str, bytes]:
    """Return the files of which all parts are among some records, by their SHA-256."""
    parts: dict[tuple[str, int], dict[int, str]] = {}
    for entry in entries:
        if isinstance(entry, PinnedRecord):
            parts.setdefault((entry.sha256, entry.parts), {})[entry.part] = entry.text
    found = {}
    for (sha256, count), texts in parts.items():
        body = _body(texts, count)
        if body is not None and hashlib.sha256(body).hexdigest() == sha256:
            found[sha256] = body
    return found


def _body(texts: dict[int, str], count: int) -> bytes | None:
    """The bytes of a file of so many parts; None if one is missing or is not as it is written."""
    if len(texts) != count:
        return None
    try:
        return "".join(texts[number] for number in range(1, count + 1)).encode("latin-1")
    except (KeyError, UnicodeEncodeError):
        return None
