"""The proxy as a program of its own: mitmproxy's core with few addons, and the enforcer as the last of them.

Half of mitmdump's work for a request is asking some thirty addons whether they have a hook; what rewrites, maps
or records requests is not here at all, so there are no options of theirs to lead around us. All that is known of
how mitmproxy starts and stops is known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import resource
import signal
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
from mitmproxy import addonmanager, exceptions, hooks, http, master, options
from mitmproxy.addons import (
    block,
    core,
    disable_h2c,
    dns_resolver,
    next_layer,
    proxyserver,
    strip_dns_https_records,
    tlsconfig,
    update_alt_svc,
    upstream_auth,
)
from mitmproxy.proxy import mode_specs

from robots_guard.errors import SettingsError
from robots_guard.mitmproxy.addon import plant
from robots_guard.mitmproxy.enforcer import Enforcer
from robots_guard.settings import Settings

CA_CERTIFICATE = "mitmproxy-ca-cert.pem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """What to run. `port` 0 takes a free one; `upstream_ca` is trusted for origins instead of the usual CAs."""

    settings: Settings
    host: str = "127.0.0.1"
    port: int = 8080
    mode: str = "regular"
    confdir: Path | None = None
    upstream_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A proxy that listens: a URL for crawlers, and the certificate they must trust for HTTPS."""

    url: str
    ca_certificate: Path


def serve(proxy: Proxy, announce: Callable[[Ready], None]) -> None:
    """Run until SIGINT or SIGTERM; `announce` is called once requests are answered. Raises SettingsError."""
    if proxy.upstream_ca is not None:
        _insist_on_certificates(proxy.upstream_ca)
    _allow_many_files()
    asyncio.run(_serve(proxy, announce))


async def _serve(proxy: Proxy, announce: Callable[[Ready], None]) -> None:
    confdir = _private(proxy.confdir or platformdirs.user_config_path("robots_guard") / "mitmproxy")
    running = _Master(options.Options(confdir=str(confdir)))
    servers = proxyserver.Proxyserver()
    running.addons.add(*_addons(servers, lambda: announce(_ready(proxy, servers, confdir))))
    plant(Enforcer(proxy.settings))
    try:
        running.options.update(**_options(proxy))
    except exceptions.OptionsError as error:
        raise SettingsError(str(error)) from None
    for number in (signal.SIGINT, signal.SIGTERM):
        running.event_loop.add_signal_handler(number, running.shutdown)
    try:
        await running.run()
    except SettingsError as error:
        raise _cannot_listen(proxy, servers) or error from None
    finally:
        if any(server.is_running for server in servers.servers):
            await servers.servers.update([])  # a master that stops leaves its ports open
        # Connections still open are cancelled now; Python 3.11 would log a traceback for each.
        running.event_loop.set_exception_handler(lambda _loop, _context: None)


def _cannot_listen(proxy: Proxy, servers: proxyserver.Proxyserver) -> SettingsError | None:
    """mitmproxy's own sentence for it wraps the system's three times."""
    for error in (server.last_exception for server in servers.servers):
        if isinstance(error, OSError) and error.errno:
            why = os.strerror(error.errno).lower()
            return SettingsError(f"cannot listen on {proxy.host}:{proxy.port} ({why}): choose another with --listen")
    return None


def _addons(servers: proxyserver.Proxyserver, started: Callable[[], None]) -> list[object]:
    return [
        core.Core(),
        block.Block(),
        strip_dns_https_records.StripDnsHttpsRecords(),
        disable_h2c.DisableH2C(),
        servers,
        dns_resolver.DnsResolver(),
        next_layer.NextLayer(),
        tlsconfig.TlsConfig(),
        upstream_auth.UpstreamAuth(),
        update_alt_svc.UpdateAltSvc(),
        _Streaming(),
        _StartCheck(started),
    ]


def _options(proxy: Proxy) -> dict[str, Any]:
    return {
        "listen_host": proxy.host,
        "listen_port": proxy.port,
        "mode": [proxy.mode],
        "http3": False,
        "ssl_verify_upstream_trusted_ca": str(proxy.upstream_ca) if proxy.upstream_ca else None,
    }


def _ready(proxy: Proxy, servers: proxyserver.Proxyserver, confdir: Path) -> Ready:
    host, port = next(iter(servers.listen_addrs()), (proxy.host, proxy.port))[:2]
    scheme = "socks5h" if isinstance(mode_specs.ProxyMode.parse(proxy.mode), mode_specs.Socks5Mode) else "http"
    return Ready(
        f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}", confdir / CA_CERTIFICATE
    )


def _private(confdir: Path) -> Path:
    """The folder of the CA's key: whoever reads that can pose as any site to our crawlers."""
    try:
        confdir.mkdir(mode=0o700, parents=True, exist_ok=True)
        confdir.chmod(0o700)
    except OSError as error:
        raise SettingsError(
            f"confdir {str(confdir)!r} cannot be used ({error.strerror}): name a folder of your own with --confdir"
        ) from error
    return confdir


def _insist_on_certificates(path: Path) -> None:
    """mitmproxy would find out at the first https site, and blame the site. Raises SettingsError."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError as error:  # ssl.SSLError is one
        why = error.strerror if not isinstance(error, ssl.SSLError) else "no certificates in PEM form"
        raise SettingsError(
            f"--upstream-ca {str(path)!r} cannot be used ({why}): name a PEM file of the authorities to trust"
        ) from None


def _allow_many_files() -> None:
    """A request that waits for a robots.txt holds a socket; most shells allow 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Streaming:
    """Passes answers on as they come: nobody here reads them, and large files need not fit into memory."""

    name = "robots_guard_streaming"

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Only what an origin sends; a reply of our own has no more to come."""
        if flow.response is not None:
            flow.response.stream = True


class _StartCheck(logging.Handler):
    """What is logged as an error before we run ends the start. Stands in for mitmproxy's ErrorCheck, by its name."""

    name = "errorcheck"

    def __init__(self, started: Callable[[], None]) -> None:
        super().__init__(logging.ERROR)
        self._started = started
        self._errors: list[str] = []
        logging.getLogger().addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the sentence."""
        self._errors.append(record.getMessage().removeprefix("robots_guard: ").partition("\n")[0])

    async def shutdown_if_errored(self) -> None:
        """Called by the master at each step of its start. Raises SettingsError."""
        await asyncio.sleep(0)
        if self._errors:
            raise SettingsError("; ".join(dict.fromkeys(self._errors)))

    def finish(self) -> None:
        """The start is over and went well."""
        logging.getLogger().removeHandler(self)
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._started()


class _Addons(addonmanager.AddonManager):
    """Finds the handlers of a hook once. mitmproxy's own walks all addons for each of a request's dozen hooks."""

    def __init__(self, owner: master.Master) -> None:
        super().__init__(owner)  # type: ignore[no-untyped-call]  # mitmproxy's has no annotations
        self._handlers: dict[str, list[Callable[..., Any]]] = {}

    def register(self, addon: Any) -> Any:
        """Handlers may have come."""
        self._handlers.clear()
        return super().register(addon)  # type: ignore[no-untyped-call]  # likewise

    async def trigger_event(self, event: hooks.Hook) -> None:
        """Call the handlers in the order of the chain, as mitmproxy's own does."""
        for handler in self._of(event):
            try:
                with addonmanager.safecall():
                    result = handler(*event.args())
                    if inspect.isawaitable(result):
                        await result
            except exceptions.AddonHalt:
                return

    def _of(self, event: hooks.Hook) -> list[Callable[..., Any]]:
        handlers = self._handlers.get(event.name)
        if handlers is None:
            handlers = [handler for addon in self.chain for _, handler in self._iter_hooks(addon, event)]
            self._handlers[event.name] = handlers
        return handlers


class _Master(master.Master):
    """A master whose addons are called by what they handle."""

    def __init__(self, opts: options.Options) -> None:
        super().__init__(opts)
        self.addons = _Addons(self)
