"""Envoy's secret discovery service: a leaf certificate for each name that a client asks for.

Envoy pauses a TLS handshake, subscribes to the secret with the name in the ClientHello, and goes on
when it has a certificate; if there is none, the handshake fails. Only the delta protocol can remove
a secret: over REST and by the "state of the world" protocol Envoy 1.40 keeps each one forever
(docs/decisions/0031).

The protocol needs two messages, of few fields, and their numbers are fixed
(envoy.service.discovery.v3 DeltaDiscoveryRequest and DeltaDiscoveryResponse,
envoy.extensions.transport_sockets.tls.v3 Secret): a generated copy of Envoy's protos would be a
hundred modules. https://protobuf.dev/programming-guides/encoding/

Invariant: a name without a leaf is answered as removed, so that no handshake waits for it. Each
secret has a time to live, so that Envoy's memory does not grow with the names it has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, NamedTuple

import grpc
import grpc.aio

from robots_guard.errors import SettingsError
from robots_guard.gateway.listeners import start_stream_server
from robots_guard.serve.certificates import Minter, NoLeaf
from robots_guard.serve.service import Running

SECRET_TYPE = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105  no secret
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZE = {_FIXED64: 8, _FIXED32: 4}
_MAX_SHIFT = 63  # bits; a varint has at most ten bytes


class DeltaRequest(NamedTuple):
    """A request of Envoy: what it wants to hear about from now on, and what it has."""

    type_url: str = ""
    subscribed: tuple[str, ...] = ()
    unsubscribed: tuple[str, ...] = ()
    #: The versions of what Envoy has kept of an earlier connection.
    versions: tuple[tuple[str, str], ...] = ()
    nonce: str = ""
    error: str | None = None  # why it has rejected the response with this nonce


class SecretResource(NamedTuple):
    """A certificate with its key, which Envoy forgets after `ttl` seconds."""

    name: str
    version: str
    chain: bytes
    key: bytes
    ttl: int


def decode_request(data: bytes) -> DeltaRequest:
    """Parse a DeltaDiscoveryRequest. Raises ValueError."""
    fields: dict[int, list[bytes]] = {}
    for number, value in _fields(data):
        fields.setdefault(number, []).append(value)
    return DeltaRequest(
        type_url=_last(fields.get(2)),
        subscribed=_texts(fields.get(3)),
        unsubscribed=_texts(fields.get(4)),
        versions=tuple(map(_entry, fields.get(5, ()))),
        nonce=_last(fields.get(6)),
        error=_status_message(fields[7][-1]) if 7 in fields else None,
    )


def encode_response(secrets: Iterable[SecretResource], removed: Iterable[str], nonce: str) -> bytes:
    """Write a DeltaDiscoveryResponse. `removed` are names that have no secret."""
    resources = b"".join(_field(2, _resource(secret)) for secret in secrets)
    names = b"".join(_field(6, name.encode()) for name in removed)
    return resources + _field(4, SECRET_TYPE.encode()) + _field(5, nonce.encode()) + names


def _resource(secret: SecretResource) -> bytes:
    certificate = _field(1, _inline(secret.chain)) + _field(2, _inline(secret.key))
    message = _field(1, secret.name.encode()) + _field(2, certificate)
    any_of_it = _field(1, SECRET_TYPE.encode()) + _field(2, message)
    duration = _tag(1, _VARINT) + _varint(secret.ttl)
    return (
        _field(1, secret.version.encode())
        + _field(2, any_of_it)
        + _field(3, secret.name.encode())
        + _field(6, duration)
    )


def _inline(data: bytes) -> bytes:
    """A DataSource with inline_bytes."""
    return _field(2, data)


def _entry(data: bytes) -> tuple[str, str]:
    """An entry of a map from strings to strings."""
    fields = dict(_fields(data))
    return _text(fields.get(1, b"")), _text(fields.get(2, b""))


def _status_message(data: bytes) -> str:
    """The message of a google.rpc.Status."""
    return dict(_fields(data)).get(2, b"").decode(errors="replace")


def _last(values: list[bytes] | None) -> str:
    return _text(values[-1]) if values else ""


def _texts(values: list[bytes] | None) -> tuple[str, ...]:
    return tuple(map(_text, values or ()))


def _text(value: bytes) -> str:
    return value.decode()


def _field(number: int, value: bytes) -> bytes:
    return _tag(number, _BYTES) + _varint(len(value)) + value


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that have bytes as their value; others are skipped. Raises ValueError."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _read_varint(data, at)
            continue
        if kind == _BYTES:
            size, at = _read_varint(data, at)
        elif kind in _FIXED_SIZE:
            size = _FIXED_SIZE[kind]
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        end = at + size
        if end > len(data):
            raise ValueError("a message that is cut short")
        if kind == _BYTES:
            yield tag >> 3, data[at:end]
        at = end


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends. Raises ValueError."""
    number = 0
    for shift in range(0, _MAX_SHIFT + 1, 7):
        if at >= len(data):
            raise ValueError("a message that is cut short")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise ValueError("a number of more than ten bytes")


log = logging.getLogger("robots_guard")

#: How long Envoy keeps a certificate. The next handshake asks again, which takes 3 ms.
SECRET_TTL = 900  # seconds
#: The two methods by which Envoy may ask, with the same messages.
_METHODS = {
    "envoy.service.discovery.v3.AggregatedDiscoveryService": "DeltaAggregatedResources",
    "envoy.service.secret.v3.SecretDiscoveryService": "DeltaSecrets",
}
_AT_ONCE = 32  # names in one response; between two, other tasks run
_MAX_MESSAGE = 64 << 20  # bytes; Envoy names all its secrets when it connects again
_CHUNK = 65536  # bytes
_SHOWN = 80  # characters of a client's text in a log line


class SecretServer:
    """A gRPC server, listening at an address of its own."""

    def __init__(self, minter: Minter, *, ttl: int = SECRET_TTL) -> None:
        self._minter = minter
        self._ttl = ttl
        self._server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),  # a second server at the same port is a mistake
                ("grpc.max_receive_message_length", _MAX_MESSAGE),
            ]
        )
        stream = grpc.stream_stream_rpc_method_handler(
            self._stream, request_deserializer=decode_request
        )
        self._server.add_generic_rpc_handlers(
            grpc.method_handlers_generic_handler(service, {method: stream})
            for service, method in _METHODS.items()
        )

    async def start(self, address: str) -> str:
        """Listen at `unix:PATH` or `HOST:PORT`; return the address, with the port that was chosen
        for port 0. Raises SettingsError."""
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise SettingsError(f"sds: cannot listen at {address!r} ({error})") from None
        await self._server.start()
        if address.startswith("unix:"):
            return address
        return f"{address.rpartition(':')[0]}:{port}"

    async def close(self, grace: float = 0.0) -> None:
        """End the streams after `grace` seconds, and stop listening."""
        await self._server.stop(grace)

    async def _stream(self, requests: AsyncIterator[DeltaRequest], _: Any) -> AsyncIterator[bytes]:
        async for answer in self.answers(requests):
            yield answer

    async def answers(self, requests: AsyncIterator[DeltaRequest]) -> AsyncIterator[bytes]:
        """The responses of one stream."""
        nonces = map(str, itertools.count(1))
        async for request in requests:
            if request.error is not None:
                log.warning("Envoy rejects a certificate: %s", request.error[:_SHOWN])
            if request.type_url != SECRET_TYPE:
                continue
            kept = {name for name, _ in request.versions}
            # What Envoy has kept over a reconnection stays until its time to live has passed.
            names = [name for name in request.subscribed if name not in kept]
            for some in _batches(names):
                yield self._answer(some, next(nonces))
                await asyncio.sleep(0)

    def _answer(self, names: list[str], nonce: str) -> bytes:
        secrets, removed = [], []
        for name in names:
            secret = self._secret(name)
            if secret is None:
                removed.append(name)
            else:
                secrets.append(secret)
        return encode_response(secrets, removed, nonce)

    def _secret(self, name: str) -> SecretResource | None:
        try:
            leaf = self._minter.leaf(name)
        except NoLeaf as error:
            log.info("no certificate for %r: %s", name[:_SHOWN], error)
            return None
        except Exception:  # fail closed: the handshake fails, and the stream goes on
            log.exception("no certificate for %r", name[:_SHOWN])
            return None
        return SecretResource(name, leaf.version, leaf.chain, leaf.key, self._ttl)


def _batches(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _AT_ONCE):
        yield names[start : start + _AT_ONCE]


class SecretListener:
    """Serves secrets on a socket that is listening already.

    gRPC can only listen at addresses that it opens itself. So each connection is relayed to a Unix
    socket in a folder that only this user may read. Envoy opens one connection, with little traffic.
    """

    def __init__(self, minter: Minter, *, ttl: int = SECRET_TTL) -> None:
        self._server = SecretServer(minter, ttl=ttl)
        self._folder = tempfile.mkdtemp(prefix="robots_guard-")  # for this user only
        self._path = f"{self._folder}/sds"
        self._relay: asyncio.AbstractServer | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None

    async def start(self, listener: socket.socket) -> None:
        """Accept the connections of a listener. Raises SettingsError."""
        await self._server.start(f"unix:{self._path}")
        listener.setblocking(False)
        self._relay = await start_stream_server(self._accept, listener)

    def close(self) -> None:
        """Accept no more connections, and end the open ones."""
        if self._relay is not None:
            self._relay.close()
        for connection in self._connections:
            connection.cancel()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._ending = asyncio.ensure_future(self._server.close())

    async def wait_closed(self) -> None:
        """Wait until the server has ended."""
        if self._ending is not None:
            await self._ending

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # asyncio runs this in one
        self._connections.add(task)
        try:
            with contextlib.closing(writer), contextlib.suppress(OSError):
                await self._hand_on(reader, writer)
        except asyncio.CancelledError:
            pass  # by `close`; there is nothing after it
        finally:
            self._connections.discard(task)

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(self._path)
        there = asyncio.ensure_future(_copy(reader, inner_writer))
        back = asyncio.ensure_future(_copy(inner_reader, writer))
        try:
            await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        finally:
            there.cancel()
            back.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
            inner_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()


async def serve(
    minter: Minter, listener: socket.socket, *, ttl: int = SECRET_TTL
) -> SecretListener:
    """Serve certificates to Envoy on a listening socket. Raises SettingsError."""
    server = SecretListener(minter, ttl=ttl)
    await server.start(listener)
    return server


async def start(running: Running) -> SecretListener:
    """Serve certificates of the proxy's CA as one of the protocols of the decision service."""
    return await serve(Minter(running.plan.authority_folder), running.listener)
