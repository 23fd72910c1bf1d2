"""Addresses and locations: where an untrusted redirect or name server may point the guard to.

`ipaddress.is_global` is not enough: depending on the Python version it accepts 9 to 12 of 33
addresses that are not public, because it ignores IPv4 addresses embedded in IPv6 ones. This module
computes on text and numbers only; nothing is resolved.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urljoin

from robots_guard.errors import MalformedURL, NotGoverned, SettingsError
from robots_guard.origin import Origin, split_url

Address = IPv4Address | IPv6Address
Networks = tuple[IPv4Network | IPv6Network, ...]

# IANA's special-purpose registry, and addresses that clouds reserve for their own services.
_NOT_PUBLIC_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",  # an Azure platform address inside public space
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
_UNICAST_6 = IPv6Network("2000::/3")  # all that IANA allocates from (RFC 3513 section 2.5.4)
_NOT_PUBLIC_6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))

# Prefixes whose addresses embed an IPv4 address in their last 32 bits.
_EMBEDDING = tuple(
    map(
        IPv6Network,
        (
            "::/96",  # IPv4-compatible (RFC 4291 section 2.5.5.1)
            "::ffff:0:0/96",  # IPv4-mapped
            "::ffff:0:0:0/96",  # IPv4-translated (RFC 2765)
            "64:ff9b::/96",  # NAT64 (RFC 6052)
        ),
    )
)
_6TO4 = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")

# "Bad ports" of the Fetch standard: other protocols listen there and may take a request for
# commands.
_BAD = """
    0 1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 113 115 117 119 123
    135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554 556 563 587 601 636 989 990 993
    995 1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 6379 6566 6665 6666 6667 6668 6669 6679 6697 10080 11211
"""
BAD_PORTS = frozenset(map(int, _BAD.split()))


def is_public(address: Address) -> bool:
    """Whether the address, and any IPv4 address embedded in it, is on the public internet."""
    if isinstance(address, IPv4Address):
        return _is_public_4(address)
    embedded = _embedded(address)
    if embedded:
        return all(map(_is_public_4, embedded))
    return (
        address in _UNICAST_6
        and not any(address in network for network in _NOT_PUBLIC_6)
        and not address.is_multicast
        and not address.is_reserved
    )


def _is_public_4(address: IPv4Address) -> bool:
    return not any(address in network for network in _NOT_PUBLIC_4) and address.is_global


def _embedded(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses embedded in an IPv6 address; usually none."""
    value = int(address)
    if any(address in network for network in _EMBEDDING):
        return (IPv4Address(value & 0xFFFFFFFF),)
    if address in _6TO4:  # RFC 3056 section 2
        return (IPv4Address(value >> 80 & 0xFFFFFFFF),)
    # RFC 4380 section 4: the server's, and the client's with all bits inverted.
    if address in _TEREDO:
        return (IPv4Address(value >> 64 & 0xFFFFFFFF), IPv4Address(~value & 0xFFFFFFFF))
    return ()


def literal(host: str) -> Address | None:
    """The address that a canonical host spells, or None if the host is a name."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


def networks(text: str) -> Networks:
    """Parse comma-separated CIDRs. Raises SettingsError."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            found.append(ip_network(part))
        except ValueError as error:
            raise SettingsError(
                f"allow_private: {part!r} is not a network ({error}): use CIDRs such as 10.0.0.0/8, separated by commas"
            ) from None
    return tuple(found)


def covers(allowed: Networks, address: Address) -> bool:
    """Whether one of the operator's networks contains the address."""
    return any(address in network for network in allowed if network.version == address.version)


#: Not valid in URLs, and clients interpret them differently.
_DOUBTFUL = re.compile(r"[\x00-\x1f\x7f\\]")
_UNENCODED = re.compile(r"[^!-~]")  # not valid in a request line (RFC 9112 section 3.2)


class UnusableLocation(ValueError):
    """A Location that must not be followed. Its message says why."""


def resolve(location: str, url: str) -> tuple[Origin, str]:
    """Return the origin and target that the Location of a response to `url` names.

    The target is percent-encoded, so that every fetcher sends what is judged. Raises
    UnusableLocation for a value that is no http(s) URL, and for a port that is not a web port.
    """
    location = location.strip(" \t")
    if _DOUBTFUL.search(location):
        raise UnusableLocation("its Location is not a URL")
    try:
        origin, target = split_url(urljoin(url, location))
    except (NotGoverned, MalformedURL, ValueError) as error:
        raise UnusableLocation(str(error)) from None
    if origin.port in BAD_PORTS:
        raise UnusableLocation(f"port {origin.port} is not a web port")
    return origin, _UNENCODED.sub(_percent, target)


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("latin-1"))
