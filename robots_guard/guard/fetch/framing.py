"""The fields and the framing of an HTTP response, as every fetcher reads them.

Fields have lower-case names, repeated ones are joined, and their size is bounded. The framing is
read from the bytes as received (RFC 9112).

HTTP clients differ in how they read a response with ambiguous framing: they skip trailing bytes,
take one of two lengths, guess at a chunk. Where such a response ends is uncertain, so it may not be
the whole file. Each fetcher therefore passes what its connection receives to a `Framing`, which
applies the strictest of the clients' rules. The fetcher also passes how many bytes of content its
client has read, because a client with another number has seen other framing, and how the connection
ended, because only a clean end completes a response without a length.

Invariant: a response that a fetcher returns has no framing fault, and its client and this module
agree on its length, wherever the fetcher sees these bytes.

Only ambiguity is a fault. A line of the head may end in LF alone, as RFC 9112 section 2.2 permits,
because all clients agree on that. A field that the clients or the guard act on is neither folded
(section 5.2) nor contains a control character, because their readings of such values differ; other
fields may.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

MAX_FIELDS = 200
MAX_FIELD = 16 * 1024  # bytes of one field
MAX_HEAD = 64 * 1024  # bytes of all fields together
#: The header fields of a project that its fetches of robots.txt inherit: those that identify the
#: crawler, and those that authenticate it to its parent proxy. Any other may make the response
#: unreadable (a coding, a range, "not modified"), or is about pages.
INHERITED = frozenset(
    (
        "user-agent",
        "from",
        "accept-language",
        "proxy-authorization",
        "signature",  # RFC 9421, Web Bot Auth
        "signature-input",
        "signature-agent",
    )
)


class BadFields(Exception):
    """Header fields that no honest robots.txt response has: too many, too long, with NUL, or two
    Locations."""


def joined(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the fields of a response with repeated ones joined. Raises BadFields."""
    fields: dict[str, str] = {}
    size = 0
    for count, (name, value) in enumerate(raw, start=1):
        size += len(name) + len(value) + 4
        if count > MAX_FIELDS or size > MAX_HEAD:
            raise BadFields(f"more than {MAX_FIELDS} fields or {MAX_HEAD} bytes of them")
        if len(name) + len(value) > MAX_FIELD:
            raise BadFields(f"a field of more than {MAX_FIELD} bytes")
        if b"\0" in value:
            raise BadFields("a field with NUL")
        key, text = name.decode("latin-1").lower(), _text(value)
        if key not in fields:
            fields[key] = text
        elif key != "location":
            fields[key] = f"{fields[key]}, {text}"
        elif fields[key] != text:
            raise BadFields("more than one Location")
    return fields


def _text(value: bytes) -> str:
    """Decode a value as UTF-8 if possible, as for an unescaped Location; else one character per
    byte."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([0-9]{3})(?: [^\0\r]*)?")
_FIELD = re.compile(rb"(%b):([^\0\r]*)" % _TOKEN)
_FOLDED = re.compile(rb"[ \t][^\0\r]*")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # not the tab, which may stand around a value
_LENGTH = re.compile(rb"0|[1-9][0-9]{0,14}")  # not all clients accept leading zeros
_QUOTED = rb'"[ !#-\[\]-~]*"'
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;%b(?:=(?:%b|%b))?)*" % (_TOKEN, _TOKEN, _QUOTED))
_LONGEST_SIZE = 1024  # bytes of the line before a chunk
_CHUNKED = b"chunked"
_NO_BODY = (204, 304)
_DELIMITING = frozenset({b"content-length", b"transfer-encoding"})
_OF_CONNECTION = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"upgrade"})
#: The fields that the clients and the guard act on.
_ACTED_ON = (
    _DELIMITING
    | _OF_CONNECTION
    | {b"content-encoding", b"content-type", b"location"}
    | {b"age", b"cache-control", b"date", b"etag", b"expires", b"last-modified", b"retry-after"}
)


class _Doubt(Exception):
    """The framing has a fault."""


class Framing:
    """The framing of one response to a GET, including interim responses before it.

    `fault` describes its fault, or is "". `content` is the number of bytes of content so far,
    before any content coding is undone. `is_whole` says whether the response may end here.
    """

    def __init__(self) -> None:
        self.fault = ""
        self.content = 0
        self._buffer = bytearray()
        self._next: Callable[[], bool] = self._status_line
        self._head = 0  # bytes of lines in heads and trailers so far
        self._left = 0  # bytes of the body or chunk still expected
        self._minor = b""
        self._status = 0
        self._names: list[bytes] = []
        self._values: list[bytes] = []

    @property
    def is_whole(self) -> bool:
        """Whether the response is complete if no more bytes come."""
        return self._next == self._end

    def feed(self, received: bytes) -> None:
        """Read further bytes. After a fault they are ignored."""
        if self.fault:
            return
        self._buffer += received
        try:
            while self._buffer and self._next():
                pass
        except _Doubt as doubt:
            self.fault = str(doubt)
            self._buffer.clear()

    def closed(self, *, clean: bool) -> None:
        """Note the end of the connection. `clean`: it ended with a FIN or, in TLS, with
        `close_notify`.

        A response that lasts until then is complete only after a clean end (RFC 9112 sections 8 and
        9.8). Only the first call counts.
        """
        if self._next == self._until_closed:
            self._next = self._end if clean else self._broken

    def objection(self, *, truncated: bool, content: int) -> str:
        """Say why a response that a client considers complete is unreliable; "" if it is reliable.

        `truncated`: the client did not read it to its end. `content`: the bytes of content the
        client has read.
        """
        if self.fault:
            return self.fault
        if not truncated and self._next == self._broken:
            return "the connection broke in a response without a length"
        if not truncated and not self.is_whole:
            return "the response ends earlier than its framing says"
        if content > self.content or (content < self.content and not truncated):
            return f"{content} bytes of content were read where the framing says {self.content}"
        return ""

    # -- one step each: True if there may be more to read ---------------------------------------------------

    def _status_line(self) -> bool:
        line = self._line(MAX_FIELD)
        if line is None:
            return False
        found = _STATUS_LINE.fullmatch(line)
        if found is None:
            raise _Doubt("no HTTP/1 status line")
        self._minor, self._status = found[1], int(found[2])
        if self._status < 200 and self._minor == b"0":  # RFC 9110 section 15.2
            raise _Doubt("an interim response in HTTP/1.0")
        if self._status < 100 or self._status == 101:
            raise _Doubt(f"status {self._status} is not a response to a GET")
        self._names, self._values = [], []
        self._next = self._field
        return True

    def _field(self) -> bool:
        line = self._line(MAX_FIELD)
        if line is None:
            return False
        if line:
            self._take(line)
        elif self._status < 200:
            if not _DELIMITING.isdisjoint(self._names):
                raise _Doubt("an interim response with a body")
            if any(b"close" in value.lower() for value in self._all(b"connection")):
                raise _Doubt("an interim response that closes the connection")
            self._next = self._status_line  # the final response follows
        else:
            self._next = self._body()
        return True

    def _take(self, line: bytes) -> None:
        if self._names and _FOLDED.fullmatch(line):
            if self._names[-1] in _ACTED_ON:
                raise _Doubt("a folded field that is acted on")
            return
        found = _FIELD.fullmatch(line)
        if found is None:
            raise _Doubt("a header line that is not a field")
        name, value = found[1].lower(), found[2]
        if name in _ACTED_ON and _CONTROL.search(value):
            raise _Doubt("a control character in a field that is acted on")
        self._names.append(name)
        self._values.append(value)

    def _body(self) -> Callable[[], bool]:
        """Return the step that the fields call for next (RFC 9112 section 6.3)."""
        codings, lengths = self._all(b"transfer-encoding"), self._all(b"content-length")
        if codings and (lengths or self._minor == b"0" or self._status in _NO_BODY):
            raise _Doubt("Transfer-Encoding where it is not allowed")
        if codings:
            if len(codings) > 1 or codings[0].lower() != _CHUNKED:
                raise _Doubt("a Transfer-Encoding other than chunked")
            return self._chunk_size
        if len(lengths) > 1:
            raise _Doubt("more than one Content-Length")
        if lengths and not _LENGTH.fullmatch(lengths[0]):
            raise _Doubt("a Content-Length that is not a number")
        if self._status in _NO_BODY:
            return self._end
        if not lengths:
            return self._until_closed
        self._left = int(lengths[0])
        if self._left:
            return self._counted
        return self._end

    def _all(self, name: bytes) -> list[bytes]:
        """Return the values of a field. Only spaces are stripped: not all clients accept a tab
        around a value."""
        fields = zip(self._names, self._values, strict=True)
        return [value.strip(b" ") for each, value in fields if each == name]

    def _counted(self) -> bool:
        if self._skip():
            self._next = self._end
        return True

    def _until_closed(self) -> bool:
        self.content += len(self._buffer)
        self._buffer.clear()
        return False

    def _end(self) -> bool:
        raise _Doubt("more bytes than the response's framing says")

    def _broken(self) -> bool:
        raise _Doubt("bytes after the end of the connection")

    # -- chunks (RFC 9112 section 7.1) ----------------------------------------------------------------------

    def _chunk_size(self) -> bool:
        line = self._line_with_crlf(_LONGEST_SIZE)
        if line is None:
            return False
        found = _CHUNK.fullmatch(line)
        if found is None:
            raise _Doubt("a chunk without a size")
        self._left = int(found[1], 16)
        self._next = self._chunk
        if not self._left:
            self._names, self._values = [], []
            self._next = self._trailer
        return True

    def _chunk(self) -> bool:
        if self._skip():
            self._next = self._chunk_end
        return True

    def _chunk_end(self) -> bool:
        if len(self._buffer) < 2:
            return False
        if self._buffer[:2] != b"\r\n":
            raise _Doubt("a chunk that is not as long as its size")
        del self._buffer[:2]
        self._next = self._chunk_size
        return True

    def _trailer(self) -> bool:
        line = self._line_with_crlf(MAX_FIELD)
        if line is None:
            return False
        if line:
            self._count(line)
            self._take(line)
            if self._names[-1] in _DELIMITING:  # RFC 9110 section 6.5.1
                raise _Doubt("a trailer that delimits the response")
        else:
            self._next = self._end
        return True

    # -- bytes ----------------------------------------------------------------------------------------------

    def _skip(self) -> bool:
        """Skip the received part of the body or chunk; return whether it is complete."""
        skipped = min(self._left, len(self._buffer))
        del self._buffer[:skipped]
        self._left -= skipped
        self.content += skipped
        return not self._left

    def _line(self, longest: int) -> bytes | None:
        """Return the next line of a head without its line ending; None until it has arrived."""
        line = self._until_lf(longest)
        if line is None:
            return None
        self._count(line)
        return line.removesuffix(b"\r")

    def _line_with_crlf(self, longest: int) -> bytes | None:
        """Return the next line in a body; not all clients accept LF alone as its end."""
        line = self._until_lf(longest)
        if line is not None and not line.endswith(b"\r"):
            raise _Doubt("a chunk line that does not end in CRLF")
        if line is None:
            return None
        return line[:-1]

    def _until_lf(self, longest: int) -> bytes | None:
        end = self._buffer.find(b"\n")
        if (len(self._buffer) if end < 0 else end) > longest + 1:
            raise _Doubt(f"a line of more than {longest} bytes")
        if end < 0:
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _count(self, line: bytes) -> None:
        self._head += len(line) + 1
        if self._head > MAX_HEAD:
            raise _Doubt(f"heads of more than {MAX_HEAD} bytes")
