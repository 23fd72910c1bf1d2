"""A plan: everything that a seed determines about one history.

Times are seconds since its start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

HOUR, DAY = 3600.0, 86400.0

#: The faults of a history. Each is drawn independently; a calm history has none.
FAULTS = (
    "deaths",
    "store",
    "hung-store",
    "lossy-store",
    "clocks",
    "log",
    "fetcher",
    "cancellations",
)


@dataclass(frozen=True)
class Answer:
    """A site's response to requests for /robots.txt, from a moment on."""

    since: float
    version: str  # its ETag
    status: int = 200
    body: bytes = b""
    max_age: int | None = None
    retry_after: int | None = None
    failure: str = ""  # a network failure, or `hang`
    location: str = ""


@dataclass(frozen=True)
class Site:
    """One origin.

    `busy` lists the spans in which its pages answer 503, with begin, end and Retry-After.
    """

    url: str
    answers: tuple[Answer, ...]
    latency: float
    busy: tuple[tuple[float, float, int], ...] = ()
    tdmrep: str = "404"  # what /.well-known/tdmrep.json does; see TDMREP

    def answer(self, moment: float) -> Answer:
        return next(each for each in reversed(self.answers) if each.since <= moment)


@dataclass(frozen=True)
class Request:
    """One request of a crawler, first made at `at` and repeated `times` times in sequence.

    It waits up to `patience` seconds in the queue for its turn.
    """

    at: float
    process: int
    site: int
    target: str
    patience: float
    is_cancelled_after: float | None = None
    times: int = 1


@dataclass(frozen=True)
class Span:
    """A fault of the store or the log from `begins` to `ends`, which hits a `share` of the calls."""

    begins: float
    ends: float
    share: float
    # of the store: down, lost-answer, slow, hung or damaged; of the log: full, broken, large or
    # stale
    kind: str


@dataclass(frozen=True)
class Member:
    """One process of the fleet."""

    offset: float = 0.0
    rate: float = 1.0
    jumps: tuple[tuple[float, float], ...] = ()  # when, and by how much
    dies_at_step: int = -1
    returns_after: float | None = None
    purposes: str = ""


PROMPT, LATE = (0.0, 0.0, 0.01, 0.2), (0.0, 0.1, 0.24, 0.4, 3.0)


@dataclass(frozen=True)
class Plan:
    """One history."""

    seed: int
    faults: frozenset[str]
    is_shared: bool
    has_server_clock: bool
    members: tuple[Member, ...]
    sites: tuple[Site, ...]
    requests: tuple[Request, ...]
    store: tuple[Span, ...] = ()
    losses: tuple[float, ...] = ()  # when the store loses all its content
    log: tuple[Span, ...] = ()
    audit_required: bool = False
    fsync: bool = False
    housekeeping: float = 0.0  # probability, per system call of the log, of a step of maintenance
    removals: float = 0.0  # ... and of the removal of one of its files
    on_disallowed: str = "drop"
    min_delay: float = 0.0
    wire: tuple[float, ...] = PROMPT  # seconds between a turn and the sending of the request
    has_scheduler: bool = False  # the crawlers requeue deferred requests, as Scrapy does
    closing: bool = False  # the guards are closed while the last requests are running

    @property
    def purposes(self) -> set[str]:
        """The different purposes of the processes."""
        return {member.purposes for member in self.members}

    @property
    def is_store_sound(self) -> bool:
        return not self.store and not self.losses

    @property
    def are_clocks_sound(self) -> bool:
        return "clocks" not in self.faults

    @property
    def can_die(self) -> bool:
        return "deaths" in self.faults


TARGETS = ("/a/1", "/b/1", "/c", "/a/open/1", "/robots.txt")
DOCUMENTS = (
    (),
    ("Disallow: /a",),
    ("Disallow: /b",),
    ("Disallow: /",),
    ("Disallow: /a", "Allow: /a/open"),
    ("Disallow: /", "Allow: /c"),
)
DELAYS = (0, 0, 1, 2, 5)
#: A tdmrep.json that reserves /a/, or redirects to one; no file; and what is no answer.
TDMREP = ("reserved", "reserved", "moved", "404", "503", "hang")


def draw(seed: int) -> Plan:
    """Draw the plan of a seed."""
    random = Random(seed)
    faults = _faults(random)
    members = tuple(_member(random, faults) for _ in range(random.choice((1, 2, 2, 3, 4))))
    is_shared = random.random() < 0.8
    hosts = [f"https://site{index}.test" for index in range(random.choice((1, 1, 2, 3)))]
    begins = _beginnings(random)
    sites = tuple(_site(random, url, hosts, begins) for url in hosts)
    requests = tuple(_requests(random, faults, begins, len(members), len(sites)))
    if random.random() < 0.1:
        sites, requests = _contention(random, sites, len(members))
    span = begins[-1] + 60.0
    mining = Random(f"mining {seed}")  # apart, so that the rest of a seed's plan is unchanged
    if mining.random() < 0.5:
        members = _with_purposes(mining, members)
        sites = tuple(replace(site, tdmrep=mining.choice(TDMREP)) for site in sites)
    return Plan(
        seed=seed,
        faults=frozenset(faults),
        is_shared=is_shared,
        has_server_clock=random.random() < 0.5,
        members=members,
        sites=sites,
        requests=requests,
        store=_store_spans(random, faults, begins) if is_shared else (),
        losses=tuple(sorted(random.uniform(0, span) for _ in range(2)))
        if "lossy-store" in faults and is_shared
        else (),
        log=_log_spans(random, begins) if "log" in faults else (),
        audit_required=random.random() < 0.5,
        fsync=random.random() < 0.2,
        housekeeping=random.choice((0.0, 0.2, 0.6)),
        removals=random.choice((0.0, 0.05)) if "log" in faults else 0.0,
        on_disallowed=random.choice(("drop", "drop", "drop", "defer")),
        min_delay=random.choice((0.0, 0.0, 0.0, 1.5)),
        wire=random.choice((PROMPT, LATE)),
        has_scheduler=random.random() < 0.3,
        closing=random.random() < 0.2,
    )


def _faults(random: Random) -> set[str]:
    """Draw the faults: a third of the histories has none, a third has one, a third has several."""
    which = random.random()
    if which < 0.33:
        return set()
    if which < 0.66:
        return {random.choice(FAULTS)}
    return {each for each in FAULTS if random.random() < 0.35}


def _beginnings(random: Random) -> list[float]:
    """Draw when bursts of requests begin: at the start, and after gaps that may exceed a lifetime."""
    later = [
        random.choice((5.0, 40.0, 299.0, 301.0, 1 * HOUR, 23 * HOUR, 25 * HOUR, 31 * DAY))
        for _ in range(2)
    ]
    begins = [0.0]
    for gap in later[: random.choice((0, 1, 2))]:
        begins.append(begins[-1] + gap)
    return begins


def _member(random: Random, faults: set[str]) -> Member:
    unsound = "clocks" in faults
    dies = "deaths" in faults and random.random() < 0.7
    return Member(
        offset=random.uniform(-400, 400)
        if unsound and random.random() < 0.5
        else random.uniform(-0.02, 0.02),
        rate=1 + random.uniform(-1e-2, 1e-2) if unsound else 1 + random.uniform(-1e-8, 1e-8),
        jumps=_jumps(random) if unsound and random.random() < 0.5 else (),
        dies_at_step=int(random.expovariate(1 / 60)) + 1 if dies else -1,
        returns_after=random.choice((None, 0.1, 1.0, 10.0)) if dies else None,
    )


def _with_purposes(random: Random, members: tuple[Member, ...]) -> tuple[Member, ...]:
    """Let all processes mine, or some of them."""
    share = random.choice((1.0, 0.5))
    return tuple(
        replace(member, purposes="tdm" if random.random() < share else "") for member in members
    )


def _jumps(random: Random) -> tuple[tuple[float, float], ...]:
    by = random.choice((-3600.0, -30.0, 30.0, 3600.0, 2 * DAY, 120 * DAY, -2 * DAY))
    return ((random.uniform(0, 20), by),)


def _site(random: Random, url: str, hosts: list[str], begins: list[float]) -> Site:
    changes = sorted(
        {0.0, *(random.uniform(0, begins[-1] + 5) for _ in range(random.choice((0, 0, 1, 2, 3))))}
    )
    answers = tuple(
        _answer(random, url, hosts, since, number) for number, since in enumerate(changes)
    )
    busy = (
        ((begins[-1], begins[-1] + 5.0, random.choice((1, 3, 30))),)
        if random.random() < 0.15
        else ()
    )
    return Site(url=url, answers=answers, latency=random.choice((0.01, 0.05, 0.2, 1.0)), busy=busy)


def _answer(random: Random, url: str, hosts: list[str], since: float, number: int) -> Answer:
    version = f'"{url.removeprefix("https://")}-{number}"'
    which = random.random()
    max_age = random.choice((None, None, 0, 60, 600, 86_400, 10_000_000))
    if which < 0.72:
        return Answer(since, version, body=_document(random), max_age=max_age)
    if which < 0.77:
        return Answer(since, version, status=random.choice((404, 410, 401, 403)), max_age=max_age)
    if which < 0.86:
        return Answer(
            since,
            version,
            status=random.choice((500, 503, 429)),
            retry_after=random.choice((None, 2, 90)),
        )
    if which < 0.94:
        return Answer(
            since, version, failure=random.choice(("connect", "timeout", "hang", "reset"))
        )
    other = random.choice(hosts)
    path = "/rules" if other == url else "/robots.txt"
    return Answer(since, version, status=random.choice((301, 302)), location=other + path)


def _document(random: Random) -> bytes:
    lines = ["User-agent: *", *random.choice(DOCUMENTS)]
    if delay := random.choice(DELAYS):
        lines.append(f"Crawl-delay: {delay}")
    return "\n".join([*lines, ""]).encode()


def _requests(
    random: Random, faults: set[str], begins: list[float], members: int, sites: int
) -> list[Request]:
    requests = []
    for begin in begins:
        spread = random.choice((0.0, 0.1, 3.0))
        for _ in range(random.choice((1, 2, 4, 8))):
            cancelled = (
                random.uniform(0, 3)
                if "cancellations" in faults and random.random() < 0.4
                else None
            )
            requests.append(
                Request(
                    at=begin + random.uniform(0, spread),
                    process=random.randrange(members),
                    site=random.randrange(sites),
                    target=random.choice(TARGETS),
                    patience=random.choice((0.0, 0.1, 3.0, 60.0)),
                    is_cancelled_after=cancelled,
                )
            )
    return requests


def _contention(
    random: Random, sites: tuple[Site, ...], members: int
) -> tuple[tuple[Site, ...], tuple[Request, ...]]:
    """Let every process visit the first site repeatedly, with a Crawl-delay there."""
    body = f"User-agent: *\nCrawl-delay: {random.choice((1, 2, 5))}\n".encode()
    paced = replace(
        sites[0], answers=(Answer(0.0, sites[0].answers[0].version, body=body),), busy=()
    )
    patience = random.choice((0.0, 0.1, 60.0))
    times = random.choice((3, 5, 8))
    requests = [
        Request(random.random(), each, 0, "/c", patience, times=times) for each in range(members)
    ]
    return (paced, *sites[1:]), tuple(requests)


def _store_spans(random: Random, faults: set[str], begins: list[float]) -> tuple[Span, ...]:
    kinds = []
    if "store" in faults:
        kinds += [
            random.choice(("down", "lost-answer", "slow", "damaged"))
            for _ in range(random.choice((1, 2)))
        ]
    if "hung-store" in faults:
        kinds.append("hung")
    return tuple(_span(random, kind, begins) for kind in kinds)


def _span(random: Random, kind: str, begins: list[float]) -> Span:
    begin = random.choice(begins) + random.choice((-1.0, 0.0, 0.05, 1.0))
    share = random.choice((0.2, 0.5, 1.0)) if kind != "hung" else 1.0
    return Span(begin, begin + random.choice((0.3, 5.0, 60.0, 1e9)), share, kind)


def _log_spans(random: Random, begins: list[float]) -> tuple[Span, ...]:
    kinds = [
        random.choice(("full", "broken", "large", "stale")) for _ in range(random.choice((0, 1, 2)))
    ]
    return tuple(_span(random, kind, begins) for kind in kinds)
