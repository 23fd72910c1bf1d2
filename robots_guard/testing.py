"""Scripted origins for tests of crawlers and of the guard, and an audit log in memory.

Real origins on loopback addresses answer, stall or break as scripted, and record every request::

    with Loopback() as net:
        site = net.origin(robots="User-agent: *\\nDisallow: /private/")
        ...                       # crawl f"{site.url}/" with the program under test
        assert not site.pages_matching("/private/")

Each origin has its own address (127.1.1.1, 127.1.1.2, ...), because crawlers pace and queue by
host, not by port. All origins run on one event loop in a separate thread, so a crawler that blocks
its own loop does not block them. They handle HTTP/1.x byte by byte, to send broken responses and to
record unusual requests as received.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
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

from robots_guard.audit.record import (
    AnyRecord,
    Record,
    SignalsRecord,
    Writer,
    record_of,
    record_of_event,
    signals_record_of,
)
from robots_guard.decisions.events import Event
from robots_guard.decisions.verdict import Decision

__all__ = ["CapturingAuditLog", "Loopback", "Received", "RecordingOrigin", "Reply", "Script"]

MAX_HEAD = 128 * 1024
_READ_TIME = 0.3  # seconds a client has to read a response before a reset
_CLOSE_TIMEOUT = 1.0  # seconds to wait for a client's close_notify

# The client has disconnected, or the origin closes: asyncio before 3.12 reports a cancelled
# conversation as an error.
_BROKEN_OFF = (
    ConnectionError,
    asyncio.IncompleteReadError,
    ssl.SSLError,
    TimeoutError,
    asyncio.CancelledError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The response of an origin to a request.

    `delay` and `hang` stall before the first byte; `reset` closes without sending any; `raw` is
    sent instead of an HTTP response; `cut` announces more body than is sent; `drip` is the pause in
    seconds between bytes of the body. `broken` ends the connection with a TCP reset after the
    response; `unannounced` ends TLS without `close_notify`. `endless` is sent repeatedly at the
    end, with `drip` between, until the client disconnects.
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
        return (
            self.raw is not None
            or self.cut
            or bool(self.endless)
            or self.broken
            or self.unannounced
        )

    def head(self, length: int) -> bytes:
        """Status line and header fields."""
        names = {name.lower() for name, _ in self.headers}
        fields = list(self.headers)
        if "content-type" not in names:
            fields.append(("Content-Type", "text/plain; charset=utf-8"))
        if "content-length" not in names and not self.endless:
            fields.append(("Content-Length", str(length + (100 if self.cut else 0))))
        lines = [
            f"HTTP/1.1 {self.status} Scripted",
            *(f"{name}: {value}" for name, value in fields),
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it reached the origin: bytes as Latin-1 characters, header names lower-case.

    A request is recorded as soon as its first line has arrived. `whole` says whether all of it
    arrived and could be parsed; if not, `headers` is empty unless all fields arrived, and `body` is
    empty.
    """

    at: float  # when its first line arrived: seconds on the monotonic clock
    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""
    whole: bool = True


Script = Reply | Callable[[Received], Reply]


@dataclass(slots=True)
class RecordingOrigin:
    """One origin. `pages` maps a target without its query to a script; any other target gets a
    small page."""

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
        """The requests for /robots.txt."""
        return [request for request in self.received if request.target == "/robots.txt"]

    @property
    def targets(self) -> list[str]:
        """The targets of all other requests, in order."""
        return [request.target for request in self.received if request.target != "/robots.txt"]

    def pages_matching(self, text: str) -> list[str]:
        """Return the targets that contain `text`, including those of incomplete requests."""
        return [target for target in self.targets if text in target]

    def replace(self, request: Received, **more: Any) -> Received:
        """Replace a recorded request by one with further fields, and return that."""
        known = dataclasses.replace(request, **more)
        for index in reversed(range(len(self.received))):
            if self.received[index] is request:
                self.received[index] = known
                return known
        self.received.append(known)  # a test has cleared the list meanwhile
        return known

    def reply(self, request: Received) -> Reply:
        """Return the scripted reply."""
        if request.target == "/robots.txt":
            script = self.robots
        else:
            script = self.pages.get(request.target.partition("?")[0], _page)
        if callable(script):
            return script(request)
        return script


def _page(request: Received) -> Reply:
    body = f"<!doctype html><title>page</title><p>This is {request.target.encode('ascii', 'replace').decode()}"
    return Reply(headers=(("Content-Type", "text/html; charset=utf-8"),), body=body)


class Loopback:
    """The origins' event loop, in a separate thread. A context manager; leaving it closes all
    origins."""

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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
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
        """Start an origin. `robots` is a script, the text of its robots.txt, or a status."""
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

    async def _serve(
        self, site: RecordingOrigin, tls: ssl.SSLContext | None, port: int
    ) -> asyncio.Server:
        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(*_BROKEN_OFF):
                await _converse(site, reader, writer)

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            site.connections += 1
            conversation = self._loop.create_task(converse(reader, writer))
            self._conversations.add(conversation)
            conversation.add_done_callback(self._conversations.discard)
            # also for a task that is cancelled before it starts
            conversation.add_done_callback(lambda _: writer.transport.abort())

        return await asyncio.start_server(connected, site.address, port, ssl=tls, limit=MAX_HEAD)

    async def _close(self) -> None:
        for server in self._servers:
            for listener in server.sockets:
                self._loop.remove_reader(listener.fileno())  # no further connection is accepted
        # The tasks of those that are accepted start while their servers are open: asyncio never
        # closes a connection whose task finds its server closed.
        await asyncio.sleep(0)
        for server in self._servers:
            server.close()
        # A connection that is being accepted starts a task of its own while the others end.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.sleep(0)  # transports close their sockets in the next iteration


def _script(robots: Script | str | int) -> Script:
    if isinstance(robots, str):
        return Reply(body=robots)
    if isinstance(robots, int):
        return Reply(status=robots)
    return robots


async def _converse(
    site: RecordingOrigin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer the requests on one connection, one after another."""
    while (request := await _request(site, reader)) is not None:
        reply = site.reply(request)
        if reply.reset:
            return
        await _answer(reply, request, writer)
        if (
            reply.ends
            or not request.whole
            or request.headers.get("connection", "").lower() == "close"
        ):
            await _hang_up(reply, writer)
            return


async def _request(site: RecordingOrigin, reader: asyncio.StreamReader) -> Received | None:
    """Read the next request; return None if it is missing or incomplete. It is recorded with its
    first line."""
    line = await _first_line(reader)
    if not line:
        return None
    request = _incomplete_request(line)
    if line.startswith(_HANDSHAKE):
        return request  # answered in plain text, as real servers do, but not recorded
    site.received.append(request)
    try:
        request = site.replace(request, headers=await _fields(reader, MAX_HEAD - len(line)))
        return site.replace(request, body=await _body(reader, request.headers), whole=True)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        return None


_HANDSHAKE = b"\x16\x03"  # the first bytes of a TLS handshake record (RFC 8446 section 5.1)


async def _first_line(reader: asyncio.StreamReader) -> bytes:
    """Read the first line of a request, or as much as fits; return b"" at the end of the stream.

    Empty lines before it are skipped (RFC 9112 section 2.2).
    """
    line = b"\n"
    while line and not line.strip(b"\r\n"):
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return b""
        except asyncio.LimitOverrunError:
            return await reader.read(MAX_HEAD)
    return line


def _incomplete_request(line: bytes) -> Received:
    """Return the incomplete request that has this first line. If it is not a request line, all of
    it is the target."""
    text = line.decode("latin-1").partition("\n")[0].rstrip("\r")
    method, _, rest = text.partition(" ")
    target, _, version = rest.rpartition(" ")
    if not version.startswith("HTTP/"):
        target = rest
    if not rest:
        method, target = "", text
    return Received(time.monotonic(), method, target, {}, whole=False)


async def _fields(reader: asyncio.StreamReader, room: int) -> dict[str, str]:
    """Read header fields up to the empty line. Lines may end in a bare LF, which some servers
    accept."""
    fields = {}
    while text := (await reader.readuntil(b"\n")).decode("latin-1").rstrip("\r\n"):
        room -= len(text)
        if room < 0:
            raise ValueError("the head is too long")
        name, _, value = text.partition(":")
        fields[name.strip().lower()] = value.strip()
    return fields


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        chunks = []
        while size := int((await reader.readline()).split(b";")[0], 16):
            chunks.append(await reader.readexactly(size))
            await reader.readline()
        while (await reader.readuntil(b"\n")).strip(b"\r\n"):  # trailer fields
            pass
        return b"".join(chunks)
    return await reader.readexactly(int(headers.get("content-length", "0") or 0))


async def _answer(reply: Reply, request: Received, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(86400.0 if reply.hang else reply.delay)
    if reply.raw is not None:
        writer.write(reply.raw)
        await _send_endless(reply, writer)
        return
    body = reply.body.encode() if isinstance(reply.body, str) else reply.body
    writer.write(reply.head(len(body)))
    if request.method != "HEAD":
        await _send(body, reply.drip, writer)
        await _send_endless(reply, writer)
    await writer.drain()


async def _send_endless(reply: Reply, writer: asyncio.StreamWriter) -> None:
    await writer.drain()
    while reply.endless:
        writer.write(reply.endless)
        await writer.drain()
        await asyncio.sleep(reply.drip)


async def _hang_up(reply: Reply, writer: asyncio.StreamWriter) -> None:
    """Close the connection. A clean end of TLS needs a wait, because `abort` sends no
    `close_notify`."""
    if reply.broken:
        await asyncio.sleep(_READ_TIME)  # a reset may drop data that the client has not read
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
    elif not reply.unannounced and writer.get_extra_info("ssl_object") is not None:
        writer.close()
        async with asyncio.timeout(_CLOSE_TIMEOUT):
            await writer.wait_closed()


async def _send(body: bytes, drip: float, writer: asyncio.StreamWriter) -> None:
    if not drip:
        writer.write(body)
        return
    for byte in body:
        writer.write(bytes((byte,)))
        await writer.drain()
        await asyncio.sleep(drip)


class CapturingAuditLog:
    """An audit log in memory: `records` has every decision on a request, including each PASS, and
    `signals` every decision on a response."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.signals: list[SignalsRecord] = []
        self.events: list[AnyRecord] = []

    def write(self, decision: Decision) -> None:
        """Store the record of a decision."""
        writer, seq = Writer(writer="captured"), len(self.records) + len(self.signals) + 1
        if decision.response is not None:
            self.signals.append(signals_record_of(decision, writer, seq=seq))
        else:
            self.records.append(record_of(decision, writer, seq=seq))

    def note(self, event: Event, *, is_tried_again: bool = False) -> None:  # noqa: ARG002  (storing cannot fail)
        """Store the record of an event."""
        self.events.append(record_of_event(event, {}))

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
