"""`robots-guard serve`: the decision service, which Envoy or Squid asks about each request."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from robots_guard.app.cli.group import SectionedCommand
from robots_guard.app.cli.options import (
    address,
    invocation_from,
    naming_places,
    proxy_settings_from,
    section_option,
    section_values,
    serve_options,
)
from robots_guard.configuration import ServeSection, own_options
from robots_guard.configuration.regular_file import named_path

if TYPE_CHECKING:
    from robots_guard.serve.plan import Plan


@click.command(cls=SectionedCommand)
@serve_options
@section_option("serve", "envoy", metavar="ADDRESS")
@section_option("serve", "icap", metavar="ADDRESS")
@section_option("serve", "sds", metavar="ADDRESS")
@section_option("serve", "data_plane", metavar="HOST:PORT")
@section_option("serve", "allow_remote", "--allow-remote/--no-allow-remote")
@section_option("serve", "confdir", type=click.Path())
@section_option("serve", "upstream_ca", type=click.Path())
@section_option("serve", "workers", type=click.IntRange(1, 64))
@section_option("serve", "metrics", type=click.IntRange(0, 65535), metavar="PORT")
@section_option("serve", "drain", type=click.FloatRange(0, 3600))
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
    given = {name: values[name] for name in own_options("serve")}
    with naming_places("serve", given):
        plan = _plan(values, given)
        if print_config is not None:
            from robots_guard.serve.configurations import render

            click.echo(render(print_config, plan), nl=False)
            return
        from robots_guard.serve import launcher

        launcher.serve(plan, lambda ready: click.echo(f"robots-guard: {launcher.notice(ready)}"))


def _plan(values: dict[str, Any], given: dict[str, Any]) -> Plan:
    from robots_guard.gateway.listeners import Address
    from robots_guard.serve.plan import Plan, addresses

    settings = proxy_settings_from(values, "serve")
    own = section_values("serve", given, ServeSection)
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
