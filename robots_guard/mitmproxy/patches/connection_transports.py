"""`ConnectionHandler` keeps the transport of each of its connections, until the task of one ends.

Two of its tasks leave a transport open. `open_connection` does so if the client disconnects while
the connection is being made, because that cancels the task first; `handle_connection`, in version
12, if the connection is aborted while data arrives. The replacements close it when the task ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mitmproxy.connection import Connection
from mitmproxy.proxy import commands
from mitmproxy.proxy.server import ConnectionHandler

from robots_guard.gateway.patch import Patch, method


def _replace_open_connection(
    plain: Callable[..., Awaitable[None]],
) -> Callable[..., Awaitable[None]]:
    async def open_connection(self: ConnectionHandler, command: commands.OpenConnection) -> None:
        try:
            await plain(self, command)
        finally:
            _close(self, command.connection)

    return open_connection


def _replace_handle_connection(
    plain: Callable[..., Awaitable[None]],
) -> Callable[..., Awaitable[None]]:
    async def handle_connection(self: ConnectionHandler, connection: Connection) -> None:
        try:
            await plain(self, connection)
        finally:
            _close(self, connection)

    return handle_connection


def _close(handler: ConnectionHandler, connection: Connection) -> None:
    left = handler.transports.pop(connection, None)
    if left is not None and left.writer is not None:
        left.writer.close()


PATCH = Patch(
    owner=ConnectionHandler,
    methods=(
        method("open_connection", "5e0b3cbaf7a4", make=_replace_open_connection),
        method("handle_connection", "95c3f93e9824", make=_replace_handle_connection),
    ),
    versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
    reason="A cancelled task leaves its connection open, and uses up file descriptors.",
    report="""\
Connections stay open when their task is cancelled.

If a client disconnects while `open_connection` waits for a hook, the task is cancelled and the new
connection to the server is never closed. In version 12, `handle_connection` leaves a connection
open that is aborted while data arrives.

To see it: let an addon wait in `server_connected`, disconnect the client meanwhile, and count the
sockets of the process.

Both should remove the transport of their connection and close its writer in a `finally`.
""",
)
