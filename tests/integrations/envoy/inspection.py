"""A real Envoy that inspects TLS, before a decision service and a secret server in this process.

The sites have names: a ClientHello contains no address. The names are those of `NamedSites`, and
resolve in this process only, where the service resolves them; Envoy resolves nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integrations.envoy.process import envoy_binary, envoy_configuration
from integrations.mitmproxy.origin import RULES, Site, Sites, Tap
from integrations.mitmproxy.process import LOOPBACK
from support.audit_log import decisions
from support.waiting import eventually

from robots_guard.configuration.settings import ProxySettings, settings_of
from robots_guard.serve import secret_discovery
from robots_guard.serve.certificates import CA_CERTIFICATE, Minter
from robots_guard.serve.ext_authz import serve_ext_authz
from robots_guard.serve.service import DecisionService
from robots_guard.testing import Loopback

PATIENCE = 60.0  # seconds for a start or a stop

_HANDSHAKE = "transport_socket_connect_timeout: 10s"  # too long for the tests of faults

#: The addresses of names, for `resolving`.
NAMES: dict[str, str] = {}


@dataclass
class NamedSite(Site):
    """A site that clients know by a name. Its port may be a default one, which no URL contains."""

    name: str = ""

    @property
    def host(self) -> str:
        return self.name

    @property
    def authority(self) -> str:
        if self.port == {"http": 80, "https": 443}[self.scheme]:
            return self.name
        return f"{self.name}:{self.port}"


class NamedSites(Sites):
    """Starts sites with names of their own."""

    _numbers = itertools.count(1)

    def __init__(self, net: Loopback, authority: object) -> None:
        super().__init__(net, authority)
        self.started: list[NamedSite] = []

    def new_address(self) -> str:
        """An address that no site has yet."""
        return next(self.addresses)

    def start(  # type: ignore[override]  it has more parameters
        self,
        scheme: str = "http",
        robots: object = RULES,
        pages: Any = None,
        authority: object = None,
        names: tuple[str, ...] = (),
        port: int = 0,
        address: str | None = None,
    ) -> NamedSite:
        """The site is known by the first of `names`, and certified for all of them."""
        names = names or (f"site{next(self._numbers)}.test",)
        address = address or self.new_address()
        NAMES.update(dict.fromkeys(names, address))
        tls = self._tls(names, authority or self._ca) if scheme == "https" else None
        origin = self._net.origin(robots, pages, tls=tls, address=address)  # type: ignore[arg-type]
        tap = Tap(address, origin.port, port)
        self._taps.append(tap)
        self.started.append(NamedSite(origin, tap, name=names[0]))
        return self.started[-1]


@contextlib.contextmanager
def resolving() -> Iterator[None]:
    """In the block, this process resolves the names of sites, and no other names of `.test`."""
    system = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **options: Any) -> Any:
        name = (host.decode() if isinstance(host, bytes) else str(host)).lower().removesuffix(".")
        if name in NAMES:
            return system(NAMES[name], *args, **options)
        if name.endswith((".test", ".example")):
            raise socket.gaierror(socket.EAI_NONAME, f"no such name: {name}")
        return system(host, *args, **options)

    socket.getaddrinfo = getaddrinfo  # type: ignore[assignment]
    try:
        yield
    finally:
        socket.getaddrinfo = system


@contextlib.contextmanager
def _trusting(authorities: Path) -> Iterator[None]:
    """In the block, this process verifies sites by these authorities."""
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = str(authorities)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SSL_CERT_FILE"]
        else:
            os.environ["SSL_CERT_FILE"] = before


class Services:
    """A decision service and a secret server, in a thread of their own."""

    def __init__(self, settings: ProxySettings, folder: Path, ttl: int) -> None:
        self.minter = Minter(folder / "ca")
        self._settings = settings
        self._ttl = ttl
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="services")
        self._thread.start()
        self.envoy = _listening()
        self.sds = _listening()
        self.own = [self.envoy.getsockname(), self.sds.getsockname()]  # no request leads there
        self._run(self._open())

    async def _open(self) -> None:
        self.service = DecisionService(self._settings, listening=lambda: self.own)
        self._checks = await serve_ext_authz(self.service, self.envoy)
        self._secrets = await secret_discovery.serve(self.minter, self.sds, ttl=self._ttl)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _close(self) -> None:
        self._checks.close()
        await self._close_secrets()
        await self.service.close()
        # As at the end of `asyncio.run`: what is left would be reported in a later test.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=PATIENCE / 4)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._checks.wait_closed(), PATIENCE / 4)

    async def _close_secrets(self) -> None:
        self._secrets.close()
        await self._secrets.wait_closed()

    def close_secrets(self) -> int:
        """End the secret server; return the port it had."""
        port: int = self.sds.getsockname()[1]
        self._run(self._close_secrets())
        return port

    def open_secrets(self, port: int) -> None:
        """Start the secret server again."""

        async def start() -> None:
            self._secrets = await secret_discovery.serve(self.minter, self.sds, ttl=self._ttl)

        self.sds = socket.create_server(("127.0.0.1", port))
        self._run(start())

    def close(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


def _listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def _address(listener: socket.socket) -> str:
    return "{}:{}".format(*listener.getsockname())


@dataclass
class InspectingEnvoy:
    """A running Envoy that inspects TLS."""

    host: str
    port: int
    folder: Path
    services: Services
    process: subprocess.Popen[bytes]
    admin: str = ""
    output: Path = field(default_factory=Path)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def ca(self) -> Path:
        """The certificate that clients must trust."""
        return self.folder / "ca" / CA_CERTIFICATE

    def records(self) -> list[dict[str, Any]]:
        """The decisions in the audit log so far."""
        return decisions(self.folder / "audit_log")

    def statistic(self, name: str) -> int:
        """The sum of Envoy's statistics whose name ends like this."""
        with urllib.request.urlopen(f"{self.admin}/stats?format=json", timeout=PATIENCE) as answer:
            every = json.load(answer)["stats"]
        return sum(each.get("value", 0) for each in every if each.get("name", "").endswith(name))


@contextlib.contextmanager
def inspecting(
    folder: Path,
    upstream_ca: Path,
    *,
    secret_ttl: int = secret_discovery.SECRET_TTL,
    **settings: str,
) -> Iterator[InspectingEnvoy]:
    """An Envoy with its services, from their readiness to their end."""
    folder.mkdir(parents=True, exist_ok=True)
    usual = {"agent": "mybot", "store": "memory:", "audit_log": str(folder / "audit_log")}
    chosen = settings_of(usual | LOOPBACK | settings, kind=ProxySettings)
    with contextlib.ExitStack() as stack:
        stack.enter_context(resolving())
        stack.enter_context(_trusting(upstream_ca))
        services = Services(chosen, folder, secret_ttl)
        stack.callback(services.close)
        configuration = folder / "envoy.yaml"
        text = envoy_configuration(
            chosen,
            listen="127.0.0.1:0",
            service=_address(services.envoy),
            sds=_address(services.sds),
            trusted=str(upstream_ca),
        )
        admin = "admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }\n"
        text = text.replace(_HANDSHAKE, "transport_socket_connect_timeout: 3s")
        # These tests read counters, which the configuration turns off.
        assert text.count("stats_config:") == 1
        configuration.write_text(admin + text.replace("stats_config:", "# stats_config:"))
        envoy = stack.enter_context(_running(folder, configuration, services))
        yield envoy


@contextlib.contextmanager
def _running(folder: Path, configuration: Path, services: Services) -> Iterator[InspectingEnvoy]:
    output, where = folder / "envoy.log", folder / "admin"
    options = ["--concurrency", "1", "--log-level", "warn", "--disable-hot-restart"]
    options += ["--admin-address-path", str(where)]
    command = [envoy_binary(), "-c", str(configuration), *options]
    with output.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        admin = f"http://{eventually(lambda: _text(process, where, output), PATIENCE)}"
        port = eventually(lambda: _port(process, admin, output), PATIENCE)
        services.own.append(("127.0.0.1", port))
        yield InspectingEnvoy("127.0.0.1", port, folder, services, process, admin, output)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()


def _text(process: subprocess.Popen[bytes], path: Path, output: Path) -> str:
    assert process.poll() is None, output.read_text()
    return path.read_text() if path.exists() else ""


def _port(process: subprocess.Popen[bytes], admin: str, output: Path) -> int:
    """The port of the listener for crawlers, when Envoy accepts connections."""
    assert process.poll() is None, output.read_text()
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(f"{admin}/ready", timeout=PATIENCE) as answer:
            if answer.read() != b"LIVE\n":
                return 0
        with urllib.request.urlopen(f"{admin}/listeners?format=json", timeout=PATIENCE) as answer:
            for each in json.load(answer)["listener_statuses"]:
                if each["name"] == "crawlers":
                    return int(each["local_address"]["socket_address"]["port_value"])
    return 0
