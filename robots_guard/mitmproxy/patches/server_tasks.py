"""`ServerInstance.handle_stream` is the task of one client connection.

When the event loop ends, this task is cancelled. Python 3.11's `asyncio.StreamReaderProtocol` then
asks the cancelled task for its exception, and prints a traceback for each connection (CPython issue
110894; 3.12 does not). The replacement closes its connection and returns normally: nothing awaits
it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from mitmproxy.proxy.mode_servers import ServerInstance

from robots_guard.gateway.patch import Patch, method


def _replace_handle_stream(plain: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def handle_stream(self: Any, reader: Any, writer: Any = None) -> None:
        try:
            await plain(self, reader, writer)
        except asyncio.CancelledError:
            (writer or reader).close()

    return handle_stream


PATCH = Patch(
    owner=ServerInstance,
    methods=(method("handle_stream", "21eea06f208c", make=_replace_handle_stream),),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="On Python 3.11, stopping the proxy prints a traceback for each open connection.",
    report="""\
On Python 3.11, stopping prints a traceback for each open client connection.

The cause is CPython issue 110894: `StreamReaderProtocol` calls `exception()` of a cancelled task.
It is fixed in Python 3.12.

To see it: run mitmdump on Python 3.11, keep a connection open, and stop it with SIGINT.

`ServerInstance.handle_stream` could catch CancelledError, close its writer and return. Nothing is
needed once Python 3.11 is no longer supported.
""",
)
