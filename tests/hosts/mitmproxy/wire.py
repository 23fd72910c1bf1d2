"""A client that sends octets as they are: what well-behaved clients would not."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import h2.config
import h2.connection
import h2.events
from hosts.mitmproxy.process import Door

TIMEOUT = 20.0


class Answer(NamedTuple):
    """A response; status 0 if the connection was closed without one."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def guard(self) -> str:
        return self.headers.get("robots-guard", "")


@contextlib.contextmanager
def connected(door: Door) -> Iterator[socket.socket]:
    with socket.create_connection((door.host, door.port), timeout=TIMEOUT) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


@contextlib.contextmanager
def tunnel(
    door: Door, authority: str, *, tls: bool = True, sni: str | None = None, alpn: Sequence[str] = (), fields: str = ""
) -> Iterator[socket.socket]:
    """A connection after CONNECT, with TLS inside it or without."""
    with connected(door) as connection:
        answer = exchange(
            connection, f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n".encode(), body=False
        )
        assert answer.status == 200, answer
        if not tls:
            yield connection
            return
        context = trusting(door)
        context.check_hostname = sni is None
        if sni is not None:
            context.verify_mode = ssl.CERT_NONE
        if alpn:
            context.set_alpn_protocols(list(alpn))
        name = sni if sni is not None else authority.rpartition(":")[0]
        with context.wrap_socket(connection, server_hostname=name) as secured:
            yield secured


def trusting(door: Door) -> ssl.SSLContext:
    """A client's that knows the proxy's CA."""
    context = ssl.create_default_context(cafile=str(door.ca))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # mitmproxy's CA certificate has no key usage
    return context


def exchange(connection: socket.socket, octets: bytes, *, body: bool = True) -> Answer:
    """Send octets, read one answer."""
    connection.sendall(octets)
    return read_answer(connection, body=body)


def read_answer(connection: socket.socket, *, body: bool = True) -> Answer:
    head = b""
    with contextlib.suppress(OSError):
        while not head.endswith(b"\r\n\r\n"):
            octet = connection.recv(1)
            if not octet:
                break
            head += octet
    if not head.startswith(b"HTTP/"):
        return Answer(0, {}, head)
    line, *fields = head.decode("latin-1").rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (text.partition(":") for text in fields)}
    length = int(headers.get("content-length", "0")) if body else 0
    content = b""
    while len(content) < length and (more := connection.recv(length - len(content))):
        content += more
    return Answer(int(line.split()[1]), headers, content)


def closed(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    octets = b""
    with contextlib.suppress(OSError):
        while more := connection.recv(65536):
            octets += more
    return octets


def plain(door: Door, url: str, *, method: str = "GET", fields: str = "", body: bytes = b"") -> Answer:
    """An absolute-form request of a client without TLS, on a connection of its own."""
    authority = url.split("/")[2]
    head = f"{method} {url} HTTP/1.1\r\nHost: {authority}\r\n{fields}Connection: close\r\n\r\n"
    with connected(door) as connection:
        return exchange(connection, head.encode("latin-1") + body, body=method != "HEAD")


def inside(door: Door, authority: str, target: str, *, method: str = "GET", fields: str = "") -> Answer:
    """An HTTPS request through a tunnel of its own."""
    with tunnel(door, authority) as connection:
        head = f"{method} {target} HTTP/1.1\r\nHost: {authority}\r\n{fields}Connection: close\r\n\r\n"
        return exchange(connection, head.encode("latin-1"), body=method != "HEAD")


class H2Client:
    """A well-behaved HTTP/2 client: one request after another on one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="latin-1"))
        self._h2.initiate_connection()

    def exchange(
        self,
        headers: Sequence[tuple[str, str]],
        body: bytes = b"",
        trailers: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        """A request and its answer; trailers of the answer are among its header fields."""
        stream = self._h2.get_next_available_stream_id()
        self._h2.send_headers(stream, headers, end_stream=not (body or trailers))
        self._send(stream, body, last=not trailers)
        if trailers:
            self._h2.send_headers(stream, trailers, end_stream=True)
        return self._answer(stream)

    def _send(self, stream: int, body: bytes, *, last: bool) -> None:
        while body:
            size = min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size, len(body))
            if not size:
                self._connection.sendall(self._h2.data_to_send())
                self._h2.receive_data(self._connection.recv(65536))
                continue
            self._h2.send_data(stream, body[:size], end_stream=last and size == len(body))
            body = body[size:]

    def _answer(self, stream: int) -> Answer:
        fields: dict[str, str] = {}
        body = b""
        self._connection.sendall(self._h2.data_to_send())
        with contextlib.suppress(OSError):
            while octets := self._connection.recv(65536):
                for event in self._h2.receive_data(octets):
                    if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                        fields.update(event.headers)
                    elif isinstance(event, h2.events.DataReceived):
                        body += event.data
                        self._h2.acknowledge_received_data(event.flow_controlled_length, stream)
                    elif isinstance(event, h2.events.StreamEnded):
                        return Answer(int(fields[":status"]), fields, body)
                    elif isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
                        return Answer(0, fields, body)
                self._connection.sendall(self._h2.data_to_send())
        return Answer(0, fields, body)


def http2(connection: socket.socket, headers: Sequence[tuple[str, str]]) -> Answer:
    """One HTTP/2 request, its header block as given; status 0 if the stream or connection was closed."""
    config = h2.config.H2Configuration(
        header_encoding=False, validate_outbound_headers=False, normalize_outbound_headers=False
    )
    client = h2.connection.H2Connection(config)
    client.initiate_connection()
    client.send_headers(
        1, [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers], end_stream=True
    )
    connection.sendall(client.data_to_send())
    status, fields, body = 0, {}, b""
    with contextlib.suppress(OSError):
        while octets := connection.recv(65536):
            for event in client.receive_data(octets):
                if isinstance(event, h2.events.ResponseReceived):
                    fields = {name.decode(): value.decode("latin-1") for name, value in event.headers}
                    status = int(fields[":status"])
                elif isinstance(event, h2.events.DataReceived):
                    body += event.data
                    client.acknowledge_received_data(event.flow_controlled_length, 1)
                elif isinstance(event, h2.events.StreamEnded | h2.events.StreamReset | h2.events.ConnectionTerminated):
                    return Answer(status, fields, body)
            connection.sendall(client.data_to_send())
    return Answer(status, fields, body)
