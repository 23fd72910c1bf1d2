"""The composition root: builds a guard from settings. The clocks enter the package here only.

A setting has one name everywhere: `agent` here, `ROBOTS_GUARD_AGENT` in Scrapy,
`robots_guard_agent` among mitmproxy's options, `--agent` on the command line.
"""

# Annotations are evaluated at once here, because msgspec compiles postponed ones again for each struct.

import contextlib
import re
import time
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
)

import msgspec
import platformdirs
from msgspec import Meta

from robots_guard.audit.privacy import DEFAULT, Privacy
from robots_guard.decisions.access import Limits
from robots_guard.decisions.addresses import networks
from robots_guard.decisions.component import ANSWERING, PROXIES, Component
from robots_guard.decisions.pacing import LONGEST_DELAY
from robots_guard.decisions.site_settings import PolicySettings, SiteSettings, types_of
from robots_guard.decisions.verdict import Decision, Terms
from robots_guard.errors import SettingsError
from robots_guard.guard.stores import shown as without_credentials
from robots_guard.invocation import ALL_SETTINGS
from robots_guard.ports import AuditLevel, Clocks, Fetcher, Runtime
from robots_guard.protocol.dialect import dialect
from robots_guard.protocol.paths import matching
from robots_guard.protocol.robots import NAME, can_compare
from robots_guard.text import nearest, number, wrong_type

if TYPE_CHECKING:  # imported where a guard is opened: a command that needs none starts sooner
    from robots_guard.audit.write.log import LogOptions
    from robots_guard.audit.write.writer import WriterOptions
    from robots_guard.gateway.destinations import Addresses, DestinationPolicy
    from robots_guard.gateway.identity import Identity
    from robots_guard.guard.fetch.http import HttpFetcher
    from robots_guard.guard.guard import Guard
    from robots_guard.guard.options import GuardOptions

_TOKEN = re.compile(NAME)
_NOT_IN_TOKEN = re.compile(r"[^A-Za-z0-9._-]")


def _objection_to_token(token: str) -> str:
    """Return what is wrong with a name as a product token, as the beginning of a sentence."""
    wrong = dict.fromkeys(_NOT_IN_TOKEN.findall(token))
    if not wrong:
        return "a dot stands between other characters;"
    shown = ", ".join("a space" if each == " " else repr(each) for each in wrong)
    return f"RFC 9309 section 2.2.1 does not allow {shown} in it;"


#: The only components that release what they cannot record: their own operator uses them.
_RELEASE_UNRECORDED = frozenset(Component) - frozenset(PROXIES)
_PROXY = re.compile(r"https?://([^\s/@]*@)?(\[[0-9A-Fa-f:.]+\]|[^\s/@:\[\]]+)(:[0-9]{1,5})?/?")


#: What an integration says at its start if it refuses nothing.
REPORT_ONLY = "report_only: no request is refused because of a robots.txt"
#: The clocks of a running program, for all layers above this one.
CLOCKS = Clocks(now=time.time, monotonic=time.monotonic)


def default_store() -> str:
    """Return the URL of the default store. Raises SettingsError without a home directory."""
    folder = _folder_of_user("store", platformdirs.user_cache_path)
    return f"sqlite:///{folder / 'policies.sqlite'}"


def default_audit_log() -> str:
    """Return the default directory of the audit log. Raises SettingsError without a home
    directory."""
    return str(_folder_of_user("audit_log", platformdirs.user_state_path) / "audit_log")


#: The defaults that lie in the user's home directory. They raise SettingsError without one.
USER_DEFAULTS: Mapping[str, Callable[[], str]] = {
    "store": default_store,
    "audit_log": default_audit_log,
}


def _folder_of_user(name: str, path: Callable[[str], Path]) -> Path:
    """Return a directory of the user. In a container, a user may have no home directory."""
    with contextlib.suppress(RuntimeError):  # of platformdirs since 4.3
        folder = path("robots_guard")
        if folder.is_absolute():
            return folder
    raise SettingsError(
        f"{name} is not set, and without a home directory it has no default: set {name}, or HOME"
    )


class Settings(SiteSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of every integration. docs/settings.md describes them for users.

    Each is described as in `decisions.site_settings`. `Meta.extra` may contain::

        default   the default as text, if it depends on the user
        repeats   true: the option of the command line may be repeated, and the values are joined
        is_sent   true: the text goes into requests or records (so it is no file name)
        path      the form of a text that is or contains the path of a file: "file", "store"
                  (sqlite:///PATH), "credentials" (@PATH) or "socket" (unix:PATH); in a
                  configuration file it is relative to that file
        is_secret  true: the text is a secret, and is never shown
        is_pairs  true: the texts are NAME=VALUE, and the value of a secret's name is never shown
        metavar   the form of a value in the help, if that is not the name

    `references` has the name and the text of each setting whose value the operator gave by
    reference (`env:NAME` or `file:PATH`), and which is therefore never shown.
    """

    references: tuple[tuple[str, str], ...] = ()

    agent: Annotated[
        str,
        Meta(
            description="The crawler's product token: its name after `User-agent:` in a robots.txt,"
            " in letters, digits, `-`, `_` and `.`. A name with a digit or a dot is compared whole.",
            extra={"is_sent": True},
        ),
    ]
    store: Annotated[
        str,
        Meta(
            description="Where policies are shared: `sqlite:///PATH`, `redis://HOST:PORT/DB`, or"
            " `memory:` for this process only. A relative path is `sqlite:///relative/path`, an"
            " absolute one `sqlite:////absolute/path`. A cluster is"
            " `redis+cluster://host:port,host:port/`, and a server behind sentinels"
            " `redis+sentinel://host:port,host:port/SERVICE/db`. `memory:` is for one crawl or proxy"
            " alone: two spiders in one process then have separate policies and turns."
            " `NAME=URL,NAME=URL` is a store for each region, where each origin has its home in one"
            " of them."
            " See [stores.md](stores.md).",
            extra={"default": "SQLite, in the user's cache directory", "path": "store"},
        ),
    ] = msgspec.field(default_factory=default_store)
    store_threads: Annotated[
        int,
        Meta(
            ge=1,
            le=256,
            description="Calls to the store that a process may have in progress at once, each in a"
            " thread. The default suits a store that answers within a millisecond. For one that"
            " is farther away, multiply the calls a second that a process needs by the seconds that"
            " one takes: 800 calls a second at 40 ms need 32."
            " See [scale.md](scale.md#threads-for-the-store).",
        ),
    ] = 4
    audit_log: Annotated[
        str,
        Meta(
            description="The directory of the audit log.",
            extra={"default": "in the user's state directory", "path": "file"},
        ),
    ] = msgspec.field(default_factory=default_audit_log)
    audit: Annotated[
        AuditLevel,
        Meta(
            description="How much is recorded: `refusals`, `summary`, `all` or `evidence`. Every"
            " level has each DROP and DEFER, each PASS that is due to a relaxation or an exemption,"
            " and each fetch of a robots.txt. `summary` also counts the other PASSes: per minute"
            " one record for each origin, agent, reason and robots.txt. `all` has each PASS."
            " `evidence` also chains each writer's lines by their SHA-256, so that"
            " `robots-guard audit verify` finds edits, and keeps each fetch of a robots.txt as a"
            " WARC record beside the log; it needs the extra `[audit]`."
            " See [audit.md](audit.md#what-is-recorded) for what each level can prove, and what it"
            " costs."
        ),
    ] = "summary"
    audit_required: Annotated[
        Literal["proxy", "always", "never"],
        Meta(
            description="Where a PASS that must be recorded but cannot be is refused: in the"
            " `proxy` (and in the decision service), `always` or `never`. The reason is then"
            " `unrecorded`. Elsewhere than in the proxy it is otherwise released and counted, a"
            " warning is logged, and the audit log records it as soon as it can be written."
        ),
    ] = "proxy"
    audit_durability: Annotated[
        Literal["os", "fsync"],
        Meta(
            description="When a record counts as written: when the operating system has it (`os`)"
            " or the disk (`fsync`). With `os`, a power failure can lose the last ones; `fsync` is"
            " much slower."
        ),
    ] = "os"
    audit_query: Annotated[
        Literal["redact", "keep", "drop", "hash"],
        Meta(
            description="Values in the queries of recorded URLs: `redact` those that look secret,"
            " `keep` all, `drop` queries, or `hash` all values. The hash uses the audit log's own"
            " key."
        ),
    ] = "redact"
    audit_client: Annotated[
        Literal["keep", "truncate", "drop"],
        Meta(
            description="Addresses of clients in records: `keep`, `truncate` (to /24 or /48,"
            " without the port) or `drop`."
        ),
    ] = "keep"
    audit_job: Annotated[
        str,
        Meta(
            description="A label for every record, such as the name of the crawl or job.",
            extra={"is_sent": True},
        ),
    ] = ""
    audit_signing_key: Annotated[
        str,
        Meta(
            description="The file of a private key (Ed25519, PEM) that signs each checkpoint of the"
            " chain, and bundles. The lines are then chained at every level of `audit`. It needs the"
            " extra `[audit]`."
            " `robots-guard audit keys --create FILE` makes one. Only its owner and its group may be"
            " able to read it.",
            extra={"path": "file"},
        ),
    ] = ""
    audit_retention_days: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Days after which closed files of the audit log are removed; 0: never.",
        ),
    ] = 90
    audit_retention_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=10**15,
            description="Bytes of closed files beyond which the oldest are removed; 0: no limit.",
        ),
    ] = 0
    report_only: Annotated[
        bool,
        Meta(
            description="Refuse nothing, but record what would be refused. No request is refused or"
            " deferred because of a robots.txt, and the audit log says what would have been"
            " (`would`). A request that is malformed, names more than one site, or leads to an"
            " address or port that a proxy may not reach, is refused all the same."
        ),
    ] = False
    overrides: Annotated[
        str,
        Meta(
            description="A TOML file of exceptions for single sites, each with an owner, a reason"
            " and an expiry date. See [overrides.md](overrides.md).",
            extra={"path": "file"},
        ),
    ] = ""
    respect_retry_after: Annotated[
        bool,
        Meta(
            description="Pause all further requests to an origin that answers a page with 402, 429"
            " or 503 and `Retry-After`. The pause is an hour at most."
        ),
    ] = True
    hold_max: Annotated[
        float,
        Meta(
            ge=0,
            le=LONGEST_DELAY,
            description="The most seconds that a request that cannot be requeued is held, for its"
            " turn or until its robots.txt is tried again. In Scrapy this is a download that bypasses"
            " the scheduler, such as media, where it is 60 unless you set it; elsewhere it is any"
            " request. Most clients wait longer than 25 s, and few retry after a 429.",
        ),
    ] = 25.0
    fetch_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds for the whole fetch of a robots.txt, including redirects."
            " A sixth of it may pass until a connection stands, but 5 s in any case, and a third"
            " until the first byte of a response, but 10 s in any case. A request that has no"
            " decision after this time and a sixth is deferred.",
        ),
    ] = 30.0
    fetch: Annotated[
        Literal["engine", "direct"],
        Meta(
            description="How an integration fetches robots.txt: `engine`, like the pages, or"
            " `direct`. With `engine` it goes through the framework's own downloader, on the same"
            " route as the pages; with `direct` through the guard's own client. The command line"
            " fetches directly."
        ),
    ] = "engine"
    fetch_proxy: Annotated[
        str,
        Meta(
            description="The URL of an HTTP proxy for direct fetches,"
            " `http://[user:password@]host:port`. Empty: none; `http_proxy` in the environment is"
            " never used."
        ),
    ] = ""
    allow_private: Annotated[
        str,
        Meta(
            description="Private networks (CIDRs, separated by commas) that direct fetches, and"
            " everything that goes through the proxy, may reach."
            " See [private addresses](settings.md#private-addresses)."
        ),
    ] = ""
    user_agent: Annotated[
        str,
        Meta(
            description="The User-Agent header of the guard's own fetches. Empty: the agent with"
            " the name of robots_guard; in Scrapy the crawler's own.",
            extra={"is_sent": True},
        ),
    ] = ""

    def __post_init__(self) -> None:
        if not _TOKEN.fullmatch(self.agent):
            raise SettingsError(
                f"agent {self.agent!r} is not a product token: {_objection_to_token(self.agent)} use letters,"
                " digits, '-', '_' and '.' only, such as 'mybot' (the name after User-agent: in a robots.txt)"
            )
        if not can_compare(self.agent, dialect(self.dialect)):
            raise SettingsError(
                f"agent {self.agent!r} cannot be judged in dialect {self.dialect}, which compares letters,"
                " '-' and '_' only, as Google's library does: use dialect = rfc9309, or another agent"
            )
        super().__post_init__()
        if "PRIVATE KEY" in self.audit_signing_key or "\n" in self.audit_signing_key:
            # the value is not quoted, and would be recorded
            raise SettingsError(
                "audit_signing_key is a key itself: put it into a file, and give the path of the file"
            )
        networks(self.allow_private)
        if self.fetch_proxy and not _PROXY.fullmatch(self.fetch_proxy):
            # the value is not quoted, because it may contain a password
            raise SettingsError(
                "fetch_proxy is not the URL of an HTTP proxy: write it as http://host:port"
            )
        dialect(self.dialect)

    def terms(self) -> Terms:
        """Return how questions are judged under these settings."""
        names = PolicySettings.__struct_fields__
        return Terms(
            dialect=dialect(self.dialect),
            matching=matching(self.matching),
            **{name: getattr(self, name) for name in names},
        )

    def limits(self) -> Limits:
        """Return the limits of one fetch under these settings."""
        total = self.fetch_timeout
        return Limits(
            connect=min(total, max(5.0, total / 6)),
            first_byte=min(total, max(10.0, total / 3)),
            total=total,
        )

    @property
    def decision_timeout(self) -> float:
        """The seconds within which a request has its decision: a fetch, and the store around it."""
        return self.fetch_timeout * 7 / 6

    def audit_level(self, component: str) -> AuditLevel:
        """Return how much an integration records.

        A component that only answers counts no PASSes, because no request follows them.
        """
        if self.audit == "summary" and component in ANSWERING:
            return "refusals"
        return self.audit

    def log_options(self, component: str) -> "LogOptions":
        """Return what an integration records under these settings, and for how long.

        Short-lived commands remove nothing. Raises SettingsError.
        """
        from robots_guard.audit.write.log import LogOptions
        from robots_guard.audit.write.retention import Retention

        bounds = Retention(days=self.audit_retention_days, size=self.audit_retention_bytes)
        return LogOptions(
            audit=self.audit_level(component),
            writes_idle=True,
            privacy=self.privacy,
            retention=None if component == Component.CLI else bounds,
        )

    @property
    def privacy(self) -> Privacy:
        """How much of queries and clients is recorded under these settings, and logged."""
        return Privacy(query=self.audit_query, client=self.audit_client)

    def writing(self, component: str) -> "WriterOptions":
        """Return how an integration's audit log is written under these settings. Its `start`
        records have the settings in effect.

        Reads the signing key. Raises SettingsError if it cannot be used.
        """
        from robots_guard.audit.write.writer import WriterOptions

        given = {name: self.shown(name) for name in NAMES}
        signer = None
        if self.audit_signing_key:
            from robots_guard.audit.key_files import read_signer

            signer = read_signer(Path(self.audit_signing_key).expanduser())
        return WriterOptions(
            component=str(component),
            job=self.audit_job,
            fsync=self.audit_durability == "fsync",
            chain=self.audit == "evidence" or signer is not None,  # what a key signs is the chain
            signer=signer,
            settings=given | {"audit": self.audit_level(component)},
        )

    def shown(self, name: str) -> str:
        """Return a setting as it may be recorded and printed: the reference if the operator gave
        one, and otherwise the value without the secrets of its URLs."""
        reference = dict(self.references).get(name)
        if reference:
            return reference
        text = str(getattr(self, name))
        if name == "store":
            text = without_credentials(text)
        return DEFAULT.text(text)

    def requires_audit(self, component: str) -> bool:
        """Whether an integration refuses what it cannot record, as each does that is not named here."""
        if self.audit_required == "proxy":
            return component not in _RELEASE_UNRECORDED
        return self.audit_required == "always"

    def guard_options(self, component: str, *, demands_verified: bool) -> "GuardOptions":
        """Return the options of an integration's guard under these settings."""
        from robots_guard.guard.options import GuardOptions

        return GuardOptions(
            component=str(component),
            terms=self.terms(),
            agent=self.agent,
            overrides=Path(self.overrides).expanduser() if self.overrides else None,
            limits=self.limits(),
            demands_verified=demands_verified,
            decision_timeout=self.decision_timeout,
            store_threads=self.store_threads,
            respect_retry_after=self.respect_retry_after,
            report_only=self.report_only,
            audit_required=self.requires_audit(component),
            records_fetches_at_once=self.audit_durability == "os" and self.audit != "evidence",
        )

    @property
    def fetch_user_agent(self) -> str:
        """The User-Agent of a fetch without a crawler's own header. It contains the product
        token."""
        return self.user_agent or f"{self.agent} (robots_guard)"


def signals_note(settings: Settings) -> str:
    """Return what an integration says at its start about signals; empty if they are off."""
    if settings.signals == "off":
        return ""
    if settings.enforces_signals:
        return f"signals are enforced for the purposes {', '.join(settings.declared)}"
    if settings.purposes:
        return f"signals are recorded only (signals = {settings.signals})"
    return "signals are recorded only, because no purposes are declared"


class ProxySettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of the proxy, and of the decision service. docs/proxy.md describes the additional
    ones for users."""

    allow_unsafe: Annotated[
        str,
        Meta(
            description="Options of mitmproxy that bypass the guard and are allowed nevertheless."
            " Each is recorded at startup and with each connection that it opens.",
            extra={"repeats": True},
        ),
    ] = ""
    connect_ports: Annotated[
        str,
        Meta(
            description="Ports that a tunnel may lead to: numbers and ranges, such as"
            " `80, 443, 8000-8999`. A request inside a tunnel to another port is refused, inside"
            " the tunnel. Without a tunnel any port is allowed except those of other protocols"
            " (the Fetch standard's bad ports).",
            extra={"repeats": True},
        ),
    ] = "80, 443"
    passthrough: Annotated[
        str,
        Meta(
            description="Hosts whose TLS passes uninspected, as long as their robots.txt lets the"
            " agent fetch `/`. `*.example.com` means every host below it. Each connection is"
            " recorded.",
            extra={"repeats": True},
        ),
    ] = ""
    agent_from: Annotated[
        Literal["agent", "header"],
        Meta(
            description="Which agent is judged: always `agent`, or the product token in each"
            " request's User-Agent (`header`). With `header`, a request whose User-Agent names none"
            " is judged as `agent`."
        ),
    ] = "agent"
    agents: Annotated[
        str,
        Meta(
            description="A TOML file that assigns an agent to each authenticated user. Under"
            ' `[users]`, a line such as `alice = "alicebot"` for each user of `--proxyauth`.',
            extra={"path": "file"},
        ),
    ] = ""
    set_user_agent: Annotated[
        bool,
        Meta(
            description="Set the agent's User-Agent on every request. This is `user_agent`, or the"
            " agent with the name of robots_guard. Behind Envoy or Squid, their configuration"
            " does it: see `robots-guard serve --print-config`."
        ),
    ] = False
    body_memory: Annotated[
        str,
        Meta(
            description="The memory for the bodies of all requests together, in each worker: bytes,"
            " or such as `512k` or `1g`. Bytes count from their arrival until their request has"
            " ended; sending a body takes up to three more copies of that body. Beyond this limit"
            " an upload gets a 503. An upload that alone exceeds it gets a 413. Pages that are held"
            " until their META tags are read count, too; beyond this limit they are passed on"
            " unread."
        ),
    ] = "256m"

    refusals: Annotated[
        Literal["error", "placeholder"],
        Meta(
            description="How a browser's request for a part of a page is refused: with an `error`"
            " or a harmless `placeholder`. This is an empty script or style sheet, a transparent"
            " image, or a 204, so that the page renders without the part. It is chosen by"
            " Sec-Fetch-Dest, which browsers send to https:// sites. See"
            " [proxy.md](proxy.md#placeholders)."
        ),
    ] = "error"
    log: Annotated[
        Literal["drops", "all", "none"],
        Meta(
            description="Which decisions have lines on standard error: `drops` (including"
            " deferrals), `all` or `none`. The first of a kind (origin, agent, rule) has a line, and those like it"
            " within a minute are counted in a second one. URLs are redacted as in the audit log."
        ),
    ] = "drops"
    contact: Annotated[
        str,
        Meta(
            description="Whom to ask about a refusal: the operator's URL or mail address, shown in"
            " every refusal. Empty: refusals name no address.",
            extra={"is_sent": True},
        ),
    ] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.connectable_ports()
        _ = self.body_memory_bytes
        if self.contact and not _CONTACT.fullmatch(self.contact):
            raise SettingsError(
                f"contact {self.contact!r} is not a URL or a mail address: write one such as"
                " https://crawler.example/about or crawler@example.com"
            )

    def connectable_ports(self) -> tuple[range, ...]:
        """Return `connect_ports` as ranges. Raises SettingsError."""
        found = [_PORTS.fullmatch(part) for part in parts(self.connect_ports)]
        ranges = tuple(
            range(int(part[1]), int(part[2] or part[1]) + 1) for part in found if part is not None
        )
        if not all(found) or not all(0 < ports.start < ports.stop <= 65536 for ports in ranges):
            raise SettingsError(
                f"connect_ports {self.connect_ports!r} is not a list of ports: write numbers and ranges,"
                " as in 80, 443, 8000-8999"
            )
        return ranges

    def identity(self) -> "Identity":
        """Return which agent a client's requests are judged as. Raises SettingsError for an agents
        file that cannot be used."""
        from robots_guard.gateway.identity import Identity, agents_in

        return Identity(
            agent=self.agent,
            user_agent=self.fetch_user_agent,
            users=agents_in(Path(self.agents).expanduser()) if self.agents else {},
            by_header=self.agent_from == "header",
            sets_user_agent=self.set_user_agent,
        )

    def destinations(self, listening: "Callable[[], Addresses]" = tuple) -> "DestinationPolicy":
        """Return which destinations clients may reach.

        `listening` returns the addresses and ports on which the proxy listens now. A request to one
        of them is refused, because it would come back to the proxy without end.
        """
        from robots_guard.gateway.destinations import DestinationPolicy

        return DestinationPolicy(
            ports=self.connectable_ports(),
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
    def uses_placeholders(self) -> bool:
        """Whether a browser's request for a part of a page is refused with a placeholder."""
        return self.refusals == "placeholder"

    @property
    def unsafe_allowed(self) -> frozenset[str]:
        """The names in `allow_unsafe`."""
        return frozenset(parts(self.allow_unsafe))


_CONTACT = re.compile(r"(?=.{1,256}$)(https?://[!-~]+|[!-?A-~]+@[!-?A-~]+)")
_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_SIZE = re.compile(r"(?P<number>[0-9]{1,15})(?P<unit>[kmgKMG]?)")
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def parts(text: str) -> tuple[str, ...]:
    """Split a comma-separated text; leave out empty parts."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


NAMES = tuple(types_of(Settings))
PROXY_NAMES = (*NAMES, *(name for name in types_of(ProxySettings) if name not in NAMES))
#: What means nothing to the decision service, whose data plane has the bodies and the tunnels.
_NOT_SERVED = ("allow_unsafe", "passthrough", "body_memory")
_NAMES_OF: Mapping[str, tuple[str, ...]] = {
    Component.PROXY: PROXY_NAMES,
    Component.SERVE: tuple(name for name in PROXY_NAMES if name not in _NOT_SERVED),
}


def names_of(component: str) -> tuple[str, ...]:
    """Return the names of a component's settings, in the order in which users see them."""
    return _NAMES_OF.get(component, NAMES)


def kind_of(component: str) -> type[Settings]:
    """Return the type of a component's settings."""
    return ProxySettings if component in PROXIES else Settings


S = TypeVar("S", bound=Settings)


class Setting(NamedTuple):
    """A setting as users see it."""

    name: str
    annotated: Any  # its type with its Meta, as it was declared
    default: Any  # NODEFAULT if it is required or depends on the user

    @property
    def type(self) -> Any:
        """The type of the value."""
        return get_args(self.annotated)[0]

    @property
    def meta(self) -> Meta:
        """The bounds of the value, and what it means."""
        meta: Meta = get_args(self.annotated)[1]
        return meta

    @property
    def description(self) -> str:
        """What the setting means, in Markdown."""
        assert self.meta.description is not None
        return self.meta.description

    @property
    def summary(self) -> str:
        """The first sentence of the description, without Markdown."""
        return self.description.split(". ")[0].rstrip(".").replace("`", "") + "."

    @property
    def default_text(self) -> str:
        """The default as text; empty if there is none."""
        if self.default is msgspec.NODEFAULT or "default" in self.extra:
            return str(self.extra.get("default", ""))
        if isinstance(self.default, tuple):
            return ", ".join(self.default)
        if self.is_switch:
            return str(self.default).lower()
        return number(self.default)

    @property
    def is_switch(self) -> bool:
        """Whether the value is true or false."""
        return self.type is bool

    @property
    def is_list(self) -> bool:
        """Whether the value is a list of texts."""
        return get_origin(self.type) is tuple

    @property
    def extra(self) -> Mapping[str, Any]:
        """What the docstring of Settings lists."""
        return self.meta.extra or {}


@cache
def described(kind: type[msgspec.Struct]) -> Mapping[str, Setting]:
    """Return each described field of a struct."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
    return {name: Setting(name, each, defaults[name]) for name, each in types_of(kind).items()}


#: Every setting, in the order in which users see them.
SETTINGS = {name: described(ProxySettings)[name] for name in PROXY_NAMES}


#: How a framework writes the name of a setting: a pattern, or a function from a name.
Spelling = str | Callable[[str], str]


def settings_of(
    values: Mapping[str, Any],
    spelling: Spelling = "{}",
    kind: type[S] = Settings,  # type: ignore[assignment]  # the default is one
) -> S:
    """Build settings from names and values, which may be text. `spelling` is how the framework
    writes a name.

    Raises SettingsError, in the framework's spelling, for an unknown name or an invalid value.
    """
    require_known(values, spelling, kind)
    spell = speller(spelling)
    if not values.get("agent"):
        raise SettingsError(
            f"{spell('agent')} is not set: give the crawler's product token, such as 'mybot',"
            ' or write agent = "mybot" into robots_guard.toml'
        )
    try:
        return msgspec.convert(checked(values, described(kind)), kind, strict=False)
    except SettingsError as error:
        raise SettingsError(respelled(str(error), spell)) from None


def require_known(names: Iterable[str], spelling: Spelling, kind: type[Settings]) -> None:
    """Raise SettingsError for the first name that is no setting. The error suggests another one,
    spelt as the unknown one is."""
    for name in names:
        if name not in types_of(kind):
            raise SettingsError(_describe_unknown(name, speller(spelling), kind))


def checked(values: Mapping[str, Any], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Return the values, with lists joined where their types are texts.

    Raises SettingsError for one that is not valid.
    """
    joined = {name: _shape(value, settings[name]) for name, value in values.items()}
    for name, value in joined.items():
        setting = settings[name]
        if isinstance(value, str) and value.startswith("~") and setting.extra.get("path") == "file":
            _require_home(name, value)
        if isinstance(value, list | tuple) and setting.type is str:
            raise SettingsError(f"{name} {values[name]!r} {_NOT_JOINED}")
        if fault := wrong_type(value, setting.annotated, strict=False):
            raise SettingsError(f"{name} {values[name]!r} {fault}")
    return joined


_NOT_JOINED = 'has a part that is neither text nor a number: write a list such as ["a", "b"]'


def _require_home(name: str, value: str) -> None:
    """Raise SettingsError for a path in a home directory that is not known."""
    try:
        Path(value).expanduser()
    except RuntimeError:
        raise SettingsError(
            f"{name} {value!r} is in a home directory that is not known: give an absolute path"
        ) from None


def speller(spelling: Spelling) -> Callable[[str], str]:
    """Return the function that writes the name of a setting as a framework does."""
    if isinstance(spelling, str):
        return partial(_spell, spelling=spelling)
    return spelling


def respelled(
    sentence: str, spell: Callable[[str], str], known: Container[str] | None = None
) -> str:
    """Respell the name at the beginning of a sentence, if it is a known one: a setting's."""
    name = sentence.partition(" ")[0].rstrip(":")
    if name not in (PROXY_NAMES if known is None else known):
        return sentence
    return spell(name) + sentence[len(name) :]


def _shape(value: Any, setting: Setting) -> Any:
    """Join a list of texts and whole numbers with commas, because frameworks have settings that are
    lists, and ports are numbers. Where the type is a list, make one of a single text."""
    if setting.is_list and isinstance(value, str):
        return [value]
    if setting.is_list or not isinstance(value, list | tuple):
        return value
    if all(type(part) in (str, int) for part in value):  # a switch is an int, too
        return ",".join(map(str, value))
    return value


def _describe_unknown(name: str, spell: Callable[[str], str], kind: type[Settings]) -> str:
    known = PROXY_NAMES if kind is ProxySettings else NAMES
    return f"unknown setting {spell(name)}: {nearest(name, known, spell)}; {ALL_SETTINGS}"


def _spell(name: str, spelling: str) -> str:
    if spelling.startswith("--"):
        name = name.replace("_", "-")
    elif spelling.isupper():
        name = name.upper()
    return spelling.format(name)


def direct_fetcher(
    settings: Settings, *, trusts_caller: bool, authorities: str | None = None
) -> "HttpFetcher":
    """Return a fetcher that is independent of the framework's own client.

    `trusts_caller`: the caller (a crawl, a person) can reach the origin anyway, so its address may
    be private; otherwise only networks in `allow_private` may. `authorities` is a PEM file trusted
    instead of the system's authorities.
    """
    import ssl

    from robots_guard.guard.fetch.destinations import Destinations
    from robots_guard.guard.fetch.http import HttpFetcher

    return HttpFetcher(
        settings.fetch_user_agent,
        tls=ssl.create_default_context(cafile=authorities) if authorities else None,
        destinations=Destinations(
            allowed=networks(settings.allow_private), trusts_caller=trusts_caller
        ),
        proxy=settings.fetch_proxy,
    )


def open_guard(
    settings: Settings,
    *,
    component: str,
    runtime: Runtime,
    fetcher: Fetcher,
    demands_verified: bool = True,
    on_decision: Callable[[Decision], None] | None = None,
) -> "Guard":
    """Open a guard for one integration, with its store and audit log. `on_decision` is called with
    each decision after it was recorded.

    Raises SettingsError if the store cannot be opened or the audit log's directory cannot be
    written to.
    """
    from robots_guard.audit.write.log import FileAuditLog
    from robots_guard.guard.guard import Guard
    from robots_guard.guard.stores import open_store
    from robots_guard.guard.stores.memory import MemoryStore

    with contextlib.ExitStack() as opened:  # closes them if one cannot be opened
        store = open_store(settings.store)
        if store is not None:
            opened.callback(store.close)
        place = Path(settings.audit_log).expanduser()
        audit_log = FileAuditLog(
            place, CLOCKS, settings.log_options(component), settings.writing(component)
        )
        opened.callback(audit_log.close)
        guard = Guard(
            settings.guard_options(component, demands_verified=demands_verified),
            runtime=runtime,
            clocks=CLOCKS,
            memory=MemoryStore(),
            store=store,
            fetcher=fetcher,
            audit_log=audit_log,
            on_decision=on_decision,
        )
        opened.pop_all()
        return guard
