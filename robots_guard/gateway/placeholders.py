"""Placeholders: harmless responses to a browser's refused requests for the parts of a page.

A page may handle a script, a style sheet or an image that is refused with a 403 as an error. An
empty one of the same kind lets the page render. A browser says what a request is for in
`Sec-Fetch-Dest` (Fetch Metadata Request Headers, section 2.1), which no script of a page can set.

Invariant: a placeholder replaces the body, the type and the status of a refusal, and nothing else.
It is chosen after the verdict, which does not depend on what a client says of itself. It contains
nothing of the site. A preflight (Fetch standard, section 3.2.2) is never granted, because the site
alone may grant it; nor does a request that can change something seem to succeed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from robots_guard.decisions.verdict import Subresource

_METHODS = ("GET", "HEAD")
#: The serialisation of an origin (RFC 6454 section 6.1).
_ORIGIN = re.compile(r"null|[a-z][a-z0-9+.-]{0,31}://[A-Za-z0-9._:%\[\]-]{1,255}")


class Placeholder(NamedTuple):
    """A status, the type of the content, and the content. A 204 has neither."""

    status: int
    content_type: str = ""
    body: bytes = b""


_NOTHING = Placeholder(204)
#: A blank line, because Envoy drops the type of a local reply without content, and a browser
#: accepts no script or style sheet without its type.
_BLANK = b"\n"
_SCRIPT = Placeholder(200, "text/javascript; charset=utf-8", _BLANK)
_JSON = Placeholder(200, "application/json; charset=utf-8", b"{}")
#: A GIF of one transparent pixel.
_PIXEL = Placeholder(
    200,
    "image/gif",
    b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\0\0\0!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;",
)

#: By the value of Sec-Fetch-Dest. A `document` is not named here, because its reader should see the
#: refusal, and neither is a `serviceworker`, which the browser would keep longer than the page.
PLACEHOLDERS: Mapping[str, Placeholder] = MappingProxyType(
    {
        "script": _SCRIPT,
        "worker": _SCRIPT,
        "sharedworker": _SCRIPT,
        "audioworklet": _SCRIPT,
        "paintworklet": _SCRIPT,
        "style": Placeholder(200, "text/css; charset=utf-8", _BLANK),
        "image": _PIXEL,
        "json": _JSON,
        "manifest": _JSON._replace(content_type="application/manifest+json"),
        "track": Placeholder(200, "text/vtt; charset=utf-8", b"WEBVTT\n"),
        "audio": _NOTHING,
        "video": _NOTHING,
        "font": _NOTHING,
        "empty": _NOTHING,
        "iframe": _NOTHING,
        "frame": _NOTHING,
        "fencedframe": _NOTHING,
        "embed": _NOTHING,
        "object": _NOTHING,
        "xslt": _NOTHING,
    }
)


def subresource_of(method: str, destination: str, origin: str) -> Subresource | None:
    """Return what a browser loads by a request, if its refusal can be a placeholder. `destination`
    and `origin` are the values of Sec-Fetch-Dest and Origin, or empty."""
    if method not in _METHODS or destination not in PLACEHOLDERS:
        return None
    if _ORIGIN.fullmatch(origin) is None:
        origin = ""
    return Subresource(destination, origin)


def placeholder_fields(subresource: Subresource) -> list[tuple[str, str]]:
    """The fields of a placeholder that the page's own rules for its parts demand.

    Without the first, a page that isolates itself (`Cross-Origin-Embedder-Policy: require-corp`)
    does not take an image from another origin. Without the others, a request with CORS fails, such
    as that for a module script, a font or an element with `crossorigin`.
    """
    fields = [("Cross-Origin-Resource-Policy", "cross-origin")]
    if subresource.origin:
        fields += [
            ("Access-Control-Allow-Origin", subresource.origin),
            ("Access-Control-Allow-Credentials", "true"),
        ]
    content_type = PLACEHOLDERS[subresource.destination].content_type
    if content_type:
        fields.append(("Content-Type", content_type))
    return fields
