"""The settings as options of a command, and back.

An option is named as its setting is (`--on-restricted` or `--on_restricted`), and may stand in the environment
as `ROBOTS_GUARD_ON_RESTRICTED`. A variable with that prefix that names no setting stops the start, as an unknown
option does: a misspelt choice must not be passed over in silence.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from robots_guard.plain import restored
from robots_guard.settings import FLAGS, NAMES, PROXY_NAMES, ProxySettings, Settings, settings_of

PREFIX = "ROBOTS_GUARD_"
F = TypeVar("F", bound=Callable[..., Any])

_HELP = {
    "agent": "The crawler's product token, as it stands after User-agent: in a robots.txt.",
    "store": "Where policies are shared: sqlite:///PATH, redis://HOST:PORT/DB, or memory: for this process only.",
    "journal": "The directory of the journal.",
    "audit_passes": "Which ordinary PASSes are recorded: none, sample:N or all.",
    "audit_required": "Where an allowance that cannot be recorded is refused: proxy, always or never.",
    "audit_durability": "When a record counts as written: the system has it (os), or the disk (fsync).",
    "audit_aggregate": "Seconds within which repeats of a rule, origin and agent are only counted; 0: never.",
    "audit_query": "Values in recorded queries: redact (what looks secret), keep, drop, or hash.",
    "audit_client": "Addresses of clients in records: keep, truncate or drop.",
    "audit_job": "A label put on every record.",
    "audit_chain": "Chain each writer's lines by hashes: none or sha256.",
    "audit_rotate_bytes": "Octets after which a writer begins a new file.",
    "audit_retention_days": "Days after which closed files of the journal are removed; 0: never.",
    "audit_retention_bytes": "Octets of closed files beyond which the oldest are removed; 0: no bound.",
    "evidence": "Keep each fetch of a robots.txt as evidence: none or warc.",
    "dialect": "How robots.txt is read: rfc9309, google, ..., or strictest(a, b).",
    "matching": "Which spellings of a URL count as the same: spec, standard or strict.",
    "mode": "enforce, or report: refuse nothing, and record what would be refused.",
    "overrides": "A TOML file of exceptions for single sites.",
    "on_restricted": "A robots.txt that answers 401 or 403: drop or allow.",
    "on_unreachable": "A robots.txt that cannot be had: defer, drop or allow.",
    "on_redirect_limit": "A robots.txt whose redirects lead nowhere: unreachable or allow.",
    "on_disallowed": "What a rule forbids: drop, or defer until the next robots.txt.",
    "max_defer": "Seconds after which a deferred request is dropped.",
    "min_delay": "Seconds between two requests to an origin, at least.",
    "max_delay": "Seconds of what Crawl-delay and Request-rate may ask for; 0: they are not kept.",
    "visit_time": "Times at which a site wants to be visited: keep or ignore.",
    "respect_retry_after": "Whether a 429 or 503 with Retry-After holds off further requests.",
    "hold_max": "Seconds a request is held for its turn, at most.",
    "decision_timeout": "Seconds a request may wait for its decision; after that it is deferred.",
    "connect_timeout": "Seconds for connecting to fetch a robots.txt.",
    "first_byte_timeout": "Seconds until the first byte of its answer.",
    "fetch_timeout": "Seconds for the whole fetch, redirects included.",
    "fetch": "How the proxy fetches: by its engine, as the pages travel, or direct.",
    "fetch_proxy": "The URL of an HTTP proxy for direct fetches.",
    "allow_private": "Networks (CIDRs, comma-separated) that direct fetches, and pages through the proxy, may reach.",
    "user_agent": "The User-Agent header of our own fetches.",
    "allow_unsafe": "An option of mitmproxy that leads around the guard, and may; again for another.",
    "connect_ports": "Ports a tunnel may lead to, such as 80,443,8000-8999.",
    "passthrough": "A host whose TLS goes through uninspected if its robots.txt allows all; again for another.",
    "agent_from": "Who is judged: agent (always --agent), or header (each request's User-Agent).",
    "deny_if_any": "With --agent-from header: let pass what --agent may fetch, too.",
    "agents": "A TOML file that gives each authenticated user an agent.",
    "set_user_agent": "Write the agent's User-Agent into every request.",
    "serve_robots_from_cache": "Answer a crawler's own request for /robots.txt from the cache.",
    "body_memory": "Memory for the bodies of all requests together, such as 512k or 1g.",
}
_FIELDS = {field.name: field for field in msgspec.structs.fields(ProxySettings)}
_SWITCHES = frozenset(name for name, field in _FIELDS.items() if field.type is bool)
_LISTS = frozenset(("allow_unsafe", "connect_ports", "passthrough"))


def settings_options(command: F) -> F:
    """Give a command an option for each setting; all are None, or text, when it is called."""
    for name in reversed(NAMES):
        command = _option(name)(command)
    return command


def proxy_options(command: F) -> F:
    """Likewise, with those that the proxy alone has."""
    for name in reversed(PROXY_NAMES):
        command = _option(name)(command)
    return command


_SENT = frozenset(("agent", "user_agent", "audit_job"))  # text that goes into requests or records
_FETCHING = ("store", "journal", "connect_timeout", "first_byte_timeout", "fetch_timeout", "user_agent")


def fetch_options(command: F) -> F:
    """Give a command an option for each setting that fetching a policy depends on."""
    for name in reversed(_FETCHING):
        command = _option(name)(command)
    return command


def journal_option(command: F) -> F:
    """Give a command the option that names the journal's directory."""
    return _option("journal")(command)


def store_option(command: F) -> F:
    """Give a command the option that names the store."""
    return _option("store")(command)


def overrides_option(command: F) -> F:
    """Give a command the option that names the file of exceptions."""
    return _option("overrides")(command)


def _option(name: str) -> Callable[[F], F]:
    flag = f"--{FLAGS.get(name) or name.replace('_', '-')}"
    told = _HELP[name] + _told_default(_FIELDS[name].default)
    if name in _SWITCHES:
        return click.option(f"{flag}/--no-{flag[2:]}", name, envvar=_variable(name), default=None, help=told)
    metavar, multiple = name.upper(), name in _LISTS
    return click.option(flag, name, envvar=_variable(name), metavar=metavar, multiple=multiple, help=told)


def _told_default(default: Any) -> str:
    """As click would tell it, but that it is not click's: settings know theirs, and who has chosen."""
    if isinstance(default, bool):
        told = "on" if default else "off"
    elif isinstance(default, float):
        told = f"{default:g}"
    else:
        told = "" if default is msgspec.NODEFAULT else str(default)
    return f"  [default: {told}]" if told else ""


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def settings_from(values: dict[str, Any], **defaults: Any) -> Settings:
    """Settings from a command's parameters, which may hold others too. Raises SettingsError."""
    insist_on_known_variables()
    given = {name: _text(name, values[name]) for name in NAMES if values.get(name) is not None}
    return settings_of(defaults | given, "--{}")


def proxy_settings_from(values: dict[str, Any]) -> ProxySettings:
    """Likewise for the proxy."""
    insist_on_known_variables()
    given = {name: _text(name, values[name]) for name in PROXY_NAMES if values.get(name) not in (None, ())}
    return settings_of(given, "--{}", ProxySettings)


def _text(name: str, value: Any) -> Any:
    """A value as the user wrote it. File names stay as the locale decoded them: the system encodes them back."""
    return restored(value) if name in _SENT and isinstance(value, str) else value


def insist_on_known_variables() -> None:
    """Raises SettingsError, which names the variable and the nearest setting, for one of ours that is none."""
    strange = {
        variable.removeprefix(PREFIX).lower(): value
        for variable, value in os.environ.items()
        if variable.startswith(PREFIX) and variable.removeprefix(PREFIX).lower() not in PROXY_NAMES
    }
    if strange:
        settings_of(strange, _variable("{}"), ProxySettings)
