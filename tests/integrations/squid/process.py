"""A real Squid with a decision service, as a context manager.

    with squid(folder, agent="mybot") as integration:
        subprocess.run(["curl", "-x", integration.url, ...])
        integration.records()

Squid has the configuration that the package writes. Started by root, it runs as Debian's user `proxy`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from integrations.mitmproxy.process import (
    LOOPBACK,
    PATIENCE,
    PROGRAMS,
    Integration,
    environment,
)
from support.preloaded import Preloaded, Program
from support.programs import program
from support.waiting import eventually

from robots_guard.configuration.settings import ProxySettings, settings_of
from robots_guard.gateway.listeners import Address
from robots_guard.serve.configurations import render
from robots_guard.serve.plan import Plan

# Squid 5.7 does not find an address in a certificate, and the sites of these tests have no names.
BY_ADDRESS = (
    "sslproxy_cert_error deny all",
    "acl by_address ssl_error SQUID_X509_V_ERR_DOMAIN_MISMATCH\n"
    "sslproxy_cert_error allow by_address\nsslproxy_cert_error deny all",
)

_FORKS = Preloaded(
    [],
    [
        "robots_guard.audit.write.log",
        "robots_guard.app.cli",
        "robots_guard.guard.fetch.http",
        "robots_guard.serve.icap",
        "robots_guard.serve.launcher",
        "robots_guard.guard.stores.memory",
        "robots_guard.guard.stores.sqlite",
    ],
)


@dataclass
class Service:
    """A `robots-guard serve` that can be killed, stopped and started again at the same port."""

    folder: Path
    settings: dict[str, str]
    data_plane: str
    options: list[str]
    port: int
    process: Program | None = None

    @property
    def output(self) -> str:
        """What it has printed."""
        path = self.folder / "service.log"
        return path.read_text(errors="backslashreplace") if path.exists() else ""

    def start(self) -> None:
        """Start it, and wait until it listens."""
        before = self.output.count("guarding")
        flags = [
            f"--{name.replace('_', '-')}={value}".removesuffix("=true")
            for name, value in self.settings.items()
        ]
        own = ["--icap", f"127.0.0.1:{self.port}", "--data-plane", self.data_plane]
        command = [str(PROGRAMS / "robots-guard"), "serve", *own, *self.options, *flags]
        with (
            Path(os.devnull).open("rb") as nothing,
            (self.folder / "service.log").open("ab") as out,
        ):
            streams = {"stdin": nothing.fileno(), "stdout": out.fileno(), "stderr": out.fileno()}
            self.process = _FORKS.start(command, environment(), **streams)
        eventually(lambda: self._is_listening(before), PATIENCE)

    def _is_listening(self, before: int) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.output
        return self.output.count("guarding") > before

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it, and wait for its end."""
        if self.process is None:
            return
        with self.process:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
            try:
                self.process.wait(PATIENCE)
            finally:
                self.process.kill()
                self.process.wait()
        self.process = None


@dataclass
class SquidIntegration(Integration):
    """A running Squid with its decision service."""

    service: Service = None  # type: ignore[assignment]
    logs: Path = None  # type: ignore[assignment]

    def cache_log(self) -> str:
        """Squid's own messages."""
        return (self.logs / "cache.log").read_text(errors="backslashreplace")


@contextmanager
def squid(
    folder: Path,
    *,
    upstream_ca: Path | None = None,
    change: Callable[[str], str] = str,
    **settings: str,
) -> Iterator[SquidIntegration]:
    """A Squid and its service, from their readiness to their end. `change` gets the text of the
    configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"agent": "mybot", "store": "memory:", "audit_log": str(folder / "audit_log")}
    given |= LOOPBACK | settings
    port, icap = _free_port(), _free_port()
    options = ["--upstream-ca", str(upstream_ca)] if upstream_ca else []
    service = Service(folder, given, f"127.0.0.1:{port}", options, icap)
    plan = Plan(
        settings=settings_of(given, kind=ProxySettings),
        listen={"icap": Address(host="127.0.0.1", port=icap)},
        data_plane=Address(host="127.0.0.1", port=port),
        confdir=_certificate_authority(folder),
        upstream_ca=upstream_ca,
    )
    with contextlib.ExitStack() as stack:
        logs = _folder_for_squid()
        stack.callback(shutil.rmtree, logs)
        stack.callback(service.end)
        service.start()
        text = render("squid", plan).replace("/var/log/squid", str(logs))
        text = change(
            text.replace(*BY_ADDRESS).replace("shutdown_lifetime 5", "shutdown_lifetime 0")
        )
        (folder / "squid.conf").write_text(f"{text}pid_filename {logs / 'squid.pid'}\n")
        process = _started(folder, logs, port)
        stack.callback(_end, process)
        yield SquidIntegration(
            "squid", "127.0.0.1", port, folder, process, [], service=service, logs=logs
        )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def _folder_for_squid() -> Path:
    """A folder that Squid's user can write to."""
    folder = Path(tempfile.mkdtemp(prefix="robots-guard-squid-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "proxy")
    return folder


def _certificate_authority(folder: Path) -> Path:
    """A folder with a CA in the files that mitmproxy uses."""
    place, authority = folder / "ca", trustme.CA()
    place.mkdir()
    authority.cert_pem.write_to_path(str(place / "mitmproxy-ca-cert.pem"))
    both = authority.private_key_pem.bytes() + authority.cert_pem.bytes()
    (place / "mitmproxy-ca.pem").write_bytes(both)
    return place


def _started(folder: Path, logs: Path, port: int) -> subprocess.Popen[bytes]:
    """A Squid that accepts connections."""
    command = [program("squid"), "-N", "-f", str(folder / "squid.conf")]
    with (folder / "squid.out").open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment()
        )
    if eventually(lambda: _state(process, port), PATIENCE) == "ready":
        return process
    log = logs / "cache.log"
    said = log.read_text() if log.exists() else ""
    raise AssertionError((folder / "squid.out").read_text() + said)


def _state(process: subprocess.Popen[bytes], port: int) -> str:
    if process.poll() is not None:
        return "ended"
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return "ready"
    return ""


def _end(process: subprocess.Popen[Any]) -> None:
    with process:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
