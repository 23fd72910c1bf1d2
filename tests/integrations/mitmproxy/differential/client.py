"""The client sends a case through the proxy, and reads until the proxy has read it all."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable

from integrations.mitmproxy.differential.cases import Case
from integrations.mitmproxy.differential.origin import LIMIT, SIGN, Lane

Entrance = tuple[str, int]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class NoEntry(Exception):
    """The proxy has not let the client begin."""


def trusting(protocol: str) -> ssl.SSLContext:
    """Return a client's context that takes any certificate and offers one protocol by ALPN."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    return context


class Client:
    """Sends cases, each on a connection of its own."""

    def __init__(self) -> None:
        self._contexts = {"http1": trusting("http/1.1"), "h2": trusting("h2")}

    async def send(self, case: Case, entrance: Entrance, lane: Lane) -> bytes:
        """Send a case; return what the proxy answered. Raises NoEntry, TimeoutError."""
        reader, writer = await asyncio.open_connection(*entrance, limit=1 << 20)
        try:
            async with asyncio.timeout(LIMIT):
                await self._enter(case, lane, reader, writer)
                return await _exchange(case, reader, writer)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise NoEntry(repr(error)) from None
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _enter(
        self, case: Case, lane: Lane, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Say what comes before the first request: SOCKS, CONNECT, a TLS handshake."""
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if case.way.entry == "tunnel":
            authority = lane.authority(case.way.origin)
            writer.write(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in answer:
                raise NoEntry(answer.decode())
        elif case.way.entry == "socks":
            writer.write(b"\x05\x01\x00")
            await reader.readexactly(2)
            port = lane.ports[case.way.origin]
            writer.write(
                b"\x05\x01\x00\x01" + socket.inet_aton(lane.address) + struct.pack(">H", port)
            )
            await reader.readexactly(10)
        if case.way.tls:
            await writer.start_tls(self._contexts[case.way.speaks], server_hostname=lane.address)


async def _exchange(
    case: Case, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bytes:
    is_over = _all_streams_ended(case) if case.way.speaks == "h2" else _last_is_answered
    answered = b""
    with contextlib.suppress(OSError, TimeoutError):
        for piece in case.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        while not case.leaves and not is_over(answered):
            async with asyncio.timeout(case.patience):
                data = await reader.read(65536)
            if not data:
                break
            if b"HTTP/1.1 101 " in data:
                writer.write(case.after_switch)
            answered += data
    return answered


def _last_is_answered(answered: bytes) -> bool:
    return SIGN in answered


def _all_streams_ended(case: Case) -> Callable[[bytes], bool]:
    """Return a question: whether each stream of the case has ended in the proxy's frames, or the connection has."""
    streams = {
        kind: {int.from_bytes(frame[5:9], "big") for frame in case.pieces if frame[3] == kind}
        for kind in (1, 3)
    }
    opened = streams[1] - streams[3]  # HEADERS, RST_STREAM

    def all_ended(answered: bytes) -> bool:
        ended, at = set(), 0
        while len(answered) - at >= 9:
            kind, flags, stream = (
                answered[at + 3],
                answered[at + 4],
                int.from_bytes(answered[at + 5 : at + 9], "big"),
            )
            if kind == 7:  # GOAWAY
                return True
            # RST_STREAM; END_STREAM on DATA or HEADERS.
            if kind == 3 or (kind in (0, 1) and flags & 1):
                ended.add(stream)
            at += 9 + int.from_bytes(answered[at : at + 3], "big")
        return opened <= ended

    return all_ended
