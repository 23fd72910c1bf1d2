"""The readers say which requests the recorded bytes are. Each is one way in which servers read HTTP.

`h11` is the strict reader. The lenient readings are one small parser with a switch for each thing on which servers
differ: which of two framings wins, whether a body is read at all, what ends a line, how a field's name is spelt. A
request that any of them finds is a request that some server serves.

Model of a connection's end: a server stops reading once it has answered a request that carries `Connection: close`
(RFC 9112 section 9.6: it "MUST NOT process any further requests"), and so does each reading, *as it reads that
request*. It is the one thing that makes a body harmless to a server that does not read bodies: the bytes behind
the head are there, but the server has hung up. Nothing else ends a reading: not HTTP/1.0, not the server's answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h11
import hpack
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import ContinuationFrame, DataFrame, Frame, HeadersFrame
from integrations.mitmproxy.differential.frames import PREFACE


class Found(NamedTuple):
    """A request in the bytes. `hosts` is every name it gives its site, None if the reader does not tell."""

    method: str
    target: str
    hosts: tuple[str, ...] | None = None


# -- h11 ------------------------------------------------------------------------------------------------------


def by_h11(data: bytes) -> Iterator[Found]:
    """Read as h11's server does, which answers each request at its end."""
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    server.receive_data(data)
    server.receive_data(b"")
    try:
        while True:
            event = server.next_event()
            if isinstance(event, h11.Request):
                hosts = [
                    value.decode("latin-1") for name, value in event.headers if name == b"host"
                ]
                yield Found(
                    event.method.decode("latin-1"), event.target.decode("latin-1"), tuple(hosts)
                )
            elif isinstance(event, h11.EndOfMessage):
                server.send(h11.Response(status_code=200, headers=[(b"content-length", b"0")]))
                server.send(h11.EndOfMessage())
                server.start_next_cycle()
            elif (
                event is h11.NEED_DATA
                or event is h11.PAUSED
                or isinstance(event, h11.ConnectionClosed)
            ):
                return
    except h11.ProtocolError:
        return


# -- lenient readings -----------------------------------------------------------------------------------------

CRLF, LF, CR = rb"\r\n", rb"(?>\r?\n)", rb"(?>\r\n|\n|\r)"
_REQUEST_LINE = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t\x0b\x0c\r]+(\S+)(?:[ \t\x0b\x0c\r]+(.*))?", re.DOTALL
)
_VERSION = re.compile(rb"HTTP/1\.?\d*\s*", re.IGNORECASE)
_NUMBER = re.compile(rb"[\s\x00\"+]*(\d+)")
_STRICT_NUMBER = re.compile(rb"(\d+)$")
_CHUNK_SIZE = re.compile(rb"\s*(?:0[xX](?=[0-9a-fA-F]))?([0-9a-fA-F]+)")
_NOT_IN_NAMES = re.compile(rb"[^a-z0-9_-]+")
_ODD_ENDS = re.compile(rb"\r(?!\n)|(?<!\r)\n")
_BODILESS = (b"GET", b"HEAD", b"DELETE", b"OPTIONS", b"TRACE")

_FRAMINGS = (
    "coding before length",  # RFC 9112 section 6.3
    "length before coding",
    "length only",  # a server of HTTP/1.0
    "coding only",
    "no body where none is usual",  # CL.0 for methods such as GET
    "no body at all",  # CL.0 for any
)


@dataclass(frozen=True)
class Reading:
    """One way to read HTTP/1.

    `loose` also obeys fields whose name or value is misspelt, and the last of several. `skips_junk` passes over
    lines that are no request line, such as the size of a chunk that was not expected (TE.0).
    """

    framing: str
    line_end: bytes = CRLF
    loose: bool = False
    takes_0_9: bool = False
    skips_junk: bool = False

    def __str__(self) -> str:
        ends = {CRLF: "CRLF", LF: "bare LF", CR: "bare CR"}[self.line_end]
        switches = {"loose": self.loose, "HTTP/0.9": self.takes_0_9, "skips junk": self.skips_junk}
        return ", ".join([self.framing, ends, *(name for name, is_on in switches.items() if is_on)])

    @cached_property
    def _end(self) -> re.Pattern[bytes]:
        return re.compile(self.line_end)

    @cached_property
    def _head_end(self) -> re.Pattern[bytes]:
        return re.compile(self.line_end + self.line_end)

    @cached_property
    def _blank(self) -> re.Pattern[bytes]:
        return re.compile(rb"(?:" + self.line_end + rb")*")

    def requests(self, data: bytes) -> Iterator[Found]:
        """Read a connection from its first byte to where this server stops."""
        at = 0
        while True:
            at = self._blank.match(data, at).end()  # type: ignore[union-attr]  # it matches nothing, too
            if self.takes_0_9 and (simple := self._simple_request(data, at)):
                yield simple
                return
            end = self._head_end.search(data, at)
            if end is None:
                return
            head = _Head(self._end.split(data[at : end.start()]), loose=self.loose)
            if head.found is None:
                if not self.skips_junk:
                    return
                at = self._end.search(data, at).end()  # type: ignore[union-attr]  # the head has an end
                continue
            yield head.found
            if head.closes:
                return
            size = self._body_size(head, data, end.end())
            if size is None:
                return
            at = end.end() + size

    def _simple_request(self, data: bytes, at: int) -> Found | None:
        """Return a request of HTTP/0.9, which is its first line alone."""
        end = self._end.search(data, at)
        words = data[at : end.start()].split() if end else []
        is_simple = len(words) == 2 and words[0].upper() == b"GET" and words[1].startswith(b"/")
        return Found("GET", words[1].decode("latin-1"), None) if is_simple else None

    def _body_size(self, head: _Head, data: bytes, at: int) -> int | None:
        """Return how many bytes this server takes for the body; None if it reads no further."""
        coded, length = head.is_chunked, head.length
        if self.framing == "no body at all" or (
            self.framing.startswith("no body where") and head.method in _BODILESS
        ):
            return 0
        if self.framing == "length only" or (
            self.framing == "length before coding" and length is not None
        ):
            coded = False
        elif self.framing == "coding only":
            length = None
        if coded:
            return self._chunked_size(data, at)
        return length or 0

    def _chunked_size(self, data: bytes, start: int) -> int | None:
        at = start
        while end := self._end.search(data, at):
            number = _CHUNK_SIZE.match(data[at : end.start()])
            if number is None:
                return None
            at, size = end.end(), int(number[1], 16)
            if size == 0:
                return self._trailers_end(data, at, start)
            at += size
            if at > len(data):
                return None
            after = self._end.match(data, at)
            at = after.end() if after else at
        return None

    def _trailers_end(self, data: bytes, at: int, start: int) -> int | None:
        while end := self._end.search(data, at):
            is_empty = end.start() == at
            at = end.end()
            if is_empty:
                return at - start
        return None


class _Head:
    """The first line and the fields of a request, as a strict or a loose server takes them."""

    def __init__(self, lines: list[bytes], *, loose: bool) -> None:
        self.found: Found | None = None
        self.method = b""
        line = _REQUEST_LINE.fullmatch(lines[0])
        if line is None or not (line[3] is None or _VERSION.search(line[3])):
            return
        self.method = line[1]
        fields = list(_fields(lines[1:], loose=loose))
        values = {name: [value for other, value in fields if other == name] for name, _ in fields}
        hosts = tuple(value.decode("latin-1") for value in values.get(b"host", ()))
        self.found = Found(line[1].decode("latin-1"), line[2].decode("latin-1"), hosts)
        self.closes = any(
            token.strip().lower() == b"close"
            for value in values.get(b"connection", ())
            for token in value.split(b",")
        )
        codings = b",".join(values.get(b"transfer-encoding", ())).lower()
        self.is_chunked = (
            b"chunked" in codings if loose else codings.rpartition(b",")[2].strip() == b"chunked"
        )
        lengths = values.get(b"content-length", ())
        number = (
            (_NUMBER.match(lengths[-1]) if loose else _STRICT_NUMBER.match(lengths[0]))
            if lengths
            else None
        )
        self.length = int(number[1][:18]) if number else None


def _fields(lines: list[bytes], *, loose: bool) -> Iterator[tuple[bytes, bytes]]:
    """Return names and values; a folded line belongs to the value before it (RFC 9112 section 5.2)."""
    unfolded: list[bytes] = []
    for line in lines:
        if line[:1] in (b" ", b"\t") and unfolded and not loose:
            unfolded[-1] += b" " + line.strip()
        else:
            unfolded.append(line)
    for line in unfolded:
        name, _, value = line.partition(b":")
        name = name.lower()
        if loose:
            name = _NOT_IN_NAMES.sub(b"", name).replace(b"_", b"-")
        yield name, value.strip(b" \t\r\x0b\x0c")


READINGS = [Reading(framing, CRLF, loose) for framing in _FRAMINGS for loose in (False, True)]
READINGS += [Reading(framing, CRLF, takes_0_9=True) for framing in (_FRAMINGS[0], _FRAMINGS[-1])]
_IGNORING_CHUNKS = (_FRAMINGS[2], _FRAMINGS[4], _FRAMINGS[5])
READINGS += [
    Reading(framing, CRLF, loose, skips_junk=True)
    for framing in _IGNORING_CHUNKS
    for loose in (False, True)
]
ODD_READINGS = [
    Reading(framing, end, loose)
    for framing in _FRAMINGS
    for end in (LF, CR)
    for loose in (False, True)
]
ODD_READINGS += [
    Reading(framing, end, skips_junk=True) for framing in _IGNORING_CHUNKS for end in (LF, CR)
]


def readings_for(data: bytes) -> list[Reading]:
    """Return the readings that can differ on these bytes: line ends matter only where there are odd ones."""
    return READINGS + ODD_READINGS if _ODD_ENDS.search(data) else READINGS


# -- HTTP/2 ---------------------------------------------------------------------------------------------------


@dataclass
class Stream:
    """A request as its frames say it is, checked by nothing."""

    fields: list[tuple[bytes, bytes]]
    body: bytes = b""

    def value(self, name: bytes) -> str:
        return next((value.decode("latin-1") for other, value in self.fields if other == name), "")

    @property
    def found(self) -> Found:
        hosts = [
            value.decode("latin-1")
            for name, value in self.fields
            if name in (b":authority", b"host")
        ]
        return Found(self.value(b":method"), self.value(b":path"), tuple(hosts))

    def downgraded(self) -> bytes:
        """Write it as a front end does that passes HTTP/2 on to a server of HTTP/1 and believes every field."""
        names = {name for name, _ in self.fields}
        lines = [f"{self.value(b':method')} {self.value(b':path')} HTTP/1.1".encode("latin-1")]
        if b"host" not in names:
            lines.append(b"host: " + self.value(b":authority").encode("latin-1"))
        lines += [name + b": " + value for name, value in self.fields if not name.startswith(b":")]
        body = self.body
        if body and not names & {b"content-length", b"transfer-encoding"}:
            lines.append(b"transfer-encoding: chunked")
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        return b"\r\n".join(lines) + b"\r\n\r\n" + body


def streams(data: bytes) -> list[Stream]:
    """Read the frames of a client's connection with hyperframe and hpack alone."""
    opened: dict[int, Stream] = {}
    decoder, block = hpack.Decoder(), b""
    for frame in _frames(data):
        if isinstance(frame, HeadersFrame | ContinuationFrame):
            block = frame.data if isinstance(frame, HeadersFrame) else block + frame.data
            if "END_HEADERS" in frame.flags:
                fields = [
                    (bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)
                ]
                opened.setdefault(frame.stream_id, Stream(fields))  # a second block is the trailers
        elif isinstance(frame, DataFrame) and frame.stream_id in opened:
            opened[frame.stream_id].body += frame.data
    return list(opened.values())


def _frames(data: bytes) -> Iterator[Frame]:
    at = len(PREFACE) if data.startswith(PREFACE) else len(data)
    while len(data) - at >= 9:
        try:
            frame, size = Frame.parse_frame_header(memoryview(data)[at : at + 9])
            if len(data) - at - 9 < size:
                return
            frame.parse_body(memoryview(data)[at + 9 : at + 9 + size])
        except HyperframeError:
            return
        yield frame
        at += 9 + size


def by_h2(data: bytes) -> Iterator[Found]:
    """Read as the h2 library's server does, with all its checks."""
    server = h2.connection.H2Connection(
        h2.config.H2Configuration(client_side=False, header_encoding=None)
    )
    server.initiate_connection()
    # In pieces, or what comes before a fault would be lost with it.
    for at in range(0, len(data), 64):
        try:
            events = server.receive_data(data[at : at + 64])
        except h2.exceptions.ProtocolError:
            return
        for event in events:
            if isinstance(event, h2.events.RequestReceived):
                yield Stream([(bytes(name), bytes(value)) for name, value in event.headers]).found


def readings_of(protocol: str, data: bytes) -> Iterator[tuple[str, list[Found]]]:
    """Return what each reader in this process finds in a connection."""
    if protocol == "h2":
        yield "h2", list(by_h2(data))
        opened = streams(data)
        yield "frames", [stream.found for stream in opened]
        for reading in (READINGS[0], READINGS[1], READINGS[2]):
            yield (
                f"downgraded, {reading}",
                [found for stream in opened for found in reading.requests(stream.downgraded())],
            )
        return
    yield "h11", list(by_h11(data))
    for reading in readings_for(data):
        yield str(reading), list(reading.requests(data))
