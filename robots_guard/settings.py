"""The composition root: builds a guard from settings. The clocks enter the package here only.

A setting has one name everywhere: `agent` here, `ROBOTS_GUARD_AGENT` in Scrapy,
`robots_guard_agent` among mitmproxy's options, `--agent` on the command line.
"""

from __future__ import annotations

import contextlib
import re
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import platformdirs

from robots_guard.audit.privacy import DEFAULT, Privacy
from robots_guard.audit.write.log import FileAuditLog, Keeping, passes_of
from robots_guard.audit.write.retention import Retention
from robots_guard.audit.write.writer import Writing
from robots_guard.core.access import Limits
from robots_guard.core.addresses import networks
from robots_guard.core.pacing import LONGEST_DELAY
from robots_guard.core.verdict import MAX_DELAY, Terms
from robots_guard.errors import SettingsError
from robots_guard.fetch.destinations import Destinations
from robots_guard.fetch.http import HttpFetcher
from robots_guard.gateway.destinations import Addresses, DestinationPolicy
from robots_guard.gateway.identity import Identity, agents_in
from robots_guard.guard.guard import Clocks, Guard
from robots_guard.ports import Fetcher, Runtime
from robots_guard.rep.dialect import dialect
from robots_guard.rep.paths import matching
from robots_guard.stores import open_store
from robots_guard.stores.memory import MemoryStore
from robots_guard.text import meant, unfit

_TOKEN = re.compile(r"[A-Za-z_-]+")  # RFC 9309 section 2.2.1
#: The only components that release what they cannot record: their own operator uses them.
_RELEASE_UNRECORDED = frozenset(("cli", "console", "scrapy"))
_PROXY = re.compile(r"https?://([^\s/@]*@)?(\[[0-9A-Fa-f:.]+\]|[^\s/@:\[\]]+)(:[0-9]{1,5})?/?")


#: The clocks of a running program, for all layers above this one.
CLOCKS = Clocks(now=time.time, monotonic=time.monotonic)


def default_store() -> str:
    """Return the URL of the default store."""
    return f"sqlite:///{platformdirs.user_cache_path('robots_guard') / 'policies.sqlite'}"


def default_audit_log() -> str:
    """Return the default directory of the audit log."""
    return str(platformdirs.user_state_path("robots_guard") / "audit_log")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of every integration. docs/settings.md describes them for users."""

    #: The product token that is judged: letters, "-" and "_" (RFC 9309 section 2.2.1).
    agent: str
    #: Where policies are shared: `sqlite:///PATH`, `redis://HOST:PORT/DB` (or `redis+cluster:`,
    #: `redis+sentinel:`), or `memory:` for this process only.
    store: str = msgspec.field(default_factory=default_store)
    #: The directory of the audit log.
    audit_log: str = msgspec.field(default_factory=default_audit_log)
    #: Which ordinary PASSes are recorded: `none`, `sample:N` (one of N) or `all`.
    audit_passes: str = "none"
    #: When a PASS that cannot be recorded becomes a refusal: in the `proxy` (and every integration
    #: but Scrapy, the command line and the console), `always` or `never`.
    audit_required: Literal["proxy", "always", "never"] = "proxy"
    #: When a record counts as written: when the system has it (`os`), or the disk (`fsync`).
    audit_durability: Literal["os", "fsync"] = "os"
    #: Seconds within which repeats of one rule, origin and agent are counted in one record; 0:
    #: never.
    audit_aggregate: float = 0.0
    #: Values in recorded queries: `redact` the values that look secret, or `keep`, `drop` or `hash`
    #: all.
    audit_query: Literal["redact", "keep", "drop", "hash"] = "redact"
    #: Addresses of clients in records: `keep`, `truncate` (/24, /48) or `drop`.
    audit_client: Literal["keep", "truncate", "drop"] = "keep"
    #: A label on every record, such as the name of the crawl or job.
    audit_job: str = ""
    #: Chain each writer's lines by hashes: `none` or `sha256`.
    audit_chain: Literal["none", "sha256"] = "none"
    #: Bytes after which a writer starts a new file; it also does so at midnight (UTC).
    audit_rotate_bytes: int = 268_435_456
    #: Days after which closed files are removed; 0: never.
    audit_retention_days: int = 90
    #: Bytes of closed files above which the oldest are removed; 0: no limit.
    audit_retention_bytes: int = 0
    #: Keep each fetch of a robots.txt as evidence: `none` or `warc`.
    evidence: Literal["none", "warc"] = "none"
    #: How robots.txt is interpreted: a dialect, or `strictest(a, b)`.
    dialect: str = "rfc9309"
    #: Which spellings of a target count as the same: `spec`, `standard` or `strict`.
    matching: str = "standard"
    #: `enforce`, or `report`: nothing is refused, and the audit log says what would be.
    mode: Literal["enforce", "report"] = "enforce"
    #: A TOML file of exceptions for individual sites; empty: none.
    overrides: str = ""
    #: A robots.txt request answered with 401 or 403: `drop` or `allow`.
    on_restricted: Literal["drop", "allow"] = "drop"
    #: A robots.txt that cannot be fetched: `defer` (then drop after `max_defer`), `drop` or
    #: `allow`.
    on_unreachable: Literal["defer", "drop", "allow"] = "defer"
    #: A robots.txt that redirects in a loop or more than five times: `unreachable` or `allow`.
    on_redirect_limit: Literal["unreachable", "allow"] = "unreachable"
    #: A request that a rule forbids: `drop`, or `defer` until the next robots.txt (drop after
    #: `max_defer`).
    on_disallowed: Literal["drop", "defer"] = "drop"
    #: Seconds after which a deferred request is dropped, if its origin is unreachable or forbids
    #: it.
    max_defer: float = 900.0
    #: The least number of seconds between two requests to an origin, whatever its robots.txt says.
    min_delay: float = 0.0
    #: The most seconds that Crawl-delay and Request-rate may require; 0: they are ignored.
    max_delay: float = MAX_DELAY
    #: The times of day that a robots.txt allows for visits: `keep` or `ignore`.
    visit_time: Literal["keep", "ignore"] = "keep"
    #: Whether a 429 or 503 with Retry-After pauses all further requests to the origin.
    respect_retry_after: bool = True
    #: The most seconds that a request which cannot be requeued waits for its turn; in Scrapy 60
    #: unless set.
    hold_max: float = 3.0
    #: Seconds a request may wait for its decision; after that it is deferred.
    decision_timeout: float = 35.0
    #: Seconds for connecting to fetch a robots.txt.
    connect_timeout: float = 5.0
    #: Seconds until the first byte of the response.
    first_byte_timeout: float = 10.0
    #: Seconds for the whole fetch, including redirects.
    fetch_timeout: float = 30.0
    #: How an integration fetches: through the framework's own `engine`, like the pages, or
    #: `direct`. The command line always fetches `direct`.
    fetch: Literal["engine", "direct"] = "engine"
    #: The URL of an HTTP proxy for direct fetches; empty: none, whatever the environment says.
    fetch_proxy: str = ""
    #: Networks (CIDRs, comma-separated) that are not public but that direct fetches, and pages
    #: through the proxy, may reach.
    allow_private: str = ""
    #: The User-Agent header of the guard's own fetches; empty: that of the crawler, or `AGENT
    #: (robots_guard)`.
    user_agent: str = ""

    def __post_init__(self) -> None:
        if not _TOKEN.fullmatch(self.agent):
            raise SettingsError(
                f"agent {self.agent!r} is not a product token: use letters, '-' and '_' only, such as 'mybot'"
                " (the name after User-agent: in a robots.txt)"
            )
        for name in ("decision_timeout", "connect_timeout", "first_byte_timeout", "fetch_timeout"):
            if not 0 < getattr(self, name) <= 3600:
                raise SettingsError(
                    f"{name} {getattr(self, name)!r} is not a number of seconds: use more than 0 and at most 3600"
                )
        if not self.max_defer >= 0:
            raise SettingsError(f"max_defer {self.max_defer!r} is not a number of seconds: use 0 or more")
        for name in ("min_delay", "max_delay", "hold_max"):
            if not 0 <= getattr(self, name) <= LONGEST_DELAY:
                raise SettingsError(
                    f"{name} {getattr(self, name)!r} is not a number of seconds: use 0 to {LONGEST_DELAY:g}"
                )
        if not 0 <= self.audit_aggregate <= 86400:
            raise SettingsError(f"audit_aggregate {self.audit_aggregate!r} is not a number of seconds: use 0 to 86400")
        if self.audit_rotate_bytes < 65536:
            raise SettingsError(f"audit_rotate_bytes {self.audit_rotate_bytes!r} is too small: use 65536 or more")
        for name in ("audit_retention_days", "audit_retention_bytes"):
            if not 0 <= getattr(self, name) < 2**63:
                raise SettingsError(f"{name} {getattr(self, name)!r} is not a limit: use 0 (none) or more")
        passes_of(self.audit_passes)
        networks(self.allow_private)
        if self.fetch_proxy and not _PROXY.fullmatch(self.fetch_proxy):
            # the value is not quoted, because it may contain a password
            raise SettingsError("fetch_proxy is not the URL of an HTTP proxy: write it as http://host:port")
        self.terms()  # raises for an unknown dialect or matching

    def terms(self) -> Terms:
        """Return how questions are judged under these settings. Raises SettingsError."""
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
        """Return the limits of one fetch under these settings."""
        return Limits(
            connect=self.connect_timeout,
            first_byte=self.first_byte_timeout,
            total=self.fetch_timeout,
        )

    def keeping(self, component: str) -> Keeping:
        """Return what an integration records under these settings, and for how long.

        Short-lived commands remove nothing. Raises SettingsError.
        """
        bounds = Retention(days=self.audit_retention_days, octets=self.audit_retention_bytes)
        return Keeping(
            passes=passes_of(self.audit_passes),
            aggregate=self.audit_aggregate,
            privacy=Privacy(query=self.audit_query, client=self.audit_client),
            retention=None if component == "cli" else bounds,
            warc=self.evidence == "warc",
        )

    def writing(self, component: str) -> Writing:
        """Return how an integration's audit log is written under these settings."""
        return Writing(
            component=component,
            job=self.audit_job,
            fsync=self.audit_durability == "fsync",
            chain=self.audit_chain == "sha256",
            rotate_bytes=self.audit_rotate_bytes,
            settings={name: DEFAULT.text(str(getattr(self, name))) for name in NAMES},
        )

    def requires_audit(self, component: str) -> bool:
        """Whether an integration refuses what it cannot record, as each does that is not named here."""
        if self.audit_required == "proxy":
            return component not in _RELEASE_UNRECORDED
        return self.audit_required == "always"

    @property
    def fetch_user_agent(self) -> str:
        """The User-Agent of a fetch without a crawler's own header. It contains the product
        token."""
        return self.user_agent or f"{self.agent} (robots_guard)"


class ProxySettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of the proxy. docs/proxy.md describes the additional ones for users."""

    #: Options of mitmproxy (comma-separated) that bypass the guard and are allowed nevertheless.
    allow_unsafe: str = ""
    #: Ports (comma-separated, `8000-8999` is a range) that a tunnel may connect to.
    connect_ports: str = "80, 443"
    #: Hosts (comma-separated, `*.example.com` means all subdomains) whose TLS passes uninspected.
    passthrough: str = ""
    #: The agent that is judged: always `agent`, or the product token in each request's User-Agent
    #: (`header`).
    agent_from: Literal["agent", "header"] = "agent"
    #: With `agent_from = header`: judge `agent` too, and permit only requests that both may make.
    deny_if_any: bool = False
    #: A TOML file that assigns an agent to each authenticated user.
    agents: str = ""
    #: Write the agent's User-Agent into every request.
    set_user_agent: bool = False
    #: Answer a crawler's own request for /robots.txt from the cache while the policy is fresh.
    serve_robots_from_cache: bool = False
    #: The memory for the bodies of all requests together, in each process: bytes, or `512k`,
    #: `256m`, `1g`.
    body_memory: str = "256m"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.connectable()
        _ = self.body_memory_bytes
        if self.deny_if_any and self.agent_from != "header":
            raise SettingsError("deny_if_any has no effect while agent_from is agent: set agent_from to header, too")

    def connectable(self) -> tuple[range, ...]:
        """Return `connect_ports` as ranges. Raises SettingsError."""
        found = [_PORTS.fullmatch(part) for part in parts(self.connect_ports)]
        ranges = tuple(range(int(part[1]), int(part[2] or part[1]) + 1) for part in found if part is not None)
        if not all(found) or not all(0 < ports.start < ports.stop <= 65536 for ports in ranges):
            raise SettingsError(
                f"connect_ports {self.connect_ports!r} is not a list of ports: write numbers and ranges,"
                " as in 80, 443, 8000-8999"
            )
        return ranges

    def identity(self) -> Identity:
        """Return which agent a client's requests are judged as. Raises SettingsError for an agents
        file that cannot be used."""
        return Identity(
            agent=self.agent,
            user_agent=self.fetch_user_agent,
            users=agents_in(Path(self.agents).expanduser()) if self.agents else {},
            by_header=self.agent_from == "header",
            judges_both=self.deny_if_any,
            sets_user_agent=self.set_user_agent,
        )

    def destinations(self, listening: Callable[[], Addresses] = tuple) -> DestinationPolicy:
        """Return which destinations clients may reach. `listening` returns the proxy's own addresses
        and ports."""
        return DestinationPolicy(
            ports=self.connectable(),
            allowed=networks(self.allow_private),
            listening=listening,
            monotonic=CLOCKS.monotonic,
        )

    @property
    def body_memory_bytes(self) -> int:
        """`body_memory` as a number of bytes. Raises SettingsError."""
        found = _SIZE.fullmatch(self.body_memory)
        if found is None or not int(found["number"]):
            raise SettingsError(
                f"body_memory {self.body_memory!r} is not a size: write bytes, or such as 512k, 256m or 1g"
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
    """Split a comma-separated text; leave out empty parts."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


NAMES = Settings.__struct_fields__
PROXY_NAMES = ProxySettings.__struct_fields__
S = TypeVar("S", bound=Settings)
FLAGS = {"mode": "guard-mode"}  # on the command line, where `proxy --mode` is mitmproxy's


def settings_of(values: Mapping[str, Any], spelling: str = "{}", kind: type[S] = Settings) -> S:  # type: ignore[assignment]  # the default is one
    """Build settings from names and values, which may be text. `spelling` is how the framework
    writes a name.

    Raises SettingsError, in the framework's spelling, for an unknown name or a value of the wrong
    type.
    """
    for name in values:
        if name not in kind.__struct_fields__:
            raise SettingsError(_describe_unknown(name, spelling, kind))
    if not values.get("agent"):
        name = spelling.format(_spell("agent", spelling))
        raise SettingsError(f"{name} is not set: give the crawler's product token, such as 'mybot'")
    try:
        return msgspec.convert({name: _join(value) for name, value in values.items()}, kind, strict=False)
    except msgspec.ValidationError as error:
        sentence = _describe_wrong_type(values, kind) or f"robots_guard's settings: {error}"
        raise SettingsError(_respell(sentence, spelling)) from None
    except SettingsError as error:
        raise SettingsError(_respell(str(error), spelling)) from None


def _describe_wrong_type(values: Mapping[str, Any], kind: type[Settings]) -> str | None:
    """Describe the first value that is not of its setting's type; None if there is none."""
    for field in msgspec.structs.fields(kind):
        try:
            msgspec.convert(_join(values.get(field.name, field.default)), field.type, strict=False)
        except msgspec.ValidationError:
            if field.name in values:
                return f"{field.name} {values[field.name]!r} {unfit(field.type)}"
    return None


def _respell(sentence: str, spelling: str) -> str:
    """Respell the setting's name at the beginning of a sentence as the framework writes it."""
    name = sentence.partition(" ")[0].rstrip(":")
    if name not in PROXY_NAMES:
        return sentence
    return spelling.format(_spell(name, spelling)) + sentence[len(name) :]


def _join(value: Any) -> Any:
    """Join a list of texts with commas, because frameworks have settings that are lists."""
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    return value


def _describe_unknown(name: str, spelling: str, kind: type[Settings]) -> str:
    def spell(one: str) -> str:
        return spelling.format(_spell(one, spelling))

    return f"unknown setting {spell(name)}: {meant(name, kind.__struct_fields__, spell)}"


def _spell(name: str, spelling: str) -> str:
    if spelling.startswith("--"):
        return FLAGS.get(name) or name.replace("_", "-")
    return name.upper() if spelling.isupper() else name


def direct_fetcher(settings: Settings, *, trusts_asked: bool, authorities: str | None = None) -> HttpFetcher:
    """Return a fetcher that is independent of the framework's own client.

    `trusts_asked`: the caller (a crawl, a person) can reach the origin anyway, so its address may
    be private; otherwise only networks in `allow_private` may. `authorities` is a PEM file trusted
    instead of the system's authorities.
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
    component: str,
    runtime: Runtime,
    fetcher: Fetcher,
    demands_verified: bool = True,
) -> Guard:
    """Open a guard for one integration, with its store and audit log.

    Raises SettingsError if the store cannot be opened or the audit log's directory cannot be
    written to.
    """
    with contextlib.ExitStack() as opened:  # closes them if one cannot be opened
        store = open_store(settings.store)
        if store is not None:
            opened.callback(store.close)
        place = Path(settings.audit_log).expanduser()
        audit_log = FileAuditLog(place, CLOCKS, settings.keeping(component), settings.writing(component))
        opened.callback(audit_log.close)
        guard = Guard(
            component=component,
            agent=settings.agent,
            terms=settings.terms(),
            overrides=Path(settings.overrides).expanduser() if settings.overrides else None,
            runtime=runtime,
            memory=MemoryStore(),
            store=store,
            leases=store,
            fetcher=fetcher,
            audit_log=audit_log,
            clocks=CLOCKS,
            limits=settings.limits(),
            demands_verified=demands_verified,
            decision_timeout=settings.decision_timeout,
            respect_retry_after=settings.respect_retry_after,
            reports_only=settings.mode == "report",
            audit_required=settings.requires_audit(component),
        )
        opened.pop_all()
        return guard
