"""The normal forms of a request target, and the texts that URL parsers make of it.

Invariant: a target is judged as it is sent on the wire, one Latin-1 character per byte, and nothing
is decoded twice. Every form after the first can only add a denial, never an allowance, so there may
be more forms than strictly needed.

    spec      the target, compared by the dialect's rules
    standard  also without dot segments, path parameters and doubled slashes, as servers resolve it
    strict    also with %2F and %5C read as "/", and with both sides in lower case

Many servers pass the target to a parser for whole URLs, and the parsers disagree: on where an
unintended authority ends, on "#", on bytes outside ASCII, on a "%" that begins no escape, on what a
dot is. What a parser makes of a target is a reading. The parsers are the WHATWG one
(`new URL(request.url, base)`), Node's url.parse(), and Python's urllib and yarl;
tests/protocol/test_readers.py compares this module with them.

Invariant: a reading is a possible target on the wire, one Latin-1 character per byte; nothing is
decoded except the dots that determine what a dot segment is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

from robots_guard.errors import SettingsError
from robots_guard.protocol.percent import CHANGED_ESCAPE, canonical

#: A "%" that begins no escape is data. Many parsers write it as "%25".
LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")

_ENCODED_DOT = re.compile("%2[Ee]")
_DOTS = re.compile(r"(?<=/)(?:\.|%2[Ee]){1,2}(?=/|\Z)")
_DOT_SEGMENT = re.compile(r"/\.\.?(?:[/;]|$)")


def readings(target: str) -> list[tuple[str, str]]:
    """The texts that parsers make of a target, each with the steps that led to it; first the target
    itself, which for most targets is the only one."""
    target = rooted(target)
    found = [(cut_fragment(target), "")]
    if "#" in target:
        found.append((target, "fragment-kept"))
    if not target.isascii():
        _add_bytes_outside_ascii(found)
    if "%2" in target and "/." in target:
        found += [
            (text, joined(origin, "dots"))
            for each, origin in found
            for text in _without_raw_dots(each)
        ]
    if target[:2] == "//" or ("//" in target and _may_have_dots(target)):
        found += [
            (text, joined(origin, "network-path"))
            for each, origin in found
            for text in _by_url_parse(each)
        ]
    if "%" in target:
        found += [
            (LONE_PERCENT.sub("%25", text), joined(origin, "lone-percent"))
            for text, origin in found
            if LONE_PERCENT.search(text)
        ]
    return found


def _add_bytes_outside_ascii(found: list[tuple[str, str]]) -> None:
    found += [(_bytes_as_characters(text), joined(origin, "latin-1")) for text, origin in found]
    # Node's url.parse() trims the byte 0xA0, which it interprets as a no-break space.
    trimmed = [(text, origin) for text, origin in found if text[-1] == "\xa0"]
    found += [(text.rstrip("\xa0"), joined(origin, "trimmed")) for text, origin in trimmed]


def _bytes_as_characters(text: str) -> str:
    """The UTF-8 of a text, one character per byte. The text already has that form unless a caller
    erred."""
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def joined(steps: str, more: str) -> str:
    """The steps that led to a form, and more steps, joined by "+"."""
    if steps and more:
        return f"{steps}+{more}"
    return steps or more


def cut_fragment(target: str) -> str:
    """The target without "#" and what follows: a fragment is never sent (RFC 9110 section 7.1)."""
    if "#" in target:
        return target[: target.index("#")]
    return target


def rooted(target: str) -> str:
    """The target with a leading slash. Without one it is malformed, and profile spec adds it."""
    if target[:1] == "/":
        return target
    return "/" + target


# --- Dot segments ---


def _may_have_dots(text: str) -> bool:
    """Whether a text may have a segment of dots, encoded or not."""
    return "/." in text or "/%2" in text


def has_dot_segment(path: str) -> bool:
    """Whether a path has a segment "." or "..", with or without parameters."""
    return "/." in path and _DOT_SEGMENT.search(path) is not None


def undotted(path: str) -> str:
    """The path without its dot segments (RFC 3986 section 5.2.4). It must begin with a slash."""
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


_DOTS_AND_PARAMETERS = re.compile(r"(?<=/)(\.\.?)(;[^/]*)\Z")


def parted(path: str) -> str:
    """The path with a slash between a last dot segment and its parameters.

    Python's urljoin() resolves the segment before it puts its parameters back.
    """
    return _DOTS_AND_PARAMETERS.sub(r"\1/\2", path)


def _without_raw_dots(text: str) -> Iterator[str]:
    """A text without its dot segments, for parsers that do not treat "%2e" as a dot, such as
    urljoin()."""
    path, mark, query = text.partition("?")
    if _ENCODED_DOT.search(path) and has_dot_segment(path):
        for each in dict.fromkeys((path, parted(path))):
            yield undotted(each) + mark + query


# --- Authorities ---


def behind_authority(path: str) -> list[str]:
    """The rest of a path that begins with two or more slashes, after an authority is removed from
    it.

    By RFC 3986 section 4.2 an authority begins after two slashes; the WHATWG parser first skips any
    run of slashes ("special authority ignore slashes state"). The authority is not validated:
    parsers differ on that, and a form can only add a denial.
    """
    rest = _from_slash(path[2:])
    if path[2:3] != "/":
        return [rest]
    behind_all = _from_slash(path.lstrip("/"))
    return [rest] if rest == behind_all else [rest, behind_all]


def _from_slash(text: str) -> str:
    at = text.find("/")
    return text[at:] if at >= 0 else "/"


# The bytes at which Node's url.parse() ends a host, besides "/", "?" and "#". A front server may
# have encoded those outside ASCII, which leaves a "%" instead.
_HOST_END = re.compile(r"[\x00-\x20\"%';<>\\^`{|}]")
_ENCODED_HOST_END = re.compile(r"[\x00-\x20\"%';<>\\^`{|}\x7f-\xff]")
_PORT = re.compile(r":[0-9]*\Z")
_HOST_ALONE = re.compile(r"[A-Za-z0-9._-]*").fullmatch


def _by_url_parse(text: str) -> Iterator[str]:
    """What url.parse() makes of a text that begins with two slashes, whether or not a front server
    removed dot segments."""
    path, mark, query = text.partition("?")
    starts = [path]
    if _may_have_dots(path):
        starts.append(undotted(_DOTS.sub(lambda found: _ENCODED_DOT.sub(".", found[0]), path)))
    for each in starts:
        if not each.startswith("//"):
            continue
        authority, slash, rest = each[2:].partition("/")
        if _HOST_ALONE(authority):
            continue
        moved = {_moved_to_path(authority, end) for end in (_HOST_END, _ENCODED_HOST_END)}
        yield from ("/" + each + slash + rest + mark + query for each in sorted(moved) if each)


def _moved_to_path(authority: str, host_end: re.Pattern[str]) -> str:
    """The end of an authority that url.parse() moves to the path: all from the first byte that is
    not valid in a host or port."""
    named = authority.rpartition("@")[2]
    end = host_end.search(named)
    at = len(named)
    if end:
        at = end.start()
    host = _PORT.sub("", named[:at])
    if host[:1] == "[" and host[-1:] == "]":
        return named[at:]
    _, colon, invalid_port = host.partition(":")
    return colon + invalid_port + named[at:]


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
