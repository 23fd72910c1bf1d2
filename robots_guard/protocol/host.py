"""The Host directive of yandex2003: which of several mirrors is the main one.

Invariant: a Host line with an invalid argument is ignored. If a valid one names the current host
and port, nothing changes. If there are valid ones and none names it, the group ends in "Disallow:
/".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from publicsuffixlist import PublicSuffixList

from robots_guard.protocol.lines import Line

# RFC 952 as relaxed by RFC 1123 section 2.1: a leading digit, and labels of up to 63 octets.
_NAME = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]+", re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Host(NamedTuple):
    """A valid Host line. A port of 0 is the default port of the scheme."""

    name: str
    port: int
    line: int
    text: str

    @property
    def shown(self) -> str:
        if self.port:
            return f"{self.name}:{self.port}"
        return self.name


def valid_hosts(records: Iterable[Line]) -> tuple[Host, ...]:
    """The valid Host lines among the records of a group."""
    found = (_parse_host(record) for record in records if record.field == "host")
    return tuple(host for host in found if host is not None)


def _parse_host(record: Line) -> Host | None:
    name, colon, port = record.value.lower().partition(":")
    # Check the original value: lower() turns the Kelvin sign into an ASCII "k".
    if not record.value.isascii() or not is_host_name(name) or (colon and not _is_port(port)):
        return None
    # Port 80 is the default in the proposal, so both spellings are equal.
    number = int(port) if colon and int(port) != 80 else 0
    return Host(name, number, record.number, record.text)


def is_host_value(value: str) -> bool:
    """Whether an argument is valid: one host name, not an address, and optionally a port."""
    return _parse_host(Line(0, "host", value, "")) is not None


def is_host_name(name: str) -> bool:
    """Whether a name consists of letters, digits and hyphens under an existing top-level domain."""
    if len(name) > 253 or not _NAME.fullmatch(name):
        return False
    return _public_suffixes().publicsuffix(name) is not None


@cache
def _public_suffixes() -> PublicSuffixList:
    """The public suffix list that the package ships.

    It is parsed at the first Host line, because that takes 50 to 80 ms and few files have one.
    """
    return PublicSuffixList(accept_unknown=False, only_icann=True)


def _is_port(port: str) -> bool:
    return _PORT.fullmatch(port) is not None and 0 < int(port) < 65_536


def is_main(hosts: Iterable[Host], name: str, port: int, scheme: str) -> bool:
    """Whether any of the lines names this host and port."""
    default = _DEFAULT_PORTS.get(scheme, 80)
    current = (name.lower().removesuffix("."), port or default)
    return any((host.name, host.port or default) == current for host in hosts)
