"""Configurations of Envoy and Squid for the settings of a decision service.

`templates/` has one template for each program. What it inserts is quoted by its filters `yaml`
and `word`, because paths and host names are the operator's and may contain anything.

A template gets:

    envoy, icap, sds   the addresses of the protocols, or None: `path` of a Unix socket, or `host`
                       and `port`
    data_plane         the `host` and `port` on which the program listens for crawlers
    decision_timeout   seconds within which the service has a verdict, without the time for a turn
    hold_max           seconds for which the service holds a request for its turn
    timeout            seconds after which the program gives up waiting for the service: more than
                       both together
    connect_ports      the ports that tunnels may lead to, as pairs of the first and the last one
    bad_ports          the ports of other protocols, which may not be reached at all
    allow_private      the private networks that may be reached
    confdir            the folder of the CA
    ca_certificate     the CA's certificate
    ca_pair            the CA's key and certificate in one file
    trusted            the file of the authorities that sites are verified with
    user_agent         the User-Agent of every request, or None for the client's own
    judges_responses   whether a response may not be passed on before the service has judged it
    respects_retry_after
                       whether a Retry-After with a 402, 429 or 503 is reported to the service
    workers            the number of the service's processes
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING

from robots_guard.configuration.settings import ProxySettings
from robots_guard.decisions.addresses import BAD_PORTS, networks
from robots_guard.errors import SettingsError
from robots_guard.serve.certificates import CA_CERTIFICATE, CA_FILE
from robots_guard.serve.plan import Plan

if TYPE_CHECKING:
    import jinja2

#: The template of each program.
TEMPLATES = {"envoy": "envoy.yaml.j2", "squid": "squid.conf.j2"}
#: The protocol by which each program asks.
PROTOCOLS = {"envoy": "envoy", "squid": "icap"}
_EXAMPLES = {"envoy": "unix:/run/robots_guard/envoy.sock", "icap": "127.0.0.1:1344"}
_MARGIN = 5.0  # seconds by which the program is more patient than the service
_NOT_IN_WORD = re.compile(r"""[\s"'\\#%\x00-\x1f]""")


def render(program: str, plan: Plan) -> str:
    """Return the configuration of Envoy or Squid for a decision service. Raises SettingsError."""
    protocol = PROTOCOLS[program]
    if protocol not in plan.listen:
        raise SettingsError(
            f"--{protocol} is not set: {program} must know where to ask, such as"
            f" --{protocol} {_EXAMPLES[protocol]}"
        )
    if program == "squid" and plan.listen[protocol].path:
        raise SettingsError(
            f"squid cannot ask at --icap {plan.listen[protocol]}: it reaches no Unix socket, so write"
            f" --{protocol} {_EXAMPLES[protocol]}"
        )
    values = values_of(plan)
    if program == "envoy":
        from robots_guard.serve import envoy_configuration

        return envoy_configuration.render(plan, values)
    return _environment().get_template(TEMPLATES[program]).render(values)


def values_of(plan: Plan) -> dict[str, object]:
    """Return the values that a template gets."""
    settings = plan.settings
    confdir = plan.authority_folder
    return {
        "envoy": plan.listen.get("envoy"),
        "icap": plan.listen.get("icap"),
        "sds": plan.listen.get("sds"),
        "data_plane": plan.data_plane,
        "decision_timeout": settings.decision_timeout,
        "hold_max": settings.hold_max,
        "timeout": settings.decision_timeout + settings.hold_max + _MARGIN,
        "connect_ports": [(each.start, each.stop - 1) for each in settings.connectable_ports()],
        "bad_ports": sorted(BAD_PORTS),
        "allow_private": [str(each) for each in networks(settings.allow_private)],
        "confdir": str(confdir),
        "ca_certificate": str(confdir / CA_CERTIFICATE),
        "ca_pair": str(confdir / CA_FILE),
        "trusted": plan.trusted,
        "user_agent": settings.fetch_user_agent if settings.set_user_agent else None,
        "judges_responses": _judges_responses(settings),
        "respects_retry_after": settings.respect_retry_after,
        "workers": plan.workers,
    }


def _judges_responses(settings: ProxySettings) -> bool:
    if settings.signals == "off" and not settings.overrides:
        return False
    return settings.enforces_signals or settings.signals == "record" or bool(settings.overrides)


def _yaml(value: object) -> str:
    """A value as YAML, of which JSON is a part."""
    return json.dumps(value, ensure_ascii=True)


def _word(value: object) -> str:
    """A value as one word of Squid's configuration. Raises SettingsError for one that Squid cannot
    read there."""
    text = str(value)
    if not text or _NOT_IN_WORD.search(text):
        raise SettingsError(
            f"{text!r} cannot be written into Squid's configuration: choose a name without spaces,"
            " quotes, '#' and '%'"
        )
    return text


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("robots_guard.serve"),
        autoescape=False,  # noqa: S701  no HTML: the filters quote
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"yaml": _yaml, "word": _word}
    return environment
