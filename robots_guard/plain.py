"""Made plain for people: text of any origin, and lengths of time.

The law of this file: what a stranger wrote (a URL, a rule, a user agent) shows itself. What is not printable
(controls, escape sequences, marks that turn the direction of a line, lone surrogates) is shown by its number.
"""

from __future__ import annotations

from math import isfinite


def printable(text: str, keep: str = "") -> str:
    """The text with each character that is not printable, nor in `keep`, as ``\\x1b``, ``\\u202e`` or
    ``\\U000e0001``."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _number(char) for char in text)


def _number(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def span(seconds: float) -> str:
    """A length of time in one or two units, such as ``2 h 5 min``; of one that is none (a store may hold it), ``?``."""
    if not isfinite(seconds):
        return "?"
    left = max(0, round(seconds))
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
