"""`robots-guard proxy`: an intercepting proxy that guards any crawler, in any language."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from robots_guard.app.cli.group import CommandGroup, config_option
from robots_guard.app.cli.options import (
    address,
    component_options,
    invocation_from,
    naming_places,
    section_from,
    section_option,
    settings_of_kind,
)
from robots_guard.configuration import ProxySection
from robots_guard.configuration.regular_file import named_path
from robots_guard.configuration.settings import REPORT_ONLY, ProxySettings, Settings
from robots_guard.invocation import Invocation

if TYPE_CHECKING:
    from robots_guard.app.console.access import AccessControl
    from robots_guard.mitmproxy.launcher import Proxy, Ready


@click.group(cls=CommandGroup, invoke_without_command=True)
@component_options("proxy")
def proxy(**values: Any) -> None:
    """Guard any crawler: point its http_proxy and https_proxy here, and let it trust the proxy's CA certificate.

    A request that the site's robots.txt forbids is answered with a 403 that says why, and never reaches the site.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    # SIGHUP would kill the process while it is still importing. Ignoring it loses nothing: the files that SIGHUP
    # reloads are read for the first time after this.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from robots_guard.mitmproxy.launcher import Proxy, serve

    settings = settings_of_kind(ProxySettings, values, "proxy")
    own = section_from("proxy", values, ProxySection)
    invocation = invocation_from("proxy", audit_log=values["audit_log"], store=values["store"])
    with naming_places("proxy", values):
        host, port = address(own.listen, ProxySection().listen)
        plan = Proxy(
            settings=settings,
            own=own,
            host=host,
            port=port,
            confdir=_path(own.confdir),
            upstream_ca=_path(own.upstream_ca),
            console=partial(_console, settings, invocation) if own.console else None,
            invocation=invocation,
        )
        serve(plan, lambda ready: _announce(plan, ready))


def _path(name: str) -> Path | None:
    if not name:
        return None
    return named_path(name)


@contextmanager
def _console(settings: Settings, invocation: Invocation) -> Iterator[AccessControl]:
    """Open the read-only console for the clients of the proxy. Raises MissingExtra."""
    from robots_guard.app.console import app, sources_of
    from robots_guard.mitmproxy.replies import HOST

    application = app(sources_of(settings, invocation), hosts={HOST}, read_only=True)
    try:
        yield application
    finally:
        application.close()


@proxy.command("ca")
@config_option
@section_option("proxy", "confdir")
@click.option(
    "--bundle",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the proxy's CA and the default ones to this file.",
)
def ca(confdir: str | None, bundle: Path | None) -> None:
    """Print how clients can trust the proxy's CA; create the CA if there is none yet."""
    from robots_guard.mitmproxy.ca import authority, bundled, instructions

    own = section_from("proxy", {"confdir": confdir}, ProxySection)
    certificate = authority(_path(own.confdir))
    if bundle is not None:
        bundle.write_bytes(bundled(certificate))
    click.echo(instructions(certificate, bundle))


def _announce(plan: Proxy, ready: Ready) -> None:
    settings = plan.settings
    log, store = settings.shown("audit_log"), settings.shown("store")
    places = f"CA certificate: {ready.ca_certificate}; audit log: {log}; store: {store}"
    mode = f"; {REPORT_ONLY}" if settings.report_only else ""
    click.echo(f"robots-guard: guarding {settings.agent} on {ready.url} ({places}){mode}")
    if note := _note_on_variables(os.environ, plan.own.mode, ready.url):
        click.echo(f"robots-guard: {note}", err=True)


#: The variables that name a proxy to clients. The proxy itself does not read them.
_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def _note_on_variables(
    environment: Mapping[str, str], modes: Iterable[str], own_url: str
) -> str | None:
    """Return what to say of the variables that name another proxy, through which nothing goes; None
    if there are none.

    A variable that names this proxy, at `own_url`, is meant for its clients. The values are not
    quoted, because they may contain passwords.
    """
    own = _address(own_url)
    names = [
        name for name in _VARIABLES if environment.get(name) and _address(environment[name]) != own
    ]
    if not names or any(mode.startswith("upstream:") for mode in modes):
        return None
    verb = "is"
    if len(names) > 1:
        verb = "are"
    return (
        f"{', '.join(names)} {verb} set, and {verb} not used by this proxy itself:"
        " to go out through another proxy, use --mode upstream:http://HOST:PORT"
    )


def _address(url: str) -> str:
    """The host and port of a URL, without credentials. A scheme may be missing, as in the variables."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return parts.netloc.rpartition("@")[2].replace("localhost", "127.0.0.1")
