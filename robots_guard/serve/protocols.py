"""The protocols of a decision service, each imported only if its address is set."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

from robots_guard.serve.plan import Plan
from robots_guard.serve.service import DecisionService


class Server(Protocol):
    """What serves one protocol."""

    def close(self) -> None:
        """Accept no more connections, and end those that are idle."""

    async def wait_closed(self) -> None:
        """Wait until the last connection has ended."""


class Running(NamedTuple):
    """What a protocol is served with: by the worker with this number, at this socket."""

    plan: Plan
    service: DecisionService
    listener: socket.socket
    number: int


Start = Callable[[Running], Awaitable[Server]]


async def _start_envoy(running: Running) -> Server:
    from robots_guard.serve.ext_authz import serve_ext_authz

    return await serve_ext_authz(running.service, running.listener, worker=running.number)


async def _start_sds(running: Running) -> Server:
    from robots_guard.serve.certificates import Minter
    from robots_guard.serve.secret_discovery import serve

    return await serve(Minter(running.plan.authority_folder), running.listener)


#: How each protocol is served.
STARTS: Mapping[str, Start] = {"envoy": _start_envoy, "sds": _start_sds}
