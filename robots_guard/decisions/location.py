"""Locations: the URLs that redirects lead to."""

from __future__ import annotations

import re
from urllib.parse import urljoin

from robots_guard.decisions.addresses import BAD_PORTS
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.origin import Origin, split_url

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
