"""`robots-guard proxy`: guard any crawler, in any language, as an intercepting proxy."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from robots_guard.cli.options import proxy_options, proxy_settings_from
from robots_guard.errors import SettingsError
from robots_guard.settings import Settings
from robots_guard.stores import shown

if TYPE_CHECKING:
    from robots_guard.console.gate import Gate
    from robots_guard.mitmproxy.launcher import Proxy, Ready

_LISTEN = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,5})")


@click.group(invoke_without_command=True)
@proxy_options
@click.option("--listen", default="127.0.0.1:8080", show_default=True, help="HOST:PORT; port 0 takes a free one.")
@click.option(
    "--mode",
    "modes",
    default=("regular",),
    show_default=True,
    multiple=True,
    help="regular, upstream:URL (go out through another proxy), reverse:URL, socks5, transparent, local, wireguard;"
    " again, with @PORT behind it, for another at the same time.",
)
@click.option("--proxyauth", default="", help="Who may use the proxy: USER:PASSWORD, or @FILE in htpasswd's format.")
@click.option("--body-limit", default="", metavar="SIZE", help="Of a request or answer held in memory.  [default: 64m]")
@click.option("--confdir", type=click.Path(path_type=Path), help="The folder of our CA and its key.")
@click.option(
    "--upstream-ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Trust these CAs (a PEM file) for the sites that are crawled, instead of the usual ones.",
)
@click.option(
    "--set",
    "sets",
    metavar="NAME=VALUE",
    multiple=True,
    help="An option of mitmproxy's own; those that lead around the guard are refused.",
)
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes on one port.")
@click.option("--metrics", type=click.IntRange(1, 65535), metavar="PORT", help="Prometheus metrics on 127.0.0.1.")
@click.option(
    "--drain",
    type=click.FloatRange(0, 3600),
    default=10.0,
    show_default=True,
    help="Seconds for requests under way at SIGTERM.",
)
@click.option("--console", is_flag=True, help="Show the web console, read-only, at http://robots.guard/console/.")
def proxy(
    listen: str,
    modes: tuple[str, ...],
    proxyauth: str,
    body_limit: str,
    confdir: Path | None,
    upstream_ca: Path | None,
    sets: tuple[str, ...],
    workers: int,
    metrics: int | None,
    drain: float,
    console: bool,
    **settings: Any,
) -> None:
    """Guard any crawler: point its http_proxy and https_proxy here, and let it trust our CA certificate.

    What a site's robots.txt forbids is answered with a 403 that says why; nothing of it reaches the site.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    # SIGHUP would end a process that is still importing. The files that it has read again are read later than this.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from robots_guard.mitmproxy.launcher import Proxy, serve

    host, port = _address(listen)
    chosen = proxy_settings_from(settings)
    plan = Proxy(
        settings=chosen,
        host=host,
        port=port,
        modes=modes,
        proxyauth=proxyauth,
        body_limit=body_limit,
        confdir=confdir,
        upstream_ca=upstream_ca,
        sets=sets,
        workers=workers,
        metrics=metrics,
        drain=drain,
        console=partial(_console, chosen) if console else None,
    )
    serve(plan, lambda ready: _announce(plan, ready))


@contextmanager
def _console(settings: Settings) -> Iterator[Gate]:
    """The console for whoever may use the proxy: nothing can be changed there. Raises MissingExtra."""
    from robots_guard.console import app, sources_of
    from robots_guard.mitmproxy.itself import HOST

    opened = app(sources_of(settings), hosts={HOST}, read_only=True)
    try:
        yield opened
    finally:
        opened.close()


@proxy.command("ca")
@click.option("--confdir", type=click.Path(path_type=Path), help="The folder of our CA, if it is not the usual one.")
@click.option(
    "--bundle", type=click.Path(dir_okay=False, path_type=Path), help="Write our CA and the usual ones there."
)
def ca(confdir: Path | None, bundle: Path | None) -> None:
    """How clients trust our CA, which is made if there is none yet."""
    from robots_guard.mitmproxy.authority import authority, bundled, instructions

    certificate = authority(confdir)
    if bundle is not None:
        bundle.write_bytes(bundled(certificate))
    click.echo(instructions(certificate, bundle))


def _address(listen: str) -> tuple[str, int]:
    found = _LISTEN.fullmatch(listen)
    if found is None or int(found["port"]) > 65535:
        raise SettingsError(f"--listen {listen!r} is no address: give HOST:PORT, such as 127.0.0.1:8080")
    return found["v6"] or found["host"], int(found["port"])


def _announce(plan: Proxy, ready: Ready) -> None:
    settings = plan.settings
    places = f"CA certificate: {ready.ca_certificate}; journal: {settings.journal}; store: {shown(settings.store)}"
    click.echo(f"robots-guard: guarding {settings.agent} on {ready.url} ({places})")
