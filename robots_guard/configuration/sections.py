"""The sections of the configuration: the names that each may hold.

The top level holds settings. A section holds values for one component only: settings again, which
win over the top level, and what only that component has. The latter are described here as settings
are in `robots_guard.configuration.settings`.
"""

# Annotations are evaluated at once here, because msgspec compiles postponed ones again for each struct.

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from robots_guard.configuration.settings import SETTINGS, Setting, described, names_of
from robots_guard.decisions.component import Component
from robots_guard.decisions.freshness import LONGEST_BACKOFF

Texts = tuple[str, ...]
HOST_PORT = "HOST:PORT"
ListenAddress = Annotated[
    str,
    Meta(
        description="Address and port to listen on, as HOST:PORT; port 0 picks a free one.",
        extra={"metavar": HOST_PORT},
    ),
]

#: The component that has no section of its own: the commands, which read the top level only.
GENERAL = "cli"


class _ProgramSection(msgspec.Struct, frozen=True, kw_only=True):
    """What only the programs have that guard crawlers of any kind: the proxy and the decision
    service."""

    confdir: Annotated[
        str,
        Meta(
            description="Directory of the CA certificate and key, which sign for inspected sites."
            " `proxy` and `serve` have the same one by default.",
            extra={"path": "file"},
        ),
    ] = ""
    upstream_ca: Annotated[
        str,
        Meta(
            description="PEM file of the CAs to trust for crawled sites, instead of the default"
            " ones. For pages, Envoy and Squid get it by `--print-config`.",
            extra={"path": "file"},
        ),
    ] = ""
    workers: Annotated[
        int, Meta(ge=1, le=64, description="Number of processes that share the work.")
    ] = 1
    metrics: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="Serve Prometheus metrics, `/health` and `/ready` on this port of"
            " 127.0.0.1, and those of each further worker on the next one; 0: none.",
            extra={"metavar": "PORT"},
        ),
    ] = 0
    drain: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="Seconds to let permitted requests finish after SIGTERM.",
        ),
    ] = 10.0


class ProxySection(_ProgramSection, frozen=True, kw_only=True):
    """What only `robots-guard proxy` has."""

    listen: ListenAddress = "127.0.0.1:8080"
    mode: Annotated[
        Texts,
        Meta(
            description="A list of modes: `regular`, `upstream:URL` (connect through another proxy),"
            " `reverse:URL`, `socks5`, `transparent`, `local` or `wireguard`. Append `@PORT` to"
            " serve another mode at the same time."
        ),
    ] = ("regular",)
    proxyauth: Annotated[
        str,
        Meta(
            description="Credentials of the clients: `USER:PASSWORD`, or `@FILE` in htpasswd"
            " format.",
            extra={"is_secret": True, "path": "credentials"},
        ),
    ] = ""
    set: Annotated[
        Texts,
        Meta(
            description="Options of mitmproxy, as a list of `NAME=VALUE`. Options that bypass the"
            " guard are refused.",
            extra={"is_pairs": True, "metavar": "NAME=VALUE"},
        ),
    ] = ()
    console: Annotated[
        bool,
        Meta(
            description="Serve the web console, read-only, at `http://robots.guard/console/`.",
        ),
    ] = False


class ServeSection(_ProgramSection, frozen=True, kw_only=True):
    """What only `robots-guard serve` has."""

    envoy: Annotated[
        str,
        Meta(
            description="Answer Envoy's external authorization (`ext_authz` over HTTP) at this"
            " address: `unix:PATH`, or HOST:PORT of loopback. Empty: do not.",
            extra={"path": "socket", "metavar": "ADDRESS"},
        ),
    ] = ""
    icap: Annotated[
        str,
        Meta(
            description="Answer the ICAP requests of Squid at this address. Empty: do not.",
            extra={"path": "socket", "metavar": "ADDRESS"},
        ),
    ] = ""
    sds: Annotated[
        str,
        Meta(
            description="Mint certificates for Envoy's inspected TLS at this address (secret"
            " discovery service). Empty: do not.",
            extra={"path": "socket", "metavar": "ADDRESS"},
        ),
    ] = ""
    data_plane: Annotated[
        str,
        Meta(
            description="Address and port on which Envoy or Squid listens for crawlers, as"
            " HOST:PORT. `--print-config` writes it, and requests that would lead back there are"
            " refused.",
            extra={"metavar": HOST_PORT},
        ),
    ] = "127.0.0.1:8080"
    allow_remote: Annotated[
        bool,
        Meta(
            description="Listen on addresses beyond loopback, too. Anyone who reaches them can ask for"
            " verdicts, and have robots.txt files fetched, without credentials."
        ),
    ] = False


class ConsoleSection(msgspec.Struct, frozen=True, kw_only=True):
    """What only `robots-guard console` has."""

    listen: ListenAddress = "127.0.0.1:8099"
    host: Annotated[
        Texts,
        Meta(
            description="A list of further host names for which requests are answered. Required to"
            " listen beyond loopback; put TLS in front of it.",
            extra={"metavar": "NAME"},
        ),
    ] = ()


class ScrapySection(msgspec.Struct, frozen=True, kw_only=True):
    """What only the Scrapy add-on has."""

    enabled: Annotated[
        bool,
        Meta(description="Whether the add-on does anything; if false, ROBOTSTXT_OBEY decides."),
    ] = True
    meta_bypass: Annotated[
        Literal["audit", "deny"],
        Meta(
            description="What to do with `dont_obey_robotstxt` in a request's meta: let the request"
            " pass and record it (`audit`), or ignore it (`deny`)."
        ),
    ] = "audit"
    max_idle: Annotated[
        float,
        Meta(
            ge=0,
            le=31_536_000.0,
            description="The most seconds that a crawl with nothing else to do waits until a"
            " deferred request may be made. The default is longer than any pause or retry.",
        ),
    ] = LONGEST_BACKOFF


class _NoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A section that holds settings only."""


_WITH_OPTIONS: Mapping[str, type[msgspec.Struct]] = {
    "proxy": ProxySection,
    "serve": ServeSection,
    "scrapy": ScrapySection,
    "console": ConsoleSection,
}
#: The sections, and what only their components have.
SECTIONS: Mapping[str, type[msgspec.Struct]] = {
    **_WITH_OPTIONS,
    **{each.value: _NoOptions for each in Component if each not in (*_WITH_OPTIONS, GENERAL)},
}


def section_of(component: str) -> str:
    """Return the section that a component reads; "" if it reads the top level only."""
    return component if component in SECTIONS else ""


def own_options(section: str) -> Mapping[str, Setting]:
    """Return what only one section has, as users see it; "" has nothing."""
    return described(SECTIONS[section]) if section else {}


@cache
def settings_in(section: str) -> Mapping[str, Setting]:
    """Return each name that may stand in a section; "" is the top level."""
    if section == "":
        return SETTINGS
    return {**{name: SETTINGS[name] for name in names_of(section)}, **own_options(section)}


def homes_of(name: str) -> list[str]:
    """Return the sections in which alone a name may stand."""
    return [section for section in SECTIONS if name in own_options(section)]
