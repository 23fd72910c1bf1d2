"""Command-line options for the settings, and settings from a command's options.

An option has the name of its setting (`--on-restricted` or `--on_restricted`) and can also be given in the
environment, as `ROBOTS_GUARD_ON_RESTRICTED`. A variable with that prefix that names no setting is an error, as an
unknown option is: a misspelt setting must not be ignored silently.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from robots_guard.errors import SettingsError
from robots_guard.settings import FLAGS, NAMES, PROXY_NAMES, ProxySettings, Settings, settings_of
from robots_guard.text import restored

PREFIX = "ROBOTS_GUARD_"
F = TypeVar("F", bound=Callable[..., Any])

_HELP = {
    "agent": "The crawler's product token: its name in the User-agent lines of a robots.txt.",
    "store": "Shared store for policies: sqlite:///PATH, redis://HOST:PORT/DB, or memory: for this process only.",
    "audit_log": "Directory of the audit log.",
    "audit_passes": "Ordinary PASS decisions to record: none, sample:N or all.",
    "audit_required": "Where a request that cannot be recorded is refused: proxy, always or never.",
    "audit_durability": "When a record counts as written: handed to the system (os) or on disk (fsync).",
    "audit_aggregate": "Seconds within which repeats of a rule, origin and agent are only counted; 0: never.",
    "audit_query": "Query values in recorded URLs: redact (those that look secret), keep, drop or hash.",
    "audit_client": "Client addresses in records: keep, truncate or drop.",
    "audit_job": "Label to put on every record.",
    "audit_chain": "Chain each writer's lines by hashes: none or sha256.",
    "audit_rotate_bytes": "Bytes after which a writer starts a new file.",
    "audit_retention_days": "Days after which closed files of the audit log are removed; 0: never.",
    "audit_retention_bytes": "Total bytes of closed files above which the oldest are removed; 0: no limit.",
    "evidence": "Keep each fetch of a robots.txt as evidence: none or warc.",
    "dialect": "How robots.txt is read: rfc9309, google, ..., or strictest(a, b).",
    "matching": "Which spellings of a URL count as the same: spec, standard or strict.",
    "mode": "enforce, or report: refuse nothing, but record what would be refused.",
    "overrides": "TOML file of overrides for single sites.",
    "on_restricted": "What to do if robots.txt answers 401 or 403: drop or allow.",
    "on_unreachable": "What to do if robots.txt cannot be fetched: defer, drop or allow.",
    "on_redirect_limit": "How to treat a robots.txt with too many redirects: unreachable or allow.",
    "on_disallowed": "What to do with a disallowed request: drop it, or defer it until the next robots.txt.",
    "max_defer": "Seconds after which a deferred request is dropped.",
    "min_delay": "Minimum seconds between two requests to an origin.",
    "max_delay": "Longest delay in seconds that Crawl-delay and Request-rate can impose; 0: ignore both.",
    "visit_time": "Visit-time, the hours at which a site wants to be visited: keep or ignore.",
    "respect_retry_after": "Pause requests to an origin that answers 429 or 503 with Retry-After.",
    "hold_max": "Longest time in seconds that a request waits for its turn.",
    "decision_timeout": "Seconds that a request may wait for its decision before it is deferred.",
    "connect_timeout": "Seconds to connect when fetching a robots.txt.",
    "first_byte_timeout": "Seconds to wait for the first byte of the response.",
    "fetch_timeout": "Seconds for the whole fetch, including redirects.",
    "fetch": "How the proxy fetches robots.txt: engine (the same way as pages) or direct.",
    "fetch_proxy": "URL of an HTTP proxy for direct fetches.",
    "allow_private": "Private networks (CIDRs, comma-separated) that direct fetches and proxied pages may reach.",
    "user_agent": "User-Agent header for robots_guard's own fetches.",
    "allow_unsafe": "Allow a mitmproxy option that bypasses the guard. May be repeated.",
    "connect_ports": "Ports that a tunnel may connect to, such as 80,443,8000-8999.",
    "passthrough": "Host whose TLS is not intercepted if its robots.txt allows everything. May be repeated.",
    "agent_from": "Which agent is judged: agent (always --agent) or header (each request's User-Agent).",
    "deny_if_any": "With --agent-from header: pass only what --agent may fetch as well.",
    "agents": "TOML file that assigns an agent to each authenticated user.",
    "set_user_agent": "Set the agent's User-Agent on every request.",
    "serve_robots_from_cache": "Answer a crawler's own request for /robots.txt from the cache.",
    "body_memory": "Memory for all request bodies together, such as 512k or 1g.",
}
_FIELDS = {field.name: field for field in msgspec.structs.fields(ProxySettings)}
_SWITCHES = frozenset(name for name, field in _FIELDS.items() if field.type is bool)
_LISTS = frozenset(("allow_unsafe", "connect_ports", "passthrough"))


def settings_options(command: F) -> F:
    """Add an option for each setting to a command; each value is text, or None if it was not given."""
    for name in reversed(NAMES):
        command = _option(name)(command)
    return command


def proxy_options(command: F) -> F:
    """Do the same as `settings_options`, including the settings that only the proxy has."""
    for name in reversed(PROXY_NAMES):
        command = _option(name)(command)
    return command


_SENT_TEXT = frozenset(("agent", "user_agent", "audit_job"))  # text that goes into requests or records
_FETCHING = ("store", "audit_log", "connect_timeout", "first_byte_timeout", "fetch_timeout", "user_agent")


def fetch_options(command: F) -> F:
    """Add an option for each setting that fetching a policy depends on."""
    for name in reversed(_FETCHING):
        command = _option(name)(command)
    return command


def audit_log_option(command: F) -> F:
    """Add the option for the audit log's directory."""
    return _option("audit_log")(command)


def store_option(command: F) -> F:
    """Add the option for the store."""
    return _option("store")(command)


def overrides_option(command: F) -> F:
    """Add the option for the overrides file."""
    return _option("overrides")(command)


def _option(name: str) -> Callable[[F], F]:
    flag = f"--{FLAGS.get(name) or name.replace('_', '-')}"
    help_text = _HELP[name] + _default_note(_FIELDS[name].default)
    if name in _SWITCHES:
        return click.option(f"{flag}/--no-{flag[2:]}", name, envvar=_variable(name), default=None, help=help_text)
    metavar, multiple = name.upper(), name in _LISTS
    return click.option(flag, name, envvar=_variable(name), metavar=metavar, multiple=multiple, help=help_text)


def _default_note(default: Any) -> str:
    """Return the default in click's format. Click itself must not fill it in: the settings apply it, and need to
    know which values were given."""
    if isinstance(default, bool):
        text = "on" if default else "off"
    elif isinstance(default, float):
        text = f"{default:g}"
    elif default is msgspec.NODEFAULT:
        text = ""
    else:
        text = str(default)
    return f"  [default: {text}]" if text else ""


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def settings_from(values: dict[str, Any], **defaults: Any) -> Settings:
    """Return the settings among a command's parameters. Raises SettingsError."""
    check_environment()
    given = {name: _text(name, values[name]) for name in NAMES if values.get(name) is not None}
    return settings_of(defaults | given, "--{}")


def proxy_settings_from(values: dict[str, Any]) -> ProxySettings:
    """Return the proxy's settings among a command's parameters. Raises SettingsError."""
    check_environment()
    given = {name: _text(name, values[name]) for name in PROXY_NAMES if values.get(name) not in (None, ())}
    return settings_of(given, "--{}", ProxySettings)


def _text(name: str, value: Any) -> Any:
    """Return a value as the user wrote it. File names stay as the locale decoded them: the system encodes them back."""
    return restored(value) if name in _SENT_TEXT and isinstance(value, str) else value


def check_environment() -> None:
    """Raise SettingsError for a ROBOTS_GUARD_ variable that names no setting; the error suggests the nearest one."""
    unknown = {
        variable.removeprefix(PREFIX).lower(): value
        for variable, value in os.environ.items()
        if variable.startswith(PREFIX) and variable.removeprefix(PREFIX).lower() not in PROXY_NAMES
    }
    if unknown:
        settings_of(unknown, _variable("{}"), ProxySettings)


_LISTEN = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,5})")


def address(listen: str, example: str) -> tuple[str, int]:
    """Return the host and the port to listen on. Raises SettingsError, which names an example."""
    found = _LISTEN.fullmatch(listen)
    if found is None or int(found["port"]) > 65535:
        raise SettingsError(f"--listen {listen!r} is not an address: use HOST:PORT, such as {example}")
    return found["v6"] or found["host"], int(found["port"])
