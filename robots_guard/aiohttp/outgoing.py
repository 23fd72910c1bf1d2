"""Outgoing requests of aiohttp: as they will be written, the framing of their bodies, and the check of
what is written.

After a request with a body, the connection is not used again, because a server that does not read
the body takes it for its next request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import aiohttp
from aiohttp import hdrs
from aiohttp.connector import Connection
from multidict import CIMultiDict

from robots_guard.decisions.response import ResponseHead
from robots_guard.gateway.wire import Wire

_SCHEMES = {"ws": "http", "wss": "https"}  # a WebSocket is opened by a request of HTTP
_FRAMING = frozenset(("content-length", "transfer-encoding"))


def wire_of(request: aiohttp.ClientRequest) -> Wire:
    """Read a request as it will be written now."""
    url = request.url
    scheme = _SCHEMES.get(url.scheme, url.scheme)
    target = url.raw_path_qs
    if request.method == hdrs.METH_CONNECT:
        target = url.authority  # refused: it has no path
    fields = tuple(
        (_encoded(name), _encoded(value))
        for name, value in request.headers.items()
        if _plain(name) not in _FRAMING
    )
    return Wire.read(
        fields,
        method=_encoded(request.method),
        scheme=_encoded(scheme),
        host=url.raw_host or "",
        port=url.port or 0,
        target=_encoded(target),
        version=f"HTTP/{request.version.major}.{request.version.minor}".encode(),
        authority=b"",
        sni=request.server_hostname,
        addressed=False,
        client="",
    )


def frame(request: aiohttp.ClientRequest, authority: str) -> bool:
    """Produce the Host field and the framing of a request (RFC 9112 section 6); return whether it
    has a body.

    The fields of its caller are replaced: aiohttp would write them unchanged beside a body that is
    framed otherwise. CGI and WSGI take Content_Length for Content-Length.
    """
    length = _body_length(request)
    kept = [(name, value) for name, value in request.headers.items() if not _is_produced(name)]
    headers = CIMultiDict([("Host", authority), *kept])
    request.chunked = None
    if length is None:
        request.chunked = True
        request.version = aiohttp.HttpVersion11  # HTTP/1.0 has no chunked coding
        headers[hdrs.TRANSFER_ENCODING] = "chunked"
    elif length or request.method not in request.GET_METHODS:
        headers[hdrs.CONTENT_LENGTH] = str(length)
    if length != 0:
        headers[hdrs.CONNECTION] = "close"
    request.headers = headers
    return length != 0


class CheckedTransport:
    """A stand-in for the transport of a connection, until the head of a request is written to it.

    It writes only the request line, Host and framing that the request has now: a trace
    (`on_request_headers_sent`) or a request class of a project can still change them. `refuse` makes
    the exception for any other head.
    """

    def __init__(
        self, request: aiohttp.ClientRequest, protocol: Any, refuse: Callable[[], Exception]
    ) -> None:
        self._head = _head_of(request)
        self._refuse = refuse
        self._protocol = protocol
        self._transport = protocol.transport
        protocol.transport = self

    def write(self, data: bytes) -> None:
        """Write the head. Raises what `refuse` makes."""
        if self._protocol.transport is self:  # else the connection is lost
            self._protocol.transport = self._transport
        head, end, _ = bytes(data).partition(b"\r\n\r\n")
        if not end or _judged_lines(head) != self._head:
            raise self._refuse()
        self._transport.write(data)

    def writelines(self, parts: Iterable[bytes]) -> None:
        """Write the head. Raises what `refuse` makes."""
        self.write(b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the connection's own transport."""
        return getattr(self._transport, name)


def _head_of(request: aiohttp.ClientRequest) -> list[bytes]:
    """The lines of the head that are judged, as they are to be written."""
    is_absolute = request.proxy and not request.is_ssl()
    target = str(request.url) if is_absolute else request.url.raw_path_qs
    version = request.version
    lines = [f"{request.method} {target} HTTP/{version.major}.{version.minor}"]
    lines += [f"{name}: {value}" for name, value in request.headers.items() if _is_produced(name)]
    return [_encoded(line) for line in lines]


def _judged_lines(head: bytes) -> list[bytes]:
    """The request line of a written head, and each field that `frame` produces."""
    line, *fields = head.split(b"\r\n")
    names = [field.partition(b":")[0].strip().decode("latin-1") for field in fields]
    produced = [field for name, field in zip(names, fields, strict=True) if _is_produced(name)]
    return [line, *produced]


def is_connected_to_origin(request: aiohttp.ClientRequest, connection: Connection) -> bool:
    """Whether a connection was made for the request's origin, which a component may have changed
    meanwhile."""
    return connection._key[:3] == request.connection_key[:3]  # noqa: SLF001  (not public)


def end_after_response(connection: Connection) -> None:
    """Do not use a connection again after its response."""
    if connection.protocol is not None:
        connection.protocol.force_close()


def response_head(response: aiohttp.ClientResponse) -> ResponseHead:
    """Return the status and the fields of a response."""
    fields = [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers
    ]
    return ResponseHead(status=response.status, headers=fields, method=response.method)


def _body_length(request: aiohttp.ClientRequest) -> int | None:
    """The length of the body in bytes; None if it is not known before it has been sent."""
    body = request.body
    if not body:
        return 0
    if request.compress:
        return None
    return body.size


def _is_produced(name: str) -> bool:
    plain = _plain(name)
    return plain in _FRAMING or plain == "host"


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
