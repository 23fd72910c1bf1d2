"""CPU per request of HTTP servers in Python for the question of a data plane, without the decision.

    python benchmarks/http_servers.py [--requests N] [--rounds N] [--uvloop]

Each server gets the bytes that Envoy sends for ext_authz, by a transport that is none, and answers
with the bytes of a permission. The servers take turns in each round; the medians count. Needs
uvicorn and h11.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from robots_guard.serve.http_listener import DataPlaneRequest, HttpProtocol, HttpReply

QUESTION = (
    b"GET /check/http/open/page.html?a=1 HTTP/1.1\r\nhost: www.example.org\r\ncontent-length: 0\r\n"
    b"user-agent: mybot/1.0 (+https://example.org/bot)\r\naccept: text/html,*/*;q=0.8\r\n"
    b"robots-guard-client: 127.0.0.1\r\nrobots-guard-scheme: http\r\nx-envoy-internal: true\r\n"
    b"x-envoy-expected-rq-timeout-ms: 43000\r\n\r\n"
)
FIELDS = (("robots-guard-id", "0123456789-1"), ("robots-guard-address", "192.0.2.1:80"))


class Transport(asyncio.Transport):
    """Counts the responses."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = asyncio.Event()

    def write(self, data: bytes) -> None:
        if data.endswith(b"\r\n\r\n"):
            self.answered.set()

    def get_extra_info(self, _: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        raise AssertionError("the request was refused")


class Bare(asyncio.Protocol):
    """The least that a protocol over httptools can do: parse, make a task, and answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
        self.fields: list[tuple[bytes, bytes]] = []

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_message_complete(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self.answer(self.url, self.fields))
        self.fields = []

    async def answer(self, _: bytes, __: list[tuple[bytes, bytes]]) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


def answer(_: DataPlaneRequest) -> HttpReply:
    return HttpReply(200, FIELDS)


async def application(_: Any, __: Any, send: Any) -> None:
    fields = [(name.encode(), value.encode()) for name, value in FIELDS]
    fields.append((b"content-length", b"0"))
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": b""})


def _uvicorn(protocol: type) -> asyncio.Protocol:
    config = Config(application, access_log=False, log_level="error", date_header=False)
    config.load()
    return protocol(config, ServerState(), {})


SERVERS: dict[str, Callable[[], asyncio.Protocol]] = {
    "bare protocol over httptools": Bare,
    "serve/http_listener.py": lambda: HttpProtocol(answer, set()),
    "uvicorn, httptools": lambda: _uvicorn(HttpToolsProtocol),
    "uvicorn, h11": lambda: _uvicorn(H11Protocol),
}


async def microseconds(server: Callable[[], asyncio.Protocol], requests: int) -> float:
    """CPU microseconds of a request."""
    protocol, transport = server(), Transport()
    protocol.connection_made(transport)
    began = 0.0
    for number in range(requests + 100):
        if number == 100:
            began = time.process_time()
        transport.answered.clear()
        protocol.data_received(QUESTION)
        await transport.answered.wait()
    return (time.process_time() - began) / requests * 1e6


async def measure(requests: int, rounds: int) -> None:
    found: dict[str, list[float]] = {name: [] for name in SERVERS}
    for _ in range(rounds):
        for name, server in SERVERS.items():
            found[name].append(await microseconds(server, requests))
    base = statistics.median(found["bare protocol over httptools"])
    for name, each in found.items():
        middle = statistics.median(each)
        print(
            f"{name:<30}{middle:>8.1f} us  ({min(each):.1f} - {max(each):.1f}){middle / base:>7.2f}x"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--uvloop", action="store_true")
    options = parser.parse_args()
    factory = None
    if options.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(measure(options.requests, options.rounds))


if __name__ == "__main__":
    main()
