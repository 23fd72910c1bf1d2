"""A client that sends raw bytes, as well-behaved clients would not."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import ssl
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import h2.config
import h2.connection
import h2.errors
import h2.events
from integrations.mitmproxy.process import Integration

TIMEOUT = 60.0


class Answer(NamedTuple):
    """A response; status 0 if the stream or connection was closed without one. `is_whole` is of HTTP/2 only."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool = True

    @property
    def guard(self) -> str:
        return self.headers.get("robots-guard", "")


@contextlib.contextmanager
def connected(integration: Integration) -> Iterator[socket.socket]:
    with socket.create_connection(
        (integration.host, integration.port), timeout=TIMEOUT
    ) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


@contextlib.contextmanager
def tunnel(
    integration: Integration,
    authority: str,
    *,
    tls: bool = True,
    sni: str | None = None,
    alpn: Sequence[str] = (),
    fields: str = "",
) -> Iterator[socket.socket]:
    """A connection after CONNECT, with TLS inside it or without."""
    with connected(integration) as connection:
        answer = exchange(
            connection,
            f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n".encode(),
            body=False,
        )
        assert answer.status == 200, answer
        if not tls:
            yield connection
            return
        context = trusting(integration)
        context.check_hostname = sni is None
        if sni is not None:
            context.verify_mode = ssl.CERT_NONE
        if alpn:
            context.set_alpn_protocols(list(alpn))
        name = sni if sni is not None else authority.rpartition(":")[0]
        with context.wrap_socket(connection, server_hostname=name) as secured:
            yield secured


def trusting(integration: Integration) -> ssl.SSLContext:
    """A client's that knows the proxy's CA."""
    context = ssl.create_default_context(cafile=str(integration.ca))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # mitmproxy's CA certificate has no key usage
    return context


def exchange(connection: socket.socket, data: bytes, *, body: bool = True) -> Answer:
    """Send bytes, read one answer."""
    connection.sendall(data)
    return read_answer(connection, body=body)


def read_answer(connection: socket.socket, *, body: bool = True) -> Answer:
    head = b""
    with contextlib.suppress(OSError):
        while not head.endswith(b"\r\n\r\n"):
            byte = connection.recv(1)
            if not byte:
                break
            head += byte
    if not head.startswith(b"HTTP/"):
        return Answer(0, {}, head)
    line, *fields = head.decode("latin-1").rstrip().split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (text.partition(":") for text in fields)
    }
    length = int(headers.get("content-length", "0")) if body else 0
    content = b""
    while len(content) < length and (more := connection.recv(length - len(content))):
        content += more
    return Answer(int(line.split()[1]), headers, content)


def credentials(user: str, password: str = "secret") -> str:
    """The header field with which a client authenticates itself to the proxy."""
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return f"Proxy-Authorization: Basic {encoded}\r\n"


def htpasswd(*users: str, password: str = "secret") -> str:
    """A file with users in htpasswd's format."""
    digest = base64.b64encode(hashlib.sha1(password.encode()).digest()).decode()
    return "".join(f"{user}:{{SHA}}{digest}\n" for user in users)


def closed(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    data = b""
    with contextlib.suppress(OSError):
        while more := connection.recv(65536):
            data += more
    return data


def plain(
    integration: Integration, url: str, *, method: str = "GET", fields: str = "", body: bytes = b""
) -> Answer:
    """An absolute-form request of a client without TLS, on a connection of its own."""
    authority = url.split("/")[2]
    head = f"{method} {url} HTTP/1.1\r\nHost: {authority}\r\n{fields}Connection: close\r\n\r\n"
    with connected(integration) as connection:
        return exchange(connection, head.encode("latin-1") + body, body=method != "HEAD")


def inside(
    integration: Integration, authority: str, target: str, *, method: str = "GET", fields: str = ""
) -> Answer:
    """An HTTPS request through a tunnel of its own."""
    with tunnel(integration, authority) as connection:
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: {authority}\r\n{fields}Connection: close\r\n\r\n"
        )
        return exchange(connection, head.encode("latin-1"), body=method != "HEAD")


def request_fields(
    authority: str, path: str, method: str = "GET", scheme: str = "https"
) -> list[tuple[str, str]]:
    """The pseudo-header fields of an HTTP/2 request."""
    return [(":method", method), (":scheme", scheme), (":authority", authority), (":path", path)]


class H2Client:
    """An HTTP/2 client: one request after another on one connection. Without `checks` it sends any header block."""

    def __init__(self, connection: socket.socket, *, checks: bool = True) -> None:
        self._connection = connection
        config = h2.config.H2Configuration(
            header_encoding="latin-1",
            validate_outbound_headers=checks,
            normalize_outbound_headers=checks,
        )
        self._h2 = h2.connection.H2Connection(config)
        self._h2.initiate_connection()

    def exchange(
        self,
        headers: Sequence[tuple[str, str]],
        pieces: Sequence[bytes] = (),
        trailers: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        """A request and its answer; trailers of the answer are among its header fields.

        Each piece of the body is sent by itself, also an empty one.
        """
        stream = self._h2.get_next_available_stream_id()
        self._h2.send_headers(stream, _encoded(headers), end_stream=not (pieces or trailers))
        self._flush()
        for number, piece in enumerate(pieces, 1):
            self._send(stream, piece, last=number == len(pieces) and not trailers)
        if trailers:
            self._h2.send_headers(stream, _encoded(trailers), end_stream=True)
            self._flush()
        return self._answer(stream)

    def begin(self, headers: Sequence[tuple[str, str]]) -> int:
        """Send a request without a body; return its stream."""
        stream = self._h2.get_next_available_stream_id()
        self._h2.send_headers(stream, _encoded(headers), end_stream=True)
        self._flush()
        return stream

    def reset(self, stream: int) -> None:
        """Cancel a request."""
        self._h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
        self._flush()

    def together(self, requests: Sequence[Sequence[tuple[str, str]]]) -> list[str]:
        """The statuses of requests that are sent in one piece."""
        statuses: dict[int, str] = {}
        streams = []
        for headers in requests:
            streams.append(self._h2.get_next_available_stream_id())
            self._h2.send_headers(streams[-1], _encoded(headers), end_stream=True)
        self._flush()
        while len(statuses) < len(streams) and (data := self._connection.recv(65536)):
            for event in self._h2.receive_data(data):
                if isinstance(event, h2.events.ResponseReceived):
                    statuses[event.stream_id] = dict(event.headers)[":status"]
                elif isinstance(event, h2.events.StreamReset):
                    statuses[event.stream_id] = "reset"
            self._flush()
        return [statuses.get(stream, "") for stream in streams]

    def _flush(self) -> None:
        self._connection.sendall(self._h2.data_to_send())

    def _send(self, stream: int, piece: bytes, *, last: bool) -> None:
        while True:
            size = min(
                self._h2.local_flow_control_window(stream),
                self._h2.max_outbound_frame_size,
                len(piece),
            )
            if piece and not size:
                self._flush()
                self._h2.receive_data(self._connection.recv(65536))
                continue
            self._h2.send_data(stream, piece[:size], end_stream=last and size == len(piece))
            piece = piece[size:]
            if not piece:
                self._flush()
                return

    def _answer(self, stream: int) -> Answer:
        fields: dict[str, str] = {}
        body, is_whole = b"", None
        with contextlib.suppress(OSError):
            while is_whole is None and (data := self._connection.recv(65536)):
                for event in self._h2.receive_data(data):
                    if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                        fields.update(event.headers)
                    elif isinstance(event, h2.events.DataReceived):
                        body += event.data
                        self._h2.acknowledge_received_data(event.flow_controlled_length, stream)
                    elif isinstance(event, h2.events.StreamEnded):
                        is_whole = True
                        break
                    elif isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
                        is_whole = False
                        break
                self._flush()
        return Answer(int(fields.get(":status", "0")), fields, body, is_whole=is_whole is True)


def _encoded(headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def http2(connection: socket.socket, headers: Sequence[tuple[str, str]]) -> Answer:
    """One HTTP/2 request, its header block as given."""
    return H2Client(connection, checks=False).exchange(headers)
