"""Connections: how mitmproxy accepts them, reads the first bytes of TLS, makes them and closes them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from mitmproxy.connection import Connection
from mitmproxy.proxy import commands, layer
from mitmproxy.proxy.layers.tls import ClientTLSLayer
from mitmproxy.proxy.mode_servers import AsyncioServerInstance, ServerInstance
from mitmproxy.proxy.server import ConnectionHandler

from robots_guard.decisions.addresses import Address
from robots_guard.gateway.destinations import addresses_of
from robots_guard.gateway.listeners import start_stream_server
from robots_guard.gateway.patch import Patch, method

MAX_HELLO = 16 * 1024  # bytes of a ClientHello; browsers send 2,000

Check = Callable[[tuple[Address, ...]], str | None]
Hello = layer.CommandGenerator[tuple[bool, str | None]]
Waits = Callable[..., Awaitable[None]]

_shared: set[str] = set()  # transport protocols
_check: ContextVar[Check | None] = ContextVar("robots_guard_check", default=None)


# -- from clients --------------------------------------------------------------------------------


def share_port() -> None:
    """Let other processes listen on the TCP ports of this one."""
    _shared.add("tcp")


async def _listen(
    self: Any, host: str, port: int, *, plain: Callable[..., Awaitable[list[Any]]]
) -> list[Any]:
    """Accept one connection at a time (`gateway.listeners`), and let workers share the port.

    asyncio tries to accept a hundred connections at a time. When the process has no file left to
    open, each failure is logged and schedules an attempt of its own: thousands a second. With
    several workers, each process must listen on the same TCP port: then this sets SO_REUSEPORT, for
    which mitmproxy has no option.
    """
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
            servers += [await start_stream_server(self.handle_stream, each) for each in listeners]
        else:  # not an asyncio server
            servers.append(server)
    return servers


async def _handle_stream(self: Any, reader: Any, writer: Any = None, *, plain: Waits) -> None:
    """Close the connection and return normally when the task of a client connection is cancelled, as
    at the end of the event loop.

    Python 3.11's `asyncio.StreamReaderProtocol` asks the cancelled task for its exception, and
    prints a traceback for each connection (CPython issue 110894; 3.12 does not). Nothing awaits the
    task any more.
    """
    try:
        await plain(self, reader, writer)
    except asyncio.CancelledError:
        (writer or reader).close()


def _receive_hello(self: ClientTLSLayer, data: bytes, *, plain: Callable[..., Hello]) -> Hello:
    """Close the connection of a client whose ClientHello exceeds `MAX_HELLO`.

    mitmproxy buffers an endless one without limit, and parses it again from the start whenever data
    arrives.
    """
    if self.client_hello_parsed or len(self.recv_buffer) + len(data) <= MAX_HELLO:
        return (yield from plain(self, data))
    yield commands.CloseConnection(self.conn)
    return False, None


def _receive_after_hello(
    self: ClientTLSLayer, data: bytes, *, plain: Callable[..., layer.CommandGenerator[None]]
) -> layer.CommandGenerator[None]:
    """Ignore data after an unreadable ClientHello, for which mitmproxy raises."""
    if self.client_hello_parsed:
        yield from plain(self, data)


# -- to sites ------------------------------------------------------------------------------------


class _DestinationRefused(OSError):
    """A name resolves to a refused address: to mitmproxy, a connection that failed."""


def check_resolution(check: Check | None) -> None:
    """Have `check` say why the addresses of names may not be connected to, in the current task.

    mitmproxy resolves the name of a connection in the task that has called the hook before it.
    """
    if check is not None:
        _replace_getaddrinfo(asyncio.get_running_loop())
    _check.set(check)


def _replace_getaddrinfo(loop: asyncio.AbstractEventLoop) -> None:
    """Have the names of all connections of a loop resolved through the check of the task that connects.

    mitmproxy passes a name to `asyncio.open_connection`, which resolves it and connects. Whether
    the connection leads to a permitted address is therefore known only after it has been made, and
    a name may resolve to another address than when it was checked. The method is replaced in the
    loop and not in its class, because another loop, such as uvloop's, has a method of its own.
    """
    plain = loop.getaddrinfo
    if getattr(plain, "robots_guard", False):
        return

    async def getaddrinfo(*args: Any, **kwargs: Any) -> list[Any]:
        infos = await plain(*args, **kwargs)
        check = _check.get()
        if check is not None and (objection := check(addresses_of(infos))):
            raise _DestinationRefused(f"robots_guard: {objection}")
        return infos

    getaddrinfo.robots_guard = True  # type: ignore[attr-defined]  # marks the replacement
    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign]  # all connections of a loop resolve here


# -- the end of a connection ----------------------------------------------------------------------


async def _open_connection(
    self: ConnectionHandler, command: commands.OpenConnection, *, plain: Waits
) -> None:
    """Close the transport also if the client disconnects while the connection is being made, because
    that cancels the task."""
    try:
        await plain(self, command)
    finally:
        _close(self, command.connection)


async def _handle_connection(
    self: ConnectionHandler, connection: Connection, *, plain: Waits
) -> None:
    """Close the transport also if the connection is aborted while data arrives (in version 12)."""
    try:
        await plain(self, connection)
    finally:
        _close(self, connection)


def _close(handler: ConnectionHandler, connection: Connection) -> None:
    left = handler.transports.pop(connection, None)
    if left is not None and left.writer is not None:
        left.writer.close()


PATCHES = (
    Patch(
        owner=AsyncioServerInstance,
        methods=(method("listen", "f993b5555799", "7670a9038b44", new=_listen),),
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
    ),
    Patch(
        owner=ServerInstance,
        methods=(method("handle_stream", "21eea06f208c", new=_handle_stream),),
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
    ),
    Patch(
        owner=ClientTLSLayer,
        methods=(
            method("receive_handshake_data", "a0ee021f92f6", new=_receive_hello),
            method("receive_data", "b85a8a4fd562", "85c0e6b656c3", new=_receive_after_hello),
        ),
        versions="mitmproxy 11.0.2, 12.2.3, 12.3.1",
        reason="A TLS hello without an end costs memory, and CPU time that grows with its square.",
        report="""\
A TLS ClientHello that does not end costs quadratic time; data after an unreadable one raises.

`ClientTLSLayer.receive_handshake_data` appends what arrives to `recv_buffer` and parses all of it
again with each piece. Nothing limits its size. If the hello cannot be parsed and more data
arrives, `receive_data` raises, and the connection stays open.

To see it: send a ClientHello whose handshake header declares 16 MB, in pieces of 100 bytes. Or
send an unreadable hello, and more data 0.1 s later.

A limit of some 16 KiB is enough for every client; data after an unreadable hello can be ignored.
""",
    ),
    Patch(
        owner=asyncio.BaseEventLoop,
        methods=(method("getaddrinfo", "4f897e1723a3"),),
        versions="Python 3.11, 3.12, 3.13",
        reason="After its check, and before the connection, a name may come to mean a private address.",
        report="""\
For mitmproxy: an addon cannot refuse a connection for the address that it leads to.

`server_connect` is called before the name is resolved, and `server_connected` when the connection
exists. An addon that keeps clients from private addresses must resolve the name itself, and the
second resolution, by `asyncio.open_connection`, may give another address (DNS rebinding).

To see it: resolve a name with a TTL of 0 in `server_connect`, by a server that alternates between
two addresses, and compare `server_conn.peername`.

`ConnectionHandler.open_connection` could resolve the name by itself, before `server_connect`, and
put the addresses into its data.
""",
    ),
    Patch(
        owner=ConnectionHandler,
        methods=(
            method("open_connection", "5e0b3cbaf7a4", new=_open_connection),
            method("handle_connection", "95c3f93e9824", new=_handle_connection),
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
    ),
)
