"""The composition root: settings in, a guard out. The one place where the clock enters.

A setting has one name everywhere: `agent` here, `ROBOTS_GUARD_AGENT` in Scrapy, `robots_guard_agent` among
mitmproxy's options, `--agent` on the command line.
"""

from __future__ import annotations

import contextlib
import re
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import platformdirs

from robots_guard.audit.journal import FileJournal, Keeping, passes_of
from robots_guard.audit.privacy import DEFAULT, Privacy
from robots_guard.audit.retention import Retention
from robots_guard.audit.writer import Writing
from robots_guard.core.access import Limits
from robots_guard.core.addresses import networks
from robots_guard.core.pacing import LONGEST_DELAY
from robots_guard.core.verdict import MAX_DELAY, Terms
from robots_guard.errors import SettingsError
from robots_guard.fetch.destinations import Destinations
from robots_guard.fetch.http import HttpFetcher
from robots_guard.guard import Clocks, Guard
from robots_guard.plain import meant, unfit
from robots_guard.ports import Fetcher, Runtime
from robots_guard.rep.dialect import dialect
from robots_guard.rep.paths import matching
from robots_guard.stores import open_store
from robots_guard.stores.memory import MemoryStore

_TOKEN = re.compile(r"[A-Za-z_-]+")  # RFC 9309 section 2.2.1
_PROXY = re.compile(r"https?://([^\s/@]*@)?(\[[0-9A-Fa-f:.]+\]|[^\s/@:\[\]]+)(:[0-9]{1,5})?/?")


#: The clocks of a running program: what needs the time above this floor takes it from here.
CLOCKS = Clocks(now=time.time, monotonic=time.monotonic)


def default_store() -> str:
    """Where policies are kept where nothing is chosen."""
    return f"sqlite:///{platformdirs.user_cache_path('robots_guard') / 'policies.sqlite'}"


def default_journal() -> str:
    """The journal's directory where none is chosen."""
    return str(platformdirs.user_state_path("robots_guard") / "journal")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything an operator can choose. docs/settings.md has the same list, for users."""

    #: The product token judged: letters, "-" and "_" (RFC 9309 section 2.2.1).
    agent: str
    #: Where policies are shared: `sqlite:///PATH`, `redis://HOST:PORT/DB` (or `redis+cluster:`, `redis+sentinel:`), or
    #: `memory:` for this process only.
    store: str = msgspec.field(default_factory=default_store)
    #: The directory of the journal.
    journal: str = msgspec.field(default_factory=default_journal)
    #: Which ordinary PASSes are recorded: `none`, `sample:N` (one of N) or `all`.
    audit_passes: str = "none"
    #: Where an allowance that cannot be recorded is refused: in the `proxy`, `always` or `never`.
    audit_required: Literal["proxy", "always", "never"] = "proxy"
    #: When a record counts as written: the system has it (`os`), or the disk (`fsync`).
    audit_durability: Literal["os", "fsync"] = "os"
    #: Seconds within which repeats of one rule, origin and agent are counted in one record; 0: never.
    audit_aggregate: float = 0.0
    #: Values in recorded queries: `redact` those that look secret, `keep`, `drop`, or `hash` all.
    audit_query: Literal["redact", "keep", "drop", "hash"] = "redact"
    #: Addresses of clients in records: `keep`, `truncate` (/24, /48) or `drop`.
    audit_client: Literal["keep", "truncate", "drop"] = "keep"
    #: A label put on every record: the crawl, the job.
    audit_job: str = ""
    #: Chain each writer's lines by hashes: `none` or `sha256`.
    audit_chain: Literal["none", "sha256"] = "none"
    #: Octets after which a writer begins a new file; at midnight (UTC) it does anyhow.
    audit_rotate_bytes: int = 268_435_456
    #: Days after which closed files are removed; 0: never.
    audit_retention_days: int = 90
    #: Octets of closed files beyond which the oldest are removed; 0: no bound.
    audit_retention_bytes: int = 0
    #: Keep each fetch of a robots.txt as evidence: `none` or `warc`.
    evidence: Literal["none", "warc"] = "none"
    #: How robots.txt is read: a dialect, or `strictest(a, b)`.
    dialect: str = "rfc9309"
    #: Which spellings of a target count as the same: `spec`, `standard` or `strict`.
    matching: str = "standard"
    #: `enforce`, or `report`: nothing is refused, and the journal says what would be.
    mode: Literal["enforce", "report"] = "enforce"
    #: A TOML file of exceptions for single sites; empty: none.
    overrides: str = ""
    #: A robots.txt that answers 401 or 403: `drop` or `allow`.
    on_restricted: Literal["drop", "allow"] = "drop"
    #: A robots.txt that cannot be had: `defer` (then drop after `max_defer`), `drop` or `allow`.
    on_unreachable: Literal["defer", "drop", "allow"] = "defer"
    #: A robots.txt whose redirects run in a circle or beyond five: `unreachable` or `allow`.
    on_redirect_limit: Literal["unreachable", "allow"] = "unreachable"
    #: A request that a rule forbids: `drop`, or `defer` until the next robots.txt (then drop after `max_defer`).
    on_disallowed: Literal["drop", "defer"] = "drop"
    #: Seconds after which a request is dropped that was deferred because its origin is unreachable, or it disallowed.
    max_defer: float = 900.0
    #: Seconds between two requests to an origin, at least, whatever its file says.
    min_delay: float = 0.0
    #: Seconds of what a file may ask for with Crawl-delay and Request-rate; 0: they are not kept.
    max_delay: float = MAX_DELAY
    #: Times of the day at which a file wants to be visited: `keep` or `ignore`.
    visit_time: Literal["keep", "ignore"] = "keep"
    #: Whether a 429 or 503 with Retry-After holds off all further requests to the origin.
    respect_retry_after: bool = True
    #: Seconds a request that cannot be put back waits for its turn, at most; in Scrapy 60 unless it is set.
    hold_max: float = 3.0
    #: Seconds a request may wait for its decision; after that it is deferred.
    decision_timeout: float = 35.0
    #: Seconds for connecting to fetch a robots.txt.
    connect_timeout: float = 5.0
    #: Seconds until the first byte of its answer.
    first_byte_timeout: float = 10.0
    #: Seconds for the whole fetch, redirects included.
    fetch_timeout: float = 30.0
    #: How a door fetches: by its host's own `engine`, as the pages travel, or `direct`. The command line: `direct`.
    fetch: Literal["engine", "direct"] = "engine"
    #: The URL of an HTTP proxy that direct fetches go through; empty: none, whatever the environment says.
    fetch_proxy: str = ""
    #: Networks (CIDRs, comma-separated) that direct fetches, and pages through the proxy, may reach though not public.
    allow_private: str = ""
    #: The User-Agent header of our own fetches; empty: that of the crawler, or the agent with our name.
    user_agent: str = ""

    def __post_init__(self) -> None:
        if not _TOKEN.fullmatch(self.agent):
            raise SettingsError(
                f"agent {self.agent!r} is not a product token: use letters, '-' and '_' only, such as 'mybot'"
                " (the name that stands after User-agent: in a robots.txt)"
            )
        for name in ("decision_timeout", "connect_timeout", "first_byte_timeout", "fetch_timeout"):
            if not 0 < getattr(self, name) <= 3600:
                raise SettingsError(
                    f"{name} {getattr(self, name)!r} is no number of seconds: use more than 0 and at most 3600"
                )
        if not self.max_defer >= 0:
            raise SettingsError(f"max_defer {self.max_defer!r} is no number of seconds: use 0 or more")
        for name in ("min_delay", "max_delay", "hold_max"):
            if not 0 <= getattr(self, name) <= LONGEST_DELAY:
                raise SettingsError(
                    f"{name} {getattr(self, name)!r} is no number of seconds: use 0 to {LONGEST_DELAY:g}"
                )
        if not 0 <= self.audit_aggregate <= 86400:
            raise SettingsError(f"audit_aggregate {self.audit_aggregate!r} is no number of seconds: use 0 to 86400")
        if self.audit_rotate_bytes < 65536:
            raise SettingsError(f"audit_rotate_bytes {self.audit_rotate_bytes!r} is too few: use 65536 or more")
        for name in ("audit_retention_days", "audit_retention_bytes"):
            if not 0 <= getattr(self, name) < 2**63:
                raise SettingsError(f"{name} {getattr(self, name)!r} is no bound: use 0 (none) or more")
        passes_of(self.audit_passes)
        networks(self.allow_private)
        if self.fetch_proxy and not _PROXY.fullmatch(self.fetch_proxy):
            raise SettingsError(
                "fetch_proxy is no URL of an HTTP proxy: write it as http://host:port"
            )  # it may hold a password
        self.terms()  # names a dialect or matching that does not exist

    def terms(self) -> Terms:
        """How questions are judged under these settings. Raises SettingsError."""
        return Terms(
            dialect=dialect(self.dialect),
            matching=matching(self.matching),
            on_restricted=self.on_restricted,
            on_unreachable=self.on_unreachable,
            on_redirect_limit=self.on_redirect_limit,
            on_disallowed=self.on_disallowed,
            max_defer=self.max_defer,
            min_delay=self.min_delay,
            max_delay=self.max_delay,
            visit_time=self.visit_time,
        )

    def limits(self) -> Limits:
        """What one fetch may cost under these settings."""
        return Limits(
            connect=self.connect_timeout,
            first_byte=self.first_byte_timeout,
            total=self.fetch_timeout,
        )

    def keeping(self, door: str) -> Keeping:
        """What a door records, and for how long, under these settings; commands that come and go remove nothing.

        Raises SettingsError.
        """
        bounds = Retention(days=self.audit_retention_days, octets=self.audit_retention_bytes)
        return Keeping(
            passes=passes_of(self.audit_passes),
            aggregate=self.audit_aggregate,
            privacy=Privacy(query=self.audit_query, client=self.audit_client),
            retention=None if door == "cli" else bounds,
            warc=self.evidence == "warc",
        )

    def writing(self, door: str) -> Writing:
        """How a door's journal is written under these settings."""
        return Writing(
            door=door,
            job=self.audit_job,
            fsync=self.audit_durability == "fsync",
            chain=self.audit_chain == "sha256",
            rotate_bytes=self.audit_rotate_bytes,
            settings={name: DEFAULT.text(str(getattr(self, name))) for name in NAMES},
        )

    def requires_audit(self, door: str) -> bool:
        """Whether a door refuses what it cannot record."""
        return self.audit_required == "always" or (self.audit_required == "proxy" and door == "mitmproxy")

    @property
    def fetch_user_agent(self) -> str:
        """The User-Agent of a fetch that no crawler's own header goes with; the product token is in it."""
        return self.user_agent or f"{self.agent} (robots_guard)"


class ProxySettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be chosen for the proxy only. docs/proxy.md has the same list, for users."""

    #: Options of mitmproxy (comma-separated) that lead around the guard and are allowed to.
    allow_unsafe: str = ""
    #: Ports (comma-separated, `8000-8999` is a range) that a tunnel may lead to.
    connect_ports: str = "80, 443"
    #: Hosts (comma-separated, `*.example.com` is all below) whose TLS is let through uninspected.
    passthrough: str = ""
    #: Who is judged: the `agent` always, or the product token in each request's User-Agent (`header`).
    agent_from: Literal["agent", "header"] = "agent"
    #: With `agent_from = header`: judge `agent` too, and let pass what both may fetch.
    deny_if_any: bool = False
    #: A TOML file that gives each authenticated user an agent.
    agents: str = ""
    #: Write the agent's User-Agent into every request.
    set_user_agent: bool = False
    #: Answer a crawler's own request for /robots.txt from the cache while that is fresh.
    serve_robots_from_cache: bool = False
    #: The memory that the bodies of all requests together may take, in each process: bytes, or `512k`, `256m`, `1g`.
    body_memory: str = "256m"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.connectable()
        _ = self.body_memory_bytes
        if self.deny_if_any and self.agent_from != "header":
            raise SettingsError("deny_if_any changes nothing while agent_from is agent: set agent_from to header, too")

    def connectable(self) -> tuple[range, ...]:
        """`connect_ports` as ranges. Raises SettingsError."""
        found = [_PORTS.fullmatch(part) for part in parts(self.connect_ports)]
        ranges = tuple(range(int(part[1]), int(part[2] or part[1]) + 1) for part in found if part is not None)
        if not all(found) or not all(0 < ports.start < ports.stop <= 65536 for ports in ranges):
            raise SettingsError(
                f"connect_ports {self.connect_ports!r} are no ports: write numbers and ranges, as in 80, 443, 8000-8999"
            )
        return ranges

    @property
    def body_memory_bytes(self) -> int:
        """`body_memory` as a number of bytes. Raises SettingsError."""
        found = _SIZE.fullmatch(self.body_memory)
        if found is None or not int(found["number"]):
            raise SettingsError(
                f"body_memory {self.body_memory!r} is no size: write bytes, or such as 512k, 256m or 1g"
            )
        return int(found["number"]) * _UNITS[found["unit"].lower()]

    @property
    def unsafe_allowed(self) -> frozenset[str]:
        """The names in `allow_unsafe`."""
        return frozenset(parts(self.allow_unsafe))


_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_SIZE = re.compile(r"(?P<number>[0-9]{1,15})(?P<unit>[kmgKMG]?)")
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def parts(text: str) -> tuple[str, ...]:
    """The texts that commas divide."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


NAMES = Settings.__struct_fields__
PROXY_NAMES = ProxySettings.__struct_fields__
S = TypeVar("S", bound=Settings)
FLAGS = {"mode": "guard-mode"}  # on the command line, where `proxy --mode` is mitmproxy's


def settings_of(values: Mapping[str, Any], spelling: str = "{}", kind: type[S] = Settings) -> S:  # type: ignore[assignment]  # the default is one
    """Settings from names and values, which may be text. `spelling` is how the host writes a name.

    Raises SettingsError, in the host's own spelling, for a name that does not exist or a value that does not fit.
    """
    for name in values:
        if name not in kind.__struct_fields__:
            raise SettingsError(_unknown(name, spelling, kind))
    if not values.get("agent"):
        name = spelling.format(_shown("agent", spelling))
        raise SettingsError(f"{name} is not set: give the crawler's product token, such as 'mybot'")
    try:
        return msgspec.convert({name: _joined(value) for name, value in values.items()}, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(_spelt(_unfit(values, kind) or f"robots_guard's settings: {error}", spelling)) from None
    except SettingsError as error:
        raise SettingsError(_spelt(str(error), spelling)) from None


def _unfit(values: Mapping[str, Any], kind: type[Settings]) -> str | None:
    """A sentence on the first value that is not of its setting's kind."""
    for field in msgspec.structs.fields(kind):
        try:
            msgspec.convert(_joined(values.get(field.name, field.default)), field.type, strict=False)
        except msgspec.ValidationError:
            if field.name in values:
                return f"{field.name} {values[field.name]!r} {unfit(field.type)}"
    return None


def _spelt(sentence: str, spelling: str) -> str:
    """A sentence that begins with a setting's name, with the name as the host writes it."""
    name = sentence.partition(" ")[0].rstrip(":")
    return spelling.format(_shown(name, spelling)) + sentence[len(name) :] if name in PROXY_NAMES else sentence


def _joined(value: Any) -> Any:
    """Several texts are one, divided by commas: hosts have lists."""
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    return value


def _unknown(name: str, spelling: str, kind: type[Settings]) -> str:
    def shown(one: str) -> str:
        return spelling.format(_shown(one, spelling))

    return f"unknown setting {shown(name)}: {meant(name, kind.__struct_fields__, shown)}"


def _shown(name: str, spelling: str) -> str:
    if spelling.startswith("--"):
        return FLAGS.get(name) or name.replace("_", "-")
    return name.upper() if spelling.isupper() else name


def direct_fetcher(settings: Settings, *, trusts_asked: bool, authorities: str | None = None) -> HttpFetcher:
    """A fetcher of our own, beside whatever the host fetches with.

    `trusts_asked`: who asks could reach the origin anyhow (a crawl, a person), so it may be private; else only
    `allow_private` may be. `authorities` is a PEM file trusted instead of the system's.
    """
    return HttpFetcher(
        settings.fetch_user_agent,
        tls=ssl.create_default_context(cafile=authorities) if authorities else None,
        destinations=Destinations(allowed=networks(settings.allow_private), trusts_asked=trusts_asked),
        proxy=settings.fetch_proxy,
    )


def open_guard(
    settings: Settings,
    *,
    door: str,
    runtime: Runtime,
    fetcher: Fetcher,
    demands_verified: bool = True,
) -> Guard:
    """A guard for one door, with its store and journal open.

    Raises SettingsError if the store cannot be opened or the journal's directory cannot be written to.
    """
    with contextlib.ExitStack() as opened:  # closed again should one of them fail
        store = open_store(settings.store)
        if store is not None:
            opened.callback(store.close)
        place = Path(settings.journal).expanduser()
        journal = FileJournal(place, CLOCKS, settings.keeping(door), settings.writing(door))
        opened.callback(journal.close)
        guard = Guard(
            door=door,
            agent=settings.agent,
            terms=settings.terms(),
            overrides=Path(settings.overrides).expanduser() if settings.overrides else None,
            runtime=runtime,
            memory=MemoryStore(),
            store=store,
            leases=store,
            fetcher=fetcher,
            journal=journal,
            clocks=CLOCKS,
            limits=settings.limits(),
            demands_verified=demands_verified,
            decision_timeout=settings.decision_timeout,
            respect_retry_after=settings.respect_retry_after,
            reports_only=settings.mode == "report",
            audit_required=settings.requires_audit(door),
        )
        opened.pop_all()
        return guard
