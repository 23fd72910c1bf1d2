"""A decision service for Squid as a program: `service.py SETTINGS`, which prints where it listens.

SETTINGS are the settings in JSON; values may be strings, as on a command line.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys

import msgspec

from robots_guard.serve.icap.server import serve_icap
from robots_guard.serve.service import DecisionService
from robots_guard.settings import ProxySettings


async def serve(settings: ProxySettings, port: int) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    service = DecisionService(settings)
    server = await serve_icap(service, "127.0.0.1", port)
    print(f"listening at 127.0.0.1:{server.addresses[0][1]}", flush=True)
    await ended.wait()
    service.drain()
    server.close()
    await server.wait_closed()
    await service.close()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    port = int(given.pop("port", 0))
    asyncio.run(serve(msgspec.convert(given, ProxySettings, strict=False), port))
