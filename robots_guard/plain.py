"""Made plain for people: text of any origin, lengths of time, and what a wrong name or value should have been.

The law of this file: what a stranger wrote (a URL, a rule, a user agent) shows itself. What is not printable
(controls, escape sequences, marks that turn the direction of a line, lone surrogates) is shown by its number.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Sequence
from math import isfinite
from types import NoneType
from typing import Any, Literal, get_args, get_origin


def printable(text: str, keep: str = "") -> str:
    """The text with each character that is not printable, nor in `keep`, as ``\\x1b``, ``\\u202e`` or
    ``\\U000e0001``."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _number(char) for char in text)


def restored(text: str) -> str:
    """Text that Python has decoded in the locale's encoding, decoded as UTF-8 instead.

    If the locale cannot decode a byte of an argument, a variable or a file name, Python replaces it by a lone surrogate
    (PEP 383). Bytes that are not UTF-8 either stay surrogates. Raises UnicodeEncodeError for a surrogate that stands
    for no byte.
    """
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def encodable(text: str) -> str:
    """Text as `restored` gives it, with the surrogates that remain written as escapes such as ``\\udcf6``, so that any
    encoding of Unicode can encode it."""
    with contextlib.suppress(UnicodeEncodeError):  # a surrogate that stands for no byte, which only JSON can spell
        text = restored(text)
    return text.encode("utf-8", "backslashreplace").decode()


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


def meant(name: str, known: Sequence[str], shown: Callable[[str], str] = str) -> str:
    """What an unknown name should have been: the nearest of those known, else one whose words are all in it; all of
    them only if nothing is near."""
    words = set(name.split("_"))
    near = difflib.get_close_matches(name, known, n=1) or [each for each in known if words.issuperset(each.split("_"))]
    return f"did you mean {shown(near[0])}?" if near else f"known are: {', '.join(known)}"


def unfit(kind: Any) -> str:
    """What is wrong with a value that is not of this kind, and what to write."""
    kinds = get_args(kind)
    if NoneType in kinds:  # not to be given is for who wrote the kind, not for who gave a value
        (kind,) = (each for each in kinds if each is not NoneType)
    if get_origin(kind) is Literal:
        *most, last = get_args(kind)
        return f"is not known: use {', '.join(most)} or {last}"
    return {
        float: "is no number of seconds: write one such as 30 or 0.5",
        int: "is no whole number",
        bool: "is no switch: use true or false",
    }.get(kind, "is no text: put it in quotes")
