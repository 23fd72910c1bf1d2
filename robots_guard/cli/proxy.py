"""`robots-guard proxy`: guard any crawler, in any language, as an intercepting proxy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from robots_guard.cli.options import settings_from, settings_options
from robots_guard.errors import SettingsError
from robots_guard.stores import shown

if TYPE_CHECKING:
    from robots_guard.mitmproxy.launcher import Proxy, Ready

_LISTEN = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,5})")


@click.command()
@settings_options
@click.option("--listen", default="127.0.0.1:8080", show_default=True, help="HOST:PORT; port 0 takes a free one.")
@click.option(
    "--mode",
    default="regular",
    show_default=True,
    help="regular, upstream:URL (go out through another proxy), reverse:URL, socks5, transparent, local, wireguard.",
)
@click.option("--confdir", type=click.Path(path_type=Path), help="The folder of our CA and its key.")
@click.option(
    "--upstream-ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Trust these CAs (a PEM file) for the sites that are crawled, instead of the usual ones.",
)
def proxy(listen: str, mode: str, confdir: Path | None, upstream_ca: Path | None, **settings: Any) -> None:
    """Guard any crawler: point its http_proxy and https_proxy here, and let it trust our CA certificate.

    What a site's robots.txt forbids is answered with a 403 that says why; nothing of it reaches the site.
    """
    from robots_guard.mitmproxy.launcher import Proxy, serve

    host, port = _address(listen)
    plan = Proxy(
        settings=settings_from(settings), host=host, port=port, mode=mode, confdir=confdir, upstream_ca=upstream_ca
    )
    serve(plan, lambda ready: _announce(plan, ready))


def _address(listen: str) -> tuple[str, int]:
    found = _LISTEN.fullmatch(listen)
    if found is None or int(found["port"]) > 65535:
        raise SettingsError(f"--listen {listen!r} is no address: give HOST:PORT, such as 127.0.0.1:8080")
    return found["v6"] or found["host"], int(found["port"])


def _announce(plan: Proxy, ready: Ready) -> None:
    settings = plan.settings
    places = f"CA certificate: {ready.ca_certificate}; journal: {settings.journal}; store: {shown(settings.store)}"
    click.echo(f"robots-guard: guarding {settings.agent} on {ready.url} ({places})")
