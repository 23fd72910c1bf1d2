"""Real servers as readers: Node's llhttp, strict and lenient, Node's nghttp2, and nginx.

The recorded bytes are sent to them again, each connection from an address of its own, by which their logs tell
the connections apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hyperframe.frame import PingFrame
from integrations.mitmproxy.differential.readers import Found
from support.programs import program

AT_ONCE = 64  # connections
LIMIT = 20.0  # seconds for one connection
#: Node's HTTP/2 server answers a PING once it has read what came before, and hangs up on no client that half-closes.
PING = PingFrame(0, b"all read").serialize()
PATIENCE = 1.0  # seconds for a PING behind half a frame, which is never answered

# Prints a line for each request that the parser hands to the program, also for those it would refuse to answer.
NODE = """
const http = require("http"), http2 = require("http2");
const tell = (reader) => (request, response) => {
  const {sender} = request.socket ?? request.stream.session.socket;
  console.log(JSON.stringify([reader, sender, request.method, request.url, request.headers.host ?? null]));
  if (response.writeHead) response.end("read");
};
const servers = {
  "llhttp": http.createServer(tell("llhttp")),
  "llhttp, lenient": http.createServer({insecureHTTPParser: true, requireHostHeader: false}, tell("llhttp, lenient")),
  "nghttp2": http2.createServer(tell("nghttp2")),
};
const ports = {};
for (const [name, server] of Object.entries(servers)) {
  server.on("connection", (socket) => { socket.sender = socket.remoteAddress; });  // it has none once it is closed
  server.on("clientError", (error, socket) => socket.destroy());
  server.on("sessionError", () => {});
  server.on("connect", (request, socket) => { tell(name)(request, {}); socket.destroy(); });
  server.listen(0, "127.0.0.1", () => {
    ports[name] = server.address().port;
    if (Object.keys(ports).length === Object.keys(servers).length) console.log(JSON.stringify(ports));
  });
}
process.stdin.on("end", () => process.exit()).resume();
"""

NGINX = """
pid {place}/nginx.pid; error_log stderr crit; daemon off; worker_processes 1;
events {{ worker_connections 1024; }}
http {{
  log_format read escape=json '["$remote_addr","$status","$request_method","$request_uri","$http_host"]';
  access_log {place}/read.log read;
  client_body_temp_path {place}/body; proxy_temp_path {place}/proxy; fastcgi_temp_path {place}/fastcgi;
  uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
  keepalive_requests 100000; merge_slashes off; underscores_in_headers on; large_client_header_buffers 4 128k;
  server {{ listen 127.0.0.1:{port}; location / {{ return 200 "read"; }} }}
}}
"""


class Replayed(NamedTuple):
    """What a server found in one connection: the connection's place in the list, and a request."""

    reader: str
    connection: int
    found: Found


def read_by_servers(connections: Sequence[tuple[str, bytes]]) -> dict[str, dict[int, list[Found]]]:
    """Return, by reader, what is in each connection. A connection is its protocol, `h2` or another, and its bytes."""
    found: dict[str, dict[int, list[Found]]] = defaultdict(lambda: defaultdict(list))
    for each in (*_by_node(connections), *_by_nginx(connections)):
        found[each.reader][each.connection].append(each.found)
    return found


def _by_node(connections: Sequence[tuple[str, bytes]]) -> Iterator[Replayed]:
    node = subprocess.Popen(
        [program("node"), "-e", NODE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    with node, tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        assert node.stdout is not None
        assert node.stdin is not None
        ports = json.loads(node.stdout.readline())
        # The pipe is emptied meanwhile, or Node would wait for us while we wait for Node.
        emptied = subprocess.Popen(["cat"], stdin=node.stdout, stdout=log)
        for name, port in ports.items():
            asyncio.run(_replay(port, connections, http2=name == "nghttp2"))
        node.stdin.close()
        node.wait(LIMIT)
        emptied.wait(LIMIT)
        log.seek(0)
        for line in log:
            reader, address, method, target, host = json.loads(line)
            yield Replayed(
                reader, _place(address), Found(method, target, None if host is None else (host,))
            )


def _by_nginx(connections: Sequence[tuple[str, bytes]]) -> Iterator[Replayed]:
    with tempfile.TemporaryDirectory(prefix="robots-guard-nginx-") as place:
        port = _free_port()
        configuration = Path(place, "nginx.conf")
        configuration.write_text(NGINX.format(place=place, port=port))
        nginx = subprocess.Popen([program("nginx"), "-p", place, "-c", str(configuration)])
        try:
            _await_listening(port)
            asyncio.run(_replay(port, connections, http2=False))
        finally:
            nginx.terminate()
            nginx.wait(LIMIT)
        for line in Path(place, "read.log").read_text(encoding="latin-1").splitlines():
            address, status, method, target, host = json.loads(line)
            if status == "200":  # others it has refused to read, or to serve
                yield Replayed("nginx", _place(address), Found(method, target, (host,)))


def _address(place: int) -> str:
    """Return the address from which the connection at this place of the list is sent."""
    return f"127.{64 + place // 62_500}.{place // 250 % 250}.{1 + place % 250}"


def _place(address: str) -> int:
    _, high, middle, low = (int(part) for part in address.removeprefix("::ffff:").split("."))
    return (high - 64) * 62_500 + middle * 250 + low - 1


async def _replay(port: int, connections: Sequence[tuple[str, bytes]], *, http2: bool) -> None:
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(place: int, data: bytes) -> None:
        async with at_once, asyncio.timeout(LIMIT):
            await (_ping if http2 else _send)(_address(place), port, data)

    async with asyncio.TaskGroup() as group:
        for place, (protocol, data) in enumerate(connections):
            if (protocol == "h2") is http2 and data:
                group.create_task(one(place, data))


async def _send(address: str, port: int, data: bytes) -> None:
    """Send a connection again, and read until the server has closed its side."""
    async with _connected(address, port) as (reader, writer):
        writer.write(data)
        writer.write_eof()
        while await reader.read(65536):
            pass


async def _ping(address: str, port: int, data: bytes) -> None:
    """Send a connection of HTTP/2 again, and read until the server has read it."""
    async with _connected(address, port) as (reader, writer):
        writer.write(data + PING)
        with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(PATIENCE):
                await reader.readuntil(b"all read")


@contextlib.asynccontextmanager
async def _connected(
    address: str, port: int
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        with contextlib.suppress(OSError):
            yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _await_listening(port: int) -> None:
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=1.0),
        ):
            return
        time.sleep(0.01)  # a refused connection is refused at once
    raise AssertionError("nginx does not listen")
