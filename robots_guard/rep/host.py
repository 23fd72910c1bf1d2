"""The Host directive of yandex2003: which of several mirrors is the main one.

The law of this file: a Host line with a wrong argument is as if absent; any correct one that names the current
host and port changes nothing; if there are correct ones and none names it, the group ends in "Disallow: /".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from robots_guard.rep.lines import Line
from robots_guard.rep.tld import TOP_LEVEL

# RFC 952 with the relaxations of RFC 1123 section 2.1: a first digit, and labels up to 63 octets.
_NAME = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+([a-z0-9-]+)", re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Host(NamedTuple):
    """One correct Host line. A port of 0 is the default one of the scheme."""

    name: str
    port: int
    line: int
    text: str

    @property
    def shown(self) -> str:
        return f"{self.name}:{self.port}" if self.port else self.name


def valid_hosts(records: Iterable[Line]) -> tuple[Host, ...]:
    """The correct Host lines among the records of a group."""
    found = (_host(record) for record in records if record.field == "host")
    return tuple(host for host in found if host is not None)


def _host(record: Line) -> Host | None:
    name, colon, port = record.value.lower().partition(":")
    # Asked before lower(): the Kelvin sign is a "k" after it.
    if not record.value.isascii() or not is_host_name(name) or (colon and not _is_port(port)):
        return None
    # Port 80 is the default of the proposal, so both spellings are equal.
    return Host(name, int(port) if colon and int(port) != 80 else 0, record.number, record.text)


def is_host_value(value: str) -> bool:
    """Is this a correct argument: one host name, not an address, and perhaps a port?"""
    return _host(Line(0, "host", value, "")) is not None


def is_host_name(name: str) -> bool:
    """One name of letters, digits and hyphens under a top-level domain that exists."""
    found = _NAME.fullmatch(name) if len(name) <= 253 else None
    return found is not None and found[1] in TOP_LEVEL


def _is_port(port: str) -> bool:
    return _PORT.fullmatch(port) is not None and 0 < int(port) < 65_536


def is_main(hosts: Iterable[Host], name: str, port: int, scheme: str) -> bool:
    """Does any of the lines name this host and port?"""
    default = _DEFAULT_PORTS.get(scheme, 80)
    current = (name.lower().removesuffix("."), port or default)
    return any((host.name, host.port or default) == current for host in hosts)
