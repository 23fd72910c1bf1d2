"""`robots-guard console`: the audit log, the policies and the overrides in a browser."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import secrets
import socket
from typing import Any
from urllib.parse import urlencode

import click

from robots_guard.app.cli.audit_log_options import existing_directory
from robots_guard.app.cli.group import SectionedCommand
from robots_guard.app.cli.options import (
    address,
    chosen,
    component_options,
    invocation_from,
    naming_places,
    section_from,
    settings_from,
)
from robots_guard.configuration import ConsoleSection
from robots_guard.configuration.settings import Settings
from robots_guard.errors import MissingExtra, SettingsError
from robots_guard.invocation import EVIDENCE, Invocation

LISTEN = ConsoleSection().listen
_NAME = re.compile(r"[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]")
DEFAULT_AGENT = "robots-guard"  # the agent for which robots.txt files are read without --agent


@click.command(cls=SectionedCommand)
@component_options("console")
def console(**values: Any) -> None:
    """Show the audit log, the policies and the overrides in a browser, at the printed address.

    The address contains an access token. Anyone who has it can read everything that is recorded and,
    with --agent, make the console fetch an origin's robots.txt.
    """
    settings = settings_from(values, "console", agent=DEFAULT_AGENT)
    own = section_from("console", values, ConsoleSection)
    with naming_places("console", values):
        validate_host_names(own.host)
        listener = _open_listener(*_address(own.listen, own.host))
    with contextlib.closing(listener):
        has_agent = chosen("agent", values.get("agent"), "console") is not None
        places = {name: values[name] for name in EVIDENCE}
        invocation = invocation_from("console", **places)
        serve(settings, listener, own.host, invocation, can_refresh=has_agent)


def serve(
    settings: Settings,
    listener: socket.socket,
    names: tuple[str, ...],
    invocation: Invocation,
    *,
    can_refresh: bool,
) -> None:
    """Serve the console on an open socket until interrupted."""
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("console", "robots-guard console") from error
    from robots_guard.app.console import Refresher, app, sources_of

    host, port = listener.getsockname()[:2]
    token = secrets.token_urlsafe(24)
    with contextlib.ExitStack() as opened:
        sources = sources_of(settings, invocation)
        existing_directory(settings.audit_log)
        if sources.store is not None:
            opened.callback(sources.store.close)
        refresher = None
        if can_refresh and settings.store != "memory:":
            # With --host, clients may be on other machines: they must not reach private networks through the console.
            refresher = Refresher(settings, trusts_caller=not names)
        if refresher is not None:
            opened.callback(refresher.close)
        application = app(
            sources, hosts=hosts_of(host, port, names), token=token, refresh=refresher
        )
        query = urlencode({"token": token})
        click.echo(f"robots-guard: the console is at http://{_url_host(host)}:{port}/?{query}")
        # No access log: it would contain the token.
        config = uvicorn.Config(
            application,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="on",
        )
        uvicorn.Server(config).run(sockets=[listener])


def hosts_of(host: str, port: int, names: tuple[str, ...]) -> list[str]:
    """Return the Host values that the console answers to.

    The names given with --host are accepted with and without the port, because a TLS proxy may be in front.
    """
    own = [_url_host(host)]
    if _is_loopback(host):
        own.append("localhost")
    return [f"{name}:{port}" for name in (*own, *names)] + list(names)


def validate_host_names(names: tuple[str, ...]) -> None:
    """Raise SettingsError unless all of them are host names."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise SettingsError(
                f"--host {name!r} is not a host name: give it without scheme and port"
            )


def _address(listen: str, names: tuple[str, ...]) -> tuple[str, int]:
    host, port = address(listen, LISTEN)
    if host == "localhost":
        host = "127.0.0.1"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise SettingsError(
            f"--listen {listen!r} does not begin with an IP address: use one such as {LISTEN}"
        ) from None
    if not _is_loopback(host) and not names:
        raise SettingsError(
            f"--listen {listen} is reachable from other machines: give the name they will use with --host NAME,"
            " or listen on 127.0.0.1"
        )
    return host, port


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback


def _open_listener(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises SettingsError if the address cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {_url_host(host)}:{port} ({error.strerror}):"
            " choose another port with --listen, or 0 for a free one"
        ) from error


def _url_host(host: str) -> str:
    if ":" in host:
        return f"[{host}]"
    return host
