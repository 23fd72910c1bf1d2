"""Fetching directly, for the command line and whoever selects it: aiohttp, one GET, one connection, one answer.

The law of this file: a robots.txt is fetched by a stranger to the site. No cookie, no credential, no proxy out
of the environment, no redirect followed (redirects are the core's business), TLS verified. And the site is a
stranger to us: every address is looked at before it is connected to, every size and time is bounded, and whatever
goes wrong is an outcome, never an exception.
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

from robots_guard.core.access import Failed, Failure, Fetched, FetchOutcome, Get, Limits
from robots_guard.fetch.decoding import Plain, Undecodable, decoder
from robots_guard.fetch.destinations import CheckedResolver, Destinations, Refused, Visit
from robots_guard.fetch.fields import MAX_FIELD, MAX_FIELDS, BadFields, joined
from robots_guard.fetch.framing import Framing
from robots_guard.origin import split_url

RECEIVED_AT_ONCE = 32 * 1024  # octets; Linux doubles it

_UNSAFE_OCTET = re.compile(r"[^!-~]")

# The first that fits. aiohttp's own tree says more than its bases do, so the narrow ones come first.
_FAILURES: tuple[tuple[type[BaseException], Failure], ...] = (
    (Refused, Failure.REFUSED),
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

    `user_agent` is sent as the User-Agent field. `tls`, if given, is what certificates are verified with
    instead of the system's authorities. `proxy` is the URL of an HTTP proxy to go through: names are then resolved
    there, and only hosts that spell an address can be held against `destinations`.
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
        self._tls = tls or ssl.create_default_context()
        self._verifies = self._tls.verify_mode is ssl.CERT_REQUIRED and self._tls.check_hostname

    async def fetch(self, get: Get) -> FetchOutcome:
        """The outcome of one hop."""
        try:
            url = URL(_UNSAFE_OCTET.sub(_percent, get.url), encoded=True)
            if get.verbatim and url.raw_path_qs != split_url(get.url)[1]:  # yarl drops an empty query
                return Failed(failure=Failure.REFUSED, detail=f"this client would ask for {url.raw_path_qs} instead")
            visit = Visit(self._destinations, public_only=get.public_only)
            visit.enter(url.raw_host or "", url.port or 0)
            async with asyncio.timeout(get.limits.total), self._session(get.limits, visit) as session:
                return await self._get(session, url, get, visit)
        except Exception as error:  # noqa: BLE001  a fetcher never raises: what went wrong is the outcome
            return Failed(failure=_failure(error), detail=_told(error))

    def _session(self, limits: Limits, visit: Visit) -> aiohttp.ClientSession:
        """A session a fetch: nothing is bound to an event loop, and nothing is carried from site to site."""
        resolver = None if self._proxy else CheckedResolver(visit)
        session = aiohttp.ClientSession(
            connector=_Connector(
                ssl=self._tls, force_close=True, use_dns_cache=False, resolver=resolver, socket_factory=_socket
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            max_headers=MAX_FIELDS,
            max_field_size=MAX_FIELD,
            timeout=aiohttp.ClientTimeout(
                total=None,  # kept by `fetch`, name resolution and closing included
                connect=limits.connect,
                sock_read=limits.first_byte,
                ceil_threshold=limits.total + 1,  # do not round up to whole seconds
            ),
        )
        session._retry_connection = False  # noqa: SLF001  one GET is one: aiohttp repeats it, and has no option
        return session

    async def _get(self, session: aiohttp.ClientSession, url: URL, get: Get, visit: Visit) -> FetchOutcome:
        headers = {"User-Agent": self._user_agent, "Accept-Encoding": "identity", **dict(get.headers)}
        get_it = session.get(url, headers=headers, allow_redirects=False, proxy=self._proxy or None)
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(get.limits.connect + get.limits.first_byte):  # however it drips
                answer = await stack.enter_async_context(get_it)
            fields = joined(answer.raw_headers)
            coding = fields.get("content-encoding", "") if 200 <= answer.status < 300 else ""
            body = decoder(coding, get.limits.max_body)
            content = await _read(answer, body)
            if objection := _framing(session).objection(truncated=body.truncated, content=content):
                return Failed(failure=Failure.PROTOCOL, detail=objection)
            return Fetched(
                status=answer.status,
                headers=fields,
                body=bytes(body.body) if 200 <= answer.status < 300 else b"",
                truncated=body.truncated,
                tls_verified=url.scheme == "https" and self._verifies,
                public=visit.public,
            )


class _Shown(ResponseHandler):
    """One connection, which shows what it receives, and how it ends, to a `Framing` before aiohttp reads it."""

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


class _Connector(aiohttp.TCPConnector):
    """Drops its connection when it is closed. aiohttp leaves a TLS one to the peer's `close_notify`: for 30 s of a
    peer that sends none, and past the end of the event loop. `framing` is that of the answer."""

    _transport: asyncio.Transport | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.framing = Framing()
        self._factory: Any = functools.partial(_Shown, loop=self._loop)  # aiohttp has no option for it

    async def connect(self, *args: Any, **options: Any) -> Connection:
        connection = await super().connect(*args, **options)
        self._transport = connection.transport
        if isinstance(connection.protocol, _Shown):
            self.framing = connection.protocol.framing
        return connection

    async def close(self, *, abort_ssl: bool = False) -> None:
        await super().close(abort_ssl=abort_ssl)
        if self._transport is not None:
            self._transport.abort()


def _is_clean_end(transport: asyncio.Transport | None) -> bool:
    """Whether the peer itself has ended what a transport receives: by FIN or, in TLS, by `close_notify`. asyncio
    reports the latter and an end of TCP without it by the same call; the TLS object tells which it was."""
    if transport is None:
        return False
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return True
    try:
        return not tls.read(1)
    except ssl.SSLZeroReturnError:
        return True
    except ssl.SSLError:  # it waits for more
        return False


def _framing(session: aiohttp.ClientSession) -> Framing:
    assert isinstance(session.connector, _Connector)
    return session.connector.framing


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """With a small buffer: what a flood brings at once is what holds up the event loop."""
    made = socket.socket(family=address[0], type=address[1], proto=address[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_AT_ONCE)
    return made


async def _read(answer: aiohttp.ClientResponse, body: Plain) -> int:
    """Read an answer into `body` until that is truncated. The result is how many bytes of content aiohttp gave, before
    any content coding was undone. The content of an error is read, too: it shows that the answer is whole."""
    content = 0
    async for octets in answer.content.iter_any():
        content += len(octets)
        body.feed(octets)
        if body.truncated:
            break
    body.end()
    return content


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{octet:02X}" for octet in found[0].encode("latin-1", "replace"))


def _failure(error: Exception) -> Failure:
    return next((failure for kind, failure in _FAILURES if isinstance(error, kind)), Failure.INTERNAL)


def _told(error: Exception) -> str:
    """For people: what happened, without the stranger's octets in bulk."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        told = cause.verify_message
    elif isinstance(cause, ssl.SSLError):
        told = cause.reason or str(cause)
    elif isinstance(cause, socket.gaierror):
        told = cause.strerror or "the name does not resolve"
    elif isinstance(cause, OSError) and cause.errno:
        told = os.strerror(cause.errno)
    elif isinstance(cause, TimeoutError):
        told = str(cause) or "took longer than allowed"
    elif isinstance(cause, Refused):
        told = str(cause)
    else:
        told = f"{type(cause).__name__}: {cause}"
    return told[:200]
