"""Outgoing: a request in the form in which it is written, produced from what was judged.

Method, target and authority are those of the verdict, not those of the object that mitmproxy holds. What a client
says about its own connection ends here (RFC 9110 section 7.6.1), and the framing says what the body is, so that
every server finds the end of it at the same byte. These are pure functions; they decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mitmproxy import http

from robots_guard.mitmproxy.wire import Wire
from robots_guard.origin import Origin

Field = tuple[bytes, bytes]

# Fields of one connection: of the client's here. `Connection` can name more (RFC 9110 section 7.6.1).
_OF_ONE_CONNECTION = frozenset(
    (
        b"connection",
        b"expect",  # mitmproxy has answered it with 100
        b"http2-settings",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",  # trailers are not sent on
        b"upgrade",
    )
)
# Fields that are written here; `Connection` cannot take them away.
_PRODUCED = frozenset((b"host", b"content-length", b"transfer-encoding"))
_ENDS_HERE = _OF_ONE_CONNECTION | _PRODUCED
# IIS, Symfony and Zend go by these instead of the target.
_TARGETS = frozenset((b"x-original-url", b"x-rewrite-url"))
_EXPECTS_LENGTH = (b"POST", b"PUT", b"PATCH")  # RFC 9110 section 8.6


@dataclass(frozen=True, slots=True)
class Approved:
    """A request that was let pass: what it may say, and whom it is for.

    `user_agent` replaces the client's, if there is one. With `strict`, fields that name another target are taken out.
    """

    origin: Origin
    wire: Wire
    user_agent: str | None = None
    strict: bool = False


def http1_request(
    request: http.Request, approved: Approved, *, length: int | None, credentials: bytes | None, is_absolute: bool
) -> http.Request:
    """The request as HTTP/1 writes it.

    `length` is of the body in bytes, None if it is not known yet; `credentials` are the operator's for a parent
    proxy, which with `is_absolute` is asked for the whole URL (RFC 9112 section 3.2.2).
    """
    authority = approved.origin.authority.encode()
    websocket = length == 0 and _asks_for_websocket(request)
    fields = [(b"Host", authority), *_end_to_end(request, approved)]
    if credentials is not None:
        fields.append((b"Proxy-Authorization", credentials))
    fields += _framing(request, length)
    if websocket:
        fields += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
    elif _is_last(request, length):
        fields.append((b"Connection", b"close"))
    return _request(request, approved, authority if is_absolute else b"", _version(request, length), fields)


def http2_request(request: http.Request, approved: Approved, *, length: int | None) -> http.Request:
    """The request as HTTP/2 and HTTP/3 write it, whose streams frame the body by themselves.

    A `length` that is not known yet is not written: a server that passes the request on over HTTP/1 would go by it.
    """
    fields = [(name.lower(), value) for name, value in _end_to_end(request, approved)]
    if length is not None:
        fields += [(name.lower(), value) for name, value in _framing(request, length)]
    if _is_multiplexed(request) and request.headers.get("te", "").strip().lower() == "trailers":
        fields.append((b"te", b"trailers"))  # gRPC insists on it; RFC 9113 section 8.2.2 allows no other value
    authority = approved.origin.authority.encode()
    return _request(request, approved, authority, request.data.http_version, fields)


def body_length(request: http.Request, *, has_body: bool) -> int | None:
    """The bytes of the body that will be sent; None if it is sent on as it comes."""
    if not has_body:
        return 0
    return None if request.data.content is None else len(request.data.content)


def declared_length(request: http.Request) -> int | None:
    """The bytes that the client says it will send; None if it does not, or not in one way."""
    declared = request.headers.get("content-length", "")
    return int(declared) if declared.isascii() and declared.isdigit() else None


def _request(
    request: http.Request, approved: Approved, authority: bytes, version: bytes, fields: list[Field]
) -> http.Request:
    data, wire = request.data, approved.wire
    return http.Request(
        host=data.host,
        port=data.port,
        method=wire.method.encode("latin-1"),
        scheme=data.scheme,
        authority=authority,
        path=wire.target.encode("latin-1"),
        http_version=version,
        headers=http.Headers(fields),
        content=None,
        trailers=None,
        timestamp_start=data.timestamp_start,
        timestamp_end=data.timestamp_end,
    )


def _end_to_end(request: http.Request, approved: Approved) -> Iterator[Field]:
    """The fields that are for the site."""
    fields = request.data.headers.fields
    ends = _ENDS_HERE | _named_by_connection(fields)
    if approved.strict:
        ends |= _TARGETS
    if approved.user_agent is not None:
        ends |= {b"user-agent"}
        yield b"User-Agent", approved.user_agent.encode("utf-8", "surrogateescape")
    cookies = []
    for name, value in fields:
        lower = name.lower()
        if lower in ends:
            continue
        if lower == b"cookie" and _is_multiplexed(request):
            cookies.append(value)
            continue
        yield name, value
    if cookies:  # HTTP/1 has one Cookie field (RFC 9113 section 8.2.3)
        yield b"cookie", b"; ".join(cookies)


def _named_by_connection(fields: tuple[Field, ...]) -> frozenset[bytes]:
    """The fields that a client calls its own connection's; not those the verdict rests on."""
    said = [value for name, value in fields if name.lower() == b"connection"]
    if not said:
        return frozenset()
    names = {name.strip(b" \t").lower() for value in said for name in value.split(b",")}
    return frozenset(names - {b"user-agent"})


def _framing(request: http.Request, length: int | None) -> list[Field]:
    """RFC 9112 section 6: one of the two fields, and never one the client has written."""
    if length is None:
        return [(b"Transfer-Encoding", b"chunked")]
    if length or _says_empty(request):
        return [(b"Content-Length", b"%d" % length)]
    return []


def _says_empty(request: http.Request) -> bool:
    said = request.headers
    return request.data.method in _EXPECTS_LENGTH or "content-length" in said or "transfer-encoding" in said


def _is_last(request: http.Request, length: int | None) -> bool:
    """Whether the connection is not used again.

    A server that does not read bodies (of GET, or at all) finds its next request in the body. Its answer does not
    tell: it is the same, and comes as soon. So the next request never shares a connection with a body, and the
    server is told to stop reading. mitmproxy itself uses a connection once for a client of HTTP/2.
    """
    if length != 0 or _is_multiplexed(request):
        return True
    return b"close" in _connection_options(request)


def _connection_options(request: http.Request) -> set[bytes]:
    said = request.headers.get("connection", "")
    return {option.strip().lower().encode("latin-1", "replace") for option in said.split(",")} if said else set()


def _asks_for_websocket(request: http.Request) -> bool:
    """After any other upgrade than to WebSocket, what the connection carries could not be judged."""
    return request.headers.get("upgrade", "").strip().lower() == "websocket"


def _version(request: http.Request, length: int | None) -> bytes:
    if _is_multiplexed(request) or length is None:  # HTTP/1.0 knows no chunks
        return b"HTTP/1.1"
    return request.data.http_version


def _is_multiplexed(request: http.Request) -> bool:
    return request.is_http2 or request.is_http3
