"""The composition root: settings in, a guard out. The one place where the clock enters.

A setting has one name everywhere: `agent` here, `ROBOTS_GUARD_AGENT` in Scrapy, `robots_guard_agent` among
mitmproxy's options, `--agent` on the command line.
"""

from __future__ import annotations

import difflib
import re
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import platformdirs

from robots_guard.audit.journal import FileJournal
from robots_guard.core.access import Limits
from robots_guard.core.addresses import networks
from robots_guard.core.verdict import Terms
from robots_guard.errors import SettingsError
from robots_guard.fetch.destinations import Destinations
from robots_guard.fetch.http import HttpFetcher
from robots_guard.guard import Clocks, Guard
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
    #: Where policies are shared: `sqlite:///PATH`, `redis://HOST:PORT/DB`, or `memory:` for this process only.
    store: str = msgspec.field(default_factory=default_store)
    #: The directory of the journal.
    journal: str = msgspec.field(default_factory=default_journal)
    #: Record every PASS too, not only DROP and DEFER.
    journal_passes: bool = False
    #: How robots.txt is read: a dialect, or `strictest(a, b)`.
    dialect: str = "rfc9309"
    #: Which spellings of a target count as the same: `spec`, `standard` or `strict`.
    matching: str = "standard"
    #: A robots.txt that answers 401 or 403: `drop` or `allow`.
    on_restricted: Literal["drop", "allow"] = "drop"
    #: A robots.txt that cannot be had: `defer` (then drop after `max_defer`), `drop` or `allow`.
    on_unreachable: Literal["defer", "drop", "allow"] = "defer"
    #: A robots.txt whose redirects run in a circle or beyond five: `unreachable` or `allow`.
    on_redirect_limit: Literal["unreachable", "allow"] = "unreachable"
    #: Seconds of trouble with an origin after which its requests are dropped instead of deferred.
    max_defer: float = 900.0
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
    #: Networks (CIDRs, comma-separated) that direct fetches may reach though they are not public.
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
            max_defer=self.max_defer,
        )

    def limits(self) -> Limits:
        """What one fetch may cost under these settings."""
        return Limits(
            connect=self.connect_timeout,
            first_byte=self.first_byte_timeout,
            total=self.fetch_timeout,
        )

    @property
    def fetch_user_agent(self) -> str:
        """The User-Agent of a fetch that no crawler's own header goes with; the product token is in it."""
        return self.user_agent or f"{self.agent} (robots_guard)"


NAMES = Settings.__struct_fields__


def settings_of(values: Mapping[str, Any], spelling: str = "{}") -> Settings:
    """Settings from names and values, which may be text. `spelling` is how the host writes a name.

    Raises SettingsError, in the host's own spelling, for a name that does not exist or a value that does not fit.
    """
    for name in values:
        if name not in NAMES:
            raise SettingsError(_unknown(name, spelling))
    if not values.get("agent"):
        name = spelling.format(_shown("agent", spelling))
        raise SettingsError(f"{name} is not set: give the crawler's product token, such as 'mybot'")
    try:
        return msgspec.convert({name: _joined(value) for name, value in values.items()}, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(_spelt(_unfit(values) or f"robots_guard's settings: {error}", spelling)) from None
    except SettingsError as error:
        raise SettingsError(_spelt(str(error), spelling)) from None


def _unfit(values: Mapping[str, Any]) -> str | None:
    """A sentence on the first value that is not of its setting's kind."""
    for field in msgspec.structs.fields(Settings):
        try:
            msgspec.convert(_joined(values.get(field.name, field.default)), field.type, strict=False)
        except msgspec.ValidationError:
            if field.name in values:
                return f"{field.name} {values[field.name]!r} {_remedy(field.type)}"
    return None


def _remedy(kind: Any) -> str:
    if get_origin(kind) is Literal:
        *most, last = get_args(kind)
        return f"is not known: use {', '.join(most)} or {last}"
    return {float: "is no number of seconds", bool: "is no switch: use true or false"}.get(kind, "is no text")


def _spelt(sentence: str, spelling: str) -> str:
    """A sentence that begins with a setting's name, with the name as the host writes it."""
    name = sentence.partition(" ")[0].rstrip(":")
    return spelling.format(_shown(name, spelling)) + sentence[len(name) :] if name in NAMES else sentence


def _joined(value: Any) -> Any:
    """Several texts are one, divided by commas: hosts have lists."""
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    return value


def _unknown(name: str, spelling: str) -> str:
    near = difflib.get_close_matches(name, NAMES, n=1)
    remedy = f"did you mean {spelling.format(_shown(near[0], spelling))}?" if near else f"known are: {', '.join(NAMES)}"
    return f"unknown setting {spelling.format(_shown(name, spelling))}: {remedy}"


def _shown(name: str, spelling: str) -> str:
    if spelling.startswith("--"):
        return name.replace("_", "-")
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
    store = open_store(settings.store)
    try:
        journal = FileJournal(Path(settings.journal).expanduser(), passes=settings.journal_passes)
    except SettingsError:
        if store is not None:
            store.close()
        raise
    return Guard(
        door=door,
        terms=settings.terms(),
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
    )
