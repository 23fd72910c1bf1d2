"""The HTTP messages inside ICAP: heads are read as Squid writes them, and replies are written.

Everything here is pure. Squid asks about a request in the form in which it will send it, with an
absolute URL: the Host field that the site gets is made from that URL.
"""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

from robots_guard.decisions.response import ResponseHead
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.gateway.refusal import ProxyReply
from robots_guard.gateway.wire import Fields, Wire
from robots_guard.origin import DEFAULT_PORTS, parse_authority

MAX_FIELDS = 1000  # of an HTTP message
_CACHED_FIELDS = 1024  # bytes of fields whose reading is cached
_CACHED_NAMES = 256  # bytes of a scheme and an authority that are cached

_URL = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\\]*)(.*)", re.DOTALL)
_STATUS = re.compile(rb"HTTP/[0-9]\.[0-9] ([0-9]{3})(?: |$)")
_LENGTH = "content-length"
#: Fields of a reply that concern one connection, and Squid's own.
_DROPPED = frozenset({_LENGTH, "connection", "transfer-encoding"})


class UnreadableMessage(Exception):
    """An encapsulated head that is not one of HTTP/1."""


class EncapsulatedRequest(NamedTuple):
    """The head of an HTTP request. `url` is the target as it is written; it may be anything.

    `is_short` says that the fields are few, so that what is read from them may be kept.
    """

    method: bytes
    url: bytes
    version: bytes
    fields: Fields
    is_short: bool = False

    @property
    def accept(self) -> str:
        """The value of the last Accept field."""
        found = ""
        for name, value in self.fields:
            if len(name) == 6 and name.lower() == b"accept":
                found = value.decode("latin-1")
        return found

    def wire(self, client: str) -> Wire:
        """Describe the request for the guard. A target that is no absolute URL makes a wire that is
        refused."""
        found = _URL.fullmatch(self.url)
        scheme, authority, target = found.groups() if found else (b"", b"", self.url)
        is_short = self.is_short and len(scheme) + len(authority) <= _CACHED_NAMES
        read = _wire if is_short else _wire.__wrapped__
        wire = read(self.method, scheme, authority, self.version, self.fields, client)
        return wire.with_target(target.decode("latin-1"))


@lru_cache(maxsize=4096)
def _wire(
    method: bytes, scheme: bytes, authority: bytes, version: bytes, fields: Fields, client: str
) -> Wire:
    """Describe a request without its target. Cached, because a crawler sends a site the same
    fields."""
    scheme = scheme.lower()
    host, port = _destination(scheme.decode(), authority.decode("latin-1"))
    return Wire.read(
        fields,
        method=method,
        scheme=scheme,
        host=host,
        port=port,
        target=b"",
        version=version,
        authority=authority,
        sni=None,  # Squid itself makes the TLS connection to the site, by the name in the URL
        addressed=False,
        client=client,
    )


def _destination(scheme: str, authority: str) -> tuple[str, int]:
    """Where Squid will connect. For an authority that cannot be read, the wire's own reading
    fails."""
    if scheme not in DEFAULT_PORTS:
        return authority, 0
    try:
        _, host, port = parse_authority(scheme, authority)
    except (MalformedURL, NotGoverned):
        return authority, 0
    return host, port


def read_request(head: bytes) -> EncapsulatedRequest:
    """Read a request's head. Raises UnreadableMessage."""
    line, fields, is_short = _read_head(head)
    method, _, rest = line.partition(b" ")
    url, _, version = rest.rpartition(b" ")
    if not (method and url and version.startswith(b"HTTP/")):
        raise UnreadableMessage("not a request line")
    return EncapsulatedRequest(method, url, version, fields, is_short)


def read_response(head: bytes, method: str) -> ResponseHead:
    """Read the head of the response to a request with that method. Raises UnreadableMessage."""
    line, fields, _ = _read_head(head)
    found = _STATUS.match(line)
    if found is None:
        raise UnreadableMessage("not a status line")
    texts = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields]
    return ResponseHead(status=int(found[1]), headers=texts, method=method)


def retry_after(head: ResponseHead) -> str:
    """The values of all Retry-After fields of a response."""
    return ", ".join(value for name, value in head.headers if name.lower() == "retry-after")


def _read_head(head: bytes) -> tuple[bytes, Fields, bool]:
    """The first line, the fields, and whether they are few. Raises UnreadableMessage."""
    line, line_break, rest = head.removesuffix(b"\r\n\r\n").partition(b"\r\n")
    if not line_break:
        return line, (), True
    is_short = len(rest) <= _CACHED_FIELDS
    read = _read_fields if is_short else _read_fields.__wrapped__
    return line, read(rest), is_short


@lru_cache(maxsize=4096)
def _read_fields(text: bytes) -> Fields:
    """The fields in some lines. Cached, because a crawler sends a site the same ones. Raises
    UnreadableMessage."""
    lines = text.split(b"\r\n")
    if len(lines) > MAX_FIELDS:
        raise UnreadableMessage(f"more than {MAX_FIELDS} fields")
    fields = []
    for each in lines:
        name, colon, value = each.partition(b":")
        # A folded line (RFC 9112 section 5.2) begins with a space.
        if not colon or not name or name != name.strip(b" \t"):
            raise UnreadableMessage("a line that is not a field")
        fields.append((name, value.strip(b" \t")))
    return tuple(fields)


def reply_head(reply: ProxyReply) -> bytes:
    """The head of a reply. The length is that of the body, which may be left out after HEAD."""
    fields = {name.lower(): (name, value) for name, value in reply.headers}
    kept = [field for name, field in fields.items() if name not in _DROPPED]
    kept.append(("Content-Length", str(len(reply.body))))
    lines = [
        f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}",
        *(f"{name}: {value}" for name, value in kept),
    ]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")
