"""Streams: ends the tasks of open client connections without an exception when the event loop stops.

When the loop ends, the task of each client connection (`ServerInstance.handle_stream`,
mitmproxy/proxy/mode_servers.py, read in 11.0.2 and 12.2.3) is cancelled. Python 3.11's
`asyncio.StreamReaderProtocol` then asks the cancelled task for its exception, and prints a
traceback for each connection (CPython issue 110894; 3.12 does not).

With this patch, a cancelled task closes its connection and returns normally: nothing awaits it any
more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from mitmproxy.proxy.mode_servers import ServerInstance

from robots_guard.mitmproxy.patches import replace


def apply() -> None:
    """Replace the task of a client connection."""
    replace(ServerInstance, "handle_stream", _replace_handle_stream)


def _replace_handle_stream(plain: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def handle_stream(self: Any, reader: Any, writer: Any = None) -> None:
        try:
            await plain(self, reader, writer)
        except asyncio.CancelledError:
            (writer or reader).close()

    return handle_stream
