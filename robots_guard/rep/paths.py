"""The normal forms of a request target.

Invariant: a target is judged as it is sent on the wire, one Latin-1 character per byte, and nothing
is decoded twice. Every form after the first can only add a denial, never an allowance, so there may
be more forms than strictly needed.

    spec      the target, compared by the dialect's rules
    standard  also without dot segments, path parameters and doubled slashes, as servers resolve it
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
    """A matching profile: which forms of a target are judged."""

    name: str
    resolves: bool  # judge the forms to which servers resolve the path
    folds: bool  # judge encoded slashes as slashes, and ignore letter case
    refuses_malformed: bool


_MATCHINGS = {
    "spec": Matching("spec", resolves=False, folds=False, refuses_malformed=False),
    "standard": Matching("standard", resolves=True, folds=False, refuses_malformed=True),
    "strict": Matching("strict", resolves=True, folds=True, refuses_malformed=True),
}


def matching(name: str) -> Matching:
    """The matching profile of that name. Raises SettingsError."""
    found = _MATCHINGS.get(name)
    if found is None:
        raise SettingsError(f"matching {name!r} is not known; use one of {', '.join(MATCHINGS)}")
    return found


# --- Targets that must not be sent to any server (RFC 9112 section 3.2) ---

_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")


def malformed(target: str) -> str | None:
    """Why a target must be refused, in a few words, or None."""
    if not target.startswith("/"):
        return "no leading slash"
    if len(target) > TARGET_CAP:
        return f"longer than {TARGET_CAP} bytes"
    found = _FORBIDDEN.search(target)
    if found is None:
        return None
    if found[0] == "\\":
        return "backslash"
    return f"byte 0x{ord(found[0]):02x}"


# --- The forms to which a server may resolve a path ---


class Variant(NamedTuple):
    """A form of a target, in canonical encoding, and the steps that led to it."""

    text: str
    made_by: str


_PLAIN = re.compile(r"/[!&-)+-:=?-\[\]_a-z~]*").fullmatch


def is_plain(target: str) -> bool:
    """Whether the target has no other form, letter case apart. True of most."""
    return (
        _PLAIN(target) is not None
        and "//" not in target
        and "/." not in target
        and target[-1:] != "?"
    )


def is_alone(form: str, target: str) -> bool:
    """Whether a target has no form besides its canonical one, `form`."""
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
    """Whether every server resolves a path to itself."""
    return "//" not in path and ";" not in path and not ("/." in path and has_dot_segment(path))


def variants(target: str) -> Iterator[Variant]:
    """The forms of profile standard, the canonical one first. `target` is as on the wire, including
    "#"."""
    seen = set()
    for written, origin in _canonical_readings(target).items():
        path, mark, query = written.partition("?")
        # Every server measured treats an empty query like none; a rule "/x$" means both.
        endings = [(mark + query, "")]
        if mark and not query:
            endings.append(("", "empty-query"))
        for resolved, step in _paths(path):
            for ending, end in endings:
                form = resolved + ending
                if form not in seen:
                    seen.add(form)
                    yield Variant(form, joined(origin, step, end) or "percent-encoding")


def folded(variant: Variant) -> Iterator[Variant]:
    """The additional forms of profile strict, with encoded slashes and backslashes read as
    slashes."""
    path, mark, query = variant.text.partition("?")
    if "%2F" in path or "%5C" in path:
        unslashed = path.replace("%2F", "/").replace("%5C", "/")
        for resolved, step in _paths(unslashed):
            yield Variant(resolved + mark + query, joined("encoded-slash", step))


def has_encoded_slash(target: str) -> bool:
    """Whether the target contains an escape that many servers read as a slash."""
    return _ENCODED_SLASH(target) is not None


_ENCODED_SLASH = re.compile("%(?:2[Ff]|5[Cc])").search


def _canonical_readings(target: str) -> dict[str, str]:
    """The readings of a target in canonical form, each with the steps that led to it."""
    written: dict[str, str] = {}
    for text, origin in readings(target):
        written.setdefault(canonical(text), origin)
    return written


def _paths(path: str) -> Iterator[tuple[str, str]]:
    """The paths to which servers resolve a canonical path, each with the steps that lead to it.

    A server may be behind another: if the first produces a path that begins with two slashes, the
    second may remove an authority from it.
    """
    if _is_resolved(path):
        yield path, ""
        return
    front_paths, rests = {path}, set()
    for shape, made_by in _shapes(path):
        for resolved, step in _resolutions(shape):
            yield resolved, joined(made_by, step)
            if not resolved.startswith("//") or resolved in front_paths:
                continue
            front_paths.add(resolved)
            for rest in behind_authority(resolved):
                if rest not in rests:
                    rests.add(rest)
                    for again, last in _resolutions(rest):
                        yield again, joined(made_by, step, "network-path", last)


def _shapes(path: str) -> Iterator[tuple[str, str]]:
    """The path, the path without parameters, and the path of either as a network-path reference."""
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


def _resolutions(path: str) -> Iterator[tuple[str, str]]:
    """The path with dot segments removed and slashes merged, in either order."""
    yield path, ""
    if "/." in path and has_dot_segment(path):
        for text in dict.fromkeys((path, _SEMICOLON_DOTS.sub(r"\1", path))):
            bare = undotted(text)
            yield bare, "dots"
            if bare.startswith("//"):
                yield bare[1:], "dots"  # in urljoin(), ".." removes the root as well
            yield _merge_slashes(bare), "dots+slashes"
            yield (last := undotted(_merge_slashes(text))), "slashes+dots"
            # In a file system "/a.pdf/." is "/a.pdf"; "/a/" is not.
            if text.endswith(("/.", "/..")):
                yield last.rstrip("/") or "/", "slashes+dots+file"
    if "//" in path:
        yield _merge_slashes(path), "slashes"


_SEMICOLON_DOTS = re.compile(r"(?<=/)(\.\.?);[^/]*")


def _merge_slashes(path: str) -> str:
    return _SLASHES.sub("/", path)
