"""The proxy as a program of its own: mitmproxy's core with few addons, and the enforcer as the last of them.

What rewrites, maps or records requests is not here at all, so there are no options of theirs to lead around us.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import resource
import signal
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mitmproxy import exceptions
from mitmproxy.addons import (
    block,
    core,
    dns_resolver,
    next_layer,
    proxyserver,
    strip_dns_https_records,
    tlsconfig,
    upstream_auth,
)
from mitmproxy.proxy import mode_servers

from robots_guard.errors import SettingsError
from robots_guard.mitmproxy.addon import plant
from robots_guard.mitmproxy.asgi import Application
from robots_guard.mitmproxy.authority import CA_CERTIFICATE, authority, insist_on_certificates, private_folder
from robots_guard.mitmproxy.ending import Ending
from robots_guard.mitmproxy.enforcer import Enforcer
from robots_guard.mitmproxy.heartbeat import Heartbeat
from robots_guard.mitmproxy.master import Master, Options, StartCheck, Streaming, trust_messages
from robots_guard.mitmproxy.users import insist_on_closed, insist_on_users
from robots_guard.mitmproxy.workers import port_for_all, run, share_ports
from robots_guard.settings import ProxySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """What to run. `port` 0 takes a free one; `upstream_ca` is trusted for origins instead of the usual CAs;
    `proxyauth` is who may use it, in mitmproxy's spelling; `sets` are options of mitmproxy's own, `name=value`.
    `metrics` is a port of 127.0.0.1, of the first worker; `drain` is seconds for requests under way at the end;
    `console` opens what is to lie at http://robots.guard/console."""

    settings: ProxySettings
    host: str = "127.0.0.1"
    port: int = 8080
    modes: tuple[str, ...] = ("regular",)
    proxyauth: str = ""
    body_limit: str = ""
    confdir: Path | None = None
    upstream_ca: Path | None = None
    sets: tuple[str, ...] = ()
    workers: int = 1
    metrics: int | None = None
    drain: float = 10.0
    console: Callable[[], AbstractContextManager[Application]] | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A proxy that listens: a URL for crawlers, and the certificate they must trust for HTTPS."""

    url: str
    ca_certificate: Path


log = logging.getLogger("robots_guard")

WIREGUARD_CLIENT = "wireguard-client.conf"  # in the folder of our CA
_SCHEMES = {"socks5": "socks5h", "wireguard": "wireguard"}
_OURS = {
    "mode": "--mode",
    "listen_host": "--listen",
    "listen_port": "--listen",
    "confdir": "--confdir",
    "ssl_verify_upstream_trusted_ca": "--upstream-ca",
    "proxyauth": "--proxyauth",
    "body_size_limit": "--body-limit",
}


def serve(proxy: Proxy, announce: Callable[[Ready], None]) -> None:
    """Run until SIGINT or SIGTERM; `announce` is called once requests are answered. Raises SettingsError."""
    if proxy.upstream_ca is not None:
        insist_on_certificates(proxy.upstream_ca)
    _insist_on_one_spelling(proxy.sets)
    insist_on_users(proxy.proxyauth, ldap="proxyauth" in proxy.settings.unsafe_allowed)
    insist_on_closed(proxy.host, proxy.modes, proxy.proxyauth)
    _insist_on_size(proxy.body_limit)
    _allow_many_files()
    trust_messages()
    proxy = replace(proxy, confdir=private_folder(proxy.confdir))
    if proxy.workers == 1:
        asyncio.run(_serve(proxy, announce))
        return
    _insist_on_sharing(proxy)
    share_ports()
    authority(proxy.confdir)  # one for all, made by nobody twice
    with port_for_all(proxy.host, proxy.port) as port:
        run(
            proxy.workers,
            lambda number, say: asyncio.run(
                _serve(_worker(proxy, port, number), lambda ready: say({"url": ready.url}))
            ),
            lambda said: announce(Ready(said["url"], _confdir(proxy) / CA_CERTIFICATE)),
        )


def _worker(proxy: Proxy, port: int, number: int) -> Proxy:
    metrics = None if proxy.metrics is None else proxy.metrics + number
    return replace(proxy, port=port, metrics=metrics)


def _insist_on_sharing(proxy: Proxy) -> None:
    """Raises SettingsError where workers would each be on their own."""
    if proxy.settings.store.startswith("memory:"):
        raise SettingsError("--workers share what they learn through the store: use sqlite:///PATH or redis://HOST")
    for mode in proxy.modes:
        if mode.startswith(("wireguard", "local")):
            raise SettingsError(f"--workers cannot share --mode {mode}: run one")


async def _serve(proxy: Proxy, announce: Callable[[Ready], None]) -> None:
    with proxy.console() if proxy.console else contextlib.nullcontext() as console:
        await _run(proxy, announce, console)


async def _run(proxy: Proxy, announce: Callable[[Ready], None], console: Application | None) -> None:
    confdir = _confdir(proxy)
    running = Master(Options(confdir=str(confdir)))
    servers = proxyserver.Proxyserver()
    running.addons.add(*_addons(proxy, servers, lambda: announce(_ready(proxy, servers, confdir))))
    enforcer = Enforcer(proxy.settings, console)
    plant(enforcer)
    # First of all: what it reads again is read below for the first time.
    running.event_loop.add_signal_handler(signal.SIGHUP, _read_again, proxy, running, enforcer)
    try:
        _insist_on_known(running, proxy.sets)
        running.options.set(*proxy.sets)
        running.options.update(**_options(proxy))
    except exceptions.OptionsError as error:
        raise SettingsError(str(error)) from None
    if enforcer.fault is not None:  # before anything listens
        raise SettingsError(enforcer.fault)
    if proxy.metrics is not None:
        _measure(enforcer, proxy.metrics)
    ending = Ending(running, servers, enforcer, proxy.drain)
    for number in (signal.SIGINT, signal.SIGTERM):
        running.event_loop.add_signal_handler(number, ending.begin, number)
    try:
        await running.run()
    except SettingsError as error:
        raise _cannot_listen(proxy, servers) or error from None
    finally:
        if any(server.is_running for server in servers.servers):
            await servers.servers.update([])  # a master that stops leaves its ports open


def _insist_on_known(running: Master, sets: Iterable[str]) -> None:
    for name in (each.partition("=")[0] for each in sets):
        if name not in running.options:
            raise SettingsError(
                f"--set {name}: there is no such option here, for most of mitmproxy's addons are left out: take it"
                " away, or run a mitmdump of your own with our addon"
            )


def _measure(enforcer: Enforcer, port: int) -> None:
    from robots_guard.mitmproxy.metrics import Metrics, Source

    heartbeat = Heartbeat(asyncio.get_running_loop())
    source = Source(
        counts=lambda: enforcer.counts,
        under_way=enforcer.under_way,
        held=enforcer.held,
        ready=lambda: enforcer.fault is None and heartbeat.is_recent(),
    )
    metrics = Metrics(source)
    metrics.serve(port)
    enforcer.told = metrics.told


def _cannot_listen(proxy: Proxy, servers: proxyserver.Proxyserver) -> SettingsError | None:
    """mitmproxy's own sentence for it wraps the system's three times."""
    for error in (server.last_exception for server in servers.servers):
        if isinstance(error, OSError) and error.errno:
            why = os.strerror(error.errno).lower()
            return SettingsError(f"cannot listen on {proxy.host}:{proxy.port} ({why}): choose another with --listen")
    return None


def _addons(proxy: Proxy, servers: proxyserver.Proxyserver, started: Callable[[], None]) -> list[object]:
    return [
        *_authentication(proxy),
        core.Core(),
        block.Block(),
        strip_dns_https_records.StripDnsHttpsRecords(),
        servers,
        dns_resolver.DnsResolver(),
        next_layer.NextLayer(),
        tlsconfig.TlsConfig(),
        upstream_auth.UpstreamAuth(),
        Streaming(),
        StartCheck(started),
    ]


def _authentication(proxy: Proxy) -> list[object]:
    if not proxy.proxyauth:
        return []
    from mitmproxy.addons import proxyauth  # it brings an LDAP client along, which takes its time

    return [proxyauth.ProxyAuth()]


def _options(proxy: Proxy) -> dict[str, Any]:
    chosen = {"proxyauth": proxy.proxyauth, "body_size_limit": proxy.body_limit}
    return {
        **{name: value for name, value in chosen.items() if value},
        "listen_host": proxy.host,
        "listen_port": proxy.port,
        "mode": list(proxy.modes),
        "ssl_verify_upstream_trusted_ca": str(proxy.upstream_ca) if proxy.upstream_ca else None,
    }


def _ready(proxy: Proxy, servers: proxyserver.Proxyserver, confdir: Path) -> Ready:
    for server in servers.servers:
        if isinstance(server, mode_servers.WireGuardServerInstance) and (told := server.client_conf()):
            _keep_secret(confdir / WIREGUARD_CLIENT, told + "\n")
    host, port = next(iter(servers.listen_addrs()), (proxy.host, proxy.port))[:2]
    scheme = _SCHEMES.get(proxy.modes[0].partition("@")[0], "http")
    return Ready(
        f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}", confdir / CA_CERTIFICATE
    )


def _confdir(proxy: Proxy) -> Path:
    assert proxy.confdir is not None  # since `serve`
    return proxy.confdir


def _keep_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)


def _insist_on_one_spelling(sets: Iterable[str]) -> None:
    for name in (each.partition("=")[0] for each in sets):
        if name in _OURS:
            raise SettingsError(f"--set {name}=...: use {_OURS[name]}")


def _insist_on_size(text: str) -> None:
    if text and not re.fullmatch(r"[0-9]+[kmgKMG]?", text):
        raise SettingsError(f"--body-limit {text!r} is no size: write octets, or such as 512k or 64m")


def _read_again(proxy: Proxy, running: Master, enforcer: Enforcer) -> None:
    """What may change while the proxy runs: the overrides, and who may use it."""
    enforcer.look_at_overrides()
    if not proxy.proxyauth.startswith("@"):
        return
    try:
        insist_on_users(proxy.proxyauth)
        running.options.update(proxyauth=proxy.proxyauth)
    except (SettingsError, exceptions.OptionsError) as error:
        log.warning("%s; who was let in before still is", error)


def _allow_many_files() -> None:
    """A request that waits for a robots.txt holds a socket; most shells allow 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
