"""ICAP/1.0 (RFC 3507): requests are read from bytes, and responses are written to bytes.

Everything here is pure: no I/O, no clock. The service answers from the encapsulated heads
alone, so a body is skipped as it arrives and never kept.

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
