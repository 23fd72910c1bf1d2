"""`robots-guard proxy`: an intercepting proxy that guards any crawler, in any language."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from robots_guard.cli.group import CommandGroup
from robots_guard.cli.options import address, proxy_options, proxy_settings_from
from robots_guard.settings import REPORT_ONLY, Settings
from robots_guard.stores import shown

if TYPE_CHECKING:
    from robots_guard.console.access import AccessControl
    from robots_guard.mitmproxy.command.launcher import Proxy, Ready

LISTEN = "127.0.0.1:8080"


@click.group(cls=CommandGroup, invoke_without_command=True)
@proxy_options
@click.option(
    "--listen",
    default=LISTEN,
    show_default=True,
    help="Address and port to listen on, as HOST:PORT; port 0 picks a free one.",
)
@click.option(
    "--mode",
    "modes",
    default=("regular",),
    show_default=True,
    multiple=True,
    help="regular, upstream:URL (connect through another proxy), reverse:URL, socks5, transparent, local or wireguard."
    " May be repeated; append @PORT to serve another mode at the same time.",
)
@click.option(
    "--proxyauth",
    default="",
    help="Credentials of the clients: USER:PASSWORD, or @FILE in htpasswd format.",
)
@click.option(
    "--body-limit",
    default="",
    metavar="SIZE",
    help="Largest request body kept in memory; responses are streamed.  [default: 64m]",
)
@click.option(
    "--confdir",
    type=click.Path(path_type=Path),
    help="Directory of the proxy's CA certificate and key.",
)
@click.option(
    "--upstream-ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="PEM file of the CAs to trust for crawled sites, instead of the default ones.",
)
@click.option(
    "--set",
    "sets",
    metavar="NAME=VALUE",
    multiple=True,
    help="Set an option of mitmproxy. Options that bypass the guard are refused. May be repeated.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of processes that share the port.",
)
@click.option(
    "--metrics",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Serve Prometheus metrics on this port of 127.0.0.1.",
)
@click.option(
    "--drain",
    type=click.FloatRange(0, 3600),
    default=10.0,
    show_default=True,
    help="Seconds to let requests in progress finish after SIGTERM.",
)
@click.option(
    "--console",
    is_flag=True,
    help="Serve the web console, read-only, at http://robots.guard/console/.",
)
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
    """Guard any crawler: point its http_proxy and https_proxy here, and let it trust the proxy's CA certificate.

    A request that the site's robots.txt forbids is answered with a 403 that says why, and never reaches the site.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    # SIGHUP would kill the process while it is still importing. Ignoring it loses nothing: the files that SIGHUP
    # reloads are read for the first time after this.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from robots_guard.mitmproxy.command.launcher import Proxy, serve

    host, port = address(listen, LISTEN)
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
def _console(settings: Settings) -> Iterator[AccessControl]:
    """Open the read-only console for the clients of the proxy. Raises MissingExtra."""
    from robots_guard.console import app, sources_of
    from robots_guard.mitmproxy.replies.status import HOST

    application = app(sources_of(settings), hosts={HOST}, read_only=True)
    try:
        yield application
    finally:
        application.close()


@proxy.command("ca")
@click.option(
    "--confdir",
    type=click.Path(path_type=Path),
    help="Directory of the CA, if it is not the default one.",
)
@click.option(
    "--bundle",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the proxy's CA and the default ones to this file.",
)
def ca(confdir: Path | None, bundle: Path | None) -> None:
    """Print how clients can trust the proxy's CA; create the CA if there is none yet."""
    from robots_guard.mitmproxy.ca import authority, bundled, instructions

    certificate = authority(confdir)
    if bundle is not None:
        bundle.write_bytes(bundled(certificate))
    click.echo(instructions(certificate, bundle))


def _announce(plan: Proxy, ready: Ready) -> None:
    from robots_guard.mitmproxy.command.environment import note_on_variables

    settings = plan.settings
    places = f"CA certificate: {ready.ca_certificate}; audit log: {settings.audit_log}; store: {shown(settings.store)}"
    mode = f"; {REPORT_ONLY}" if settings.report_only else ""
    click.echo(f"robots-guard: guarding {settings.agent} on {ready.url} ({places}){mode}")
    if note := note_on_variables(os.environ, plan.modes, ready.url):
        click.echo(f"robots-guard: {note}", err=True)
