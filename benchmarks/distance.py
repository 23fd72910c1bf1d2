"""A TCP relay that delays what passes through it, for benchmarks: a server that is far away.

    with Distance(("127.0.0.1", 6379), seconds=0.020) as port:   # 40 ms there and back
        redis.Redis(port=port)

Every piece is passed on `seconds` after it came, in order, so that pipelined requests overlap as
they would on a long line. The relay is a process of its own; its CPU time is not the client's.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import deque
from multiprocessing.connection import Connection
from types import TracebackType


class Distance:
    """A relay to an address, in its own process. Entering it returns its port."""

    def __init__(self, server: tuple[str, int], seconds: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(theirs, server, seconds), daemon=True)

    def __enter__(self) -> int:
        self._process.start()
        port: int = self._pipe.recv()
        return port

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.join()


class _OneWay(asyncio.Protocol):
    """Receives from one side and writes to the other, later."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[bytes] = deque()
        self.other: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._loop.call_later(self._seconds, self._pass_on)

    def _pass_on(self) -> None:
        if self.other is None:  # the connection to the server is not there yet
            self._loop.call_later(0.001, self._pass_on)
        else:
            self.other.write(self._pieces.popleft())

    def connection_lost(self, _: Exception | None) -> None:
        if self.other is not None:
            self._loop.call_later(self._seconds, self.other.close)


class _FromClient(_OneWay):
    def __init__(self, server: tuple[str, int], seconds: float) -> None:
        super().__init__(seconds)
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        back = _OneWay(self._seconds)
        back.other = self.transport
        await self._loop.create_connection(lambda: back, *self._server)
        self.other = back.transport


def _run(pipe: Connection, server: tuple[str, int], seconds: float) -> None:
    asyncio.run(_relay(pipe, server, seconds))


async def _relay(pipe: Connection, server: tuple[str, int], seconds: float) -> None:
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(
        lambda: _FromClient(server, seconds), "127.0.0.1", 0, backlog=1024
    )
    pipe.send(listening.sockets[0].getsockname()[1])
    async with listening:
        await listening.serve_forever()
