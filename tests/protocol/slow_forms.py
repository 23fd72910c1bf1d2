"""The forms of a target by the definition, without a short cut: every step is tried on every text.

`robots_guard.protocol.paths` skips the steps that cannot change a target. The property tests compare its
forms with these: the texts, their order, and the steps that led to each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from robots_guard.protocol.percent import canonical

Form = tuple[str, str]


def slow_variants(target: str) -> dict[str, str]:
    """What `variants` must return."""
    written: dict[str, str] = {}
    for text, origin in slow_readings(target):
        written.setdefault(canonical(text), origin)
    found: dict[str, str] = {}
    for text, origin in written.items():
        path, mark, query = text.partition("?")
        endings = [(mark + query, "")]
        if mark and not query:
            endings.append(("", "empty-query"))
        for resolved, step in slow_paths(path):
            for ending, end in endings:
                found.setdefault(
                    resolved + ending, _joined(origin, step, end) or "percent-encoding"
                )
    return found


def slow_folded(form: str) -> list[Form]:
    """What `folded` must return, but for forms that come again."""
    path, mark, query = form.partition("?")
    unslashed = path.replace("%2F", "/").replace("%5C", "/")
    if unslashed == path:
        return []
    return [
        (resolved + mark + query, _joined("encoded-slash", step))
        for resolved, step in slow_paths(unslashed)
    ]


def _joined(*steps: str) -> str:
    return "+".join(filter(None, steps))


# --- Paths ---


def slow_paths(path: str) -> Iterator[Form]:
    front_paths, rests = {path}, set()
    for shape, made_by in _shapes(path):
        for resolved, step in _resolutions(shape):
            yield resolved, _joined(made_by, step)
            if not resolved.startswith("//") or resolved in front_paths:
                continue
            front_paths.add(resolved)
            for rest in _behind_authority(resolved):
                if rest not in rests:
                    rests.add(rest)
                    for again, last in _resolutions(rest):
                        yield again, _joined(made_by, step, "network-path", last)


def _shapes(path: str) -> Iterator[Form]:
    yield path, ""
    bare = _PARAMETERS.sub("", path)
    if bare != path:
        yield bare, "parameters"
        last = _LAST_PARAMETERS.sub("", path)
        if last not in (path, bare):
            yield last, "last-parameters"
        if (kept := _parted(path)) != path:
            yield kept, "last-parameters"
    for text in dict.fromkeys((path, bare)):
        if text.startswith("//"):
            yield from ((rest, "network-path") for rest in _behind_authority(text))


_LAST_PARAMETERS = re.compile(r";[^/]*\Z")
_PARAMETERS = re.compile(r";[^/]*")
_SLASHES = re.compile(r"//+")


def _resolutions(path: str) -> Iterator[Form]:
    yield path, ""
    if _DOT_SEGMENT.search(path):
        for text in dict.fromkeys((path, _SEMICOLON_DOTS.sub(r"\1", path))):
            bare = _undotted(text)
            yield bare, "dots"
            if bare.startswith("//"):
                yield bare[1:], "dots"
            yield _merge_slashes(bare), "dots+slashes"
            yield (last := _undotted(_merge_slashes(text))), "slashes+dots"
            if text.endswith(("/.", "/..")):
                yield last.rstrip("/") or "/", "slashes+dots+file"
    yield _merge_slashes(path), "slashes"


_SEMICOLON_DOTS = re.compile(r"(?<=/)(\.\.?);[^/]*")


def _merge_slashes(path: str) -> str:
    return _SLASHES.sub("/", path)


# --- Readings ---

_LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ENCODED_DOT = re.compile("%2[Ee]")
_DOTS = re.compile(r"(?<=/)(?:\.|%2[Ee]){1,2}(?=/|\Z)")
_DOT_SEGMENT = re.compile(r"/\.\.?(?:[/;]|$)")


def slow_readings(target: str) -> Iterator[Form]:
    found = [(_rooted(target.partition("#")[0]), "")]
    if "#" in target:
        found.append((_rooted(target), "fragment-kept"))
    if not target.isascii():
        found.extend(
            [(_bytes_as_characters(text), _joined(origin, "latin-1")) for text, origin in found]
        )
        # Node's url.parse() trims the byte 0xA0, which it interprets as a no-break space.
        trimmed = [(text, origin) for text, origin in found if text[-1] == "\xa0"]
        found.extend(
            [(text.rstrip("\xa0"), _joined(origin, "trimmed")) for text, origin in trimmed]
        )
    found.extend(
        [
            (text, _joined(origin, "dots"))
            for each, origin in found
            for text in _without_raw_dots(each)
        ]
    )
    found.extend(
        [
            (text, _joined(origin, "network-path"))
            for each, origin in found
            for text in _by_url_parse(each)
        ]
    )
    yield from found
    for text, origin in found:
        if _LONE_PERCENT.search(text):
            yield _LONE_PERCENT.sub("%25", text), _joined(origin, "lone-percent")


def _bytes_as_characters(text: str) -> str:
    """The UTF-8 of a text, one character per byte. The text already has that form unless a caller
    erred."""
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def _undotted(path: str) -> str:
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


def _parted(path: str) -> str:
    """The path with a slash between a last dot segment and its parameters.

    Python's urljoin() resolves the segment before it puts its parameters back.
    """
    return _DOTS_AND_PARAMETERS.sub(r"\1/\2", path)


def _without_raw_dots(text: str) -> Iterator[str]:
    """A text without its dot segments, for parsers that do not treat "%2e" as a dot, such as
    urljoin()."""
    path, mark, query = text.partition("?")
    if _ENCODED_DOT.search(path) and _DOT_SEGMENT.search(path):
        for each in dict.fromkeys((path, _parted(path))):
            yield _undotted(each) + mark + query


_TWO_SLASHES = re.compile(r"//[^/]*")
_ANY_SLASHES = re.compile(r"//+[^/]*")


def _behind_authority(path: str) -> Iterator[str]:
    rests = (pattern.sub("", path, count=1) or "/" for pattern in (_TWO_SLASHES, _ANY_SLASHES))
    yield from dict.fromkeys(rests)


_HOST_END = re.compile(r"[\x00-\x20\"%';<>\\^`{|}]")
_ENCODED_HOST_END = re.compile(r"[\x00-\x20\"%';<>\\^`{|}\x7f-\xff]")
_PORT = re.compile(r":[0-9]*\Z")


def _by_url_parse(text: str) -> Iterator[str]:
    """What url.parse() makes of a text that begins with two slashes, whether or not a front server
    removed dot segments."""
    path, mark, query = text.partition("?")
    decoded = _DOTS.sub(lambda found: _ENCODED_DOT.sub(".", found[0]), path)
    for each in (path, _undotted(decoded)):
        if not each.startswith("//"):
            continue
        authority, slash, rest = each[2:].partition("/")
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


def _rooted(target: str) -> str:
    if target[:1] == "/":
        return target
    return "/" + target
