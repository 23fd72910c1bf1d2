"""Direct fetches, for the command line and the setting `fetch = direct`: aiohttp, one GET on one
connection.

Invariant: the request is anonymous and the site is untrusted. No cookie, credential or proxy from
the environment is used, no redirect is followed (the guard does that), and TLS is verified. Every
address is checked before connecting, every size and time is bounded, and every failure is an
outcome, never an exception.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import socket
import ssl
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from yarl import URL

from robots_guard.decisions.access import Failed, Failure, Fetched, FetchOutcome, Get, Limits
from robots_guard.guard.fetch.content_coding import Plain, Undecodable, decoder
from robots_guard.guard.fetch.destinations import (
    CheckedResolver,
    DestinationRefused,
    Destinations,
    HostVisit,
)
from robots_guard.guard.fetch.framing import MAX_FIELD, MAX_FIELDS, BadFields, Framing, joined
from robots_guard.guard.fetch.plain_errors import LONGEST, in_plain_words, scope_of
from robots_guard.origin import split_url

RECEIVE_BUFFER = 32 * 1024  # bytes; Linux doubles it

_UNSAFE_BYTE = re.compile(r"[^!-~]")

# The first matching entry counts. aiohttp's classes are more specific than their bases, so narrow
# ones come first.
_FAILURES: tuple[tuple[type[BaseException], Failure], ...] = (
    (DestinationRefused, Failure.REFUSED),
    (TimeoutError, Failure.TIMEOUT),
    (aiohttp.ClientConnectorDNSError, Failure.DNS),
    (aiohttp.ClientSSLError, Failure.TLS),
    (aiohttp.ClientConnectorCertificateError, Failure.TLS),
    (ssl.SSLError, Failure.TLS),
    (aiohttp.ClientConnectorError, Failure.CONNECT),
    (aiohttp.ClientHttpProxyError, Failure.CONNECT),
    (aiohttp.ServerDisconnectedError, Failure.RESET),
    (aiohttp.ClientOSError, Failure.RESET),
    (ConnectionError, Failure.RESET),
    (aiohttp.ClientError, Failure.PROTOCOL),
    (Undecodable, Failure.PROTOCOL),
    (BadFields, Failure.PROTOCOL),
    (ValueError, Failure.PROTOCOL),
    (OSError, Failure.CONNECT),
)


class HttpFetcher:
    """A Fetcher over connections of its own.

    `user_agent` is sent as the User-Agent field. `tls`, if given, replaces the default TLS context
    with the system's authorities. `proxy` is the URL of an HTTP proxy to use: the proxy then
    resolves names, and only hosts that are address literals can be checked against `destinations`.
    """

    via = "direct"

    def __init__(
        self,
        user_agent: str,
        *,
        tls: ssl.SSLContext | None = None,
        destinations: Destinations | None = None,
        proxy: str = "",
    ) -> None:
        self._user_agent = user_agent
        self._destinations = destinations or Destinations()
        self._proxy = proxy
        self.route = proxy_name(proxy)
        self._tls = tls or ssl.create_default_context()
        self._verifies = self._tls.verify_mode is ssl.CERT_REQUIRED and self._tls.check_hostname

    async def fetch(self, get: Get) -> FetchOutcome:
        """Fetch one hop; return its outcome."""
        try:
            url = URL(_UNSAFE_BYTE.sub(_percent, get.url), encoded=True)
            # yarl drops an empty query.
            if get.verbatim and url.raw_path_qs != split_url(get.url)[1]:
                return Failed(
                    failure=Failure.REFUSED,
                    detail=f"this client would request {url.raw_path_qs} instead",
                )
            visit = HostVisit(self._destinations, public_only=get.public_only)
            visit.enter(url.raw_host or "", url.port or 0)
            async with (
                asyncio.timeout(get.limits.total),
                self._session(get.limits, visit) as session,
            ):
                outcome = await self._get(session, url, get, visit)
        except Exception as error:  # noqa: BLE001  a fetcher never raises: an error is an outcome
            about = scope_of((error, getattr(error, "os_error", None)))
            outcome = Failed(failure=_failure(error), detail=_describe(error), about=about)
        if isinstance(outcome, Failed):
            return outcome.on_route(self.route)
        return outcome

    def _session(self, limits: Limits, visit: HostVisit) -> aiohttp.ClientSession:
        """Return a session for one fetch, so that nothing is bound to a loop or carried from site
        to site."""
        resolver = None if self._proxy else CheckedResolver(visit)
        session = aiohttp.ClientSession(
            connector=_Connector(
                ssl=self._tls,
                force_close=True,
                use_dns_cache=False,
                resolver=resolver,
                socket_factory=_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            max_headers=MAX_FIELDS,
            max_field_size=MAX_FIELD,
            timeout=aiohttp.ClientTimeout(
                total=None,  # enforced by `fetch`, including name resolution and closing
                connect=limits.connect,
                sock_read=limits.first_byte,
                ceil_threshold=limits.total + 1,  # do not round up to whole seconds
            ),
        )
        session._retry_connection = False  # noqa: SLF001  aiohttp repeats a GET, and has no option against it
        return session

    async def _get(
        self, session: aiohttp.ClientSession, url: URL, get: Get, visit: HostVisit
    ) -> FetchOutcome:
        headers = {
            "User-Agent": self._user_agent,
            "Accept-Encoding": "identity",
            **dict(get.headers),
        }
        get_it = session.get(url, headers=headers, allow_redirects=False, proxy=self._proxy or None)
        async with contextlib.AsyncExitStack() as stack:
            # The time is bounded even if the head comes in drips.
            async with asyncio.timeout(get.limits.connect + get.limits.first_byte):
                answer = await stack.enter_async_context(get_it)
            fields = joined(answer.raw_headers)
            coding = fields.get("content-encoding", "") if 200 <= answer.status < 300 else ""
            body = decoder(coding, get.limits.max_body)
            content = await _read(answer, body)
            if objection := _framing_of(session).objection(
                truncated=body.truncated, content=content
            ):
                return Failed(failure=Failure.PROTOCOL, detail=objection)
            return Fetched(
                status=answer.status,
                headers=fields,
                body=bytes(body.body) if 200 <= answer.status < 300 else b"",
                truncated=body.truncated,
                tls_verified=url.scheme == "https" and self._verifies,
                public=visit.public,
                relay=self.route if url.scheme == "http" else "",
            )


class _ObservedHandler(ResponseHandler):
    """One connection. It passes received bytes and the connection's end to a `Framing` before
    aiohttp reads them.

    It is aborted where aiohttp closes it: to close a TLS connection is to wait for the peer's
    `close_notify`, 30 s if the peer sends none, and beyond the end of the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.framing = Framing()

    def data_received(self, data: bytes) -> None:
        self.framing.feed(data)
        super().data_received(data)

    def eof_received(self) -> None:
        self.framing.closed(clean=_is_clean_end(self.transport))
        super().eof_received()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.framing.closed(clean=False)  # no end was received
        super().connection_lost(exc)

    def close(self) -> None:
        self.abort()


class _Connector(aiohttp.TCPConnector):
    """A connector. `framing` is that of the response."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.framing = Framing()
        # aiohttp has no option for it.
        self._factory: Any = functools.partial(_ObservedHandler, loop=self._loop)

    async def connect(self, *args: Any, **options: Any) -> Connection:
        connection = await super().connect(*args, **options)
        if isinstance(connection.protocol, _ObservedHandler):
            self.framing = connection.protocol.framing
        return connection


def _is_clean_end(transport: asyncio.Transport | None) -> bool:
    """Whether the peer ended its stream cleanly: by FIN or, in TLS, by `close_notify`.

    asyncio reports a `close_notify` and an end of TCP without one by the same call; the TLS object
    shows which it was.
    """
    if transport is None:
        return False
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return True
    try:
        return not tls.read(1)
    except ssl.SSLZeroReturnError:
        return True
    except ssl.SSLError:  # more data is expected
        return False


def _framing_of(session: aiohttp.ClientSession) -> Framing:
    assert isinstance(session.connector, _Connector)
    return session.connector.framing


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket with a small receive buffer, which bounds how long a flood can block the
    event loop at once."""
    sock = socket.socket(family=address[0], type=address[1], proto=address[2])
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    return sock


async def _read(answer: aiohttp.ClientResponse, body: Plain) -> int:
    """Read a response into `body` until that is truncated.

    Returns the number of content bytes that aiohttp delivered, before any content coding is undone.
    The content of an error response is read, too, to check that the response is complete.
    """
    content = 0
    async for data in answer.content.iter_any():
        content += len(data)
        body.feed(data)
        if body.truncated:
            break
    body.end()
    return content


def proxy_name(url: str) -> str:
    """A parent proxy in records: its host and port, without credentials."""
    return url.rpartition("@")[2].rpartition("://")[2].rstrip("/")


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("latin-1", "replace"))


def _failure(error: Exception) -> Failure:
    return next(
        (failure for kind, failure in _FAILURES if isinstance(error, kind)), Failure.INTERNAL
    )


def _describe(error: Exception) -> str:
    """Describe an error for people, with at most 200 characters of untrusted text."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        text = cause.verify_message
    elif isinstance(cause, ssl.SSLError):
        text = cause.reason or str(cause)
    elif isinstance(cause, socket.gaierror):
        text = cause.strerror or "the name does not resolve"
    elif isinstance(cause, OSError) and cause.errno:
        text = os.strerror(cause.errno)
    elif isinstance(cause, TimeoutError):
        text = str(cause) or "took longer than allowed"
    elif isinstance(cause, DestinationRefused):
        text = str(cause)
    else:
        text = f"{type(cause).__name__}: {cause}"
    return in_plain_words(text) or text[:LONGEST]
