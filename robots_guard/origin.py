"""Origins: what one robots.txt governs (RFC 9309 section 2.3, RFC 6454).

An origin is (scheme, host, port). http and https are different origins; the default port and no port are
the same one; the host is lower-case, an A-label, an IP literal in its one canonical spelling, and has no
trailing dot; userinfo never takes part. What two readers could take for different hosts (percent signs,
backslashes, control characters, numbers that are not addresses) is refused, never guessed at.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import NamedTuple

import idna

from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.plain import restored

ROBOTS_TXT = "/robots.txt"  # the target of every origin's rules (RFC 9309 section 2.3)
DEFAULT_PORTS = {"http": 80, "https": 443}

_DIVIDES = re.compile(r"[\x00-\x20\x7f\\]")
_AUTHORITY_END = re.compile(r"[/?#]")
_ODD = re.compile(r"[^A-Za-z0-9.:/\[\]_-]")  # what a memo of origins does not hold
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")

#: Schemes that no robots.txt governs. `ws` and `wss` are not among them: a WebSocket is opened by an HTTP request.
ELSEWHERE = frozenset(
    {"about", "blob", "data", "file", "ftp", "ftps", "gs", "javascript", "mailto", "s3", "sftp", "tel"}
)
_BEGINNING = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?![0-9]+(?:[/?#]|$))")  # digits alone behind it are a port


class Origin(NamedTuple):
    """Scheme, canonical host and port: the key of a policy."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        """The serialisation of RFC 6454 section 6.2, without a default port."""
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        """Host and port as they stand in a URL or a Host field, without a default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def robots_url(self) -> str:
        """Where this origin's rules stand (RFC 9309 section 2.3)."""
        return f"{self}{ROBOTS_TXT}"


def objection(url: str) -> str | None:
    """What is wrong with a URL that nobody can be asked about, for want of a scheme; else None.

    A forgotten or misspelt scheme must not be taken for one that is not governed: a script would go on.
    """
    found = _BEGINNING.match(url)
    if found and found[1].lower() in ELSEWHERE | DEFAULT_PORTS.keys():
        return None
    return f"{url[:80]!r} is no absolute URL: begin with http:// or https://"


def split_url(url: str) -> tuple[Origin, str]:
    """The origin of an absolute http(s) URL, and the request target it asks for.

    The target keeps its octets as they are (one Latin-1 character an octet, text outside ASCII as UTF-8),
    begins with ``/`` and has no fragment. Bytes that the locale could not decode (PEP 383) are restored. Raises
    NotGoverned for another scheme, MalformedURL for an authority that cannot be read and for a lone surrogate that
    stands for no byte.
    """
    slash = url.find("/", 8)
    origin = _RECENT.get(url[:slash]) if slash > 0 else None
    if origin is None:
        return _split_slowly(url)
    target = url[slash:]
    if "#" in target:
        target = target.partition("#")[0]
    return origin, target if target.isascii() else octets(target)


def octets(text: str) -> str:
    """Text as it goes on the wire: UTF-8, one Latin-1 character per byte.

    A lone surrogate that stands for a byte (PEP 383) becomes that byte. Raises MalformedURL for any other.
    """
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("latin-1")
    except UnicodeEncodeError:
        raise _no_text(text) from None


def _no_text(url: str) -> MalformedURL:
    return MalformedURL(f"a lone surrogate, which stands for no byte and no character: {url[:80]!r}")


#: Origins by ``scheme://authority`` as it was written, for authorities that hold nothing odd. Emptied when full.
_RECENT: dict[str, Origin] = {}
_MOST_RECENT = 8192


def _remember(prefix: str, origin: Origin) -> None:
    if len(_RECENT) >= _MOST_RECENT:
        _RECENT.clear()
    if len(prefix) <= 256 and not _ODD.search(prefix):
        _RECENT[prefix] = origin


def _split_slowly(url: str) -> tuple[Origin, str]:
    try:
        url = restored(url)
    except UnicodeEncodeError:
        raise _no_text(url) from None
    start = url.find("://") + 3
    if start == 2:
        raise _no_authority(url)
    end = _AUTHORITY_END.search(url, start)
    if end is None:
        return origin_of(url), "/"
    prefix = url[: end.start()]
    origin = origin_of(prefix)
    _remember(prefix, origin)
    target = url[end.start() :].partition("#")[0]
    if not target.isascii():
        target = octets(target)
    return origin, target if target.startswith("/") else "/" + target


def _no_authority(url: str) -> NotGoverned | MalformedURL:
    scheme = _SCHEME.match(url)
    if scheme and url[scheme.end() : scheme.end() + 1] == ":" and scheme[0].lower() not in DEFAULT_PORTS:
        return NotGoverned(f"{scheme[0]}: is not http or https")
    return MalformedURL(f"not an absolute http(s) URL: {url[:80]!r}")


@lru_cache(maxsize=8192)
def origin_of(prefix: str) -> Origin:
    """The origin of ``scheme://authority``. A bounded memo: crawlers ask for the same few again and again."""
    scheme, _, authority = prefix.partition("://")
    scheme = scheme.lower()
    if scheme not in DEFAULT_PORTS:
        if _SCHEME.fullmatch(scheme):
            raise NotGoverned(f"{scheme}: is not http or https")
        raise MalformedURL(f"not an absolute http(s) URL: {prefix[:80]!r}")
    userinfo, _, authority = authority.rpartition("@")
    # Some end the authority at one of these, and take what is before it for the host.
    if "@" in userinfo or _DIVIDES.search(userinfo):
        raise MalformedURL("unreadable userinfo")
    return parse_authority(scheme, authority)


def parse_authority(scheme: str, authority: str) -> Origin:
    """The origin that ``host`` or ``host:port`` names under a scheme; no userinfo.

    Raises MalformedURL naming what is wrong.
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
    if not (text.isascii() and text.isdigit()) or not 0 < int(text[-9:]) < 65536 or len(text.lstrip("0")) > 5:
        raise MalformedURL(f"not a port: {text[:20]!r}")
    return int(text)


def _ipv6(literal: str) -> str:
    try:
        address = ipaddress.IPv6Address(literal)
    except ValueError as error:
        raise MalformedURL(f"not an IPv6 address: {literal[:80]!r}") from error
    if address.scope_id is not None:
        raise MalformedURL(f"an IPv6 zone has no place in a URL: {literal[:80]!r}")
    if address.ipv4_mapped is not None:  # Pythons differ on its spelling, and share stores
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
    """The address a host that ends in a number spells, read as browsers read it (WHATWG URL, IPv4 parser)."""
    parts = host.split(".")
    try:
        numbers = [_ipv4_number(part) for part in parts]
        if len(parts) > 4 or any(number > 255 for number in numbers[:-1]):
            raise ValueError
        value = numbers[-1] + sum(number << 8 * (3 - place) for place, number in enumerate(numbers[:-1]))
        if numbers[-1] >= 256 ** (5 - len(parts)):
            raise ValueError
        return str(ipaddress.IPv4Address(value))
    except ValueError as error:
        raise MalformedURL(f"ends in a number but is no IPv4 address: {host[:80]!r}") from error


def _ipv4_number(part: str) -> int:
    if len(part) > 40:
        raise ValueError
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    return int(part, 8 if part.startswith("0") and len(part) > 1 else 10)
