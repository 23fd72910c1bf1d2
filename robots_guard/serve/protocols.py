"""The protocols of a decision service, each imported only if its address is set."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
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


async def _start(module: str, running: Running) -> Server:
    start: Start = importlib.import_module(f"robots_guard.serve.{module}").start
    return await start(running)


#: How each protocol is served: by the function `start` of a module.
STARTS: Mapping[str, Start] = {
    "envoy": partial(_start, "ext_authz"),
    "icap": partial(_start, "icap"),
    "sds": partial(_start, "secret_discovery"),
}
