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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import trustme
from integrations.mitmproxy.process import LOOPBACK, PATIENCE, Integration, environment
from robots_guard.serve.icap.configuration import SquidPaths, squid_configuration
from support.preloaded import Preloaded, Program
from support.programs import program
from support.waiting import eventually

from robots_guard.settings import ProxySettings

SERVICE = Path(__file__).with_name("service.py")
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
        "robots_guard.fetch.http",
        "robots_guard.serve.icap.server",
        "robots_guard.stores.memory",
        "robots_guard.stores.sqlite",
    ],
)


@dataclass
class Service:
    """A decision service that can be killed, stopped and started again at the same port."""

    folder: Path
    settings: dict[str, str]
    environment: dict[str, str]
    port: int = 0
    process: Program | None = None
    output: Path = field(init=False)

    def __post_init__(self) -> None:
        self.output = self.folder / "service.log"

    def start(self) -> None:
        """Start it and wait until it listens."""
        before = self._lines()
        command = [str(SERVICE), msgspec.json.encode(self.settings | {"port": self.port}).decode()]
        with Path(os.devnull).open("rb") as nothing, self.output.open("ab") as out:
            self.process = _FORKS.start(
                command,
                self.environment,
                stdin=nothing.fileno(),
                stdout=out.fileno(),
                stderr=out.fileno(),
            )
        line = eventually(lambda: self._listening(before), PATIENCE)
        self.port = int(line.rpartition(":")[2])

    def _lines(self) -> int:
        return len(self.output.read_text().splitlines()) if self.output.exists() else 0

    def _listening(self, before: int) -> str:
        assert self.process is not None
        lines = self.output.read_text(errors="backslashreplace").splitlines()[before:]
        assert self.process.poll() is None, lines
        return next((line for line in lines if line.startswith("listening at")), "")

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

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def cache_log(self) -> str:
        """Squid's own messages."""
        return (self.logs / "cache.log").read_text(errors="backslashreplace")


@contextmanager
def squid(
    folder: Path,
    *,
    upstream_ca: Path | None = None,
    change: Callable[[str], str] = lambda text: text.replace(*BY_ADDRESS),
    **settings: str,
) -> Iterator[SquidIntegration]:
    """A Squid and its service, from their readiness to their end. `change` gets the text of the
    configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"agent": "mybot", "store": "memory:", "audit_log": str(folder / "audit_log")}
    given |= LOOPBACK | settings
    variables = environment() | ({"SSL_CERT_FILE": str(upstream_ca)} if upstream_ca else {})
    service = Service(folder, given, variables)
    with contextlib.ExitStack() as stack:
        logs = _folder_for_squid()
        stack.callback(shutil.rmtree, logs)
        stack.callback(service.end)
        service.start()
        parsed = msgspec.convert(given, ProxySettings, strict=False)
        ca = _certificate_authority(folder)
        upstream = str(upstream_ca or "")
        paths = SquidPaths(
            listen="127.0.0.1:{port}",
            icap=f"127.0.0.1:{service.port}",
            ca=str(ca),
            upstream_ca=upstream,
            logs=str(logs),
            pid_file=str(logs / "squid.pid"),
            files=4096,
        )
        text = change(squid_configuration(parsed, paths)) + "\nshutdown_lifetime 0 seconds\n"
        process, port = _started(folder, logs, text)
        stack.callback(_end, process)
        yield SquidIntegration(
            "squid", "127.0.0.1", port, folder, process, [], service=service, logs=logs
        )


def _folder_for_squid() -> Path:
    """A folder that Squid's user can write to."""
    folder = Path(tempfile.mkdtemp(prefix="robots-guard-squid-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "proxy")
    return folder


def _certificate_authority(folder: Path) -> Path:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    both = folder / "ca-with-key.pem"
    both.write_bytes(authority.cert_pem.bytes() + authority.private_key_pem.bytes())
    return both


def _started(folder: Path, logs: Path, text: str) -> tuple[subprocess.Popen[bytes], int]:
    """A Squid that accepts connections, and its port."""
    for _ in range(5):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        (folder / "squid.conf").write_text(text.replace("{port}", str(port)))
        process = _start_squid(folder)
        if _becomes_ready(process, port):
            return process, port
    raise AssertionError((folder / "squid.out").read_text() + (logs / "cache.log").read_text())


def _start_squid(folder: Path) -> subprocess.Popen[bytes]:
    command = [program("squid"), "-N", "-f", str(folder / "squid.conf")]
    with (folder / "squid.out").open("wb") as out:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment()
        )


def _becomes_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    return eventually(lambda: _state(process, port), PATIENCE) == "ready"


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
