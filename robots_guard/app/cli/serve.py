"""`robots-guard serve`: the decision service, which Envoy or Squid asks about each request."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from robots_guard.app.cli.group import SectionedCommand
from robots_guard.app.cli.options import (
    address,
    component_options,
    invocation_from,
    naming_places,
    section_from,
    settings_of_kind,
)
from robots_guard.configuration import ServeSection
from robots_guard.configuration.regular_file import named_path
from robots_guard.configuration.settings import ProxySettings

if TYPE_CHECKING:
    from robots_guard.serve.plan import Plan


@click.command(cls=SectionedCommand)
@component_options("serve")
@click.option(
    "--print-config",
    type=click.Choice(["envoy", "squid"]),
    help="Print the configuration of Envoy or Squid for these settings, and exit.",
)
def serve(print_config: str | None, **values: Any) -> None:
    """Guard crawlers behind Envoy or Squid: they ask this service about each request.

    What it does not permit, they do not send. See docs/serve.md for what each of them needs.
    """
    # SIGHUP would kill the process while it is still importing. The files that SIGHUP reloads are
    # read for the first time after this.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with naming_places("serve", values):
        plan = _plan(values)
        if print_config is not None:
            from robots_guard.serve.configurations import render

            click.echo(render(print_config, plan), nl=False)
            return
        from robots_guard.serve import launcher

        launcher.serve(plan, lambda ready: click.echo(f"robots-guard: {launcher.notice(ready)}"))


def _plan(values: dict[str, Any]) -> Plan:
    from robots_guard.gateway.listeners import Address
    from robots_guard.serve.plan import Plan, addresses

    settings = settings_of_kind(ProxySettings, values, "serve")
    own = section_from("serve", values, ServeSection)
    places = {"envoy": own.envoy, "icap": own.icap, "sds": own.sds}
    host, port = address(own.data_plane, ServeSection().data_plane, "--data-plane")
    return Plan(
        settings=settings,
        listen=addresses(places, allow_remote=own.allow_remote),
        data_plane=Address(host=host, port=port),
        confdir=_path(own.confdir),
        upstream_ca=_path(own.upstream_ca),
        workers=own.workers,
        metrics=own.metrics or None,
        drain=own.drain,
        invocation=invocation_from("serve", audit_log=values["audit_log"], store=values["store"]),
    )


def _path(name: str) -> Path | None:
    if not name:
        return None
    return named_path(name)
