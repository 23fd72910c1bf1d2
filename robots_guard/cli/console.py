"""`robots-guard console`: the journal, the policies and the exceptions in a browser."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import secrets
import socket
from typing import Any
from urllib.parse import urlencode

import click

from robots_guard.cli.options import settings_from, settings_options
from robots_guard.errors import MissingExtra, SettingsError
from robots_guard.settings import Settings

_LISTEN = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,5})")
_NAME = re.compile(r"[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]")
NOBODY = "robots-guard"  # by whom files are read where no agent is named


@click.command()
@settings_options
@click.option("--listen", default="127.0.0.1:8099", show_default=True, help="HOST:PORT; port 0 takes a free one.")
@click.option(
    "--host",
    "names",
    multiple=True,
    metavar="NAME",
    help="Also answer under this name. Needed to listen beyond this machine; put TLS in front of it.",
)
def console(listen: str, names: tuple[str, ...], **values: Any) -> None:
    """Show the journal, the policies and the overrides in a browser, at the address that is printed.

    The token in it lets in; whoever has it may read all that is recorded, and, with --agent, have an origin's
    robots.txt asked for.
    """
    settings = settings_from(values, agent=NOBODY)
    refuse_strange(names)
    host, port = _address(listen, names)
    with contextlib.closing(_listening(host, port)) as listener:
        serve(settings, listener, names, can_refresh=values.get("agent") is not None)


def serve(settings: Settings, listener: socket.socket, names: tuple[str, ...], *, can_refresh: bool) -> None:
    """Serve on an open socket until interrupted."""
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("console", "robots-guard console") from error
    from robots_guard.console import Refresher, app, sources_of

    host, port = listener.getsockname()[:2]
    token = secrets.token_urlsafe(24)
    with contextlib.ExitStack() as opened:
        sources = sources_of(settings)
        if sources.store is not None:
            opened.callback(sources.store.close)
        refresher = None
        if can_refresh and settings.store != "memory:":
            refresher = Refresher(settings, trusts_asked=not names)  # from elsewhere, nobody is led into our network
        if refresher is not None:
            opened.callback(refresher.close)
        made = app(sources, hosts=hosts_of(host, port, names), token=token, refresh=refresher)
        click.echo(f"robots-guard: the console is at http://{_shown(host)}:{port}/?{urlencode({'token': token})}")
        # Without its access log, in which the token would stand.
        config = uvicorn.Config(made, log_level="warning", access_log=False, server_header=False, lifespan="on")
        uvicorn.Server(config).run(sockets=[listener])


def hosts_of(host: str, port: int, names: tuple[str, ...]) -> list[str]:
    """The values of Host that are the console's own. Under another name with or without the port: a proxy for TLS
    may stand before it."""
    own = [_shown(host), *(["localhost"] if _is_loopback(host) else [])]
    return [f"{name}:{port}" for name in (*own, *names)] + list(names)


def refuse_strange(names: tuple[str, ...]) -> None:
    """Raises SettingsError for what is no name of a host."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise SettingsError(f"--host {name!r} is no name of a host: give it without scheme and port")


def _address(listen: str, names: tuple[str, ...]) -> tuple[str, int]:
    found = _LISTEN.fullmatch(listen)
    if found is None or int(found["port"]) > 65535:
        raise SettingsError(f"--listen {listen!r} is no address: give HOST:PORT, such as 127.0.0.1:8099")
    host = "127.0.0.1" if found["host"] == "localhost" else found["v6"] or found["host"]
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise SettingsError(f"--listen {listen!r}: give the address in numbers, such as 127.0.0.1:8099") from None
    if not _is_loopback(host) and not names:
        raise SettingsError(
            f"--listen {listen} lets other machines in: say by --host NAME under which name they may,"
            " or listen on 127.0.0.1"
        )
    return host, int(found["port"])


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises SettingsError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise SettingsError(
            f"--listen {_shown(host)}:{port} cannot be had ({error.strerror}): name another port, or 0 for a free one"
        ) from error


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
