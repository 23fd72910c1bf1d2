"""Real proxies as context managers: `mitmdump -s "$(python -m robots_guard.mitmproxy)"` and `robots-guard proxy`.

    with proxy(folder, agent="mybot") as integration:
        subprocess.run(["curl", "-x", integration.url, ...])
        integration.records()

Both are programs of their own, with the command line of a user, in the environment the tests run in. They are forks of
a process that has imported mitmproxy, since a start takes 1.5 s of CPU otherwise; `anew=True` starts one afresh.
"""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.audit_log import decisions
from support.preloaded import Preloaded, Program

import robots_guard

ROOT = Path(__file__).parents[3]
SCRIPT = Path(robots_guard.__file__).parent / "mitmproxy" / "script.py"
PROGRAMS = Path(sys.executable).parent
PATIENCE = 60.0  # seconds for a start or a stop; a start takes about 1.5

#: For sites on loopback, at ports of their own, and tests that wait for a turn but not for long.
LOOPBACK = {"allow_private": "127.0.0.0/8", "connect_ports": "1-65535", "hold_max": "3"}
#: Seconds that end before a robots.txt that could not be fetched is tried again, so that a request
#: is judged once.
NO_RETRY = "0.9"

_LISTENS = {
    "mitmdump": re.compile(r"listening at (?P<host>[0-9.]+):(?P<port>[0-9]+)"),
    "proxy": re.compile(
        r" on (?:http|socks5h|wireguard)://(?P<host>[0-9.]+):(?P<port>[0-9]+) \(CA"
    ),
}
_RUNS = re.compile(r"robots_guard: guarding")

#: A process that has imported what the two proxies need.
_FORKS = Preloaded(
    ["-W", "ignore::DeprecationWarning"],  # mitmproxy's own, of pyparsing and ldap3; only on import
    [
        "mitmproxy.tools.dump",
        "robots_guard.audit.write.log",
        "robots_guard.app.cli",
        "robots_guard.guard.fetch.http",
        "robots_guard.mitmproxy",
        "robots_guard.guard.stores.memory",
        "robots_guard.guard.stores.sqlite",
        "robots_guard.mitmproxy.launcher",
    ],
)


@dataclass
class Integration:
    """A running proxy."""

    kind: str
    host: str
    port: int
    folder: Path
    process: subprocess.Popen[bytes] | Program
    output: list[str]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def ca(self) -> Path:
        """The certificate that clients must trust."""
        return self.folder / "ca" / "mitmproxy-ca-cert.pem"

    def records(self) -> list[dict[str, Any]]:
        """The decisions in the audit log so far."""
        return decisions(self.folder / "audit_log")


def arguments(
    kind: str, folder: Path, settings: dict[str, str | None], options: Sequence[str] = ()
) -> list[str]:
    """The command line of a proxy whose store, audit log and CA are in `folder`. A setting that is
    None is left to the configuration."""
    usual = {
        "store": "memory:",
        "audit_log": str(folder / "audit_log"),
        **LOOPBACK,
        "hold_max": NO_RETRY,
    }
    chosen = {name: value for name, value in (usual | settings).items() if value is not None}
    if kind == "proxy":
        flags = [
            f"--{name.replace('_', '-')}={value}".removesuffix("=true")
            for name, value in chosen.items()
        ]
        own = ["--listen", "127.0.0.1:0", "--confdir", str(folder / "ca")]
        return [str(PROGRAMS / "robots-guard"), "proxy", *own, *flags, *options]
    sets = [f"robots_guard_{name}={value}" for name, value in chosen.items()]
    own = [f"confdir={folder / 'ca'}", "flow_detail=0"]
    script = [] if "-s" in options else ["-s", str(SCRIPT)]
    sets = [part for each in own + sets for part in ("--set", each)]
    listen = ["--listen-host", "127.0.0.1", "--listen-port", "0"]
    return [str(PROGRAMS / "mitmdump"), *listen, *sets, *script, *options]


def upstream_ca(kind: str, ca: Path) -> list[str]:
    """The options by which a proxy trusts a private CA for origins."""
    return (
        ["--upstream-ca", str(ca)]
        if kind == "proxy"
        else ["--set", f"ssl_verify_upstream_trusted_ca={ca}"]
    )


def environment() -> dict[str, str]:
    """The environment without settings of robots_guard: the tests choose those."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("ROBOTS_GUARD_")
    }
    return kept | {"PYTHONUNBUFFERED": "1", "ROBOTS_GUARD_CONFIG": ""}


@contextmanager
def running(
    kind: str,
    folder: Path,
    options: Sequence[str] = (),
    *,
    anew: bool = False,
    started: Callable[[int], None] = lambda pid: None,
    **settings: str | None,
) -> Iterator[Integration]:
    """A proxy, from its readiness to its end. `started` gets the process id before it is ready."""
    settings.setdefault("agent", "mybot")
    folder.mkdir(parents=True, exist_ok=True)
    printed, end = os.pipe()
    process = _start(arguments(kind, folder, settings, options), end, anew)
    os.close(end)
    started(process.pid)
    output: list[str] = []
    lines: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read, args=(printed, output, lines), daemon=True)
    reader.start()
    try:
        host, port = _first(_LISTENS[kind], lines, output).group("host", "port")
        if kind == "mitmdump":  # it listens before it runs, and until it runs any error ends it
            _first(_RUNS, lines, output)
        yield Integration(kind, host, int(port), folder, process, output)
    finally:
        with process:
            process.terminate()
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()
                process.wait()
                reader.join(PATIENCE)


def _start(command: Sequence[str], end: int, anew: bool) -> subprocess.Popen[bytes] | Program:
    with Path(os.devnull).open("rb") as nothing:
        if anew:
            return subprocess.Popen(
                command, stdin=nothing, stdout=end, stderr=end, env=environment()
            )
        return _FORKS.start(command, environment(), stdin=nothing.fileno(), stdout=end, stderr=end)


def mitmdump(folder: Path, options: Sequence[str] = (), **settings: str) -> Any:
    """A plain mitmdump with the script that the package contains."""
    return running("mitmdump", folder, options, **settings)


def proxy(folder: Path, options: Sequence[str] = (), **settings: str) -> Any:
    """A `robots-guard proxy`."""
    return running("proxy", folder, options, **settings)


def refused_start(
    kind: str, folder: Path, options: Sequence[str] = (), **settings: str
) -> tuple[int, str]:
    """Exit status and everything printed by a proxy that should not start."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"agent": "mybot"} | settings
    given: dict[str, str | None] = {name: value for name, value in settings.items() if value}
    command = arguments(kind, folder, {"hold_max": None} | given, options)  # nothing is held
    done = _FORKS.run(command, environment(), PATIENCE)
    return done.returncode, done.stdout + done.stderr


def _read(printed: int, output: list[str], lines: queue.Queue[str | None]) -> None:
    with open(printed, errors="backslashreplace") as text:  # the log may contain bytes from clients
        for line in text:
            output.append(line)
            lines.put(line)
    lines.put(None)


def _first(
    pattern: re.Pattern[str], lines: queue.Queue[str | None], output: list[str]
) -> re.Match[str]:
    while (line := lines.get(timeout=PATIENCE)) is not None:
        if found := pattern.search(line):
            return found
    raise AssertionError("the proxy did not start:\n" + "".join(output))
