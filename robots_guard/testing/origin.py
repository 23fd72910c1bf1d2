"""Real origins on loopback addresses, scripted to answer, stall or break, and recording what reaches them.

    with Loopback() as net:
        site = net.origin(robots="User-agent: *\\nDisallow: /private/")
        ...                       # crawl f"{site.url}/" by whatever is to be tested
        assert not site.pages_matching("/private/")

Each origin has an address of its own (127.1.1.1, 127.1.1.2, ...), because hosts, not ports, are what crawlers
pace and queue by. All run on one event loop in a thread of their own: a stalled crawler stalls nobody here.
Speaks HTTP/1.x byte by byte, so that broken answers can be given and odd requests are seen as they came.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

MAX_HEAD = 128 * 1024
_READ_BY_THEN = 0.3  # seconds
_GOODBYE = 1.0  # seconds for which a client's close_notify is waited for

# A client that left, and our own closing: asyncio streams before 3.12 report a cancelled conversation as an error.
_BROKEN_OFF = (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, TimeoutError, asyncio.CancelledError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an origin does with a request.

    `delay` and `hang` stall before the first byte; `reset` closes without one; `raw` is sent instead of an
    HTTP answer; `cut` promises more body than it sends; `drip` is the pause in seconds between octets of the body.
    `broken` ends the connection behind the answer by a TCP reset; `unannounced` ends TLS without `close_notify`.
    `endless` comes after all that, again and again with `drip` between, until the client has had enough.
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | str = b""
    delay: float = 0.0
    hang: bool = False
    reset: bool = False
    raw: bytes | None = None
    cut: bool = False
    drip: float = 0.0
    endless: bytes = b""
    broken: bool = False
    unannounced: bool = False

    @property
    def ends(self) -> bool:
        """Whether the connection cannot be used again."""
        return self.raw is not None or self.cut or bool(self.endless) or self.broken or self.unannounced

    def head(self, length: int) -> bytes:
        """Status line and header fields."""
        names = {name.lower() for name, _ in self.headers}
        fields = list(self.headers)
        if "content-type" not in names:
            fields.append(("Content-Type", "text/plain; charset=utf-8"))
        if "content-length" not in names and not self.endless:
            fields.append(("Content-Length", str(length + (100 if self.cut else 0))))
        lines = [f"HTTP/1.1 {self.status} Scripted", *(f"{name}: {value}" for name, value in fields)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it reached the origin: octets as Latin-1 characters, header names lower-case."""

    at: float  # seconds on the monotonic clock
    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""


Script = Reply | Callable[[Received], Reply]


@dataclass(slots=True)
class RecordingOrigin:
    """One origin. `pages` maps a target without its query to a script; any other target is a small page."""

    scheme: str
    address: str
    robots: Script
    pages: Mapping[str, Script]
    port: int = 0
    connections: int = 0
    received: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        """``scheme://address:port``."""
        return f"{self.scheme}://{self.address}:{self.port}"

    @property
    def robots_fetches(self) -> list[Received]:
        """Requests for /robots.txt."""
        return [request for request in self.received if request.target == "/robots.txt"]

    @property
    def targets(self) -> list[str]:
        """Targets of all other requests, in order."""
        return [request.target for request in self.received if request.target != "/robots.txt"]

    def pages_matching(self, text: str) -> list[str]:
        """Targets received that contain `text`."""
        return [target for target in self.targets if text in target]

    def reply(self, request: Received) -> Reply:
        """The scripted reply."""
        if request.target == "/robots.txt":
            script = self.robots
        else:
            script = self.pages.get(request.target.partition("?")[0], _page)
        return script(request) if callable(script) else script


def _page(request: Received) -> Reply:
    body = f"<!doctype html><title>page</title><p>This is {request.target.encode('ascii', 'replace').decode()}"
    return Reply(headers=(("Content-Type", "text/html; charset=utf-8"),), body=body)


class Loopback:
    """The origins' event loop, in a thread of its own. A context manager; leaving it closes all origins."""

    _networks = itertools.count(1)

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="origins", daemon=True)
        self._network = next(self._networks) % 250
        self._hosts = itertools.count(1)
        self._servers: list[asyncio.Server] = []
        self._conversations: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def origin(
        self,
        robots: Script | str | int = "",
        pages: Mapping[str, Script] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        address: str | None = None,
        port: int = 0,
    ) -> RecordingOrigin:
        """Start an origin. `robots` is a script, the text of the file, or a status."""
        site = RecordingOrigin(
            scheme="https" if tls else "http",
            address=address or f"127.1.{self._network}.{next(self._hosts)}",
            robots=_script(robots),
            pages=pages or {},
        )
        server = self._run(self._serve(site, tls, port))
        self._servers.append(server)
        site.port = server.sockets[0].getsockname()[1]
        return site

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _serve(self, site: RecordingOrigin, tls: ssl.SSLContext | None, port: int) -> asyncio.Server:
        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(*_BROKEN_OFF):
                await _converse(site, reader, writer)

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            site.connections += 1
            conversation = self._loop.create_task(converse(reader, writer))
            self._conversations.add(conversation)
            conversation.add_done_callback(self._conversations.discard)
            conversation.add_done_callback(lambda _: writer.transport.abort())  # also of one cancelled before it began

        return await asyncio.start_server(connected, site.address, port, ssl=tls, limit=MAX_HEAD)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def _script(robots: Script | str | int) -> Script:
    if isinstance(robots, str):
        return Reply(body=robots)
    return Reply(status=robots) if isinstance(robots, int) else robots


async def _converse(site: RecordingOrigin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Requests on one connection, one after another."""
    while (request := await _request(reader)) is not None:
        site.received.append(request)
        reply = site.reply(request)
        if reply.reset:
            return
        await _answer(reply, request, writer)
        if reply.ends or request.headers.get("connection", "").lower() == "close":
            await _hang_up(reply, writer)
            return


async def _request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    line, *fields = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, _, rest = line.partition(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (text.partition(":") for text in fields)}
    body = await _body(reader, headers)
    return Received(time.monotonic(), method, rest.rpartition(" ")[0], headers, body)


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        chunks = []
        while size := int((await reader.readline()).split(b";")[0], 16):
            chunks.append(await reader.readexactly(size))
            await reader.readline()
        await reader.readline()
        return b"".join(chunks)
    return await reader.readexactly(int(headers.get("content-length", "0") or 0))


async def _answer(reply: Reply, request: Received, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(86400.0 if reply.hang else reply.delay)
    if reply.raw is not None:
        writer.write(reply.raw)
        await _go_on(reply, writer)
        return
    body = reply.body.encode() if isinstance(reply.body, str) else reply.body
    writer.write(reply.head(len(body)))
    if request.method != "HEAD":
        await _send(body, reply.drip, writer)
        await _go_on(reply, writer)
    await writer.drain()


async def _go_on(reply: Reply, writer: asyncio.StreamWriter) -> None:
    await writer.drain()
    while reply.endless:
        writer.write(reply.endless)
        await writer.drain()
        await asyncio.sleep(reply.drip)


async def _hang_up(reply: Reply, writer: asyncio.StreamWriter) -> None:
    """End the connection. A clean end of TLS is waited for, because `abort` sends no `close_notify`."""
    if reply.broken:
        await asyncio.sleep(_READ_BY_THEN)  # a reset may drop what the client has not read
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif not reply.unannounced and writer.get_extra_info("ssl_object") is not None:
        writer.close()
        async with asyncio.timeout(_GOODBYE):
            await writer.wait_closed()


async def _send(body: bytes, drip: float, writer: asyncio.StreamWriter) -> None:
    if not drip:
        writer.write(body)
        return
    for octet in body:
        writer.write(bytes((octet,)))
        await writer.drain()
        await asyncio.sleep(drip)
