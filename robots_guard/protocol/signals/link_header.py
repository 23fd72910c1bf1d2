"""The Link header (RFC 8288), and the statement that a licence link makes (RSL 1.0).

The link is recorded. The licence itself is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urljoin

from robots_guard.protocol.signals.statement import RAW_CAP, Flag, Place, Signal, Statement

RSL_TYPE = "application/rsl+xml"
RSL = "license"
OTHER = "license-other"
URL_CAP = 2_048  # characters of a licence's URL

_LINK = re.compile(r"<([^<>]*+)>")
_PARAMETER = re.compile(
    r"""\s*+;\s*+(?P<name>[^\s=;,"<>]*+)
    (?:\s*+=\s*+(?:"(?P<quoted>(?:[^"\\]|\\.)*+)(?:"|\\?\Z)|(?P<token>[^\s;,"<]*+)))?+""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://)?[^\s/]\S*")


class Link(NamedTuple):
    """A link of a Link header. If a parameter is repeated, its first value counts."""

    target: str
    parameters: dict[str, str]

    @property
    def is_license(self) -> bool:
        """Whether the link leads to a licence."""
        return "license" in self.parameters.get("rel", "").lower().split()


def parse_links(text: str) -> Iterator[Link]:
    """The links of one Link header. Text between them is ignored. Never raises."""
    at = 0
    while found := _LINK.search(text, at):
        at = found.end()
        parameters: dict[str, str] = {}
        while parameter := _PARAMETER.match(text, at):
            at = parameter.end()
            quoted = parameter["quoted"]
            value = parameter["token"] or ""
            if quoted is not None:
                value = _ESCAPE.sub(r"\1", quoted)
            parameters.setdefault(parameter["name"].lower(), value)
        yield Link(found[1].strip(), parameters)


def license_links(text: str, url: str = "", raw: str = "") -> Iterator[Statement]:
    """The licences of one Link header.

    `url` is the URL of the response, for relative references. A link whose `anchor` is another
    resource is not about this response (RFC 8288 section 3.2).
    """
    for link in parse_links(text):
        if link.is_license and _is_about(link, url):
            kind = link.parameters.get("type", "").partition(";")[0]
            rule = RSL if kind.strip().lower() == RSL_TYPE else OTHER
            yield license_statement(_resolved(url, link.target), Place.HEADER, raw or text, rule)


def _is_about(link: Link, url: str) -> bool:
    anchor = link.parameters.get("anchor", "").strip()
    return not anchor or (url != "" and _resolved(url, anchor) == url)


def _resolved(url: str, reference: str) -> str:
    try:
        return urljoin(url, reference)
    except ValueError:  # such as an unclosed bracket in an address
        return reference


def license_statement(
    url: str, place: Place, raw: str, rule: str = RSL, line: int | None = None
) -> Statement:
    """The statement that a licence link makes. Its URL must be absolute (RSL 1.0)."""
    address = url.strip()
    is_absolute = _ABSOLUTE.fullmatch(address) is not None
    return Statement(
        signal=Signal.LICENSE,
        place=place,
        rule=rule,
        value=address[:URL_CAP] if is_absolute else "",
        raw=raw.strip()[:RAW_CAP],
        line=line,
        flags=() if is_absolute else (Flag.MALFORMED,),
    )
