"""Readings: the texts that URL parsers make of a request target, before a server resolves its path.

Many servers pass the target to a parser for whole URLs, and the parsers disagree: on where an
unintended authority ends, on "#", on bytes outside ASCII, on a "%" that begins no escape, on what a
dot is. The parsers are the WHATWG one (`new URL(request.url, base)`), Node's url.parse(), and
Python's urllib and yarl; tests/protocol/test_readers.py compares this module with them.

Invariant: a reading is a possible target on the wire, one Latin-1 character per byte; nothing is
decoded except the dots that determine what a dot segment is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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
