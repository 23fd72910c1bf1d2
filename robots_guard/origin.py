"""Origins: the scope of one robots.txt (RFC 9309 section 2.3, RFC 6454).

An origin is (scheme, host, port). http and https are different origins; the default port and no
port are the same. The host is lower-case, an A-label or an IP literal in its canonical spelling,
and has no trailing dot; userinfo is ignored. An authority that parsers could read as different
hosts (percent signs, backslashes, control characters, numbers that are not addresses) is refused,
never guessed at.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import NamedTuple

import idna

from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.text import restored

ROBOTS_TXT = "/robots.txt"  # the target of every origin's rules (RFC 9309 section 2.3)
#: The target of every origin's reservations (TDMRep, final report of 2024-05-10).
TDMREP_JSON = "/.well-known/tdmrep.json"
DEFAULT_PORTS = {"http": 80, "https": 443}

_UNSAFE_IN_USERINFO = re.compile(r"[\x00-\x20\x7f\\]")
_AUTHORITY_END = re.compile(r"[/?#]")
_NOT_CACHEABLE = re.compile(r"[^A-Za-z0-9.:/\[\]_-]")
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")

#: Schemes that no robots.txt governs. `ws` and `wss` are missing because an HTTP request opens a
#: WebSocket.
UNGOVERNED_SCHEMES = frozenset(
    {
        "about",
        "blob",
        "data",
        "file",
        "ftp",
        "ftps",
        "gs",
        "javascript",
        "mailto",
        "s3",
        "sftp",
        "tel",
    }
)
_KNOWN_SCHEMES = UNGOVERNED_SCHEMES.union(DEFAULT_PORTS)
#: Digits alone after the colon are a port.
_SCHEME_COLON = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?![0-9]+(?:[/?#]|$))")


class Origin(NamedTuple):
    """An origin: scheme, canonical host and port. It is the key of a policy."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        """The serialisation of RFC 6454 section 6.2, without a default port."""
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        """Host and port as in a URL or a Host field, without a default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.port == DEFAULT_PORTS[self.scheme]:
            return host
        return f"{host}:{self.port}"

    @property
    def robots_url(self) -> str:
        """The URL of this origin's robots.txt (RFC 9309 section 2.3)."""
        return f"{self}{ROBOTS_TXT}"


#: The origin in records of requests that name no readable one.
UNREADABLE = Origin("http", "unreadable.invalid", 80)


def objection(url: str) -> str | None:
    """Say what is wrong with a URL that has no known scheme; None if it has one.

    A forgotten or misspelt scheme must not count as an ungoverned one, because a script would then
    continue.
    """
    found = _SCHEME_COLON.match(url)
    if found and found[1].lower() in _KNOWN_SCHEMES:
        return None
    return f"{url[:80]!r} is not an absolute URL: begin with http:// or https://"


def split_url(url: str) -> tuple[Origin, str]:
    """Return the origin of an absolute http(s) URL, and its request target.

    The target's bytes are unchanged (one Latin-1 character per byte, non-ASCII text as UTF-8); it
    begins with ``/`` and has no fragment. Bytes that the locale could not decode (PEP 383) are
    restored. Raises NotGoverned for another scheme, MalformedURL for an ambiguous authority and for
    a lone surrogate that represents no byte.
    """
    slash = url.find("/", 8)
    origin = _RECENT.get(url[:slash]) if slash > 0 else None
    if origin is None:
        return _split_uncached(url)
    target = url[slash:]
    if "#" in target:
        target = target.partition("#")[0]
    return origin, target if target.isascii() else wire_text(target)


#: `split_url`, for callers that need the same few URLs several times in succession.
split_cached = lru_cache(maxsize=1024)(split_url)


def wire_text(text: str) -> str:
    """Return text as it is sent on the wire: UTF-8, one Latin-1 character per byte.

    A lone surrogate that represents a byte (PEP 383) becomes that byte. Raises MalformedURL for any
    other.
    """
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("latin-1")
    except UnicodeEncodeError:
        raise _surrogate_error(text) from None


def as_uri(target: str, text: str) -> str:
    """Return a target as a client sends it: characters outside ASCII as escapes of their UTF-8.

    RFC 9309 section 2.2.2 makes both equal. `text` is the URL from which the target was split. With
    bytes that are no UTF-8 (PEP 383), it is not known how it is sent, and it stays as it is.
    """
    if target.isascii() or _SURROGATE.search(text):
        return target
    return _OUTSIDE_ASCII.sub(lambda found: f"%{ord(found[0]):02X}", target)


_SURROGATE = re.compile(r"[\ud800-\udfff]")
_OUTSIDE_ASCII = re.compile(r"[^\x00-\x7f]")


def _surrogate_error(url: str) -> MalformedURL:
    return MalformedURL(
        f"a lone surrogate, which represents no byte and no character: {url[:80]!r}"
    )


#: Origins by ``scheme://authority`` as written, for plain authorities only. Emptied when full.
_RECENT: dict[str, Origin] = {}
_MOST_RECENT = 8192


def _remember(prefix: str, origin: Origin) -> None:
    if len(_RECENT) >= _MOST_RECENT:
        _RECENT.clear()
    if len(prefix) <= 256 and not _NOT_CACHEABLE.search(prefix):
        _RECENT[prefix] = origin


def _split_uncached(url: str) -> tuple[Origin, str]:
    try:
        url = restored(url)
    except UnicodeEncodeError:
        raise _surrogate_error(url) from None
    start = url.find("://") + 3
    if start == 2:
        raise _authority_error(url)
    end = _AUTHORITY_END.search(url, start)
    if end is None:
        return origin_of(url), "/"
    prefix = url[: end.start()]
    origin = origin_of(prefix)
    _remember(prefix, origin)
    target = url[end.start() :].partition("#")[0]
    if not target.isascii():
        target = wire_text(target)
    return origin, target if target.startswith("/") else "/" + target


def _authority_error(url: str) -> NotGoverned | MalformedURL:
    scheme = _SCHEME.match(url)
    if (
        scheme
        and url[scheme.end() : scheme.end() + 1] == ":"
        and scheme[0].lower() not in DEFAULT_PORTS
    ):
        return NotGoverned(f"{scheme[0]}: is not http or https")
    return MalformedURL(f"not an absolute http(s) URL: {url[:80]!r}")


@lru_cache(maxsize=8192)
def origin_of(prefix: str) -> Origin:
    """Return the origin of ``scheme://authority``. Results are cached, because crawlers use the
    same few repeatedly."""
    scheme, _, authority = prefix.partition("://")
    scheme = scheme.lower()
    if scheme not in DEFAULT_PORTS:
        if _SCHEME.fullmatch(scheme):
            raise NotGoverned(f"{scheme}: is not http or https")
        raise MalformedURL(f"not an absolute http(s) URL: {prefix[:80]!r}")
    userinfo, _, authority = authority.rpartition("@")
    # Some parsers end the authority at one of these and take the text before it as the host.
    if "@" in userinfo or _UNSAFE_IN_USERINFO.search(userinfo):
        raise MalformedURL("unreadable userinfo")
    return parse_authority(scheme, authority)


def parse_authority(scheme: str, authority: str) -> Origin:
    """Return the origin of ``host`` or ``host:port``, without userinfo, under a scheme.

    Raises MalformedURL with the reason.
    """
    if authority.startswith("["):
        literal, bracket, rest = authority[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise MalformedURL(f"unreadable authority {authority[:80]!r}")
        return Origin(scheme, _ipv6(literal), _port(rest[1:], scheme))
    host, _, port = authority.partition(":")
    return Origin(scheme, _host(host), _port(port, scheme))


def _port(text: str, scheme: str) -> int:
    if not text:
        return DEFAULT_PORTS[scheme]
    if (
        not (text.isascii() and text.isdigit())
        or not 0 < int(text[-9:]) < 65536
        or len(text.lstrip("0")) > 5
    ):
        raise MalformedURL(f"{text[:20]!r} is not a port number")
    return int(text)


def _ipv6(literal: str) -> str:
    try:
        address = ipaddress.IPv6Address(literal)
    except ValueError as error:
        raise MalformedURL(f"not an IPv6 address: {literal[:80]!r}") from error
    if address.scope_id is not None:
        raise MalformedURL(f"an IPv6 zone is not allowed in a URL: {literal[:80]!r}")
    if address.ipv4_mapped is not None:  # Python versions that share a store spell it differently
        value = int(address.ipv4_mapped)
        return f"::ffff:{value >> 16:x}:{value & 0xFFFF:x}"
    return address.compressed


def _host(text: str) -> str:
    if not text.isascii():
        text = _a_label(text)
    host = text.lower().removesuffix(".")
    if not _HOST.fullmatch(host) or len(host) > 253:
        raise MalformedURL(f"not a host name: {text[:80]!r}")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        return _ipv4(host)
    return host


def _a_label(text: str) -> str:
    try:
        return idna.encode(text, uts46=True, transitional=False).decode("ascii")
    except idna.IDNAError as error:
        raise MalformedURL(f"not an internationalised host name: {text[:80]!r}") from error


def _ipv4(host: str) -> str:
    """Return the IPv4 address of a host that ends in a number, parsed as browsers do (WHATWG URL,
    IPv4 parser)."""
    parts = host.split(".")
    try:
        numbers = [_ipv4_number(part) for part in parts]
        if len(parts) > 4 or any(number > 255 for number in numbers[:-1]):
            raise ValueError
        value = numbers[-1] + sum(
            number << 8 * (3 - place) for place, number in enumerate(numbers[:-1])
        )
        if numbers[-1] >= 256 ** (5 - len(parts)):
            raise ValueError
        return str(ipaddress.IPv4Address(value))
    except ValueError as error:
        raise MalformedURL(f"ends in a number but is not an IPv4 address: {host[:80]!r}") from error


def _ipv4_number(part: str) -> int:
    if len(part) > 40:
        raise ValueError
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    return int(part, 8 if part.startswith("0") and len(part) > 1 else 10)
