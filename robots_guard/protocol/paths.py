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
from typing import Literal, NamedTuple, get_args

from robots_guard.errors import SettingsError
from robots_guard.protocol.percent import CHANGED_ESCAPE, canonical
from robots_guard.protocol.readings import (
    behind_authority,
    has_dot_segment,
    joined,
    parted,
    readings,
    undotted,
)

TARGET_CAP = 8_192

MatchingName = Literal["spec", "standard", "strict"]
MATCHINGS: tuple[str, ...] = get_args(MatchingName)


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


#: A text, and the steps that led to it, such as "dots+slashes".
Form = tuple[str, str]


_PLAIN = re.compile(r"/[!&-)+-:=?-\[\]_a-z~]*").fullmatch


def is_plain(target: str) -> bool:
    """Whether the target has no other form, letter case apart. True of most."""
    return (
        _PLAIN(target) is not None
        and "//" not in target
        and "/." not in target
        and target[-1:] != "?"
    )


def forms_of(target: str) -> list[str]:
    """The forms of `variants`, the canonical one first, and those that `folded` adds to them.

    The steps that led to a form are not worked out: they are needed only if it is disallowed. For
    nearly all targets the forms are simple: every parser reads the target alike, and it has one
    kind of dots or slashes to resolve, if any.
    """
    form = target
    if not _CANONICAL(target):
        if not _READ_ALIKE(target):
            return _further_forms(target)
        form = canonical(target)
    path, ending = form, ""
    if "?" in form:
        at = form.index("?")
        path, ending = form[:at], form[at:]
    found = [form]
    if "%2F" in path or "%5C" in path:
        path = path.replace("%2F", "/").replace("%5C", "/")
        if "//" in path or "/." in path:
            return _further_forms(target)
        found.append(path + ending)
    elif "//" in path:
        if "/." in path:
            return _further_forms(target)
        found.append(_merge_slashes(path) + ending)
    elif "/." in path:
        bare = undotted(path)
        found.append(bare + ending)
        if path.endswith(("/.", "/..")):
            found.append((bare.rstrip("/") or "/") + ending)
    if ending == "?":
        for text in tuple(found):
            found.append(text[:-1])  # noqa: PERF401  (slower for one text, the usual case)
    return found


def _further_forms(target: str) -> list[str]:
    """The same for any target."""
    named = variants(target)
    found = list(named)
    for form in named:
        if "%" in form:
            found += [text for text, _ in folded(form)]
    return found


# Targets without parameters, fragments and authorities whose escapes are whole, and whose dots are
# not encoded; and those of them that are in canonical form.
_ESCAPE_BUT_DOT = "%(?!2[Ee])[0-9A-Fa-f]{2}"
_READ_ALIKE = re.compile(rf"/(?!/)[!-\"$&-:<-~]*+(?:{_ESCAPE_BUT_DOT}[!-\"$&-:<-~]*+)*").fullmatch
_CANONICAL_ESCAPE = f"(?!{CHANGED_ESCAPE})%[0-9A-F]{{2}}"
_CANONICAL = re.compile(
    rf"/(?!/)[!&-)+-:=?-\[\]_a-z~]*+(?:{_CANONICAL_ESCAPE}[!&-)+-:=?-\[\]_a-z~]*+)*"
).fullmatch


def variants(target: str) -> dict[str, str]:
    """The forms of profile standard, each with the steps that led to it; first the canonical one.

    `target` is as on the wire, including "#". Most targets with dot segments or doubled slashes
    have two forms.
    """
    found: dict[str, str] = {}
    for reading, origin in readings(target):
        path, mark, query = canonical(reading).partition("?")
        ending = mark + query
        for resolved, step in _paths(path):
            made_by = joined(origin, step)
            found.setdefault(resolved + ending, made_by or "percent-encoding")
            # Every server measured treats an empty query like none; a rule "/x$" means both.
            if ending == "?":
                found.setdefault(resolved, joined(made_by, "empty-query"))
    return found


def folded(form: str) -> list[Form]:
    """The forms that profile strict adds to a form of profile standard: encoded slashes and
    backslashes are read as slashes."""
    path, mark, query = form.partition("?")
    if "%2F" not in path and "%5C" not in path:
        return []
    unslashed = path.replace("%2F", "/").replace("%5C", "/")
    return [
        (resolved + mark + query, joined("encoded-slash", step))
        for resolved, step in _paths(unslashed)
    ]


def has_encoded_slash(target: str) -> bool:
    """Whether the target contains an escape that many servers read as a slash."""
    return _ENCODED_SLASH(target) is not None


_ENCODED_SLASH = re.compile("%(?:2[Ff]|5[Cc])").search


def _paths(path: str) -> list[Form]:
    """The paths to which servers resolve a canonical path, each with the steps that lead to it.

    A server may be behind another: if the first produces a path that begins with two slashes, the
    second may remove an authority from it.
    """
    if ";" not in path and path[:2] != "//" and ("//" not in path or not has_dot_segment(path)):
        # No server reads parameters or an authority here, so the path has one shape.
        return _resolutions(path)
    found: list[Form] = []
    front_paths, rests = {path}, set()
    for shape, made_by in _shapes(path):
        for resolved, step in _resolutions(shape):
            found.append((resolved, joined(made_by, step)))
            if resolved[:2] != "//" or resolved in front_paths:
                continue
            front_paths.add(resolved)
            for rest in behind_authority(resolved):
                if rest not in rests:
                    rests.add(rest)
                    steps = joined(joined(made_by, step), "network-path")
                    found += [(again, joined(steps, last)) for again, last in _resolutions(rest)]
    return found


def _shapes(path: str) -> list[Form]:
    """The path, the path without parameters, and the path of either as a network-path reference."""
    found = [(path, "")]
    bare = path
    if ";" in path:
        bare = _PARAMETERS.sub("", path)
        found.append((bare, "parameters"))
        last = _LAST_PARAMETERS.sub("", path)
        if last not in (path, bare):
            found.append((last, "last-parameters"))
        if (kept := parted(path)) != path:
            found.append((kept, "last-parameters"))
    if path[:2] == "//":
        found += [(rest, "network-path") for rest in behind_authority(path)]
    if bare != path and bare[:2] == "//":
        found += [(rest, "network-path") for rest in behind_authority(bare)]
    return found


_LAST_PARAMETERS = re.compile(r";[^/]*\Z")
_PARAMETERS = re.compile(r";[^/]*")


def _resolutions(path: str) -> list[Form]:
    """The path with dot segments removed and slashes merged, in either order."""
    found = [(path, "")]
    if has_dot_segment(path):
        _add_undotted(found, path)
        if ";" in path and (text := _SEMICOLON_DOTS.sub(r"\1", path)) != path:
            _add_undotted(found, text)
    if "//" in path:
        found.append((_merge_slashes(path), "slashes"))
    return found


def _add_undotted(found: list[Form], path: str) -> None:
    last = bare = undotted(path)
    found.append((bare, "dots"))
    if "//" in path:
        if bare[:2] == "//":
            found.append((bare[1:], "dots"))  # in urljoin(), ".." removes the root as well
        last = undotted(_merge_slashes(path))
        found += [(_merge_slashes(bare), "dots+slashes"), (last, "slashes+dots")]
    # In a file system "/a.pdf/." is "/a.pdf"; "/a/" is not.
    if path.endswith(("/.", "/..")):
        found.append((last.rstrip("/") or "/", "slashes+dots+file"))


_SEMICOLON_DOTS = re.compile(r"(?<=/)(\.\.?);[^/]*")


def _merge_slashes(path: str) -> str:
    # Each turn halves the runs of slashes at least, and one turn is faster than an expression.
    while "//" in path:
        path = path.replace("//", "/")
    return path
