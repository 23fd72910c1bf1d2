"""Envoy's secret discovery service: a leaf certificate for each name that a client asks for.

Envoy pauses a TLS handshake, subscribes to the secret with the name in the ClientHello, and goes on
when it has a certificate; if there is none, the handshake fails. Only the delta protocol can remove
a secret: over REST and by the "state of the world" protocol Envoy 1.40 keeps each one forever
(docs/decisions/0031).

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
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import grpc.aio

from robots_guard.errors import SettingsError
from robots_guard.gateway.operation.listeners import start_stream_server
from robots_guard.serve.certificates import Minter, NoLeaf
from robots_guard.serve.discovery_messages import (
    SECRET_TYPE,
    DeltaRequest,
    SecretResource,
    decode_request,
    encode_response,
)
from robots_guard.serve.protocols import Running

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
