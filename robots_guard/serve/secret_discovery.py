"""Envoy's secret discovery service: a leaf certificate for each name that a client asks for.

Envoy pauses a TLS handshake, subscribes to the secret with the name in the ClientHello, and goes on
when it has a certificate; if there is none, the handshake fails. Only the delta protocol can remove
a secret: over REST and by the "state of the world" protocol Envoy 1.40 keeps each one for ever
(docs/decisions/0031).

Invariant: a name without a leaf is answered as removed, so that no handshake waits for it. Each
secret has a time to live, so that Envoy's memory does not grow with the names it has seen.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

from robots_guard.errors import MissingExtra, SettingsError
from robots_guard.serve.certificates import LeafCertificates, NoLeaf
from robots_guard.serve.discovery_messages import (
    SECRET_TYPE,
    DeltaRequest,
    SecretResource,
    decode_request,
    encode_response,
)

try:
    import grpc
    import grpc.aio
except ImportError:  # pragma: no cover
    raise MissingExtra("serve", "the certificates of Envoy") from None

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
_SHOWN = 80  # characters of a client's text in a log line


class SecretServer:
    """A gRPC server, listening on loopback or at a Unix socket."""

    def __init__(self, certificates: LeafCertificates, *, ttl: int = SECRET_TTL) -> None:
        self._certificates = certificates
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
            leaf = self._certificates.leaf(name)
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
