"""The configuration of Envoy, and the values that only its templates get (`templates/envoy*`).

Invariant: the configuration fails closed, and lets no request reach a site that the service has not
permitted, at an address that the service has not checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from robots_guard.configuration.settings import ProxySettings
from robots_guard.decisions.freshness import PAUSE_STATUSES
from robots_guard.gateway.listeners import Address
from robots_guard.gateway.own_fields import OWN_FIELDS
from robots_guard.protocol.signals.headers import FIELDS
from robots_guard.serve.ext_authz import CARRIERS
from robots_guard.serve.plan import Plan

if TYPE_CHECKING:
    import jinja2

_RESPONSE_TIMEOUT = 5000  # milliseconds for a verdict on a response, which needs no site

#: The fields of the service's responses to clients.
REPLY_FIELDS = (
    *("robots-guard", "robots-guard-signals", "proxy-status", "retry-after", "cache-control"),
    *("content-type", "content-security-policy", "x-content-type-options", "age"),
    *("cross-origin-resource-policy", "access-control-allow-origin"),
    "access-control-allow-credentials",
)


def render(plan: Plan, values: Mapping[str, object]) -> str:
    """Return the configuration for a decision service, as YAML. `values` are those that the
    templates of all programs get (`configurations`)."""
    template = _environment().get_template("envoy.yaml.j2")
    return template.render({**values, **_own_values(plan)})


def _own_values(plan: Plan) -> dict[str, object]:
    addresses = [_envoy_address(each) for each in plan.addresses_of("envoy")]
    services = {"robots_guard": addresses}
    services |= {f"robots_guard_{number}": [each] for number, each in enumerate(addresses)}
    sds = plan.listen.get("sds")
    return {
        "listen": plan.data_plane,
        "own_fields": OWN_FIELDS,
        "services": services,
        "sds": sds and _envoy_address(sds),
        "carriers": CARRIERS,
        "request_fields": _request_fields(plan.settings),
        "reply_fields": REPLY_FIELDS,
        "pausing_statuses": sorted(map(str, PAUSE_STATUSES)),
        "signal_fields": _signal_fields(plan.settings),
        "response_timeout": _RESPONSE_TIMEOUT,
    }


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("robots_guard.serve"),
        autoescape=False,  # noqa: S701  no HTML: the templates quote by `tojson`
        undefined=jinja2.StrictUndefined,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _request_fields(settings: ProxySettings) -> tuple[str, ...]:
    """The fields of a client's request that the service gets, besides Host."""
    if settings.uses_placeholders:
        return ("user-agent", "accept", "sec-fetch-dest", "origin")
    return ("user-agent", "accept")


def _signal_fields(settings: ProxySettings) -> list[str]:
    """The fields of responses that are judged or recorded."""
    if settings.signals == "off" and not settings.overrides:
        return []
    return sorted(FIELDS)


def _envoy_address(address: Address) -> str:
    """An address of the service in Envoy's notation: YAML, of which JSON is a part."""
    if address.path:
        return json.dumps({"pipe": {"path": str(Path(address.path).absolute())}})
    place = {"address": address.host, "port_value": address.port}
    return json.dumps({"socket_address": place})
