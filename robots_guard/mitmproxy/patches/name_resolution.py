"""`BaseEventLoop.getaddrinfo` resolves the names of all connections that asyncio makes.

mitmproxy passes a name to `asyncio.open_connection`, which resolves it and connects. Whether the
connection leads to a permitted address is therefore known only after it has been made, and a name
may resolve to another address than when it was checked. In each event loop of a guarded proxy
`getaddrinfo` is replaced: it passes the addresses to the check of the task that connects, if there
is one, and raises if the check objects.

The method is replaced in the loop and not in its class, because another loop, such as uvloop's, has
a method of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from robots_guard.core.addresses import Address
from robots_guard.gateway.destinations import addresses_of
from robots_guard.gateway.patch import Patch, method

Check = Callable[[tuple[Address, ...]], str | None]

_check: ContextVar[Check | None] = ContextVar("robots_guard_check", default=None)


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


PATCH = Patch(
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
)
