"""Resources: which recorded URLs name what a URL names that someone asks about.

A recorded URL is spelt as it was sent, and went through audit/privacy.py. Two URLs name the same
resource if they have the same normal form: the origin in its canonical spelling, the target in the
canonical form of RFC 9309 section 2.2.2 (RFC 3986 section 6.2.2.2), without dot segments (section
5.2.4), fragment, userinfo and an empty query.

Invariant: Python compares normal forms, and DuckDB matches a regular expression made of them, which
accepts their spellings. They differ in one point: the expression accepts two levels of segments
that a ".." removes, Python any number.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from robots_guard.audit.privacy import LONGEST, REDACTED, Privacy
from robots_guard.errors import MalformedURL, NotGoverned, SettingsError
from robots_guard.origin import DEFAULT_PORTS, Origin, objection, origin_of, split_url
from robots_guard.protocol.paths import cut_fragment, undotted
from robots_guard.protocol.percent import canonical

#: How queries may have been recorded (setting `audit_query`), except that they were dropped.
_QUERIES = ("keep", "redact", "hash")
_UNITS = re.compile(r"%[0-9A-F]{2}|.", re.DOTALL)
_ANY_DOT = r"(?:\.|%2[Ee])"
#: A segment, or the rest of one, that does not begin with a dot.
_NO_DOT = r"(?:[^/?.%][^/?]*|%(?:[^2/?][^/?]*|2(?:[^Ee/?][^/?]*)?)?)"
#: A segment that is neither "." nor "..". It may be empty.
_ANY_NAME = f"(?:{_NO_DOT}|{_ANY_DOT}{_NO_DOT}|{_ANY_DOT}{{2}}[^/?]+)?"
#: A segment and the ".." that removes it, or two: "a/..", "a/b/../..".
_REMOVED = (
    f"{_ANY_NAME}/(?:{_ANY_DOT}/)*"
    f"(?:{_ANY_NAME}/(?:{_ANY_DOT}/)*{_ANY_DOT}{{2}}/(?:{_ANY_DOT}/)*)?{_ANY_DOT}{{2}}"
)
#: Segments that name nothing, after a slash: "./", "a/../"; at the root of a site also "../".
_NOTHING = f"(?:{_ANY_DOT}/|{_REMOVED}/)*"
_NOTHING_AT_ROOT = f"(?:{_ANY_DOT}{{1,2}}/|{_REMOVED}/)*"
_NOTHING_AT_END = f"(?:{_ANY_DOT}|{_REMOVED})?"
_NOTHING_AT_END_OF_ROOT = f"(?:{_ANY_DOT}{{1,2}}|{_REMOVED})?"
_CUT = "..."  # the end of a recorded URL that was too long
#: What every spelling of a URL has that is not its normal form, if that has no escape.
_OTHERWISE_SPELT = "(contains(url, '%') OR contains(url, '/.') OR suffix(url, '?'))"
#: Characters, or escapes, of a normal form's target that are compared with a URL that was cut: any
#: spelling has as many before the cut, behind the longest origin.
_BEFORE_CUT = (LONGEST - len(_CUT) - len("https://:65535") - 253) // 3

#: Characters of a normal form's target at most, if any spelling of it is recorded whole: each recorded
#: character may become an escape. RE2 compiles no expression for a form of any length.
_LONGEST_FORM = 3 * LONGEST


class Spellings(NamedTuple):
    """The spellings of normal forms of one origin."""

    forms: tuple[str, ...]
    origin: str

    @property
    def pattern(self) -> str:
        """A regular expression, for RE2, that matches all of such a URL."""
        targets = "|".join(_target(form[len(self.origin) :]) for form in self.forms)
        return f"{_literal(self.origin)}(?:{targets})"

    @property
    def condition(self) -> tuple[str, list[str]]:
        """An SQL condition on `url`, and its values.

        Every other spelling of a form without escapes is longer than the form, and has an escape, a
        dot segment or an empty query, so that most URLs need not be matched.
        """
        matches = "regexp_full_match(url, ?)"
        if any("%" in form or len(form) > _BEFORE_CUT for form in self.forms):
            return matches, [self.pattern]
        same = f"url IN ({', '.join('?' for _ in self.forms)})"
        is_longer = f"strlen(url) > {min(map(len, self.forms))}"
        return f"({same} OR ({is_longer} AND {_OTHERWISE_SPELT} AND {matches}))", [
            *self.forms,
            self.pattern,
        ]


class Resource(NamedTuple):
    """What a URL names, as it may be in records: normal forms.

    `forms` are those with its query, as the settings of writers may have left it, the unchanged one
    first;
    `without_query` is the form that writers record which drop queries.
    """

    url: str  # as it may be shown
    origin: str
    forms: tuple[str, ...]
    without_query: str

    def is_named_by(self, recorded: str, *, drops_query: bool = False) -> bool:
        """Whether a recorded URL names the resource; `drops_query` says that its writer drops
        queries."""
        if not recorded.startswith(self.origin):
            return False
        known = (*self.forms, self.without_query) if drops_query else self.forms
        if len(recorded) >= LONGEST and recorded.endswith(_CUT):
            start = _normal(re.sub(r"%.?\Z", "", recorded.removesuffix(_CUT)))
            return any(form.startswith(start) for form in known)
        return _normal(recorded) in known

    @property
    def spellings(self) -> Spellings:
        """How a recorded URL that names it is spelt."""
        return Spellings(self.forms, self.origin)

    @property
    def spellings_without_query(self) -> Spellings:
        """The same for the records of writers that drop queries."""
        return Spellings((self.without_query,), self.origin)

    def is_hidden_in(self, recorded: str) -> bool:
        """Whether a recorded URL that names the resource may stand for others, because values are
        hidden in it."""
        return f"={REDACTED}" in recorded or _normal(recorded) != self.forms[0]


@lru_cache(maxsize=64)
def resource_of(url: str, key: bytes = b"") -> Resource:
    """The resource that a URL names. `key` is that with which the audit log hashes values.

    Raises SettingsError for a URL that has no origin.
    """
    origin, target = _split(url)
    written = f"{origin}{cut_fragment(target)}"
    forms: dict[str, None] = {}
    for query in _QUERIES:
        if query != "hash" or key:
            privacy = Privacy(query=query, key=key)
            for spelling in (written, _normal(written)):
                forms[_normal(privacy.uncut_url(spelling))] = None
    dropped = _normal(Privacy(query="drop").uncut_url(written))
    return Resource(Privacy().url(written), str(origin), tuple(forms), dropped)


class Prefix(NamedTuple):
    """The URLs of an origin that begin like this one."""

    origin: str
    start: str  # a normal form

    @property
    def pattern(self) -> str:
        """A regular expression, for RE2 and for `re`, that matches all of such a recorded URL."""
        return _literal(self.origin) + _units(self.start[len(self.origin) :]) + "(?s:.*)"

    def is_of(self, recorded: str) -> bool:
        """Whether a recorded URL begins so."""
        return (
            recorded.startswith(self.origin)
            and _compiled(self.pattern).fullmatch(recorded) is not None
        )


@lru_cache(maxsize=64)
def prefix_of(prefix: str) -> Prefix:
    """The URLs that begin with `prefix`, which has a scheme and an authority. Raises
    SettingsError."""
    origin, target = _split(prefix)
    return Prefix(str(origin), f"{origin}{canonical(cut_fragment(target))}")


@lru_cache(maxsize=64)
def host_pattern(host: str) -> str:
    """A regular expression that matches the origins of a host, or of a host and port. Raises
    SettingsError."""
    origin = _origin_of_host(host)
    if not _has_port(host):
        return f"https?://{_literal(origin.authority)}(?::[0-9]+)?"
    return "|".join(_literal(str(origin._replace(scheme=scheme))) for scheme in DEFAULT_PORTS)


def is_of_host(origin: str, host: str) -> bool:
    """Whether an origin is one of this host."""
    return _compiled(host_pattern(host)).fullmatch(origin) is not None


class UrlPlace(NamedTuple):
    """What to search for: one of these is set."""

    url: str | None = None
    url_prefix: str | None = None
    host: str | None = None


#: The beginning of a URL up to the end of its host.
_AUTHORITY = re.compile(r"[^/]*://[^/?#]+[/?#]")


def place_of(text: str) -> UrlPlace:
    """What a text means: a URL in any spelling, the beginning of URLs (`https://h/a/*`), or a host,
    with or without its port. Raises SettingsError."""
    text = text.strip()
    if "://" not in text:
        host_pattern(text)
        return UrlPlace(host=text)
    if text.endswith("*"):
        if not _AUTHORITY.match(text):
            raise SettingsError(
                f"{text[:80]!r} is the beginning of a host:"
                " write the whole host before /, as in https://example.com/*"
            )
        prefix_of(text[:-1])
        return UrlPlace(url_prefix=text[:-1])
    resource_of(text)
    return UrlPlace(url=text)


def _origin_of_host(text: str) -> Origin:
    """The https origin of a host, with or without a port. Raises SettingsError."""
    if re.search(r"[/?#@]", text):
        raise SettingsError(f"{text[:80]!r} is no URL and no host: begin with http:// or https://")
    try:
        return origin_of(f"https://{text}")
    except (NotGoverned, MalformedURL) as error:
        raise SettingsError(
            f"{error}: give a URL such as https://example.com/page, or a host"
        ) from None


def _has_port(host: str) -> bool:
    return host.rpartition("]")[2].rpartition(":")[1] == ":"


def _split(url: str) -> tuple[Origin, str]:
    problem = objection(url)
    if problem is not None:
        raise SettingsError(problem)
    try:
        return split_url(url)
    except (NotGoverned, MalformedURL) as error:
        raise SettingsError(f"{error}: give a URL such as https://example.com/page") from None


def _normal(url: str) -> str:
    """The normal form of a URL; a record's that cannot be read has none but itself."""
    try:
        origin, target = split_url(url)
    except (NotGoverned, MalformedURL):
        return url
    path, mark, query = canonical(cut_fragment(target)).partition("?")
    return f"{origin}{undotted(path)}{mark if query else ''}{query}"


# -- regular expressions ---------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _target(form: str) -> str:
    path, mark, query = form.partition("?")
    if len(form) <= _BEFORE_CUT:
        return _path(path) + (_units(mark + query) if query else r"\??")
    start = _units("".join(_UNITS.findall(form)[:_BEFORE_CUT])) + "(?s:.*)" + _literal(_CUT)
    if len(form) > _LONGEST_FORM:
        return start
    whole = _units(path) + (_units(mark + query) if query else r"\??")
    return f"{whole}|{start}"


def _path(path: str) -> str:
    """The spellings of a path, with the segments that name nothing."""
    first, *others = path[1:].split("/")
    parts = ["/", _NOTHING_AT_ROOT, _units(first)]
    for segment in others:
        parts += ["/", _NOTHING, _units(segment)]
    if path == "/":
        parts.append(_NOTHING_AT_END_OF_ROOT)
    elif path.endswith("/"):
        parts.append(_NOTHING_AT_END)
    return "".join(parts)


def _units(form: str) -> str:
    return "".join(map(_unit, _UNITS.findall(form)))


@lru_cache(maxsize=512)
def _unit(unit: str) -> str:
    """The spellings of a character or an escape in canonical form: all that have this form."""
    byte = int(unit[1:], 16) if len(unit) == 3 else ord(unit)
    upper = f"{byte:02X}"
    escape = "%" + "".join(
        f"[{digit}{digit.lower()}]" if digit.isalpha() else digit for digit in upper
    )
    found = []
    if 0x20 < byte < 0x7F and canonical(chr(byte)) == unit:
        found.append(_literal(chr(byte)))
    if canonical(f"%{upper}") == unit:
        found.append(escape)
    if len(found) == 1:
        return found[0]
    return f"(?:{'|'.join(found)})"


def _literal(text: str) -> str:
    return "".join(char if char.isalnum() else f"\\{char}" for char in text)
