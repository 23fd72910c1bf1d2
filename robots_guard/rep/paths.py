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
from robots_guard.rep.readings import (
    LONE_PERCENT,
    behind_authority,
    has_dot_segment,
    joined,
    parted,
    readings,
    undotted,
)

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


def is_alone(form: str, target: str) -> bool:
    """Has a target no further form than this, its canonical one?"""
    path = form.partition("?")[0]
    return (
        _is_resolved(path)
        and "%2F" not in path
        and "%5C" not in path
        and "#" not in target
        and target[-1:] != "?"
        and target.isascii()
        and ("%" not in form or LONE_PERCENT.search(form) is None)
    )


def _is_resolved(path: str) -> bool:
    """Does every server resolve a path to itself?"""
    return "//" not in path and ";" not in path and not ("/." in path and has_dot_segment(path))


def variants(target: str) -> Iterator[Variant]:
    """The forms of profile standard, the canonical one first. `target` is as on the wire, "#" and all."""
    seen = set()
    for written, origin in _written(target).items():
        path, mark, query = written.partition("?")
        # An empty query asks for what none asks for, on every server measured; a rule "/x$" means both.
        endings = ((mark + query, ""), ("", "empty-query")) if mark and not query else ((mark + query, ""),)
        for resolved, step in _paths(path):
            for ending, end in endings:
                form = resolved + ending
                if form not in seen:
                    seen.add(form)
                    yield Variant(form, joined(origin, step, end) or "percent-encoding")


def folded(variant: Variant) -> Iterator[Variant]:
    """The further forms of profile strict: encoded slashes and backslashes of the path read as slashes."""
    path, mark, query = variant.text.partition("?")
    if "%2F" in path or "%5C" in path:
        unslashed = path.replace("%2F", "/").replace("%5C", "/")
        for resolved, step in _paths(unslashed):
            yield Variant(resolved + mark + query, joined("encoded-slash", step))


def has_encoded_slash(target: str) -> bool:
    """Is there an escape in the target that many servers read as a slash?"""
    return _ENCODED_SLASH(target) is not None


_ENCODED_SLASH = re.compile("%(?:2[Ff]|5[Cc])").search


def _written(target: str) -> dict[str, str]:
    """The readings of a target in canonical form, each with the steps that led to it."""
    written: dict[str, str] = {}
    for text, origin in readings(target):
        written.setdefault(canonical(text), origin)
    return written


def _paths(path: str) -> Iterator[tuple[str, str]]:
    """The paths that servers resolve a canonical path to, each with the steps that lead to it.

    A server may stand behind another: if the first leaves a path that begins with two slashes, the second may remove an
    authority from it.
    """
    if _is_resolved(path):
        yield path, ""
        return
    fronts, servers = {path}, set()
    for shape, made_by in _shapes(path):
        for resolved, step in _resolved(shape):
            yield resolved, joined(made_by, step)
            if not resolved.startswith("//") or resolved in fronts:
                continue
            fronts.add(resolved)
            for rest in behind_authority(resolved):
                if rest not in servers:
                    servers.add(rest)
                    yield from ((again, joined(made_by, step, "network-path", last)) for again, last in _resolved(rest))


def _shapes(path: str) -> Iterator[tuple[str, str]]:
    """The path, without its parameters, and as the path of a network-path reference."""
    yield path, ""
    bare = _PARAMETERS.sub("", path)
    if bare != path:
        yield bare, "parameters"
        last = _LAST_PARAMETERS.sub("", path)
        if last not in (path, bare):
            yield last, "last-parameters"
        if (kept := parted(path)) != path:
            yield kept, "last-parameters"
    for text in dict.fromkeys((path, bare)):
        if text.startswith("//"):
            yield from ((rest, "network-path") for rest in behind_authority(text))


_LAST_PARAMETERS = re.compile(r";[^/]*\Z")
_PARAMETERS = re.compile(r";[^/]*")
_SLASHES = re.compile(r"//+")


def _resolved(path: str) -> Iterator[tuple[str, str]]:
    """The path with dot segments removed and slashes merged, in either order."""
    yield path, ""
    if "/." in path and has_dot_segment(path):
        for text in dict.fromkeys((path, _SEMICOLON_DOTS.sub(r"\1", path))):
            bare = undotted(text)
            yield bare, "dots"
            if bare.startswith("//"):
                yield bare[1:], "dots"  # urljoin() lets ".." take the root with it
            yield _merged(bare), "dots+slashes"
            yield (last := undotted(_merged(text))), "slashes+dots"
            if text.endswith(("/.", "/..")):  # to a file system "/a.pdf/." is "/a.pdf"; "/a/" stays what it is
                yield last.rstrip("/") or "/", "slashes+dots+file"
    if "//" in path:
        yield _merged(path), "slashes"


_SEMICOLON_DOTS = re.compile(r"(?<=/)(\.\.?);[^/]*")


def _merged(path: str) -> str:
    return _SLASHES.sub("/", path)
