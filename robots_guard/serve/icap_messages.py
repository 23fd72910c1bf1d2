"""The messages of ICAP/1.0 (RFC 3507), and the HTTP messages inside them: requests are read from bytes,
and responses are written to bytes.

Everything here is pure: no I/O, no clock. The service answers from the encapsulated heads
alone, so a body is skipped as it arrives and never kept. Squid asks about a request in the form in
which it will send it, with an absolute URL: the Host field that the site gets is made from that URL.

Invariant: a request is returned only if it is complete and can be read in one way. Everything else
raises ProtocolError, after which the connection must be closed, because it is not known where the
next request begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from typing import NamedTuple

from robots_guard.decisions.response import ResponseHead
from robots_guard.errors import MalformedURL, NotGoverned
from robots_guard.gateway.refusal import ProxyReply
from robots_guard.gateway.wire import Fields, Wire
from robots_guard.origin import DEFAULT_PORTS, parse_authority

MAX_HEAD = 32 * 1024  # bytes of an ICAP head
MAX_ENCAPSULATED = 256 * 1024  # bytes of the encapsulated heads; Squid allows 64 KB for each
MAX_CHUNK_LINE = 1024  # bytes of a chunk's size and its extensions
MAX_TRAILERS = 16 * 1024  # bytes
MAX_FIELDS = 200  # fields of an ICAP head
_CACHED_LINE = 256  # bytes of a line whose reading is cached
_CACHED_HEAD = 512  # bytes of an ICAP head whose reading is cached

_END = b"\r\n\r\n"
_LINE = re.compile(rb"([A-Z]{1,16}) (icaps?://[!-~]{1,2048}) ICAP/1\.([0-9])")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}):[ \t]*([^\r\n\0]*)")
_PATH = re.compile(r"icaps?://[^/?#]*([^?#]*)")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n\0]*)?")
_PART = re.compile(r"([a-z-]{1,20})=([0-9]{1,9})")

#: The encapsulated parts that a method may have, in their order (RFC 3507 section 4.4.1).
_PARTS = {
    "OPTIONS": ("opt-body", "null-body"),
    "REQMOD": ("req-hdr", "req-body", "null-body"),
    "RESPMOD": ("req-hdr", "res-hdr", "res-body", "null-body"),
}
_PHRASES = {404: "ICAP Service not found", 405: "Method not allowed for service"}
_NOTHING = slice(0, 0)
_SINGLE = frozenset({"encapsulated", "preview", "host"})


class ProtocolError(Exception):
    """A request that cannot be read in one way. `status` is that of the response (RFC 3507 section 4.3.3)."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class IcapRequest(NamedTuple):
    """A complete ICAP request. The names of its fields are in lower case."""

    method: str  # OPTIONS, REQMOD or RESPMOD
    path: str  # of its URI, such as /reqmod
    fields: Mapping[str, str]
    request_head: bytes  # the encapsulated HTTP request's line and fields with the empty line
    response_head: bytes  # those of the HTTP response
    has_body: bool  # whether the HTTP message has a body, which was skipped
    keeps_alive: bool  # whether another request may follow on the connection

    @property
    def allows_no_content(self) -> bool:
        """Whether the client accepts 204 for "not modified": it has sent a preview, or says so (RFC
        3507 section 4.6)."""
        if "preview" in self.fields:
            return True
        return "204" in re.split(r"[\s,]+", self.fields.get("allow", ""))


class _Head(NamedTuple):
    """The head of an ICAP request, with the place of each encapsulated head behind it."""

    method: str
    path: str
    fields: Mapping[str, str]
    request: slice
    response: slice
    size: int  # bytes of the encapsulated heads together
    has_body: bool
    keeps_alive: bool


class RequestReader:
    """Reads the requests of one connection. Bytes go in by `feed`, requests come out of `next`."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0  # the part of the buffer that has no end of a head
        self._head: _Head | None = None  # of which the encapsulated heads are still to come
        self._request: IcapRequest | None = None  # of which the body is still to come
        self._body = _BodyReader()

    def feed(self, data: bytes) -> None:
        """Add bytes that were received."""
        self._buffer += data

    @property
    def buffered(self) -> int:
        """The number of bytes in the buffer."""
        return len(self._buffer)

    @property
    def is_within_request(self) -> bool:
        """Whether a part of a request has come, and its end has not."""
        return bool(self._buffer) or self._head is not None or self._request is not None

    def next(self) -> IcapRequest | None:
        """Return the next complete request; None if more bytes are needed. Raises ProtocolError."""
        if self._request is None:
            self._request = self._read_heads()
            if self._request is None:
                return None
            self._body = _BodyReader()
        request = self._request
        if request.has_body and not self._body.skip(self._buffer):
            return None
        self._request = None
        return request

    def _read_heads(self) -> IcapRequest | None:
        head = self._head or self._read_head()
        if head is None:
            return None
        self._head = head
        if len(self._buffer) < head.size:
            return None
        data = bytes(self._buffer[: head.size])
        del self._buffer[: head.size]
        self._head = None
        return _with_heads(head, data)

    def _read_head(self) -> _Head | None:
        end = self._buffer.find(_END, self._searched)
        if end > MAX_HEAD or (end < 0 and len(self._buffer) > MAX_HEAD):
            raise ProtocolError(400, f"a head of more than {MAX_HEAD} bytes")
        if end < 0:
            self._searched = max(0, len(self._buffer) - len(_END) + 1)
            return None
        data = bytes(self._buffer[:end])
        del self._buffer[: end + len(_END)]
        self._searched = 0
        parse = _parse_head if len(data) <= _CACHED_HEAD else _parse_head.__wrapped__
        return parse(data)


class _BodyReader:
    """Skips a chunked body (RFC 9112 section 7.1), whose chunks may be of any number and size."""

    def __init__(self) -> None:
        self._left = 0  # bytes of the current chunk with its line break, still to come
        self._in_trailers = False
        self._trailers = 0  # bytes

    def skip(self, buffer: bytearray) -> bool:
        """Remove what belongs to the body from the start of the buffer; return whether it has ended.
        Raises ProtocolError."""
        start = 0
        try:
            while True:
                if self._left > 2:
                    skipped = min(self._left - 2, len(buffer) - start)
                    start += skipped
                    self._left -= skipped
                if self._left > 2 or len(buffer) - start < self._left:
                    return False
                if self._left:
                    if buffer[start : start + 2] != b"\r\n":
                        raise ProtocolError(400, "a chunk is longer than its size")
                    start += 2
                    self._left = 0
                line = _line_at(buffer, start)
                if line is None:
                    return False
                start += len(line) + 2
                if self._take(line):
                    return True
        finally:
            del buffer[:start]

    def _take(self, line: bytes) -> bool:
        """Read a line outside of a chunk; return whether the body has ended."""
        if self._in_trailers:
            self._trailers += len(line) + 2
            if self._trailers > MAX_TRAILERS:
                raise ProtocolError(400, f"trailers of more than {MAX_TRAILERS} bytes")
            return not line
        found = _CHUNK.fullmatch(line)
        if found is None:
            raise ProtocolError(400, "not the size of a chunk")
        size = int(found[1], 16)
        self._in_trailers = not size
        if size:
            self._left = size + 2
        return False


def _line_at(buffer: bytearray, start: int) -> bytes | None:
    """The line that begins there, without its line break; None if it is not complete."""
    end = buffer.find(b"\r\n", start, start + MAX_CHUNK_LINE + 2)
    if end >= 0:
        return bytes(buffer[start:end])
    if len(buffer) - start > MAX_CHUNK_LINE:
        raise ProtocolError(400, f"a line of more than {MAX_CHUNK_LINE} bytes in a body")
    return None


@lru_cache(maxsize=1024)
def _parse_head(data: bytes) -> _Head:
    """Read a head. Cached, because within a second, of which it has the time, Squid sends the same few
    heads."""
    line, *lines = data.split(b"\r\n")
    method, path = _read_line(line)
    fields = _read_fields(lines)
    starts, has_body = _encapsulated(method, fields.get("encapsulated"))
    names, places = list(starts), list(starts.values())
    parts = {name: slice(*ends) for name, *ends in zip(names, places, places[1:], strict=False)}
    connection = fields.get("connection")
    closes = connection is not None and "close" in re.split(r"[\s,]+", connection.lower())
    return _Head(
        method=method,
        path=path,
        fields=MappingProxyType(fields),
        request=parts.get("req-hdr", _NOTHING),
        response=parts.get("res-hdr", _NOTHING),
        size=places[-1],
        has_body=has_body,
        keeps_alive=not closes,
    )


@lru_cache(maxsize=64)
def _read_line(line: bytes) -> tuple[str, str]:
    """The method, and the path of the URI. Cached, because Squid sends two lines."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise ProtocolError(400, "not a request line of ICAP/1.0")
    method, path = found[1].decode(), _PATH.match(found[2].decode())
    if found[3] != b"0":
        raise ProtocolError(505, "not version 1.0 of ICAP")
    if method not in _PARTS or path is None:
        raise ProtocolError(501, "the method is not OPTIONS, REQMOD or RESPMOD")
    return method, path[1]


def _read_fields(lines: list[bytes]) -> dict[str, str]:
    """The fields of an ICAP head. A field that may be repeated has its values joined by commas."""
    if len(lines) > MAX_FIELDS:
        raise ProtocolError(400, f"more than {MAX_FIELDS} fields")
    fields: dict[str, str] = {}
    for line in lines:
        is_short = len(line) <= _CACHED_LINE
        name, value = _read_field(line) if is_short else _read_field.__wrapped__(line)
        if name not in fields:
            fields[name] = value
        elif name in _SINGLE:
            raise ProtocolError(400, f"two {name} fields")
        else:
            fields[name] += f", {value}"
    return fields


@lru_cache(maxsize=4096)
def _read_field(line: bytes) -> tuple[str, str]:
    """Name and value. Cached, because most fields of Squid are always the same."""
    found = _FIELD.fullmatch(line)
    if found is None:
        raise ProtocolError(400, "a line that is not a field")
    return found[1].decode().lower(), found[2].decode("latin-1").rstrip(" \t")


@lru_cache(maxsize=4096)
def _encapsulated(method: str, value: str | None) -> tuple[Mapping[str, int], bool]:
    """Where each encapsulated part begins, in order, and whether the last is a body."""
    if value is None:
        if method == "OPTIONS":  # it may be left out there (RFC 3507 section 4.4.1)
            return {"null-body": 0}, False
        raise ProtocolError(400, "no Encapsulated field")
    if len(value) > _CACHED_LINE:
        raise ProtocolError(400, "an Encapsulated field that is too long")
    starts: dict[str, int] = {}
    for item in value.split(","):
        found = _PART.fullmatch(item.strip())
        if found is None or found[1] in starts or found[1] not in _PARTS[method]:
            raise ProtocolError(400, "an Encapsulated field that cannot be read")
        starts[found[1]] = int(found[2])
    names, places = list(starts), list(starts.values())
    order = [name for name in _PARTS[method] if name in starts]
    is_sound = names == order and places[0] == 0 and places == sorted(set(places))
    if not is_sound or not names[-1].endswith("-body") or "-body" in "".join(names[:-1]):
        raise ProtocolError(400, "an Encapsulated field whose parts are not in order")
    if places[-1] > MAX_ENCAPSULATED:
        raise ProtocolError(400, f"encapsulated heads of more than {MAX_ENCAPSULATED} bytes")
    return starts, names[-1] != "null-body"


def _with_heads(head: _Head, data: bytes) -> IcapRequest:
    request, response = data[head.request], data[head.response]
    for part in (request, response):
        # Two heads in one part, or a part that ends early, would be read differently elsewhere.
        if part and part.find(_END) != len(part) - len(_END):
            raise ProtocolError(400, "an encapsulated head that does not end where it should")
    return IcapRequest(
        method=head.method,
        path=head.path,
        fields=head.fields,
        request_head=request,
        response_head=response,
        has_body=head.has_body,
        keeps_alive=head.keeps_alive,
    )


# -- responses ---------------------------------------------------------------------------------------


class IcapResponse(NamedTuple):
    """A response in bytes.

    `last` is the last chunk of a body. Squid 5.7 must read it by itself: if it gets it together
    with the rest, it takes a response in place of the request for truncated, and closes the
    client's connection. `closes` says whether the connection is closed behind the response.
    """

    first: bytes
    last: bytes = b""
    closes: bool = False


def options_response(method: str, *, tag: str, ttl: int, connections: int) -> IcapResponse:
    """The response to OPTIONS, of a service for one method.

    `tag` is the ISTag, at most 32 bytes with its quotation marks. The client may ask again after
    `ttl` seconds, and should not open more than that many `connections`.
    """
    fields = (
        ("Methods", method),
        ("Service", "robots_guard"),
        ("ISTag", f'"{tag}"'),
        ("Allow", "204"),
        ("Preview", "0"),
        ("Transfer-Preview", "*"),
        ("Options-TTL", str(ttl)),
        ("Max-Connections", str(connections)),
        ("Encapsulated", "null-body=0"),
    )
    return _head_of(200, fields)


def unmodified_response(tag: str, fields: Iterable[tuple[str, str]] = ()) -> IcapResponse:
    """204: the HTTP message goes on as it is."""
    more = "".join([f"{name}: {value}\r\n" for name, value in fields])
    text = f'ICAP/1.0 204 No Content\r\nISTag: "{tag}"\r\n{more}Encapsulated: null-body=0\r\n\r\n'
    return IcapResponse(text.encode("latin-1"))


def http_response(tag: str, head: bytes, body: bytes | None) -> IcapResponse:
    """200 with an HTTP response, in place of the request's or the response's message.

    `head` ends with its empty line. `body` is None if the response has none.
    """
    part = "null-body" if body is None else "res-body"
    fields = (("ISTag", f'"{tag}"'), ("Encapsulated", f"res-hdr=0, {part}={len(head)}"))
    pieces = [_head_of(200, fields).first, head]
    if body is None:
        return IcapResponse(b"".join(pieces))
    if body:
        pieces.append(b"%x\r\n%s\r\n" % (len(body), body))
    return IcapResponse(b"".join(pieces), last=b"0\r\n\r\n")


def error_response(status: int, tag: str) -> IcapResponse:
    """An error, after which the connection is closed."""
    fields = (
        ("ISTag", f'"{tag}"'),
        ("Connection", "close"),
        ("Encapsulated", "null-body=0"),
    )
    return _head_of(status, fields)._replace(closes=True)


def _head_of(status: int, fields: Iterable[tuple[str, str]]) -> IcapResponse:
    phrase = _PHRASES.get(status) or HTTPStatus(status).phrase
    lines = [f"ICAP/1.0 {status} {phrase}", *(f"{name}: {value}" for name, value in fields)]
    return IcapResponse("\r\n".join([*lines, "", ""]).encode("latin-1"))


MAX_HTTP_FIELDS = 1000  # fields of an HTTP message
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
    read = _read_http_fields if is_short else _read_http_fields.__wrapped__
    return line, read(rest), is_short


@lru_cache(maxsize=4096)
def _read_http_fields(text: bytes) -> Fields:
    """The fields in some lines. Cached, because a crawler sends a site the same ones. Raises
    UnreadableMessage."""
    lines = text.split(b"\r\n")
    if len(lines) > MAX_HTTP_FIELDS:
        raise UnreadableMessage(f"more than {MAX_HTTP_FIELDS} fields")
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
