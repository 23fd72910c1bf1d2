"""Crawls in this process of a server in another process, for the Scrapy benchmarks.

The server answers on every loopback address, so hosts cost nothing. `/N` is a small page;
/robots.txt has `Crawl-delay: 0.5` on 127.3.*, and no rules elsewhere. Pages take `latency` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

QUIET = {
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "LOG_ENABLED": False,
    "LOGSTATS_INTERVAL": 0,
}
RULES = (
    "User-agent: *\nDisallow: /private/\nDisallow: /*.pdf$\n"
    "Allow: /private/open\nDisallow: /tmp/\nDisallow: /a/b/\n"
)
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"


def settings(mode: str, scratch: str) -> dict[str, Any]:
    """Return a crawl without a robots.txt check, with Scrapy's check, or with the guard."""
    if mode != "guard":
        return {**QUIET, "ROBOTSTXT_OBEY": mode == "builtin"}
    return {
        **QUIET,
        "ADDONS": {"robots_guard.scrapy.Addon": 500},
        "ROBOTS_GUARD_AGENT": "mybot",
        "ROBOTS_GUARD_STORE": "memory:",
        "ROBOTS_GUARD_AUDIT_LOG": scratch,
    }


@contextlib.contextmanager
def serving(latency: float) -> Iterator[int]:
    """Run the server in a separate process, and yield its port."""
    server = subprocess.Popen(
        [sys.executable, __file__, str(latency)], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        yield int(server.stdout.readline())
    finally:
        server.terminate()
        server.wait()


def in_reactor(work: Callable[[str], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine on Scrapy's default reactor, with a scratch directory as its argument."""
    from scrapy.utils.reactor import install_reactor

    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    from scrapy.utils.defer import deferred_from_coro
    from twisted.internet import reactor

    with tempfile.TemporaryDirectory() as scratch:
        done = deferred_from_coro(work(scratch))
        done.addErrback(lambda failure: failure.printTraceback())
        done.addBoth(lambda _: reactor.stop())
        reactor.run()


async def _converse(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, latency: float
) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"GET /robots.txt "):
                if latency:
                    await asyncio.sleep(latency)
                writer.write(PAGE)
                continue
            body = (RULES + ("Crawl-delay: 0.5\n" if b"\nHost: 127.3." in head else "")).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n"
                % len(body)
                + body
            )
    writer.close()


async def _serve(latency: float) -> None:
    server = await asyncio.start_server(
        lambda reader, writer: _converse(reader, writer, latency), "0.0.0.0", 0
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(float(sys.argv[1])))
