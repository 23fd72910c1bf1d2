"""The shutdown of a proxy: it refuses new requests, and waits until the permitted ones have ended."""

from __future__ import annotations

import asyncio
import signal

from mitmproxy.addons import proxyserver
from mitmproxy.master import Master

from robots_guard.mitmproxy.enforcer import Enforcer

_POLL_INTERVAL = 0.05  # seconds


class Shutdown:
    """The shutdown that a signal starts. It waits at most `timeout` seconds for permitted requests."""

    def __init__(
        self, master: Master, servers: proxyserver.Proxyserver, enforcer: Enforcer, timeout: float
    ) -> None:
        self._master, self._servers, self._enforcer, self._timeout = (
            master,
            servers,
            enforcer,
            timeout,
        )
        self._task: asyncio.Future[None] | None = None

    def begin(self, number: int) -> None:
        """Start the shutdown; a second SIGINT ends the proxy at once."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._end())
        elif number == signal.SIGINT:
            self._master.shutdown()

    async def _end(self) -> None:
        self._enforcer.drain()
        try:
            if any(server.is_running for server in self._servers.servers):
                await self._servers.servers.update([])
            async with asyncio.timeout(self._timeout):
                while self._enforcer.under_way() or _has_unsent(self._servers):  # noqa: ASYNC110  flows can end in many ways
                    await asyncio.sleep(_POLL_INTERVAL)
        except TimeoutError:
            return
        finally:
            self._master.shutdown()


def _has_unsent(servers: proxyserver.Proxyserver) -> bool:
    """Whether bytes of a response still wait for the client to read them."""
    transports = (
        each
        for handler in servers.connections.values()
        for each in list(handler.transports.values())
    )
    writers = (transport.writer for transport in transports)
    return any(
        isinstance(each, asyncio.StreamWriter) and each.transport.get_write_buffer_size()
        for each in writers
    )
