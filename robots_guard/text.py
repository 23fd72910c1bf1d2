"""Text for people: untrusted text made printable, durations, counts, and suggestions for wrong names and
values.

Invariant: text from outside (a URL, a rule, a user agent) cannot hide anything. Characters that are
not printable (control characters, escape sequences, direction marks, lone surrogates) are shown as
their code point.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from math import isfinite
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

#: Where the documentation is: the URL in pyproject.toml.
DOCUMENTATION = "https://robots-guard.github.io/robots_guard/"

#: What a terminal or browser shows as nothing, and Python takes for printable: Default_Ignorable_Code_Point of
#: Unicode, less the categories that `str.isprintable` excludes.
_INVISIBLE = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def printable(text: str, keep: str = "") -> str:
    """Return the text with non-printable and invisible characters escaped as ``\\x1b``, ``\\u202e`` or
    ``\\U000e0001``.

    Characters in `keep` are not escaped.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = "".join(char if char.isprintable() or char in keep else _escape(char) for char in text)
    return _INVISIBLE.sub(lambda found: _escape(found[0]), shown)


def restored(text: str) -> str:
    """Return text that Python decoded in the locale's encoding, decoded as UTF-8 instead.

    If the locale cannot decode a byte of an argument, a variable or a file name, Python replaces it
    by a lone surrogate (PEP 383). Bytes that are not UTF-8 either remain surrogates. Raises
    UnicodeEncodeError for a surrogate that represents no byte.
    """
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def encodable(text: str) -> str:
    """Return text as `restored` does, with remaining surrogates escaped as ``\\udcf6``.

    Any Unicode encoding can encode the result.
    """
    # This fails for a surrogate that represents no byte, which is possible in JSON only.
    with contextlib.suppress(UnicodeEncodeError):
        text = restored(text)
    return text.encode("utf-8", "backslashreplace").decode()


def _escape(char: str) -> str:
    code = ord(char)
    if code < 256:
        return f"\\x{code:02x}"
    if code < 65536:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"


def span(seconds: float) -> str:
    """Return a duration in one or two units, such as ``2 h 5 min``; ``?`` if it is not finite (a
    store may contain such a value)."""
    if not isfinite(seconds):
        return "?"
    left = max(0, round(seconds))
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1: ``1 file``, ``1,200 files``.

    The plural of a noun that has another one than "s" follows a slash: ``try/tries``.
    """
    singular, _, plural = noun.partition("/")
    if count == 1:
        return f"1 {singular}"
    return f"{count:,} {plural or singular + 's'}"


def line_numbers(lines: Sequence[int], most: int = 8) -> str:
    """Return the numbers of lines as text; of more than `most`, only the first ones."""
    if len(lines) == 1:
        return f"line {lines[0]}"
    more = f" and {len(lines) - most} more" if len(lines) > most else ""
    return f"lines {', '.join(map(str, lines[:most]))}{more}"


def did_you_mean(name: str, known: Sequence[str], shown: Callable[[str], str] = str) -> str:
    """Suggest a known name for an unknown one: the most similar, else one whose words all occur in
    it.

    Lists all known names if none is similar.
    """
    similar = _similar(name, known)
    if similar:
        return f"did you mean {shown(similar)}?"
    return f"known are: {', '.join(known)}"


def _similar(name: str, known: Sequence[str]) -> str | None:
    from difflib import get_close_matches  # only a wrong name needs it

    words = set(name.split("_"))
    near = get_close_matches(name, known, n=1)
    near += [each for each in known if words.issuperset(each.split("_"))]
    return next(iter(near), None)


def nearest(name: str, known: Sequence[str], shown: Callable[[str], str] = str) -> str:
    """Suggest a known name for an unknown one, as `did_you_mean` does, but if none is similar, name
    only the nearest three."""
    similar = _similar(name, known)
    if similar:
        return f"did you mean {shown(similar)}?"
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=3, cutoff=0)
    return f"the nearest are {', '.join(map(shown, near))}"


def page_url(page: str) -> str:
    """Return the address of a page of the documentation, such as ``settings.md#private-addresses``:
    a user who has installed the package has no directory of them."""
    name, mark, heading = page.partition("#")
    return f"{DOCUMENTATION}{name.removesuffix('.md')}.html{mark}{heading}"


def without_links(markdown: str) -> str:
    """Return Markdown with addresses instead of links to pages of the documentation. An address
    stands in parentheses behind the text of its link, unless that is the name of the page."""
    return _LINK.sub(_address, markdown)


_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


def _address(link: re.Match[str]) -> str:
    text, page = link.groups()
    if page.startswith(text):
        return page_url(page)
    return f"{text} ({page_url(page)})"


def wrong_type(value: Any, kind: Any, *, strict: bool = True) -> str | None:
    """Say why a value does not fit a type, and what to write instead; None if it fits.

    Unless `strict`, text that can be read as a value of the type fits, too.
    """
    if _fits(value, kind, strict):
        return None
    base, bounds = _parts(kind)
    if get_origin(base) is Literal:
        *most, last = get_args(base)
        return f"is not known: use {', '.join(most)} or {last}"
    if bounds and _fits(value, base, strict):
        unit = " seconds" if base is float else ""
        return f"is out of range: use {_range(bounds)}{unit}"
    if get_origin(base) is tuple:
        return 'is not a list of texts: write one such as ["a", "b"]'
    return {
        float: "is not a number of seconds: write one such as 30 or 0.5",
        int: "is not a whole number: write one such as 30",
        bool: "is not a switch: use true or false",
    }.get(base, "is not text: put it in quotes")


def _fits(value: Any, kind: Any, strict: bool) -> bool:
    try:
        msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError:
        return False
    return True


def _parts(kind: Any) -> tuple[Any, msgspec.Meta | None]:
    """Split `Annotated[type, Meta(...)]`. Of `type | None`, None is the default, and no value."""
    bounds = None
    if get_origin(kind) is Annotated:
        kind, bounds = get_args(kind)
    kinds = get_args(kind)
    if NoneType in kinds:
        (kind,) = (each for each in kinds if each is not NoneType)
    return kind, bounds


def _range(bounds: msgspec.Meta) -> str:
    """The values within bounds, in words."""
    if bounds.gt is not None:
        return f"more than {bounds.gt:g} and at most {bounds.le:g}"
    if bounds.le is not None:
        return f"{number(bounds.ge)} to {number(bounds.le)}"
    return f"{number(bounds.ge)} or more"


def number(value: float | None) -> str:
    """Return a number without an empty fraction: ``300``, not ``300.0``."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:g}"
    return str(value)
