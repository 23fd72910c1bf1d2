"""The sites of a plan: what they serve and when, and the fetcher that requests them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from robots_guard.decisions.access import Failed, Failure, Fetched, FetchOutcome, Get
from robots_guard.origin import TDMREP_JSON
from simulation import oracle
from simulation.kernel import Kernel, Process
from simulation.plan import Answer, Plan, Site

RULES = "/rules"  # the target of a redirect of /robots.txt within the same origin
TDMREP_PAGE = "/tdm.json"  # the target of a redirect of the tdmrep.json
RESERVED = b'[{"location": "/a/", "tdm-reservation": 1}]'


@dataclass(frozen=True)
class Served:
    """One answer of a site to a fetcher.

    `begun` and `at` are the true times of request and answer.
    """

    at: float
    process: str
    url: str
    answer: Answer
    begun: float


@dataclass(frozen=True)
class Arrival:
    """One request for a page that reached its site."""

    at: float
    process: str
    origin: str
    delay: float | None  # seconds that its turn required; 0 if only a pause was known
    # crowd and rank of a turn taken in a slot, without the store
    slots: tuple[int, int] | None = None


@dataclass(frozen=True)
class ReservationRequest:
    """One request for a tdmrep.json, or for the page it redirects to. `rules` is what its process was
    last served as the robots.txt of that origin."""

    at: float
    process: str
    origin: str
    target: str
    rules: Answer


class Sites:
    """All origins of a history, and a record of all requests that reached them."""

    def __init__(self, kernel: Kernel, plan: Plan) -> None:
        self._kernel = kernel
        self._random = kernel.random
        self._min_delay = plan.min_delay  # seconds required between two requests to an origin
        self.by_url = {site.url: site for site in plan.sites}
        self.versions: dict[str, Answer] = {}
        self.origin_of: dict[str, str] = {}
        for site in plan.sites:
            for answer in (*site.answers, _rules_page(site)):
                self.versions[answer.version] = answer
                self.origin_of[answer.version] = site.url
        self.served: list[Served] = []
        self.arrivals: list[Arrival] = []
        self.reservation_requests: list[ReservationRequest] = []
        # by origin: the targets of its redirects
        self.led_to: dict[str, set[str]] = defaultdict(set)

    def answer(self, url: str) -> Answer:
        """Return what is served at a URL now."""
        site, path = self._split(url)
        return _rules_page(site) if path == RULES else site.answer(self._kernel.time)

    def _split(self, url: str) -> tuple[Site, str]:
        scheme, _, rest = url.partition("://")
        host, _, path = rest.partition("/")
        return self.by_url[f"{scheme}://{host}"], f"/{path}"

    async def fetch(self, process: Process, get: Get) -> FetchOutcome:
        """One GET of a /robots.txt, within its limits."""
        begun = self._kernel.time
        site, path = self._split(get.url)
        if path in (TDMREP_JSON, TDMREP_PAGE):
            return await self._tdmrep(process, site, path, get)
        latency = site.latency * self._random.uniform(0.5, 1.5)
        if latency > get.limits.total:
            await self._kernel.after(get.limits.total)
            return Failed(failure=Failure.TIMEOUT)
        await self._kernel.after(latency / 2)
        answer = self.answer(get.url)
        self.served.append(Served(self._kernel.time, process.name, get.url, answer, begun))
        self._kernel.note(
            process.name, f"fetches {get.url}: {answer.version} {answer.failure or answer.status}"
        )
        if answer.location:
            self.led_to[site.url].add(answer.location.rpartition("/")[0])
        await self._kernel.after(get.limits.total if answer.failure == "hang" else latency / 2)
        return _outcome(answer, get)

    async def _tdmrep(self, process: Process, site: Site, path: str, get: Get) -> FetchOutcome:
        """One GET of a tdmrep.json."""
        self._note_reservation_request(process, site, path)
        latency = site.latency * self._random.uniform(0.5, 1.5)
        if site.tdmrep == "hang" or latency > get.limits.total:
            await self._kernel.after(get.limits.total)
            return Failed(failure=Failure.TIMEOUT)
        await self._kernel.after(latency)
        if site.tdmrep == "moved" and path == TDMREP_JSON:
            return Fetched(status=302, headers={"location": TDMREP_PAGE}, tls_verified=True)
        if site.tdmrep in ("reserved", "moved"):
            return Fetched(status=200, body=RESERVED, tls_verified=True)
        return Fetched(status=int(site.tdmrep), tls_verified=True)

    def _note_reservation_request(self, process: Process, site: Site, path: str) -> None:
        """Record a request that leaves for a tdmrep.json, and that it arrives like one for a page."""
        rules = next(
            served.answer
            for served in reversed(self.served)
            if served.process == process.name and served.url.startswith(site.url)
        )
        now = self._kernel.time
        self.reservation_requests.append(
            ReservationRequest(now, process.name, site.url, path, rules)
        )
        self._kernel.note(process.name, f"fetches {site.url}{path}")
        delay = max(oracle.delay_of(rules), self._min_delay)
        if delay and not rules.location:
            self.arrivals.append(Arrival(now, process.name, site.url, delay))

    def visit(
        self,
        process: Process,
        site: Site,
        delay: float | None,
        slots: tuple[int, int] | None = None,
    ) -> Fetched:
        """Record the arrival of a request for a page. Returns the head of its response."""
        self.arrivals.append(Arrival(self._kernel.time, process.name, site.url, delay, slots))
        for begins, ends, seconds in site.busy:
            if begins <= self._kernel.time < ends:
                return Fetched(status=503, headers={"retry-after": str(seconds)})
        return Fetched(status=200)


class Fetcher:
    """The guard's fetcher in one process.

    A `share` of its calls raises, contrary to the protocol.
    """

    via = "direct"

    def __init__(self, sites: Sites, process: Process, share: float) -> None:
        self._sites = sites
        self._process = process
        self._share = share

    async def fetch(self, get: Get) -> FetchOutcome:
        """Return the outcome of one hop."""
        if self._share and self._process.kernel.random.random() < self._share:
            raise RuntimeError("a fault of the fetcher")
        return await self._sites.fetch(self._process, get)


def _rules_page(site: Site) -> Answer:
    host = site.url.removeprefix("https://")
    return Answer(0.0, f'"{host}-rules"', body=b"User-agent: *\nDisallow: /b\n")


_FAILURES = {
    "connect": Failure.CONNECT,
    "timeout": Failure.TIMEOUT,
    "hang": Failure.TIMEOUT,
    "reset": Failure.RESET,
}


def _outcome(answer: Answer, get: Get) -> FetchOutcome:
    if answer.failure:
        return Failed(failure=_FAILURES[answer.failure])
    headers = {"etag": answer.version}
    if answer.max_age is not None:
        headers["cache-control"] = f"max-age={answer.max_age}"
    if answer.retry_after is not None:
        headers["retry-after"] = str(answer.retry_after)
    if answer.location:
        headers["location"] = answer.location
    if answer.status == 200 and ("If-None-Match", answer.version) in get.headers:
        return Fetched(status=304, headers=headers, tls_verified=True)
    return Fetched(status=answer.status, headers=headers, body=answer.body, tls_verified=True)
