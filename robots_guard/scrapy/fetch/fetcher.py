"""The fetcher that downloads robots.txt through the crawler's own downloader, on the same route as
the pages.

It uses the proxy, bind address, handlers and identity of the request that needs the file. It makes
one hop, without retry, cache, cookies or credentials for the origin; only the proxy's are sent. The
body is truncated as it arrives, and only the guard decompresses it, with a bound. Every failure is
an outcome; in particular an IgnoreRequest by another component is a failure to fetch and never
"there is no robots.txt".

Scrapy does not distinguish connecting from waiting for the first byte, so one timeout, the sum of
both, runs until the response's header section arrives; a handler that does not signal that is also
cut off at that time. The timeout starts when the fetch is sent: before that it may wait in its
download slot, behind pages and for DOWNLOAD_DELAY, which says nothing about the site.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK

from robots_guard.audit.record import shown_url
from robots_guard.decisions.access import (
    Failed,
    Failure,
    Fetched,
    FetchOutcome,
    Get,
    Scope,
    is_trouble,
)
from robots_guard.decisions.addresses import Address, is_public, literal
from robots_guard.guard.fetch.content_coding import PACKED_SLACK, Undecodable, decoder
from robots_guard.guard.fetch.destinations import Destinations, lookup
from robots_guard.guard.fetch.framing import INHERITED, BadFields, Framing, joined
from robots_guard.guard.fetch.http import proxy_name
from robots_guard.guard.fetch.plain_errors import in_plain_words, scope_of
from robots_guard.origin import Origin, split_cached
from robots_guard.scrapy.fetch.connections import handler_of, twisted_url, watch
from robots_guard.scrapy.fetch.connections import objection as objection_to
from robots_guard.scrapy.fetch.substitute import (
    explain_hidden_end,
    is_opaque,
    substitute_for,
    tls_of,
    with_fields,
)
from robots_guard.scrapy.guarded_request import are_same
from robots_guard.scrapy.patches.fetch_signals import divert
from robots_guard.scrapy.runtime import CANCELLED, ScrapyRuntime
from robots_guard.scrapy.written import writer_of
from robots_guard.text import printable

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from robots_guard.scrapy.patches.handler_hook import Send

log = logging.getLogger("robots_guard")

#: Meta key under which a fetch of the guard carries its Download. Other components may test whether
#: it is present.
DOWNLOAD = "robots_guard_fetch"
MAX_SLOT_WAIT = 3600.0  # seconds for which a fetch waits for its download slot
_URL_CHARACTERS = "".join(map(chr, range(0x21, 0x7F)))

# protocols whose frames delimit a response, as handlers name them
_DELIMITED = frozenset(("h2", "HTTP/2"))

_ROUTE_META = ("proxy", "_auth_proxy", "bindaddress", "download_slot")
#: Meta keys by which a request takes another route than the crawl's default.
ON_ROUTE = frozenset(_ROUTE_META)
_PROXY_CREDENTIALS = "Proxy-Authorization"
# Codings that the guard can decode, and a preference for text.
_OWN_FIELDS = {"Accept": "text/plain, */*;q=0.5", "Accept-Encoding": "gzip, deflate"}
#: The phrase of a log message about a failure, by its scope.
_SCOPE_PHRASES = {
    Scope.SITE: "",
    Scope.ROUTE: " through {}; requests by other routes do not wait",
    Scope.FETCHER: " by this crawl; other processes do not wait",
}
_KEPT_FIELDS = INHERITED | {"host"}
_FETCH_META = {
    # a convention for other components; the guard itself checks DOWNLOAD only
    "dont_obey_robotstxt": True,
    "allow_offsite": True,
    "dont_cache": True,
    "dont_retry": True,
    "dont_redirect": True,
    "dont_merge_cookies": True,
    "handle_httpstatus_all": True,
    "autothrottle_dont_adjust_delay": True,
    "download_fail_on_dataloss": True,
    "download_warnsize": 0,
    "download_maxsize": 0,  # Scrapy would discard the whole body; the guard truncates it
}


@dataclass(frozen=True, slots=True)
class Route:
    """The part of a page's route that its robots.txt shares: meta values and header fields."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The parent proxy, without credentials, or the local address; empty for the direct route."""
        proxy, address = self.meta.get("proxy"), self.meta.get("bindaddress")
        if proxy:
            return proxy_name(proxy.decode("latin-1") if isinstance(proxy, bytes) else str(proxy))
        if address:
            return f"from {address[0] if isinstance(address, tuple) else address}"
        return ""

    @classmethod
    def of(cls, request: Request) -> Route:
        """The route of a request that has yet to be sent."""
        meta, headers = request.meta, request.headers
        taken = {name: meta[name] for name in _ROUTE_META if name in meta}
        if not headers:
            return cls(taken)
        names = ["User-Agent"]
        if meta.get("proxy"):
            names.append(_PROXY_CREDENTIALS)
        return cls(taken, {name: headers.getlist(name) for name in names if name in headers})


class Download:
    """One robots.txt download in progress."""

    __slots__ = (
        "body_size",
        "cap",
        "coding",
        "content",
        "framings",
        "get",
        "has_started_response",
        "host",
        "is_received",
        "outcome",
        "protocol",
        "queued",
        "route",
        "sent_at",
        "start",
        "twisted_url",
        "url",
    )

    def __init__(self, get: Get) -> None:
        self.get = get
        self.url = quote(get.url, safe=_URL_CHARACTERS, encoding="latin-1", errors="replace")
        self.host = b""  # set with the request
        self.twisted_url = b""  # likewise: the URL as Twisted spells it
        self.cap = get.limits.max_body
        self.body_size = 0  # bytes received so far
        self.has_started_response = False
        self.coding = ""
        self.content = 0  # bytes that the handler returned as content
        self.framings: list[Framing] = []  # of the responses to requests for this URL
        # whether the response comes from a download handler, not from a middleware
        self.is_received = False
        self.protocol = ""  # of that response, as the handler names it
        # set if the handler has failed, or was not used
        self.outcome: FetchOutcome | None = None
        self.route = ""  # chosen by the project's middlewares so far
        self.start = time.monotonic()
        self.queued = 0.0  # seconds until it was sent
        self.sent_at: float | None = None

    @property
    def is_cut(self) -> bool:
        """Whether the guard has cut off the body: it exceeds what a file within the cap takes,
        compressed or not."""
        return self.body_size > self.cap + PACKED_SLACK

    def mark_sent(self) -> None:
        """Record that the download is handed to its handler, or has ended before that."""
        if self.sent_at is None:
            self.sent_at = time.monotonic()
            self.queued = self.sent_at - self.start

    def time_left(self) -> float:
        """Seconds until the download has taken too long. A lower bound of these if it is not sent
        yet."""
        limits, now = self.get.limits, time.monotonic()
        until_headers = min(limits.total, limits.connect + limits.first_byte)
        if self.sent_at is None:
            return min(until_headers, self.start + MAX_SLOT_WAIT - now)
        if self.has_started_response:
            return self.sent_at + limits.total - now
        return self.sent_at + until_headers - now

    def __deepcopy__(self, memo: Any) -> Download:
        return self  # compared by identity: a copy of its request carries the same download


class ScrapyFetcher:
    """A Fetcher that uses `crawler.engine.download_async`.

    `fetch` takes the crawler's default route.
    """

    via = "scrapy"

    def __init__(
        self,
        crawler: Crawler,
        runtime: ScrapyRuntime,
        *,
        user_agent: str = "",
        tls_verified: bool,
    ) -> None:
        self._crawler: Any = crawler  # its attributes are set once the crawl has begun
        self._runtime = runtime
        self._user_agent = user_agent
        self._tls_verified = tls_verified
        self._downloads: set[Download] = set()
        # At most two of the routes that middlewares chose for fetches: more do not matter.
        self._chosen: set[str] = set()
        self.is_hooked = False  # whether `mark_sent` is called for every request

    def bound(self, request: Request) -> ScrapyFetcher | BoundFetcher:
        """A Fetcher on the route of this request, which for most is the crawler's default."""
        if not request.headers and ON_ROUTE.isdisjoint(request.meta):
            return self
        return BoundFetcher(self, Route.of(request))

    def open(self) -> None:
        """Watch the crawl's connections and signals for responses to the guard's fetches.

        Call this before the first connection: a fetch can use one that has carried pages before.
        """
        own = divert(self._crawler, self, _is_fetch)
        own.connect(self._on_headers, signals.headers_received)
        own.connect(self._on_bytes, signals.bytes_received)
        own.connect(self._on_downloaded, signals.response_downloaded)
        for scheme in ("http", "https"):
            watch(self._crawler.engine.downloader, scheme, self._framing_lists)

    def owns(self, request: Request) -> bool:
        """Whether the request is one of the guard's fetches in progress.

        Raises IgnoreRequest if another component has changed it.
        """
        download = request.meta.get(DOWNLOAD)
        if not isinstance(download, Download) or download not in self._downloads:
            return False
        actual = request.url, request.method, request.headers.getlist("Host")
        if actual != (download.url, "GET", [download.host]):
            raise IgnoreRequest(
                f"another component has changed the guard's fetch of {shown_url(download.url)};"
                ' set ROBOTS_GUARD_FETCH = "direct" to fetch it without the middlewares'
            )
        download.route = Route.of(request).name
        return True

    def mark_sent(self, request: Request) -> bool:
        """Record that a fetch is handed to its download handler: its timeout starts.

        Returns whether the request is one of the guard's fetches. Raises IgnoreRequest like `owns`.
        """
        if not self.owns(request):
            return False
        request.meta[DOWNLOAD].mark_sent()
        return True

    async def send(self, request: Request, send: Send) -> Response:
        """Send one of the guard's fetches by its handler, or by a substitute if that hides its
        connections.

        Raises IgnoreRequest if there is no substitute, or if that has failed.
        """
        download: Download = request.meta[DOWNLOAD]
        handler = self._handler(download)
        for name in [*request.headers]:
            if name.decode("latin-1").lower() not in _KEPT_FIELDS:
                del request.headers[name]
        request.headers.update({**_OWN_FIELDS, **dict(download.get.headers)})
        download.outcome = None
        if not is_opaque(handler):
            try:
                response = await send(request)
            except (Exception, *CANCELLED) as error:
                download.outcome = _failed(error)
                raise
            _note_received(download, response)
            return response
        client = substitute_for(handler, request, self._tls)
        if client is None:
            download.outcome = _failed_unseen(handler)
        else:
            download.has_started_response = True  # this client applies all timeouts itself
            download.outcome = await client.fetch(with_fields(download.get, request))
        if isinstance(download.outcome, Failed):
            raise IgnoreRequest(download.outcome.detail)
        return Response(request.url, status=download.outcome.status)  # for the crawl's statistics

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return tls_of(self._crawler.settings, verifies=self._tls_verified)

    def _handler(self, download: Download) -> Any:
        return handler_of(self._crawler.engine.downloader, download.url.partition(":")[0])

    async def fetch(self, get: Get) -> FetchOutcome:
        """Fetch one hop by the default route. Returns its outcome."""
        return await self.fetch_by(Route(), get)

    async def fetch_by(self, route: Route, get: Get) -> FetchOutcome:
        """Fetch one hop by a given route. Returns its outcome."""
        self._count("request_count")
        outcome = await self._download_in_time(route, get)
        if isinstance(outcome, Failed) and outcome.failure is Failure.DNS and not outcome.about:
            outcome = msgspec.structs.replace(outcome, about=await self._scope_of_name(get))
        self._report(get.url, outcome)
        return outcome

    # -- one fetch ---------------------------------------------------------------------------------

    async def _download_in_time(self, route: Route, get: Get) -> FetchOutcome:
        """Download the file, and stop at the timeout even if the slot or the handler does not."""
        download = Download(get)
        work = self._runtime.spawn(self._download(download, route, get))
        try:
            while not work.done() and (left := download.time_left()) > 0:
                await self._runtime.wait_at_most(work, left)
            if not work.done():
                outcome: FetchOutcome = _timeout(download)
            else:
                outcome = await self._runtime.wait(work)
            if download.route != route.name and len(self._chosen) < 2:
                self._chosen.add(download.route)
            if isinstance(outcome, Failed):
                is_chosen_anew = download.route != route.name and len(self._chosen) > 1
                outcome = outcome.on_route(download.route, is_chosen_anew=is_chosen_anew)
            return msgspec.structs.replace(outcome, queued=download.queued)
        finally:
            self._runtime.cancel(work)

    async def _download(self, download: Download, route: Route, get: Get) -> FetchOutcome:
        """Download the file. Returns the outcome, and never raises."""
        self._begin(download)
        try:
            if get.public_only and (objection := _objection(await self._resolve(get.url), get)):
                return Failed(failure=Failure.REFUSED, detail=objection)
            request = self._request(download, route, get)
            if get.verbatim and (target := self._changed_target(download, get.url)):
                return Failed(
                    failure=Failure.REFUSED, detail=f"Scrapy would request {target} instead"
                )
            response = await self._crawler.engine.download_async(request)
            if download.outcome is not None:
                return download.outcome
            if not are_same(response.url, download.url):
                return await self._redirect_outcome(response, get)
            addresses = await self._addresses_of(response, get.url)
            if objection := _objection(addresses, get):
                return Failed(failure=Failure.REFUSED, detail=objection)
            return self._outcome_of(response, download, _has_public(addresses))
        except (Exception, *CANCELLED) as error:  # noqa: BLE001  any exception is a failed fetch
            if download.outcome is not None:
                return download.outcome
            is_of_site = isinstance(error, (BadFields, Undecodable)) or not self.is_hooked
            # The handler did not fail, so another component of the crawl did.
            return _failed(error, None if is_of_site else Scope.FETCHER)
        finally:
            self._end(download)

    def _changed_target(self, download: Download, url: str) -> str | None:
        """The target that Scrapy and its handler would send for a URL; None if it is exactly the
        URL's own.

        A substitute for the handler does its own check.
        """
        handler = self._handler(download)
        target = split_cached(download.url)[1]
        if not is_opaque(handler):
            target = writer_of(handler)(download.url, target)
        if target == split_cached(url)[1]:
            return None
        return target

    def _request(self, download: Download, route: Route, get: Get) -> Request:
        # A field without a value is not sent, and keeps Scrapy's own middlewares from adding one.
        headers: dict[str, Any] = {"Authorization": [], "Cookie": [], **_OWN_FIELDS}
        if self._user_agent:
            headers["User-Agent"] = self._user_agent
        headers.update(route.headers)
        headers.update(get.headers)
        download.host = split_cached(download.url)[0].authority.encode()
        headers["Host"] = download.host  # a project's default Host must not select another site
        request = Request(
            download.url,
            headers=headers,
            meta={
                **_FETCH_META,
                **route.meta,
                "download_timeout": get.limits.total,
                DOWNLOAD: download,
            },
            callback=NO_CALLBACK,
        )
        download.url = request.url  # as Scrapy spells it
        download.twisted_url = twisted_url(request.url)
        return request

    async def _resolve(self, url: str) -> tuple[Address, ...]:
        """The addresses that Scrapy will presumably connect to; it resolves the name again by
        itself."""
        origin, _ = split_cached(url)
        address = literal(origin.host)
        if address is not None:
            return (address,)
        try:
            return await self._runtime.result(lookup(origin.host, origin.port))
        except OSError:
            return ()  # a proxy may be able to resolve it

    async def _scope_of_name(self, get: Get) -> Scope | None:
        """The scope of a failure to resolve a name. Scrapy's error does not tell, so the system's
        resolver is asked: the site is at fault only if it says that the name does not exist."""
        origin, _ = split_cached(get.url)
        work = self._runtime.spawn(_look_up_scope(self._runtime, origin))
        if await self._runtime.wait_at_most(work, get.limits.connect):
            return await self._runtime.wait(work)
        return Scope.ROUTE

    async def _addresses_of(self, response: Response, url: str) -> tuple[Address, ...]:
        """The addresses that the response to a URL came from; () if they are unknown, as behind a
        proxy."""
        if response.request is not None and response.request.meta.get("proxy"):
            return tuple(filter(None, (literal(split_cached(url)[0].host),)))
        if response.ip_address is not None and are_same(response.url, url):
            return (response.ip_address,)
        return await self._resolve(url)

    async def _redirect_outcome(self, response: Response, get: Get) -> FetchOutcome:
        """A redirect to the URL that the handler has reached by itself.

        The guard follows it by its own rules, and records it (RFC 9309 section 2.3.1.2).
        """
        public = _has_public(await self._addresses_of(response, get.url))
        return Fetched(
            status=302, headers={"location": response.url}, public=public, was_followed=True
        )

    def _outcome_of(
        self, response: Response, download: Download, public: bool | None
    ) -> FetchOutcome:
        headers = joined(
            (name, value) for name, values in response.headers.items() for value in values
        )
        if "dataloss" in response.flags:
            return Failed(failure=Failure.PROTOCOL, detail="the body was cut short")
        if "download_stopped" in response.flags and not download.is_cut:
            return Failed(
                failure=Failure.PROTOCOL,
                detail="another component has stopped the download",
                about=Scope.FETCHER,
            )
        if download.is_received and not download.framings and download.protocol not in _DELIMITED:
            return _failed_unseen(self._handler(download))
        body = decoder(download.coding if 200 <= response.status < 300 else "", download.cap)
        body.feed(response.body)
        if not download.is_cut:
            body.end()
        if doubt := objection_to(
            download.framings, truncated=download.is_cut, content=download.content
        ):
            return Failed(failure=Failure.PROTOCOL, detail=doubt)
        return Fetched(
            status=response.status,
            headers=headers,
            body=bytes(body.body),
            truncated=body.truncated,
            tls_verified=self._tls_verified and response.url.startswith("https:"),
            public=public,
            relay=download.route if _is_relayed(response) else "",
        )

    # -- while a fetch is in progress --------------------------------------------------------------

    def _framing_lists(self, url: bytes | None) -> list[list[Framing]]:
        """The lists that receive the framings of responses to a request for this URL."""
        return [download.framings for download in self._downloads if download.twisted_url == url]

    def _begin(self, download: Download) -> None:
        self._downloads.add(download)
        if not self.is_hooked:
            download.mark_sent()

    def _end(self, download: Download) -> None:
        self._downloads.discard(download)
        download.mark_sent()

    def _on_headers(self, request: Request) -> None:
        request.meta[DOWNLOAD].has_started_response = True

    def _on_bytes(self, data: bytes, request: Request) -> None:
        download: Download = request.meta[DOWNLOAD]
        download.body_size += len(data)
        if download.is_cut:
            raise StopDownload(fail=False)  # the received part is judged (RFC 9309 section 2.5)

    def _on_downloaded(self, response: Response, request: Request) -> None:
        if not self.is_hooked:
            _note_received(request.meta[DOWNLOAD], response)

    # -- log and statistics ------------------------------------------------------------------------

    def _report(self, url: str, outcome: FetchOutcome) -> None:
        stats = self._crawler.stats
        if isinstance(outcome, Failed):
            stats.inc_value(f"robots_guard/fetch/failed/{outcome.failure}")
            log.warning(
                "%s could not be fetched%s: %s (%s)",
                shown_url(url),
                _SCOPE_PHRASES[outcome.scope].format(outcome.route or "the direct route"),
                outcome.failure,
                outcome.detail,
            )
            return
        self._count("response_count")
        self._count(f"response_status_count/{outcome.status}")
        stats.inc_value(f"robots_guard/fetch/status/{outcome.status}")
        if is_trouble(outcome.status) and not 300 <= outcome.status < 400:
            log.warning("%s could not be fetched: status %d", shown_url(url), outcome.status)

    def _count(self, alias: str) -> None:
        """Count under a name of the built-in middleware, for existing monitoring."""
        self._crawler.stats.inc_value(f"robotstxt/{alias}")


def _is_fetch(request: Request) -> bool:
    return isinstance(request.meta.get(DOWNLOAD), Download)


def _timeout(download: Download) -> Failed:
    if download.sent_at is None:
        return Failed(
            failure=Failure.TIMEOUT, detail="its download slot was never free", about=Scope.FETCHER
        )
    return Failed(failure=Failure.TIMEOUT, detail="no complete response in time")


async def _look_up_scope(runtime: ScrapyRuntime, origin: Origin) -> Scope | None:
    try:
        await runtime.result(lookup(origin.host, origin.port))
    except OSError as error:
        return scope_of([error])
    return Scope.ROUTE


def _failed_unseen(handler: Any) -> Failed:
    return Failed(failure=Failure.PROTOCOL, detail=explain_hidden_end(handler), about=Scope.FETCHER)


def _is_relayed(response: Response) -> bool:
    """Whether a parent proxy has received the request as plain HTTP."""
    request = response.request
    return request is not None and bool(request.meta.get("proxy")) and request.url[:5] == "http:"


def _note_received(download: Download, response: Response) -> None:
    """Note what the handler has returned, and remove the Content-Encoding before
    HttpCompressionMiddleware discards a body that exceeds its bound."""
    download.is_received = True
    download.protocol = response.protocol or ""
    download.content = len(response.body)
    codings = response.headers.getlist("Content-Encoding")
    download.coding = b", ".join(codings).decode("latin-1")
    response.headers.pop("Content-Encoding", None)


def _objection(addresses: tuple[Address, ...], get: Get) -> str | None:
    """Why a fetch may not connect to these addresses, or None.

    The crawl's own origins are trusted, because their pages are requested anyway; targets of
    redirects are not.
    """
    return Destinations(trusts_caller=True).objection(addresses, public_only=get.public_only)


def _has_public(addresses: tuple[Address, ...]) -> bool | None:
    """Whether one of the addresses is public; None if there are none."""
    if addresses:
        return any(map(is_public, addresses))
    return None


@dataclass(slots=True)
class BoundFetcher:
    """A ScrapyFetcher bound to the route of one request."""

    fetcher: ScrapyFetcher
    by: Route
    via: str = ScrapyFetcher.via

    @property
    def route(self) -> str:
        """The route's name."""
        return self.by.name

    async def fetch(self, get: Get) -> FetchOutcome:
        """Fetch one hop. Returns its outcome."""
        return await self.fetcher.fetch_by(self.by, get)


# -- exceptions as outcomes ------------------------------------------------------------------------

# By name: handlers raise Scrapy's own exceptions from 2.15 on, Twisted's before that.
_FAILURES = {
    "IgnoreRequest": Failure.REFUSED,
    "CannotResolveHostError": Failure.DNS,
    "DNSLookupError": Failure.DNS,
    "DownloadConnectionRefusedError": Failure.CONNECT,
    "ConnectError": Failure.CONNECT,
    "TunnelError": Failure.CONNECT,
    "DownloadTimeoutError": Failure.TIMEOUT,
    "TimeoutError": Failure.TIMEOUT,
    "ResponseDataLossError": Failure.PROTOCOL,
    "PartialDownloadError": Failure.PROTOCOL,
    "ParseError": Failure.PROTOCOL,
    "Undecodable": Failure.PROTOCOL,
    "BadFields": Failure.PROTOCOL,
    "DownloadCancelledError": Failure.PROTOCOL,
    "ValueError": Failure.PROTOCOL,
    "OSError": Failure.CONNECT,
    "ConnectionLost": Failure.RESET,
    "ConnectionDone": Failure.RESET,
    "DownloadFailedError": Failure.RESET,
    "ResponseFailed": Failure.RESET,
    "CancelledError": Failure.RESET,
}


# These decide at any depth: both libraries wrap them in other exceptions.
_FAILURES_INSIDE = {
    "VerificationError": Failure.TLS,  # service_identity
    "SSLError": Failure.TLS,
    "_DataLoss": Failure.PROTOCOL,
}


def failure_of(error: BaseException) -> Failure:
    """The kind of failure that an exception of the downloader stands for."""
    for cause in _chain(error):
        if type(cause).__module__ in ("OpenSSL.SSL", "ssl"):
            return Failure.TLS
        if type(cause).__name__ in _FAILURES_INSIDE:
            return _FAILURES_INSIDE[type(cause).__name__]
    names = (kind.__name__ for kind in type(error).__mro__)
    return next((_FAILURES[name] for name in names if name in _FAILURES), Failure.INTERNAL)


def _failed(error: BaseException, about: Scope | None = None) -> Failed:
    """The failure that an exception stands for."""
    if isinstance(error, CANCELLED):  # the crawl ends
        about = Scope.FETCHER
    about = about or scope_of(_chain(error))
    return Failed(failure=failure_of(error), detail=_detail(error), about=about)


def _chain(error: BaseException, depth: int = 4) -> list[BaseException]:
    """The exception with its causes, and with the Failures that Twisted lists as its reasons."""
    if depth == 0:
        return []
    reasons = [getattr(reason, "value", reason) for reason in getattr(error, "reasons", None) or ()]
    causes = [cause for cause in (error.__cause__, *reasons) if isinstance(cause, BaseException)]
    return [error, *(deeper for cause in causes for deeper in _chain(cause, depth - 1))]


def _detail(error: BaseException) -> str:
    text = printable(str(error).strip().partition("\n")[0])
    if plain := in_plain_words(text):
        return plain
    if text:
        return f"{type(error).__name__}: {text}"[:200]
    return type(error).__name__
