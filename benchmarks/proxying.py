"""Sites and a client for benchmarks/proxy.py, both cheap, so that mostly the proxy is measured.

`python proxying.py CERTIFICATES` serves one site in clear, one in TLS with HTTP/1.1 and one with
HTTP/2, and prints their ports. `drive` keeps a number of connections busy, and returns the time of
each answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator

import h2.config
import h2.connection
import h2.events
import h2.exceptions

PAGE = b"x" * 2048
ROBOTS = b"User-agent: *\nDisallow: /private/\n" + b"".join(
    b"Disallow: /area-%d/*.cgi\n" % each for each in range(40)
)


class Http1(asyncio.Protocol):
    """A server protocol that answers every request head alike."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.buffer = transport, b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
            body = ROBOTS if b" /robots.txt " in head else PAGE
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )


class Http2(asyncio.Protocol):
    """The same over HTTP/2, or over HTTP/1.1 if that was negotiated."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        if transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
            transport.set_protocol(old := Http1())
            old.connection_made(transport)
            return
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.h2.initiate_connection()
        transport.write(self.h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                # A proxy whose client has left resets its requests, often in the same bytes.
                with contextlib.suppress(h2.exceptions.StreamClosedError):
                    self._answer(event)
        self.transport.write(self.h2.data_to_send())

    def _answer(self, request: h2.events.RequestReceived) -> None:
        body = ROBOTS if (b":path", b"/robots.txt") in request.headers else PAGE
        length = [(":status", "200"), ("content-length", str(len(body)))]
        self.h2.send_headers(request.stream_id, length)
        self.h2.send_data(request.stream_id, body, end_stream=True)


async def serve(certificates: str) -> None:
    loop = asyncio.get_running_loop()
    ports = []
    for protocol, alpn in ((Http1, None), (Http1, ["http/1.1"]), (Http2, ["h2", "http/1.1"])):
        context = None
        if alpn:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates)
            context.set_alpn_protocols(alpn)
        server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=context)
        ports.append(server.sockets[0].getsockname()[1])
    print(*ports, flush=True)
    await asyncio.Event().wait()


# -- the client ------------------------------------------------------------------------------------


class OneByOne:
    """A connection with one outstanding request."""

    def __init__(self, connection: socket.socket, request: bytes) -> None:
        self.connection, self.request, self.buffer, self.sent = connection, request, b"", 0.0
        connection.setblocking(False)

    def begin(self) -> None:
        self.sent = time.perf_counter()
        self.connection.send(self.request)

    def answers(self) -> Iterator[float]:
        """Return the times of the received answers, and send the next requests."""
        self.buffer += _received(self.connection)
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        if end and len(body) >= int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
            self.buffer = b""
            yield time.perf_counter() - self.sent
            self.begin()


class Multiplexed:
    """An HTTP/2 connection with several outstanding requests."""

    def __init__(
        self, connection: socket.socket, headers: list[tuple[str, str]], width: int
    ) -> None:
        self.connection, self.headers, self.width = connection, headers, width
        connection.setblocking(False)
        self.h2 = h2.connection.H2Connection()
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(2**30)
        self.sent: dict[int, float] = {}

    def begin(self) -> None:
        while len(self.sent) < self.width:
            stream = self.h2.get_next_available_stream_id()
            self.h2.send_headers(stream, self.headers, end_stream=True)
            self.sent[stream] = time.perf_counter()
        self.connection.send(self.h2.data_to_send())

    def answers(self) -> Iterator[float]:
        for event in self.h2.receive_data(_received(self.connection)):
            if isinstance(event, h2.events.StreamEnded):
                yield time.perf_counter() - self.sent.pop(event.stream_id)
            assert not isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated), (
                event
            )
        self.begin()


def _received(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
            if len(part) < 65536 and not isinstance(connection, ssl.SSLSocket):
                break
    except (ssl.SSLWantReadError, BlockingIOError):
        pass
    return b"".join(parts)


def drive(
    connect: Callable[[], OneByOne | Multiplexed], connections: int, count: int
) -> list[float]:
    """Return the seconds of each of `count` answers."""
    busy, taken = selectors.DefaultSelector(), []
    for _ in range(connections):
        each = connect()
        busy.register(each.connection, selectors.EVENT_READ, each)
        each.begin()
    while len(taken) < count:
        for key, _ in busy.select(10):
            taken += key.data.answers()
    for key in list(busy.get_map().values()):
        key.data.connection.close()
    return taken


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
