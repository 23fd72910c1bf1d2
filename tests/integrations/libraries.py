"""Client libraries with the guard: each asks for URLs in this process, unchanged and without
redirects."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import aiohttp
import httpx
from yarl import URL

import robots_guard.aiohttp
import robots_guard.httpx
from robots_guard.testing import Loopback, RecordingOrigin, Reply

AT_ONCE = 32
AGENT = "mybot"
RULES = "User-agent: *\nDisallow: /private/\n"

Settings = Mapping[str, str]


def library_site(net: Loopback) -> RecordingOrigin:
    """Start a site with pages that a client library must handle: redirects to forbidden pages, a
    pause, and statements on the use of a page."""
    closed = net.origin("User-agent: *\nDisallow: /\n")
    return net.origin(
        RULES,
        {
            "/within": Reply(status=302, headers=(("Location", "/private/x"),)),
            "/away": Reply(status=307, headers=(("Location", f"{closed.url}/x"),)),
            "/busy": Reply(status=429, headers=(("Retry-After", "30"),)),
            "/tagged": Reply(headers=(("X-Robots-Tag", "noai"),), body=b"page"),
            "/html": Reply(headers=(("Content-Type", "text/html"),), body=b"<p>page"),
        },
    )


@contextmanager
def trusted(authorities: Path) -> Iterator[ssl.SSLContext]:
    """Let guards that are opened meanwhile trust these authorities, too."""
    os.environ["SSL_CERT_FILE"] = str(authorities)
    try:
        yield ssl.create_default_context(cafile=authorities)
    finally:
        del os.environ["SSL_CERT_FILE"]


def ask_httpx(urls: list[str], settings: Settings, authorities: Path) -> None:
    """Ask by `httpx.Client`, from several threads."""
    with trusted(authorities) as tls:
        transport = robots_guard.httpx.Transport(
            AGENT, wrapped=httpx.HTTPTransport(verify=tls), **settings
        )
    with httpx.Client(transport=transport, timeout=40) as client, ThreadPoolExecutor(16) as pool:

        def ask(url: str) -> None:
            with suppress(httpx.HTTPError):
                client.get(url, extensions={"target": target_of(url)})

        list(pool.map(ask, urls))


def ask_async_httpx(urls: list[str], settings: Settings, authorities: Path) -> None:
    """Ask by `httpx.AsyncClient`."""
    asyncio.run(_ask_async_httpx(urls, settings, authorities))


async def _ask_async_httpx(urls: list[str], settings: Settings, authorities: Path) -> None:
    with trusted(authorities) as tls:
        transport = robots_guard.httpx.AsyncTransport(
            AGENT, wrapped=httpx.AsyncHTTPTransport(verify=tls), **settings
        )
    some = asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(transport=transport, timeout=40) as client:

        async def ask(url: str) -> None:
            async with some:
                with suppress(httpx.HTTPError):
                    await client.get(url, extensions={"target": target_of(url)})

        await asyncio.gather(*map(ask, urls))


def ask_aiohttp(urls: list[str], settings: Settings, authorities: Path) -> None:
    """Ask by `aiohttp.ClientSession`."""
    asyncio.run(_ask_aiohttp(urls, settings, authorities))


async def _ask_aiohttp(urls: list[str], settings: Settings, authorities: Path) -> None:
    with trusted(authorities) as tls:
        guarded = robots_guard.aiohttp.middleware(AGENT, **settings)
    some = asyncio.Semaphore(AT_ONCE)
    connector = aiohttp.TCPConnector(ssl=tls)
    async with (
        guarded,
        aiohttp.ClientSession(connector=connector, middlewares=[guarded]) as session,
    ):

        async def ask(url: str) -> None:
            async with some:
                with suppress(aiohttp.ClientError):
                    async with session.get(URL(url, encoded=True), allow_redirects=False):
                        pass

        await asyncio.gather(*map(ask, urls))


def target_of(url: str) -> bytes:
    """The target as it is spelt; httpx rewrites dot segments in its own URLs."""
    return ("/" + url.split("/", 3)[3]).encode()


#: By name: asks for URLs with settings, and trusts a file of authorities.
LIBRARIES: dict[str, Callable[[list[str], Settings, Path], None]] = {
    "httpx": ask_httpx,
    "httpx+async": ask_async_httpx,
    "aiohttp": ask_aiohttp,
}
