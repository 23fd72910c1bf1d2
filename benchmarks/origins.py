"""Thousands of origins in one process, for benchmarks: every loopback address is one, and requests
are recorded.

with Origins("User-agent: *\\nCrawl-delay: 1\\n") as origins:
    origins.url(7)          # http://127.20.0.8:PORT
    # [(address, target, seconds on the monotonic clock), ...] so far; clears the record
    origins.received()
    origins.stalled()       # seconds of the longest stall of the server so far; clears it
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import time
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

Received = tuple[str, str, float]


class Origins:
    """A server process that answers on every loopback address.

    All origins have the same robots.txt.
    """

    def __init__(self, robots: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(theirs, robots.encode()), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self.port: int = self._pipe.recv()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.join()

    def url(self, number: int) -> str:
        return f"http://{address(number)}:{self.port}"

    def received(self) -> list[Received]:
        self._pipe.send("received")
        return self._pipe.recv()  # type: ignore[no-any-return]  # what _serve sends

    def stalled(self) -> float:
        self._pipe.send("stalled")
        return self._pipe.recv()  # type: ignore[no-any-return]  # what _serve sends


def address(number: int) -> str:
    return f"127.20.{number // 250}.{number % 250 + 1}"


class _Serving(asyncio.Protocol):
    def __init__(self, robots: bytes, received: list[Received]) -> None:
        self._robots = robots
        self._received = received
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._address = transport.get_extra_info("sockname")[0]

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            target = head.split(b" ", 2)[1].decode("latin-1")
            self._received.append((self._address, target, time.monotonic()))
            body = self._robots if target == "/robots.txt" else b"page"
            said = (
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n"
                % len(body)
            )
            self._transport.write(said + body)


def _run(pipe: Connection, robots: bytes) -> None:
    asyncio.run(_serve(pipe, robots))


async def _serve(pipe: Connection, robots: bytes) -> None:
    received: list[Received] = []
    stalls = [0.0]
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("0.0.0.0", 0), backlog=1024)
    server = await loop.create_server(
        lambda: _Serving(robots, received), sock=listener, backlog=1024
    )
    pipe.send(listener.getsockname()[1])

    def on_command() -> None:
        if pipe.recv() == "received":
            pipe.send(received)
            received.clear()
        else:
            pipe.send(max(stalls))
            stalls[:] = [0.0]

    loop.add_reader(pipe.fileno(), on_command)
    async with server:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            stalls.append(time.monotonic() - before - 0.005)
