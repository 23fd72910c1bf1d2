"""The configuration of Envoy for the settings of an operator, for `robots-guard serve --print-config
envoy`.

Invariant: the configuration fails closed, and lets no request reach a site that the service has not
permitted, at an address that the service has not checked.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from robots_guard.errors import SettingsError
from robots_guard.rep.signals.headers import FIELDS
from robots_guard.serve.ext_authz import CARRIERS
from robots_guard.serve.http_listener import UNIX
from robots_guard.settings import ProxySettings

if TYPE_CHECKING:
    import jinja2

_MARGIN = 5.0  # seconds that Envoy waits longer than a decision and a turn take at most
_RESPONSE_TIMEOUT = 5000  # milliseconds for a verdict on a response, which needs no site

#: The fields of the service's responses to clients.
REPLY_FIELDS = (
    *("robots-guard", "robots-guard-signals", "proxy-status", "retry-after", "cache-control"),
    *("content-type", "content-security-policy", "x-content-type-options", "age"),
)


class Place(NamedTuple):
    """An address and a port on which Envoy listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read HOST:PORT. Raises SettingsError."""
        host, _, port = text.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()):
            raise SettingsError(f"{text!r} is not an address and a port: write 127.0.0.1:8080")
        return cls(host.strip("[]"), int(port))


def worker_address(address: str, worker: int) -> str:
    """Return the address at which a process of the service answers Envoy.

    Each process has its own, because a response must be reported to the process that has permitted
    its request: a socket with the number behind its name, or the next port.
    """
    if worker == 0:
        return address
    if address.startswith(UNIX):
        return f"{address}.{worker}"
    host, port = Place.parse(address)
    return f"{host}:{port + worker}"


def envoy_configuration(
    settings: ProxySettings,
    *,
    listen: str,
    service: str,
    workers: int = 1,
    sds: str | None = None,
    trusted: str = "/etc/ssl/certs/ca-certificates.crt",
) -> str:
    """Return a configuration of Envoy, as YAML.

    Envoy listens at `listen`, HOST:PORT, and asks the service at `service`, `unix:PATH` or
    HOST:PORT, which has so many workers. With `sds`, the address of the certificates, TLS is
    inspected; `trusted` is the file of the authorities of sites. Raises SettingsError.
    """
    addresses = [_envoy_address(worker_address(service, number)) for number in range(workers)]
    services = {"robots_guard": addresses}
    services |= {f"robots_guard_{number}": [each] for number, each in enumerate(addresses)}
    values = {
        "listen": Place.parse(listen),
        "services": services,
        "sds": sds and _envoy_address(sds),
        "trusted": trusted,
        "carriers": CARRIERS,
        "reply_fields": REPLY_FIELDS,
        "timeout": settings.decision_timeout + settings.hold_max + _MARGIN,
        "user_agent": settings.fetch_user_agent if settings.set_user_agent else None,
    }
    environment = _environment()
    values["replacement"] = environment.get_template("envoy_replacement.lua").render()
    values["response_hook"] = environment.get_template("envoy_response.lua.j2").render(
        signal_fields=", ".join(f'"{name}"' for name in _signal_fields(settings)),
        response_timeout=_RESPONSE_TIMEOUT,
    )
    return environment.get_template("envoy.yaml.j2").render(values)


def _signal_fields(settings: ProxySettings) -> list[str]:
    """The fields of responses that are judged or recorded."""
    if settings.signals == "off" and not settings.overrides:
        return []
    return sorted(FIELDS)


def _envoy_address(address: str) -> str:
    """An address of the service in Envoy's notation."""
    if address.startswith(UNIX):
        return f'{{ pipe: {{ path: "{address.removeprefix(UNIX)}" }} }}'
    host, port = Place.parse(address)
    return f'{{ socket_address: {{ address: "{host}", port_value: {port} }} }}'


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("robots_guard.serve"),
        autoescape=False,  # noqa: S701  # this is YAML
        undefined=jinja2.StrictUndefined,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
