"""`AsyncioServerInstance.listen` opens the port of a proxy mode.

asyncio tries to accept a hundred connections at a time. When the process has no file left to open,
each failure is logged and schedules an attempt of its own: thousands a second. The replacement lets
asyncio accept one connection at a time (`operation.listeners`). With several workers, each process
must listen on the same TCP port: then it sets SO_REUSEPORT, for which mitmproxy has no option.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from mitmproxy.proxy.mode_servers import AsyncioServerInstance

from robots_guard.gateway.patch import Patch, method
from robots_guard.operation.listeners import start_stream_server

Listens = Callable[[Any, str, int], Awaitable[list[Any]]]

_shared: set[str] = set()  # transport protocols


def share_port() -> None:
    """Let other processes listen on the TCP ports of this one."""
    _shared.add("tcp")


def _replace_listen(plain: Listens) -> Listens:
    async def listen(self: Any, host: str, port: int) -> list[Any]:
        if self.mode.transport_protocol in _shared:
            opened: list[Any] = [
                await asyncio.start_server(self.handle_stream, host, port, reuse_port=True)
            ]
        else:
            opened = await plain(self, host, port)
        servers: list[Any] = []
        for server in opened:
            if isinstance(server, asyncio.Server):
                listeners: list[socket.socket] = [each.dup() for each in server.sockets]
                server.close()
                servers += [
                    await start_stream_server(self.handle_stream, each) for each in listeners
                ]
            else:  # not an asyncio server
                servers.append(server)
        return servers

    return listen


PATCH = Patch(
    owner=AsyncioServerInstance,
    methods=(method("listen", "f993b5555799", "7670a9038b44", make=_replace_listen),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="Without a file left to open, each attempt to accept a connection is logged, thousands a"
    " second. And several workers listen on one port.",
    report="""\
For CPython: accepting goes on when no file is left to open.

After EMFILE, `BaseSelectorEventLoop._accept_connection` removes the reader, schedules an attempt in a
second and reports the error. Then it does all of that again for each of the `backlog` connections.
It should return after the first.

To see it: open more connections to an asyncio server than its process may have files.

For mitmproxy: an option for SO_REUSEPORT.

mitmproxy is one event loop on one core. Several processes can serve one port if each of them
listens with SO_REUSEPORT; the system then distributes the connections among them.

To see it: start two mitmdump with the same `--listen-port`; the second fails.

An option `listen_reuse_port`, off by default, that `AsyncioServerInstance.listen` passes to
`asyncio.start_server`.
""",
)
