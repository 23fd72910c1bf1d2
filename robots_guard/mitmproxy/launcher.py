"""The proxy as a program of its own, from its start to its end: mitmproxy's core with few addons, and the
enforcer as the last of them.

Addons that rewrite, map or record requests are not loaded, so their options cannot bypass the
guard.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from mitmproxy import exceptions, http
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
from mitmproxy.master import Master
from mitmproxy.options import Options
from mitmproxy.proxy import mode_servers

from robots_guard.configuration import ProxySection
from robots_guard.configuration.settings import ProxySettings
from robots_guard.errors import SettingsError
from robots_guard.gateway.authorities import validate_pem
from robots_guard.gateway.decision_log import LOGGER as DECISIONS
from robots_guard.gateway.listeners import raise_file_limit
from robots_guard.gateway.patch import install_patches
from robots_guard.gateway.workers import port_for_all, run
from robots_guard.invocation import BARE, Invocation
from robots_guard.mitmproxy.addon import install
from robots_guard.mitmproxy.bodies import MEMORY
from robots_guard.mitmproxy.ca import CA_CERTIFICATE, authority, private_folder
from robots_guard.mitmproxy.enforcer import Enforcer
from robots_guard.mitmproxy.patches import COMMAND_PATCHES
from robots_guard.mitmproxy.patches.connections import share_port
from robots_guard.mitmproxy.proxyauth import (
    authentication,
    require_auth_off_loopback,
    validate_proxyauth,
)
from robots_guard.mitmproxy.replies import Application

_POLL_INTERVAL = 0.05  # seconds


class StartCheck(logging.Handler):
    """Ends the start if an error is logged during it. It replaces mitmproxy's ErrorCheck under the same name."""

    name = "errorcheck"

    def __init__(self, started: Callable[[], None]) -> None:
        super().__init__(logging.ERROR)
        self._started = started
        self._errors: list[str] = []
        self._printer = logging.StreamHandler()
        self._printer.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self._printer.addFilter(_is_guard_warning)
        for handler in (self, self._printer):
            logging.getLogger().addHandler(handler)
        logging.getLogger(DECISIONS).setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first line of the message."""
        self._errors.append(record.getMessage().removeprefix("robots_guard: ").partition("\n")[0])

    async def shutdown_if_errored(self) -> None:
        """Raise SettingsError if an error was logged. The master calls this at each step of its start."""
        await asyncio.sleep(0)
        if self._errors:
            raise SettingsError("; ".join(dict.fromkeys(self._errors)))

    def finish(self) -> None:
        """Announce the successful start. From now on errors are printed, too."""
        logging.getLogger().removeHandler(self)
        self._printer.removeFilter(_is_guard_warning)
        self._printer.addFilter(
            lambda record: _is_guard_warning(record) or record.levelno >= logging.ERROR
        )
        self._started()


def _is_guard_warning(record: logging.LogRecord) -> bool:
    if record.name == DECISIONS:
        return True
    return record.name == "robots_guard" and record.levelno == logging.WARNING


class Shutdown:
    """The shutdown that a signal starts: it refuses new requests, and waits at most `timeout` seconds until
    the permitted ones have ended."""

    def __init__(
        self, master: Master, servers: proxyserver.Proxyserver, enforcer: Enforcer, timeout: float
    ) -> None:
        self._master, self._servers, self._enforcer, self._timeout = (
            master,
            servers,
            enforcer,
            timeout,
        )
        self._task: asyncio.Future[None] | None = None

    def begin(self, number: int) -> None:
        """Start the shutdown; a second SIGINT ends the proxy at once."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._end())
        elif number == signal.SIGINT:
            self._master.shutdown()

    async def _end(self) -> None:
        self._enforcer.drain()
        try:
            if any(server.is_running for server in self._servers.servers):
                await self._servers.servers.update([])
            async with asyncio.timeout(self._timeout):
                while self._enforcer.under_way() or _has_unsent(self._servers):  # noqa: ASYNC110  flows can end in many ways
                    await asyncio.sleep(_POLL_INTERVAL)
        except TimeoutError:
            return
        finally:
            self._master.shutdown()


def _has_unsent(servers: proxyserver.Proxyserver) -> bool:
    """Whether bytes of a response still wait for the client to read them."""
    transports = (
        each
        for handler in servers.connections.values()
        for each in list(handler.transports.values())
    )
    writers = (transport.writer for transport in transports)
    return any(
        isinstance(each, asyncio.StreamWriter) and each.transport.get_write_buffer_size()
        for each in writers
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """The configuration of a proxy.

    `own` is what its section says, and `host` and `port` what its `listen` names; port 0 takes a
    free one. `console` opens the application that is served at http://robots.guard/console.
    `invocation` says what commands that the proxy prints must name.
    """

    settings: ProxySettings
    own: ProxySection
    host: str
    port: int
    confdir: Path | None = None
    upstream_ca: Path | None = None
    console: Callable[[], AbstractContextManager[Application]] | None = None
    invocation: Invocation = BARE


class Streaming:
    """Forwards responses as they arrive: nothing here reads them, and large files need not fit into memory."""

    name = "robots_guard_streaming"

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Stream the response. This changes nothing for one that the guard has made: it is already complete."""
        if flow.response is not None:
            flow.response.stream = True

    def response(self, flow: http.HTTPFlow) -> None:
        """Drop the body of an answered request: reference cycles between layers would keep it much longer."""
        flow.request.data.content = None

    def error(self, flow: http.HTTPFlow) -> None:
        """Drop the body of a request that failed, for the same reason."""
        flow.request.data.content = None


@dataclass(frozen=True, slots=True)
class Ready:
    """The address of a running proxy: its URL for clients, and the certificate they must trust for HTTPS."""

    url: str
    ca_certificate: Path


log = logging.getLogger("robots_guard")

WIREGUARD_CLIENT = "wireguard-client.conf"  # in the folder of the CA
_SCHEMES = {"socks5": "socks5h", "wireguard": "wireguard"}
_OWN_FLAGS = {
    "mode": "--mode",
    "listen_host": "--listen",
    "listen_port": "--listen",
    "confdir": "--confdir",
    "ssl_verify_upstream_trusted_ca": "--upstream-ca",
    "proxyauth": "--proxyauth",
}


def serve(proxy: Proxy, announce: Callable[[Ready], None]) -> None:
    """Run a proxy until SIGINT or SIGTERM. `announce` is called when it listens. Raises SettingsError."""
    if proxy.upstream_ca is not None:
        validate_pem(proxy.upstream_ca)
    _refuse_own_flags(proxy.own.set)
    validate_proxyauth(proxy.own.proxyauth, ldap="proxyauth" in proxy.settings.unsafe_allowed)
    require_auth_off_loopback(proxy.host, proxy.own.mode, proxy.own.proxyauth)
    raise_file_limit()
    install_patches(COMMAND_PATCHES)
    proxy = replace(proxy, confdir=private_folder(proxy.confdir))
    if proxy.own.workers == 1:
        asyncio.run(_serve(proxy, announce))
        return
    _validate_workers(proxy)
    share_port()
    authority(proxy.confdir)  # created before the fork, so that all workers share it
    with port_for_all(proxy.host, proxy.port) as port:
        run(
            proxy.own.workers,
            lambda number, say: asyncio.run(
                _serve(_worker_proxy(proxy, port, number), lambda ready: say({"url": ready.url}))
            ),
            lambda message: announce(Ready(message["url"], _confdir(proxy) / CA_CERTIFICATE)),
        )


def _worker_proxy(proxy: Proxy, port: int, number: int) -> Proxy:
    metrics = proxy.own.metrics and proxy.own.metrics + number
    return replace(proxy, port=port, own=msgspec.structs.replace(proxy.own, metrics=metrics))


def _validate_workers(proxy: Proxy) -> None:
    """Raise SettingsError if several workers cannot share the store or a mode."""
    if proxy.settings.store.startswith("memory:"):
        raise SettingsError(
            "--workers need a store that processes share: use sqlite:///PATH or redis://HOST"
        )
    for mode in proxy.own.mode:
        if mode.startswith(("wireguard", "local")):
            raise SettingsError(f"--workers cannot share --mode {mode}: use --workers 1")


async def _serve(proxy: Proxy, announce: Callable[[Ready], None]) -> None:
    with proxy.console() if proxy.console else contextlib.nullcontext() as console:
        await _run(proxy, announce, console)


async def _run(
    proxy: Proxy, announce: Callable[[Ready], None], console: Application | None
) -> None:
    confdir = _confdir(proxy)
    master = Master(Options(confdir=str(confdir)))
    servers = proxyserver.Proxyserver()
    master.addons.add(
        *_addons(proxy, servers, lambda: announce(_ready_notice(proxy, servers, confdir)))
    )
    enforcer = Enforcer(proxy.settings, console, proxy.invocation)
    install(enforcer)
    # Set before the options are read below, so that no SIGHUP is lost.
    master.event_loop.add_signal_handler(signal.SIGHUP, _reload, proxy, master, enforcer)
    _set_options(master, proxy)
    if enforcer.fault is not None:  # fail before the proxy listens
        raise SettingsError(enforcer.fault)
    if proxy.own.metrics:
        _serve_metrics(enforcer, proxy.own.metrics)
    shutdown = Shutdown(master, servers, enforcer, proxy.own.drain)
    for number in (signal.SIGINT, signal.SIGTERM):
        master.event_loop.add_signal_handler(number, shutdown.begin, number)
    await _run_master(master, servers, proxy)


async def _run_master(master: Master, servers: proxyserver.Proxyserver, proxy: Proxy) -> None:
    """Run the proxy to its end, and close its ports."""
    try:
        await master.run()
    except SettingsError as error:
        raise _listen_error(proxy, servers) or error from None
    finally:
        if any(server.is_running for server in servers.servers):
            await servers.servers.update([])  # a master that stops leaves its ports open


def _set_options(master: Master, proxy: Proxy) -> None:
    try:
        _validate_sets(master, proxy.own.set)
        master.options.set(*proxy.own.set)
        master.options.update(**_options(proxy))
    except exceptions.OptionsError as error:
        raise SettingsError(str(error)) from None


def _validate_sets(master: Master, sets: Iterable[str]) -> None:
    for name in (each.partition("=")[0] for each in sets):
        if name not in master.options:
            raise SettingsError(
                f"--set {name}: there is no such option here, because most of mitmproxy's addons are left out:"
                " remove it, or run a mitmdump of your own with the robots_guard addon"
            )


def _serve_metrics(enforcer: Enforcer, port: int) -> None:
    from robots_guard.gateway.metrics import Heartbeat, Metrics, MetricsSource

    heartbeat = Heartbeat(asyncio.get_running_loop())
    source = MetricsSource(
        counts=lambda: enforcer.counts,
        under_way=enforcer.under_way,
        waiting=enforcer.waiting,
        exemptions=enforcer.exemptions,
        ready=lambda: enforcer.fault is None and heartbeat.is_recent(),
        body_bytes=lambda: MEMORY.used,
        is_alive=heartbeat.is_recent,
    )
    metrics = Metrics(source)
    metrics.serve(port)
    enforcer.on_decision = metrics.observe


def _listen_error(proxy: Proxy, servers: proxyserver.Proxyserver) -> SettingsError | None:
    """A clear error if a server cannot listen: mitmproxy's own wraps the system's message three times."""
    for error in (server.last_exception for server in servers.servers):
        if isinstance(error, OSError) and error.errno:
            why = os.strerror(error.errno).lower()
            return SettingsError(
                f"cannot listen on {proxy.host}:{proxy.port} ({why}): choose another with --listen"
            )
    return None


def _addons(
    proxy: Proxy, servers: proxyserver.Proxyserver, started: Callable[[], None]
) -> list[object]:
    return [
        *([authentication()] if proxy.own.proxyauth else []),
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


def _options(proxy: Proxy) -> dict[str, Any]:
    return {
        **({"proxyauth": proxy.own.proxyauth} if proxy.own.proxyauth else {}),
        "listen_host": proxy.host,
        "listen_port": proxy.port,
        "mode": list(proxy.own.mode),
        "ssl_verify_upstream_trusted_ca": str(proxy.upstream_ca) if proxy.upstream_ca else None,
    }


def _ready_notice(proxy: Proxy, servers: proxyserver.Proxyserver, confdir: Path) -> Ready:
    for server in servers.servers:
        if isinstance(server, mode_servers.WireGuardServerInstance) and (
            conf := server.client_conf()
        ):
            _write_secret(confdir / WIREGUARD_CLIENT, conf + "\n")
    host, port = next(iter(servers.listen_addrs()), (proxy.host, proxy.port))[:2]
    scheme = _SCHEMES.get(proxy.own.mode[0].partition("@")[0], "http")
    authority_host = f"[{host}]" if ":" in host else host
    return Ready(f"{scheme}://{authority_host}:{port}", confdir / CA_CERTIFICATE)


def _confdir(proxy: Proxy) -> Path:
    assert proxy.confdir is not None  # `serve` has set it
    return proxy.confdir


def _write_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)


def _refuse_own_flags(sets: Iterable[str]) -> None:
    for name in (each.partition("=")[0] for each in sets):
        if name in _OWN_FLAGS:
            raise SettingsError(f"--set {name}=...: use {_OWN_FLAGS[name]}")


def _reload(proxy: Proxy, master: Master, enforcer: Enforcer) -> None:
    """Reload what may change while the proxy runs: the overrides and the users."""
    enforcer.reload_overrides()
    if not proxy.own.proxyauth.startswith("@"):
        return
    try:
        validate_proxyauth(proxy.own.proxyauth)
        master.options.update(proxyauth=proxy.own.proxyauth)
    except (SettingsError, exceptions.OptionsError) as error:
        log.warning("%s; the earlier users stay valid", error)
