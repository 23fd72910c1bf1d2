"""robots.txt fetched through the crawler's own downloader, so that it travels the way the pages travel.

Same proxy, same bind address, same handlers, same identity as the request that asks. One hop, no retry, no
cache, no cookies, and no credential of the origin: only those of the proxy. The size is cut while the body
arrives, and what is packed is unpacked by us alone, with a bound. Every way to fail is an outcome; in particular an
IgnoreRequest of some other component is a failure to fetch and never "there is no robots.txt".

What Scrapy does not tell apart is connecting and waiting for the first byte, so both times together run until
the answer's header section arrives; a handler that does not tell us of it is cut at that time too. They begin when the
fetch leaves: before that it may wait in its download slot, behind pages and for DOWNLOAD_DELAY, and that says nothing
of the site.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urldefrag

import msgspec
from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK

from robots_guard.audit.record import shown_url
from robots_guard.core.access import Failed, Failure, Fetched, FetchOutcome, Get, is_trouble
from robots_guard.core.addresses import Address, is_public, literal
from robots_guard.fetch.decoding import decoder
from robots_guard.fetch.destinations import Destinations, lookup
from robots_guard.fetch.fields import joined
from robots_guard.fetch.framing import Framing
from robots_guard.origin import split_url
from robots_guard.plain import printable
from robots_guard.scrapy.reached import are_same
from robots_guard.scrapy.received import handler_of, show, url_written
from robots_guard.scrapy.received import objection as objection_to
from robots_guard.scrapy.runtime import GIVEN_UP, HostRuntime
from robots_guard.scrapy.standing_in import is_opaque, stand_in, unseen_end, with_fields

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from robots_guard.scrapy.deferral.wire import Send

log = logging.getLogger("robots_guard")

#: Meta key under which a fetch of ours carries its flight. Other components may test it for presence.
FLIGHT = "robots_guard_fetch"
LONGEST_IN_SLOT = 3600.0  # seconds for which a fetch waits for its download slot
_URL_OCTETS = "".join(map(chr, range(0x21, 0x7F)))

_DELIMITED = frozenset(("h2", "HTTP/2"))  # protocols whose frames delimit an answer, as handlers name them

_ROUTE_META = ("proxy", "_auth_proxy", "bindaddress", "download_slot")
_ON_ROUTE = frozenset(_ROUTE_META)
_PROXY_CREDENTIALS = "Proxy-Authorization"
_FETCH_META = {
    "dont_obey_robotstxt": True,  # by convention: others see what this is. We go by the flight alone
    "allow_offsite": True,
    "dont_cache": True,
    "dont_retry": True,
    "dont_redirect": True,
    "dont_merge_cookies": True,
    "handle_httpstatus_all": True,
    "autothrottle_dont_adjust_delay": True,
    "download_fail_on_dataloss": True,
    "download_warnsize": 0,
    "download_maxsize": 0,  # Scrapy would throw the body away; we cut it
}


@dataclass(frozen=True, slots=True)
class Route:
    """How a page travels, as far as its robots.txt must travel likewise."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, request: Request) -> Route:
        """The route of a request that has yet to be sent."""
        meta, headers = request.meta, request.headers
        copied = ("User-Agent", _PROXY_CREDENTIALS) if meta.get("proxy") else ("User-Agent",)
        return cls(
            {name: meta[name] for name in _ROUTE_META if name in meta},
            {name: headers.getlist(name) for name in copied if name in headers} if headers else {},
        )


class Flight:
    """One fetch under way."""

    __slots__ = (
        "answered",
        "began",
        "cap",
        "coding",
        "content",
        "framings",
        "get",
        "host",
        "is_received",
        "left",
        "octets",
        "outcome",
        "protocol",
        "queued",
        "url",
        "written",
    )

    def __init__(self, get: Get) -> None:
        self.get = get
        self.url = quote(get.url, safe=_URL_OCTETS, encoding="latin-1", errors="replace")
        self.host = b""  # until there is a request
        self.written = b""  # likewise; the URL as Twisted spells it
        self.cap = get.limits.max_body
        self.octets = 0
        self.answered = False
        self.coding = ""
        self.content = 0  # bytes that the handler gave as content
        self.framings: list[Framing] = []  # of the answers to requests for this URL
        self.is_received = False  # whether a download handler, and not a middleware, has answered
        self.protocol = ""  # of that answer, as the handler names it
        self.outcome: FetchOutcome | None = None  # known where nothing was left to the handler
        self.began = time.monotonic()
        self.queued = 0.0  # seconds until it left
        self.left: Future[None] = Future()  # the wire may be reached in any reactor

    @property
    def is_cut(self) -> bool:
        """Whether the guard itself has cut the body, because more octets came than the cap."""
        return self.octets > self.cap

    def leave(self) -> None:
        """It is handed to its download handler, or has ended before that."""
        if not self.left.done():
            self.queued = time.monotonic() - self.began
            self.left.set_result(None)

    def __deepcopy__(self, memo: Any) -> Flight:
        return self  # a fetch is itself, whoever copies its request


class ScrapyFetcher:
    """A Fetcher over `crawler.engine.download_async`. By itself it takes the crawler's default route."""

    via = "scrapy"

    def __init__(self, crawler: Crawler, runtime: HostRuntime, *, user_agent: str = "", tls_verified: bool) -> None:
        self._crawler: Any = crawler  # its parts are there once the crawl has begun
        self._runtime = runtime
        self._user_agent = user_agent
        self._tls_verified = tls_verified
        self._flights: set[Flight] = set()
        self.is_on_wire = False  # whether `leaves` is asked of every request

    def bound(self, request: Request) -> ScrapyFetcher | BoundFetcher:
        """A Fetcher that takes the route of this request: for most, the crawler's own."""
        if not request.headers and _ON_ROUTE.isdisjoint(request.meta):
            return self
        return BoundFetcher(self, Route.of(request))

    def watch(self) -> None:
        """See what all connections of the crawl receive in answer to our fetches. To be called before the first: a
        fetch can find a connection that has carried pages before."""
        for scheme in ("http", "https"):
            show(self._crawler.engine.downloader, scheme, self._places)

    def owns(self, request: Request) -> bool:
        """Whether the request is one of our fetches, under way. Raises IgnoreRequest if it has been led astray."""
        flight = request.meta.get(FLIGHT)
        if not isinstance(flight, Flight) or flight not in self._flights:
            return False
        if (request.url, request.method, request.headers.getlist("Host")) != (flight.url, "GET", [flight.host]):
            raise IgnoreRequest(f"another component has changed our fetch of {shown_url(flight.url)}")
        return True

    def leaves(self, request: Request) -> bool:
        """Whether the request, now handed to its download handler, is one of our fetches: its time begins. Raises
        IgnoreRequest like `owns`."""
        if not self.owns(request):
            return False
        request.meta[FLIGHT].leave()
        return True

    async def send(self, request: Request, send: Send) -> Response:
        """Send one of our fetches: by its download handler or, if that does not show its connections, in its place.
        Raises IgnoreRequest if there is no other way."""
        flight: Flight = request.meta[FLIGHT]
        handler = self._handler(flight)
        if not is_opaque(handler):
            return await send(request)
        client = stand_in(handler, request, verifies=self._tls_verified)
        if client is None:
            flight.outcome = Failed(failure=Failure.PROTOCOL, detail=unseen_end(handler))
        else:
            flight.answered = True  # this client keeps all times by itself
            flight.outcome = await client.fetch(with_fields(flight.get, request))
        if isinstance(flight.outcome, Failed):
            raise IgnoreRequest(flight.outcome.detail)
        return Response(request.url, status=flight.outcome.status)  # for the crawl's statistics

    def _handler(self, flight: Flight) -> Any:
        return handler_of(self._crawler.engine.downloader, flight.url.partition(":")[0])

    async def fetch(self, get: Get) -> FetchOutcome:
        """The outcome of one hop, by the default route."""
        return await self.fetch_by(Route(), get)

    async def fetch_by(self, route: Route, get: Get) -> FetchOutcome:
        """The outcome of one hop, by a given route."""
        self._count("request_count")
        outcome = await self._in_time(route, get)
        self._note(get.url, outcome)
        return outcome

    # -- one fetch ----------------------------------------------------------------------------------------

    async def _in_time(self, route: Route, get: Get) -> FetchOutcome:
        """The download, which ends when its time does even if the slot or the handler does not."""
        flight = Flight(get)
        work = self._runtime.spawn(self._download(flight, route, get))
        left = self._runtime.spawn(self._runtime.result(flight.left))
        first = min(get.limits.total, get.limits.connect + get.limits.first_byte)
        try:
            if not await self._runtime.wait_at_most(left, LONGEST_IN_SLOT):
                return Failed(failure=Failure.TIMEOUT, detail="its download slot was never free")
            ended = await self._runtime.wait_at_most(work, first)
            if not ended and flight.answered:
                ended = await self._runtime.wait_at_most(work, get.limits.total - first)
            if not ended:
                return Failed(failure=Failure.TIMEOUT, detail="no complete answer in time", queued=flight.queued)
            return msgspec.structs.replace(await self._runtime.wait(work), queued=flight.queued)
        finally:
            self._runtime.cancel(left)
            self._runtime.cancel(work)

    async def _download(self, flight: Flight, route: Route, get: Get) -> FetchOutcome:
        """Does not raise."""
        self._begin(flight)
        try:
            if get.public_only and (objection := _objection(await self._resolved(get.url), get)):
                return Failed(failure=Failure.REFUSED, detail=objection)
            request = self._request(flight, route, get)
            if get.verbatim and (respelt := _respelt(request.url, get.url)):
                return Failed(failure=Failure.REFUSED, detail=f"Scrapy would ask for {respelt} instead")
            response = await self._crawler.engine.download_async(request)
            if flight.outcome is not None:
                return flight.outcome
            if not are_same(response.url, flight.url):
                return await self._led_away(response, get)
            addresses = await self._addresses_of(response, get.url)
            if objection := _objection(addresses, get):
                return Failed(failure=Failure.REFUSED, detail=objection)
            return self._fetched(response, flight, any(map(is_public, addresses)) if addresses else None)
        except (Exception, *GIVEN_UP) as error:  # noqa: BLE001  whatever it is, it is no answer
            return flight.outcome or Failed(failure=failure_of(error), detail=_detail(error))
        finally:
            self._end(flight)

    def _request(self, flight: Flight, route: Route, get: Get) -> Request:
        # A field with no value keeps Scrapy's own middlewares from adding one, and is not sent.
        headers: dict[str, Any] = {"Authorization": [], "Cookie": []}
        if self._user_agent:
            headers["User-Agent"] = self._user_agent
        headers.update(route.headers)
        headers.update(get.headers)
        flight.host = split_url(flight.url)[0].authority.encode()
        headers["Host"] = flight.host  # a default of the project's must not have another site answer
        request = Request(
            flight.url,
            headers=headers,
            meta={**_FETCH_META, **route.meta, "download_timeout": get.limits.total, FLIGHT: flight},
            callback=NO_CALLBACK,
        )
        flight.url = request.url  # as Scrapy spells it
        flight.written = url_written(request.url)
        return request

    async def _resolved(self, url: str) -> tuple[Address, ...]:
        """What Scrapy will presumably connect to: it resolves by itself, and again."""
        origin, _ = split_url(url)
        spelt = literal(origin.host)
        if spelt is not None:
            return (spelt,)
        try:
            return await self._runtime.result(lookup(origin.host, origin.port))
        except OSError:
            return ()  # perhaps another proxy knows it

    async def _addresses_of(self, response: Response, url: str) -> tuple[Address, ...]:
        """The addresses that the response to a URL came from; () if they are not known, as behind another proxy."""
        if response.request is not None and response.request.meta.get("proxy"):
            return tuple(filter(None, (literal(split_url(url)[0].host),)))
        if response.ip_address is not None and are_same(response.url, url):
            return (response.ip_address,)
        return await self._resolved(url)

    async def _led_away(self, response: Response, get: Get) -> FetchOutcome:
        """A redirect to where the handler has gone on its own. The core follows it by its own rules, and records it
        (RFC 9309 section 2.3.1.2)."""
        addresses = await self._addresses_of(response, get.url)
        public = any(map(is_public, addresses)) if addresses else None
        return Fetched(status=302, headers={"location": response.url}, public=public, was_followed=True)

    def _fetched(self, response: Response, flight: Flight, public: bool | None) -> FetchOutcome:
        headers = joined((name, value) for name, values in response.headers.items() for value in values)
        if "dataloss" in response.flags:
            return Failed(failure=Failure.PROTOCOL, detail="the body was cut short")
        if "download_stopped" in response.flags and not flight.is_cut:
            return Failed(failure=Failure.PROTOCOL, detail="another component has stopped the download")
        if flight.is_received and not flight.framings and flight.protocol not in _DELIMITED:
            return Failed(failure=Failure.PROTOCOL, detail=unseen_end(self._handler(flight)))
        body = decoder(flight.coding if 200 <= response.status < 300 else "", flight.cap)
        body.feed(response.body)
        if not flight.is_cut:
            body.end()
        if doubt := objection_to(flight.framings, truncated=flight.is_cut, content=flight.content):
            return Failed(failure=Failure.PROTOCOL, detail=doubt)
        return Fetched(
            status=response.status,
            headers=headers,
            body=bytes(body.body),
            truncated=body.truncated or flight.is_cut,
            tls_verified=self._tls_verified and response.url.startswith("https:"),
            public=public,
        )

    # -- while a fetch is under way ------------------------------------------------------------------------

    def _places(self, url: bytes | None) -> list[list[Framing]]:
        """Where the framings of answers to a request for this URL belong."""
        return [flight.framings for flight in self._flights if flight.written == url]

    def _begin(self, flight: Flight) -> None:
        """Signals cost every page something, so they are connected only now."""
        if not self._flights:
            self._crawler.signals.connect(self._on_headers, signals.headers_received)
            self._crawler.signals.connect(self._on_bytes, signals.bytes_received)
            self._crawler.signals.connect(self._on_downloaded, signals.response_downloaded)
        self._flights.add(flight)
        if not self.is_on_wire:
            flight.leave()

    def _end(self, flight: Flight) -> None:
        self._flights.discard(flight)
        flight.leave()
        if not self._flights:
            self._crawler.signals.disconnect(self._on_headers, signals.headers_received)
            self._crawler.signals.disconnect(self._on_bytes, signals.bytes_received)
            self._crawler.signals.disconnect(self._on_downloaded, signals.response_downloaded)

    def _on_headers(self, request: Request) -> None:
        flight = request.meta.get(FLIGHT)
        if isinstance(flight, Flight):
            flight.answered = True

    def _on_bytes(self, data: bytes, request: Request) -> None:
        flight = request.meta.get(FLIGHT)
        if isinstance(flight, Flight):
            flight.octets += len(data)
            if flight.is_cut:
                raise StopDownload(fail=False)  # the part that has come is what we judge by (RFC 9309 section 2.5)

    def _on_downloaded(self, response: Response, request: Request) -> None:
        """Before any middleware sees the answer: HttpCompressionMiddleware would throw away what exceeds its bound."""
        flight = request.meta.get(FLIGHT)
        if isinstance(flight, Flight):
            flight.is_received = True
            flight.protocol = response.protocol or ""
            flight.content = len(response.body)
            flight.coding = b", ".join(response.headers.getlist("Content-Encoding")).decode("latin-1")
            response.headers.pop("Content-Encoding", None)

    # -- what is told of it --------------------------------------------------------------------------------

    def _note(self, url: str, outcome: FetchOutcome) -> None:
        stats = self._crawler.stats
        if isinstance(outcome, Failed):
            stats.inc_value(f"robots_guard/fetch/failed/{outcome.failure}")
            log.warning("%s could not be fetched: %s (%s)", shown_url(url), outcome.failure, outcome.detail)
            return
        self._count("response_count")
        self._count(f"response_status_count/{outcome.status}")
        stats.inc_value(f"robots_guard/fetch/status/{outcome.status}")
        if is_trouble(outcome.status) and not 300 <= outcome.status < 400:
            log.warning("%s could not be fetched: status %d", shown_url(url), outcome.status)

    def _count(self, alias: str) -> None:
        """A name the built-in middleware counts by, kept for those who watch it."""
        self._crawler.stats.inc_value(f"robotstxt/{alias}")


def _respelt(written: str, asked: str) -> str | None:
    """The target that Scrapy and its handler would send; None if it is exactly what is asked for."""
    _, target = split_url(written)
    sent = target_written(written, target)
    return None if sent == split_url(asked)[1] else sent


def target_written(url: str, target: str) -> str:
    """The target that Scrapy's own handler for HTTP/1.1 writes: Twisted takes URLs apart, and does not put those with
    an empty parameter or (on some Pythons) two slashes in front together again as they were."""
    if ";" not in target and not target.startswith("//"):
        return target
    from twisted.web.client import URI

    parsed: Any = URI  # which has no types
    return str(parsed.fromBytes(urldefrag(url)[0].encode()).originForm, "latin-1")


def _objection(addresses: tuple[Address, ...], get: Get) -> str | None:
    """The crawl goes to the origin anyhow; where a redirect leads is another matter."""
    return Destinations(trusts_asked=True).objection(addresses, public_only=get.public_only)


@dataclass(slots=True)
class BoundFetcher:
    """A ScrapyFetcher on the route of one request."""

    fetcher: ScrapyFetcher
    route: Route
    via: str = ScrapyFetcher.via

    async def fetch(self, get: Get) -> FetchOutcome:
        """The outcome of one hop."""
        return await self.fetcher.fetch_by(self.route, get)


# -- exceptions as outcomes ----------------------------------------------------------------------------------

# By name: handlers raise Scrapy's own from 2.15 on, Twisted's before that.
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


# These are what happened wherever they stand: both libraries hide them inside others.
_FAILURES_INSIDE = {
    "VerificationError": Failure.TLS,  # service_identity
    "SSLError": Failure.TLS,
    "_DataLoss": Failure.PROTOCOL,
}


def failure_of(error: BaseException) -> Failure:
    """What an exception of the downloader means."""
    for one in _chain(error):
        if type(one).__module__ in ("OpenSSL.SSL", "ssl"):
            return Failure.TLS
        if type(one).__name__ in _FAILURES_INSIDE:
            return _FAILURES_INSIDE[type(one).__name__]
    names = (kind.__name__ for kind in type(error).__mro__)
    return next((_FAILURES[name] for name in names if name in _FAILURES), Failure.INTERNAL)


def _chain(error: BaseException, depth: int = 4) -> list[BaseException]:
    """The exception and what it was made from: causes, and the Failures Twisted lists as reasons."""
    if depth == 0:
        return []
    reasons = [getattr(reason, "value", reason) for reason in getattr(error, "reasons", None) or ()]
    others = [one for one in (error.__cause__, *reasons) if isinstance(one, BaseException)]
    return [error, *(deeper for one in others for deeper in _chain(one, depth - 1))]


def _detail(error: BaseException) -> str:
    text = printable(str(error).strip().partition("\n")[0])
    return f"{type(error).__name__}: {text}"[:200] if text else type(error).__name__
