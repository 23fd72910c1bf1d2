"""`AsyncioServerInstance.listen` opens the port of a proxy mode.

With several workers, each process must listen on the same TCP port: the replacement sets
SO_REUSEPORT, for which mitmproxy has no option.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from mitmproxy.proxy.mode_servers import AsyncioServerInstance

from robots_guard.gateway.patch import Patch, method

Listens = Callable[[Any, str, int], Awaitable[list[Any]]]


def _replace_listen(plain: Listens) -> Listens:
    async def listen(self: Any, host: str, port: int) -> list[Any]:
        if self.mode.transport_protocol != "tcp":
            return await plain(self, host, port)
        return [await asyncio.start_server(self.handle_stream, host, port, reuse_port=True)]

    return listen


PATCH = Patch(
    owner=AsyncioServerInstance,
    methods=(method("listen", "f993b5555799", "7670a9038b44", make=_replace_listen),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="Several workers listen on one port.",
    report="""\
An option for SO_REUSEPORT.

mitmproxy is one event loop on one core. Several processes can serve one port if each of them
listens with SO_REUSEPORT; the system then distributes the connections among them.

To see it: start two mitmdump with the same `--listen-port`; the second fails.

An option `listen_reuse_port`, off by default, that `AsyncioServerInstance.listen` passes to
`asyncio.start_server`.
""",
)
