"""The wire: what a client's request will put on it, and the request that is written instead.

`wire_of` describes a request as it is; the verdict is about that. What is written is produced from
what was judged: method, target and authority are those of the verdict, not those of mitmproxy's
request object. Fields about the client's own connection are left out (RFC 9110 section 7.6.1), and
the framing is explicit, so that every server finds the end of the body at the same byte. These are
pure functions; they decide nothing.

After a body, an HTTP/1 connection is not used again, and `Connection: close` announces that. A
server that does not read bodies (of GET, or at all) takes them for its next request. Its response
is as fast as any other and looks the same, so no response proves that the body was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mitmproxy import connection, http
from mitmproxy.proxy import mode_specs

from robots_guard.gateway.wire import Wire
from robots_guard.mitmproxy.destinations import address_of
from robots_guard.origin import Origin

Field = tuple[bytes, bytes]

# Fields that concern the client's connection only. `Connection` can name more (RFC 9110 section 7.6.1).
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
# Fields that are written here; `Connection` cannot remove them.
_PRODUCED = frozenset((b"host", b"content-length", b"transfer-encoding"))
_REMOVED = _OF_ONE_CONNECTION | _PRODUCED
# IIS, Symfony and Zend use these instead of the target.
_REMOVED_IF_STRICT = _REMOVED | {b"x-original-url", b"x-rewrite-url"}
# The usual options of `Connection`, none of which names a field to remove.
_OPTIONS = frozenset((b"close", b"keep-alive", b"upgrade"))
_EXPECTS_LENGTH = (b"POST", b"PUT", b"PATCH")  # RFC 9110 section 8.6
# Modes in which the client's system has resolved the name, so that the proxy sees only an address.
_ADDRESSED = (
    mode_specs.TransparentMode,
    mode_specs.WireGuardMode,
    mode_specs.LocalMode,
    mode_specs.Socks5Mode,
)


def wire_of(request: http.Request, client: connection.Client) -> Wire:
    """Describe a client's request as it is now."""
    data, mode = request.data, client.proxy_mode
    is_named = data.scheme == b"https" and not isinstance(mode, mode_specs.ReverseMode)
    return Wire.read(
        data.headers.fields,
        method=data.method,
        scheme=data.scheme,
        host=data.host,
        port=data.port,
        target=data.path,
        version=data.http_version,
        authority=data.authority,
        sni=client.sni if is_named else None,
        addressed=isinstance(mode, _ADDRESSED),
        client=address_of(client),
    )


@dataclass(frozen=True, slots=True)
class Approved:
    """A request that was permitted: its origin, and the wire description that was judged.

    `user_agent`, if given, replaces the client's. With `strict`, fields that name another target
    are left out.
    """

    origin: Origin
    wire: Wire
    user_agent: str | None = None
    strict: bool = False


def http1_request(
    request: http.Request,
    approved: Approved,
    *,
    length: int | None,
    credentials: bytes | None,
    is_absolute: bool,
) -> http.Request:
    """The request as HTTP/1 writes it.

    `length` is the length of the body in bytes, None if it is not known yet. With `is_absolute` the
    request is for a parent proxy: it has the absolute-form target (RFC 9112 section 3.2.2), and
    `credentials` unless it has its own.
    """
    read = _read(request, approved)
    is_multiplexed = _is_multiplexed(request)
    authority = approved.origin.authority.encode()
    fields = [
        (b"Host", authority),
        *(_with_joined_cookies(read.fields) if is_multiplexed else read.fields),
    ]
    if is_absolute and (given := read.credentials or credentials):
        fields.append((b"Proxy-Authorization", given))
    fields += _framing(request, read, length)
    if length == 0 and read.upgrade == b"websocket":
        fields += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
    elif length != 0 or is_multiplexed or b"close" in read.options:
        fields.append((b"Connection", b"close"))
    # HTTP/1.0 has no chunked coding.
    version = b"HTTP/1.1" if is_multiplexed or length is None else request.data.http_version
    return _request(request, approved, authority if is_absolute else b"", version, fields)


def http2_request(request: http.Request, approved: Approved, *, length: int | None) -> http.Request:
    """The request as HTTP/2 and HTTP/3 write it, whose streams frame the body themselves.

    A `length` that is not known yet is not written: a server that forwards the request over HTTP/1
    would rely on it.
    """
    read = _read(request, approved)
    fields = [(name.lower(), value) for name, value in read.fields]
    if length is not None:
        fields += [(name.lower(), value) for name, value in _framing(request, read, length)]
    if read.te == b"trailers" and _is_multiplexed(request):
        # gRPC requires it; RFC 9113 section 8.2.2 allows no other value.
        fields.append((b"te", b"trailers"))
    authority = approved.origin.authority.encode()
    return _request(request, approved, authority, request.data.http_version, fields)


def body_length(request: http.Request, *, has_body: bool) -> int | None:
    """The length in bytes of the body that will be sent; None if it is streamed."""
    if not has_body:
        return 0
    if request.data.content is None:
        return None
    return len(request.data.content)


def declared_length(request: http.Request) -> int | None:
    """The client's Content-Length; None if there is none, or if it is not one number."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit():
        return int(declared)
    return None


class _Read(NamedTuple):
    """The end-to-end fields of a request, and the values of its connection-specific ones."""

    fields: list[Field]
    declares_length: bool  # the client has sent one of the two framing fields
    options: frozenset[bytes]  # of Connection
    upgrade: bytes
    te: bytes
    credentials: bytes  # of Proxy-Authorization; the client's are removed by now, so these are for a parent proxy


def _read(request: http.Request, approved: Approved) -> _Read:
    removed = _REMOVED_IF_STRICT if approved.strict else _REMOVED
    fields: list[Field] = []
    values: dict[bytes, bytes] = {}
    for field in request.data.headers.fields:
        name = field[0].lower()
        if name not in removed:
            # CGI and WSGI take Content_Length for Content-Length.
            if name.replace(b"_", b"-") not in removed:
                fields.append(field)
        elif name in values:
            values[name] += b"," + field[1]
        else:
            values[name] = field[1]
    options = _options(values[b"connection"]) if b"connection" in values else frozenset()
    if not options <= _OPTIONS:
        # A client may name fields to remove, but not the one that the verdict rests on.
        fields = _without(fields, options - {b"user-agent"})
    if approved.user_agent is not None:
        user_agent = (b"User-Agent", approved.user_agent.encode("utf-8", "surrogateescape"))
        fields = [user_agent, *_without(fields, frozenset((b"user-agent",)))]
    return _Read(
        fields=fields,
        declares_length=b"content-length" in values or b"transfer-encoding" in values,
        options=options,
        upgrade=values.get(b"upgrade", b"").strip().lower(),
        te=values.get(b"te", b"").strip().lower(),
        credentials=values.get(b"proxy-authorization", b""),
    )


def _options(connection: bytes) -> frozenset[bytes]:
    return frozenset(option.strip(b" \t").lower() for option in connection.split(b","))


def _without(fields: list[Field], names: frozenset[bytes]) -> list[Field]:
    return [field for field in fields if field[0].lower() not in names]


def _with_joined_cookies(fields: list[Field]) -> list[Field]:
    """Join cookies: HTTP/1 allows one Cookie field, HTTP/2 any number (RFC 9113 section 8.2.3)."""
    cookies = [value for name, value in fields if name == b"cookie"]
    if len(cookies) < 2:
        return fields
    return [*_without(fields, frozenset((b"cookie",))), (b"cookie", b"; ".join(cookies))]


def _framing(request: http.Request, read: _Read, length: int | None) -> list[Field]:
    """The framing field, if one is needed (RFC 9112 section 6); the client's own is never passed on."""
    if length is None:
        return [(b"Transfer-Encoding", b"chunked")]
    if length or read.declares_length or request.data.method in _EXPECTS_LENGTH:
        return [(b"Content-Length", b"%d" % length)]
    return []


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


def _is_multiplexed(request: http.Request) -> bool:
    return bool(request.is_http2 or request.is_http3)
