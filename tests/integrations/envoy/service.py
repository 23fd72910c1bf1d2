"""A decision service for Envoy as a process: `service.py ADDRESS SETTINGS`, which are JSON."""

from __future__ import annotations

import asyncio
import signal
import sys

import msgspec

from robots_guard.serve.ext_authz import serve_ext_authz
from robots_guard.serve.service import DecisionService
from robots_guard.settings import ProxySettings


async def _serve(address: str, settings: ProxySettings) -> None:
    service = DecisionService(settings)
    listener = await serve_ext_authz(service, address)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    service.drain()
    listener.close()
    await listener.wait_closed()
    await service.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], msgspec.json.decode(sys.argv[2], type=ProxySettings)))
