"""The end of a proxy: nothing new comes in, what has been let pass may finish, and then it is over."""

from __future__ import annotations

import asyncio
import signal

from mitmproxy.addons import proxyserver

from robots_guard.mitmproxy.enforcer import Enforcer
from robots_guard.mitmproxy.master import Master

_LOOK = 0.05  # seconds between two looks at what is under way


class Ending:
    """What a signal begins. After `patience` seconds nothing is waited for."""

    def __init__(self, running: Master, servers: proxyserver.Proxyserver, enforcer: Enforcer, patience: float) -> None:
        self._running, self._servers, self._enforcer, self._patience = running, servers, enforcer, patience
        self._task: asyncio.Future[None] | None = None

    def begin(self, number: int) -> None:
        """Begin; a second SIGINT is somebody who will not wait."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._end())
        elif number == signal.SIGINT:
            self._running.shutdown()  # type: ignore[no-untyped-call]  # mitmproxy's has no annotations

    async def _end(self) -> None:
        self._enforcer.drain()
        try:
            if any(server.is_running for server in self._servers.servers):
                await self._servers.servers.update([])
            async with asyncio.timeout(self._patience):
                while self._enforcer.under_way() or _has_unsent(self._servers):  # noqa: ASYNC110  flows end in a dozen ways
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            return
        finally:
            self._running.shutdown()  # type: ignore[no-untyped-call]  # mitmproxy's has no annotations


def _has_unsent(servers: proxyserver.Proxyserver) -> bool:
    """Whether bytes of a response still wait for the client to read them."""
    transports = (each for handler in servers.connections.values() for each in list(handler.transports.values()))
    writers = (transport.writer for transport in transports)
    return any(isinstance(each, asyncio.StreamWriter) and each.transport.get_write_buffer_size() for each in writers)
