"""The normal forms of a request target.

The law of this file: a target is judged as it goes on the wire, one character an octet (Latin-1), and nothing is
decoded twice. A form beyond the first can only add a denial, never an allowance, so forms may be generous.

    spec      the target, compared as the dialect compares
    standard  also without dot segments, path parameters and doubled slashes, the ways servers read one resource
    strict    also with %2F and %5C read as "/", and with both sides in lower case
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from robots_guard.errors import SettingsError
from robots_guard.rep.percent import canonical

TARGET_CAP = 8_192

MATCHINGS = ("spec", "standard", "strict")


class Matching(NamedTuple):
    """How many forms of a target are judged."""

    name: str
    resolves: bool  # judge the forms servers resolve the path to
    folds: bool  # judge encoded slashes as slashes, and letters without case
    refuses_malformed: bool


_MATCHINGS = {
    "spec": Matching("spec", resolves=False, folds=False, refuses_malformed=False),
    "standard": Matching("standard", resolves=True, folds=False, refuses_malformed=True),
    "strict": Matching("strict", resolves=True, folds=True, refuses_malformed=True),
}


def matching(name: str) -> Matching:
    """The matching profile of that name."""
    found = _MATCHINGS.get(name)
    if found is None:
        raise SettingsError(f"matching {name!r} is not known; use one of {', '.join(MATCHINGS)}")
    return found


def octets(text: str) -> str:
    """Text as the octets it has on the wire: UTF-8, one character an octet."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("latin-1")


# --- Targets no server should be sent (RFC 9112 section 3.2) ---

_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")


def malformed(target: str) -> str | None:
    """Why this target must be refused, in a few words, or None."""
    if not target.startswith("/"):
        return "no leading slash"
    if len(target) > TARGET_CAP:
        return f"longer than {TARGET_CAP} octets"
    found = _FORBIDDEN.search(target)
    if found is None:
        return None
    return "backslash" if found[0] == "\\" else f"octet 0x{ord(found[0]):02x}"


# --- The forms a server may resolve a path to ---


class Variant(NamedTuple):
    """One more form of a target, in canonical writing, and how it came about."""

    text: str
    made_by: str


PLAIN = re.compile(r"/[!&-)+-:=?-\[\]_a-z~]*").fullmatch


def is_plain(target: str) -> bool:
    """Is every form of the target, letter case apart, the target itself? Most are, and the hot path asks this."""
    return PLAIN(target) is not None and "//" not in target and "/." not in target and target[-1:] != "?"


_DOT_SEGMENT = re.compile(r"/\.\.?(?:[/;]|$)").search


def is_alone(form: str, target: str) -> bool:
    """Has a target no further form than this, its canonical one?"""
    path = form.partition("?")[0]
    return (
        "//" not in path
        and ("/." not in path or _DOT_SEGMENT(path) is None)
        and ";" not in path
        and "%2F" not in path
        and "%5C" not in path
        and "#" not in target
        and target[-1:] != "?"
        and (target.isascii() or _is_utf8(target))
    )


def variants(target: str) -> Iterator[Variant]:
    """The forms of profile standard, the canonical one first. `target` is as on the wire, "#" and all."""
    seen = set()
    for text, origin in _readings(target):
        path, mark, query = canonical(text).partition("?")
        # An empty query asks for what none asks for, on every server measured; a rule "/x$" means both.
        endings = ((mark + query, ""), ("", "empty-query")) if mark and not query else ((mark + query, ""),)
        for shape, made_by in _shapes(path):
            for resolved, step in _resolved(shape):
                for ending, end in endings:
                    form = resolved + ending
                    if form not in seen:
                        seen.add(form)
                        yield Variant(form, "+".join(filter(None, (origin, made_by, step, end))) or "percent-encoding")


def folded(variant: Variant) -> Iterator[Variant]:
    """The further forms of profile strict: encoded slashes and backslashes of the path read as slashes."""
    path, mark, query = variant.text.partition("?")
    if "%2F" in path or "%5C" in path:
        unslashed = path.replace("%2F", "/").replace("%5C", "/")
        for shape, made_by in _shapes(unslashed):
            for resolved, step in _resolved(shape):
                yield Variant(resolved + mark + query, "+".join(filter(None, ("encoded-slash", made_by, step))))


def has_encoded_slash(target: str) -> bool:
    """Is there an escape in the target that many servers read as a slash?"""
    return _ENCODED_SLASH(target) is not None


_ENCODED_SLASH = re.compile("%(?:2[Ff]|5[Cc])").search


def _readings(target: str) -> Iterator[tuple[str, str]]:
    """The target cut at "#", not cut, and with octets that are no UTF-8 read as Latin-1."""
    readings = [(rooted(cut_fragment(target)), "")]
    if "#" in target:
        readings.append((rooted(target), "fragment-kept"))
    yield from readings
    for text, origin in readings:
        if not text.isascii() and not _is_utf8(text):
            yield octets(text), "+".join(filter(None, (origin, "latin-1")))


def cut_fragment(target: str) -> str:
    """The target without "#" and what follows: a fragment is never sent (RFC 9110 section 7.1)."""
    return target.partition("#")[0]


def rooted(target: str) -> str:
    """The target with a first slash; without one it is malformed, and spec reads it from the root."""
    return target if target[:1] == "/" else "/" + target


def _is_utf8(text: str) -> bool:
    try:
        text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return False
    return True


def _shapes(path: str) -> Iterator[tuple[str, str]]:
    """The path, without its parameters, and as the path of a network-path reference."""
    yield path, ""
    bare = _PARAMETERS.sub("", path)
    if bare != path:
        yield bare, "parameters"
    for text in dict.fromkeys((path, bare)):
        if text.startswith("//"):
            yield "/" + text[2:].partition("/")[2], "network-path"


_PARAMETERS = re.compile(r";[^/]*")
_SLASHES = re.compile(r"//+")


def _resolved(path: str) -> Iterator[tuple[str, str]]:
    """The path with dot segments removed and slashes merged, in either order."""
    yield path, ""
    if "/." in path and _DOT_SEGMENT(path):
        for text in dict.fromkeys((path, _SEMICOLON_DOTS.sub(r"\1", path))):
            undotted = _undotted(text)
            yield undotted, "dots"
            yield _merged(undotted), "dots+slashes"
            yield _undotted(_merged(text)), "slashes+dots"
    if "//" in path:
        yield _merged(path), "slashes"


_SEMICOLON_DOTS = re.compile(r"(?<=/)(\.\.?);[^/]*")


def _merged(path: str) -> str:
    return _SLASHES.sub("/", path)


def _undotted(path: str) -> str:
    """RFC 3986 section 5.2.4, on a path that begins with a slash."""
    segments = path[1:].split("/")
    if segments[-1] in (".", ".."):
        segments.append("")  # "/a/." names the directory
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    return "/" + "/".join(kept)
