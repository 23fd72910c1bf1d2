"""A recording origin keeps the bytes of every connection, and answers as real servers do, good ones and bad.

A lane is one address of the loopback network with a port for each protocol. One case at a time runs in a lane, so
every connection of the lane that is accepted meanwhile belongs to that case.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import re
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
from integrations.mitmproxy.differential.grammar import LAST

RULES = b"User-agent: *\nDisallow: /private/\n"
SIGN = b"=the-last-answer="  # in the answer to the request that ends a stream
LIMIT = 20.0  # seconds for whatever should take milliseconds
CLOSING = 5.0  # seconds for a proxy to close its connections to an origin when its client has gone


class Temper(enum.Enum):
    """How an origin treats the bodies of requests, and its connections."""

    READS = "reads the body, then answers"
    IGNORES = "answers, and takes the body for the next request"
    ANSWERS_FIRST = "answers before it reads the body"
    CLOSES = "answers with Connection: close, and closes"
    HANGS_UP = "closes without an answer"
    UNFRAMED = "ends its answer by closing, as HTTP/1.0 does"
    INFORMS = "answers with 100 and 103 first"
    SWITCHES = "answers with 101, and reads on"
    SWITCHES_TO_WEBSOCKET = "answers with 101 for a WebSocket, and reads on"


@dataclass(eq=False)
class Recording:
    """The bytes of one connection: of the TLS inside where there is TLS."""

    scheme: str
    authority: str  # of the origin; at a parent proxy, of the lane's origin without TLS
    protocol: str
    case: int | None
    data: bytearray = field(default_factory=bytearray)

    @property
    def at_parent(self) -> bool:
        return self.protocol == "parent"


class Lane:
    """An origin for one case at a time. `ports` has one for each protocol: http, tls, h2, parent."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.ports: dict[str, int] = {}
        self.case: int | None = None
        self.temper = Temper.READS
        self.recordings: list[Recording] = []
        self.live: list[Recording] = []  # of connections that are open
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._servers: list[asyncio.Server] = []

    def authority(self, protocol: str) -> str:
        return f"{self.address}:{self.ports[protocol]}"

    async def start(self, tls: Callable[[str], ssl.SSLContext]) -> None:
        """Listen. `tls` makes a context that offers a protocol by ALPN."""
        contexts = {"http": None, "tls": tls("http/1.1"), "h2": tls("h2"), "parent": None}
        for protocol, context in contexts.items():
            server = await asyncio.start_server(
                lambda reader, writer, protocol=protocol: self._serve(protocol, reader, writer),
                self.address,
                0,
                ssl=context,
                ssl_shutdown_timeout=1.0
                if context
                else None,  # not every peer answers a close_notify
            )
            self._servers.append(server)
            self.ports[protocol] = server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        await self.quiet()

    async def quiet(self) -> None:
        """Wait until the proxy has closed its connections to this lane. Raises TimeoutError."""
        async with asyncio.timeout(CLOSING):
            await self._quiet.wait()

    def give_up(self) -> None:
        """Wait no longer for the connections that are open now."""
        self.live.clear()
        self._quiet.set()

    async def _serve(
        self, protocol: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        origin = "http" if protocol == "parent" else protocol
        scheme = "http" if origin == "http" else "https"
        recording = Recording(scheme, self.authority(origin), protocol, self.case)
        self.recordings.append(recording)
        self.live.append(recording)
        self._quiet.clear()
        try:
            with contextlib.suppress(OSError, h2.exceptions.ProtocolError):
                await self._answer(protocol, recording, reader, writer)
        finally:
            writer.transport.abort()
            if recording in self.live:
                self.live.remove(recording)
            if not self.live:
                self._quiet.set()

    async def _answer(
        self,
        protocol: str,
        recording: Recording,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        answers = Http2Answers(self.temper) if protocol == "h2" else Http1Answers(self.temper)
        while data := await reader.read(65536):
            recording.data += data
            if protocol == "parent" and recording.data.startswith(b"CONNECT "):
                await self._tunnel(recording, reader, writer)
                return
            if answers.is_over:  # it still records what comes
                continue
            writer.write(answers.receive(data))
            if answers.is_over:
                _end(writer)

    async def _tunnel(
        self, recording: Recording, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Be a parent proxy: connect the two ends. What goes through is recorded at the origin."""
        while b"\r\n\r\n" not in recording.data and (data := await reader.read(65536)):
            recording.data += data
        end = recording.data.index(b"\r\n\r\n") + 4
        early = bytes(recording.data[end:])
        del recording.data[end:]
        address, _, port = recording.data.split(b" ")[1].decode().rpartition(":")
        there, back = await asyncio.open_connection(address, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        back.write(early)
        await asyncio.gather(_copy(reader, back), _copy(there, writer))


def _end(writer: asyncio.StreamWriter) -> None:
    """Say that no more comes, and go on reading where that is possible: TLS in asyncio closes both ways at once."""
    if writer.can_write_eof():
        writer.write_eof()
    else:
        writer.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()


_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r\n]*chunked", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection:[^\r\n]*\bclose\b", re.IGNORECASE)
SWITCHING = {
    Temper.SWITCHES: b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    Temper.SWITCHES_TO_WEBSOCKET: (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    ),
}
_CHUNK = re.compile(rb"([0-9a-f]{1,8})[^\r\n]*\r\n", re.IGNORECASE)
_LAST_CHUNK = re.compile(rb"0+[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n")


class Http1Answers:
    """Answers the requests on one connection. This reading decides nothing: the readers judge what was recorded."""

    def __init__(self, temper: Temper) -> None:
        self.is_over = False
        self._temper = temper
        self._buffer = b""

    def receive(self, data: bytes) -> bytes:
        """Take bytes; return the answers that are due."""
        self._buffer += data
        answers = b""
        while not self.is_over and (request := self._next()):
            answers += self._answer(*request)
        return answers

    def _next(self) -> tuple[bytes, bytes] | None:
        """Return the first line and the head of the next request to answer."""
        self._buffer = self._buffer.lstrip(b"\r\n")
        head, mark, rest = self._buffer.partition(b"\r\n\r\n")
        if not mark:
            return None
        head += b"\r\n"
        size = 0 if self._temper is Temper.IGNORES else _body_size(head, rest)
        if size is None and self._temper in (Temper.ANSWERS_FIRST, Temper.HANGS_UP):
            self.is_over = True  # what is left of the body is not looked at
            size = len(rest)
        if size is None:
            return None
        self._buffer = rest[size:]
        return head.partition(b"\r\n")[0], head

    def _answer(self, line: bytes, head: bytes) -> bytes:
        is_robots = b"/robots.txt" in line
        if self._temper is Temper.HANGS_UP and not is_robots:
            self.is_over = True
            return b""
        if line.count(b" ") < 2:
            self.is_over = True
            return b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
        temper = Temper.READS if is_robots else self._temper
        closes = temper in (Temper.UNFRAMED, Temper.CLOSES) or _CLOSES.search(head) is not None
        self.is_over = closes
        method, target = line.split(b" ")[:2]
        return SWITCHING.get(temper) or _response(method, target, temper, closes=closes)


def _response(method: bytes, target: bytes, temper: Temper, *, closes: bool) -> bytes:
    content = body_for(target)
    line = b"HTTP/1.0 200 OK\r\n" if temper is Temper.UNFRAMED else b"HTTP/1.1 200 OK\r\n"
    if temper is Temper.INFORMS:
        line = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + line
    fields = b"Content-Type: text/plain\r\n"
    if temper is not Temper.UNFRAMED:
        fields += b"Content-Length: %d\r\n" % len(content)
    if closes:
        fields += b"Connection: close\r\n"
    return line + fields + b"\r\n" + (b"" if method == b"HEAD" else content)


def body_for(target: bytes) -> bytes:
    """Return what an origin has at a target."""
    if target.endswith(b"/robots.txt"):
        return RULES
    return SIGN if target.endswith(b"." + LAST.encode()) else b"page " + target[-40:]


def _body_size(head: bytes, rest: bytes) -> int | None:
    """Return the bytes a body takes in `rest`; None while it is not all there."""
    if _CHUNKED.search(head):
        return _chunked_size(rest)
    found = _LENGTH.search(head)
    size = int(found[1]) if found else 0
    return size if len(rest) >= size else None


def _chunked_size(rest: bytes) -> int | None:
    at = 0
    while (last := _LAST_CHUNK.match(rest, at)) is None:
        chunk = _CHUNK.match(rest, at)
        if chunk is None or int(chunk[1], 16) == 0:
            return None
        at = chunk.end() + int(chunk[1], 16) + 2
    return last.end()


class Http2Answers:
    """Answers the requests on one HTTP/2 connection, whatever its header blocks say."""

    def __init__(self, temper: Temper) -> None:
        self.is_over = False
        self._temper = temper
        self._targets: dict[int, bytes] = {}
        self._connection = h2.connection.H2Connection(
            h2.config.H2Configuration(
                client_side=False,
                header_encoding=None,
                validate_inbound_headers=False,
                normalize_inbound_headers=False,
            )
        )
        self._connection.initiate_connection()

    def receive(self, data: bytes) -> bytes:
        """Take bytes; return the answers that are due."""
        for event in self._connection.receive_data(data):
            self._react(event)
        return self._connection.data_to_send()

    def _react(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self._targets[event.stream_id] = dict(event.headers).get(b":path", b"")
            if self._temper in (Temper.ANSWERS_FIRST, Temper.IGNORES):
                self._answer(event.stream_id)
        elif isinstance(event, h2.events.DataReceived):
            self._connection.acknowledge_received_data(
                event.flow_controlled_length, event.stream_id
            )
        elif isinstance(event, h2.events.StreamEnded):
            self._answer(event.stream_id)

    def _answer(self, stream: int) -> None:
        target = self._targets.pop(stream, None)
        if target is None:
            return
        if self._temper is Temper.HANGS_UP and not target.endswith(b"/robots.txt"):
            self._connection.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)
            return
        self._connection.send_headers(
            stream, [(b":status", b"200"), (b"content-type", b"text/plain")]
        )
        self._connection.send_data(stream, body_for(target), end_stream=True)
        if self._temper is Temper.CLOSES:
            self._connection.close_connection(last_stream_id=stream)
            self.is_over = True


def lanes(number: int, network: str) -> Iterable[Lane]:
    """Make lanes on addresses of their own: `network` is the first two bytes, as 127.5."""
    return [Lane(f"{network}.{1 + index // 250}.{1 + index % 250}") for index in range(number)]
