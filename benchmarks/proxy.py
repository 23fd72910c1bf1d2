"""The proxy compared with bare mitmdump, interleaved in one run: CPU per request and its quartiles,
requests/s, p50 and p99.

    python benchmarks/proxy.py [--requests N] [--rounds N] [--only WORD] [--kinds "A; B"]
                               [--before CHECKOUT] [--flows N]

Every proxy is a separate process on one core; the sites and the client share another. A round
drives each proxy in turn with each kind of traffic over persistent connections, warm. The CPU time
of the proxy counts, because the wall clock of a shared machine depends on other load; a goal is the
median of the rounds' ratios. Exits with 1 if a goal is missed. `--before` also runs the launcher of
another checkout of this project, with the same interpreter. `--flows 100000` measures memory
instead.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import trustme
from corpus import positive
from proxying import Multiplexed, OneByOne, drive

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
BARE = "mitmdump -q"
NOTHING = (
    "class Nothing:\n    def request(self, flow): pass\n"
    "    def response(self, flow): pass\naddons = [Nothing()]\n"
)


@dataclass
class Result:
    """Microseconds of CPU per request, by round; requests/s and seconds of the best round."""

    rounds: list[float] = field(default_factory=list)
    rate: float = 0.0
    p50: float = float("inf")
    p99: float = float("inf")

    def keep(self, cpu: float, rate: float, taken: list[float]) -> None:
        ordered = sorted(taken)
        self.rounds.append(cpu)
        self.rate = max(self.rate, rate)
        self.p50 = min(self.p50, ordered[len(ordered) // 2])
        self.p99 = min(self.p99, ordered[len(ordered) * 99 // 100])

    def ratio_of(self, other: Result) -> float:
        """Return the other's CPU time divided by this one's: the median of the rounds."""
        pairs = zip(other.rounds, self.rounds, strict=True)
        return statistics.median(theirs / own for theirs, own in pairs)


@dataclass
class Running:
    """A running proxy."""

    name: str
    port: int
    process: subprocess.Popen[str]
    ca: Path
    results: dict[str, Result] = field(default_factory=dict)

    @property
    def cpu(self) -> float:
        """The seconds of CPU that all threads have used so far."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    @property
    def rss(self) -> float:
        """The resident memory in megabytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def commands(place: Path) -> dict[str, list[str]]:
    (place / "nothing.py").write_text(NOTHING)
    state = place / "new"
    ca = [
        "--set",
        f"ssl_verify_upstream_trusted_ca={place / 'ca.pem'}",
        "--set",
        f"confdir={place / 'conf'}",
    ]
    dump = [str(BIN / "mitmdump"), "--listen-host", "127.0.0.1", "-q", *ca]
    script = ["-s", str(HERE.parent / "examples" / "mitmproxy_addon.py")]
    common = {"agent": "mybot", "allow_private": "127.0.0.0/8", "connect_ports": "1-65535"}

    def addon(store: str, audit_log: str) -> list[str]:
        chosen = common | {"store": store, "audit_log": str(state / audit_log)}
        return [
            *dump,
            *script,
            *[part for name in chosen for part in ("--set", f"robots_guard_{name}={chosen[name]}")],
        ]

    def launcher(store: str, audit_log: str) -> list[str]:
        chosen = common | {"store": store, "audit_log": str(state / audit_log)}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]
        return [str(BIN / "robots-guard"), "proxy", "--upstream-ca", str(place / "ca.pem"), *flags]

    confdir = ["--confdir", str(place / "conf")]
    return {
        BARE: dump,
        "+ no-op addon": [*dump, "-s", str(place / "nothing.py")],
        "+ robots_guard, memory": addon("memory:", "j1"),
        "+ robots_guard, SQLite": addon(f"sqlite:///{state / 'a.sqlite'}", "j2"),
        "robots-guard proxy, memory": [*launcher("memory:", "j3"), *confdir],
        "robots-guard proxy, SQLite": [
            *launcher(f"sqlite:///{state / 'b.sqlite'}", "j4"),
            *confdir,
        ],
    }


@contextlib.contextmanager
def started(
    name: str, command: list[str], ca: Path, checkout: Path | None = None
) -> Iterator[Running]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    listen = (
        ["--listen", f"127.0.0.1:{port}"]
        if "proxy" in command[:2]
        else ["--listen-port", str(port)]
    )
    environment = {**os.environ, "PYTHONPATH": str(checkout)} if checkout else None
    with subprocess.Popen(
        [*command, *listen], stdout=subprocess.DEVNULL, env=environment, text=True
    ) as process:
        try:
            _pin(process.pid, 0)
            while _refuses(port):
                assert process.poll() is None, f"{name} did not start"
            yield Running(name, port, process, ca)
        finally:
            process.terminate()


def _refuses(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return False
    return True


def _pin(pid: int, core: int) -> None:
    if os.cpu_count() or 1 > 1:
        os.sched_setaffinity(pid, {core})


# -- kinds of traffic ------------------------------------------------------------------------------


class Traffic:
    """Return the kinds of traffic by name. `ports` are those of the sites: clear, TLS, HTTP/2."""

    def __init__(self, ports: list[int], place: Path) -> None:
        self.ports, self.place = ports, place

    def connect(self, kind: str, proxy: Running) -> OneByOne | Multiplexed:
        page = "/private/x" if "denied" in kind else "/open/page.html?a=1"
        connection = socket.create_connection(("127.0.0.1", proxy.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if kind in ("HTTP", "HTTP denied"):
            authority = f"127.0.0.1:{self.ports[0]}"
            return OneByOne(connection, _head(f"http://{authority}{page}", authority))
        h2 = kind.startswith("h2")
        authority = f"127.0.0.1:{self.ports[2 if h2 else 1]}"
        secure = _tunnel(connection, authority, proxy.ca, "h2" if h2 else "http/1.1")
        if not h2 or secure.selected_alpn_protocol() != "h2":
            return OneByOne(secure, _head(page, authority))
        headers = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", authority),
            (":path", page),
        ]
        return Multiplexed(secure, headers, STREAMS.get(kind, 4))


def _tunnel(connection: socket.socket, authority: str, ca: Path, alpn: str) -> ssl.SSLSocket:
    """Open a tunnel to HOST:PORT through a proxy whose CA certificate is `ca`, and TLS in it."""
    connection.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        received = connection.recv(4096)
        assert received, "the proxy has closed the connection"
        answer += received
    context = ssl.create_default_context(cafile=str(ca))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # mitmproxy's CA certificate has no key usage
    context.set_alpn_protocols([alpn])
    return context.wrap_socket(connection, server_hostname=authority.rpartition(":")[0])


def _head(target: str, authority: str) -> bytes:
    return (
        f"GET {target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: mybot/1.0 (+https://example.org/bot)\r\n"
        "Accept: text/html,*/*;q=0.8\r\nAccept-Encoding: gzip\r\n\r\n"
    ).encode()


#: Connections, by the kind of traffic. Every kind is over persistent connections.
KINDS = {
    "HTTP": 16,
    "HTTPS": 16,
    "h2": 4,
    "h2, 64 streams": 1,
    "HTTP denied": 16,
    "HTTPS denied": 16,
    "h2 denied": 4,
}
STREAMS = {"h2, 64 streams": 64}  # on each connection; 4 for other kinds of HTTP/2


def measure(proxy: Running, traffic: Traffic, kind: str, requests: int) -> None:
    connections = KINDS[kind]
    drive(lambda: traffic.connect(kind, proxy), connections, 200)
    before, began = proxy.cpu, time.perf_counter()
    taken = drive(lambda: traffic.connect(kind, proxy), connections, requests)
    cpu = (proxy.cpu - before) / len(taken)
    rate = len(taken) / (time.perf_counter() - began)
    proxy.results.setdefault(kind, Result()).keep(cpu * 1e6, rate, taken)


# -- the report ------------------------------------------------------------------------------------


#: The goals: a bare mitmdump's CPU time divided by the launcher's, at least, by kind of traffic.
MINIMA = {"HTTP": 1.5, "HTTPS": 1.5, "h2": 1.6, "h2, 64 streams": 1.6}


def goals(proxies: dict[str, Running]) -> list[tuple[str, float, float]]:
    """Return each goal: its name, the figure, and the minimum."""
    bare = proxies[BARE].results
    found = []
    for name, proxy in proxies.items():
        for kind, result in proxy.results.items():
            if "robots" not in name or "before" in name:
                continue
            if kind in bare:
                least = MINIMA[kind] if "robots-guard" in name else 0.95
                found.append((f"{name} / bare, {kind}", result.ratio_of(bare[kind]), least))
            allowed = proxy.results.get(kind.removesuffix(" denied"))
            if allowed is not None and allowed is not result:
                found.append((f"{name}, {kind} / allowed", result.ratio_of(allowed), 1.0))
    return found


def report(proxies: dict[str, Running]) -> bool:
    for kind in KINDS:
        columns = f"{'CPU us':>9}{'quartiles':>15}{'req/s':>9}{'p50 ms':>9}{'p99 ms':>9}"
        print(f"\n{kind:<34}{columns}")
        for name, proxy in proxies.items():
            if result := proxy.results.get(kind):
                print(f"{name:<34}{_figures(result)}")
    print()
    met = True
    for what, figure, least in goals(proxies):
        met &= figure >= least
        print(f"{'ok  ' if figure >= least else 'MISS'} {what}: {figure:.2f} (goal {least})")
    return met


def _figures(result: Result) -> str:
    middle = statistics.median(result.rounds)
    times = f"{result.p50 * 1e3:>9.2f}{result.p99 * 1e3:>9.2f}"
    return f"{middle:>9.0f}{_quartiles(result.rounds):>15}{result.rate:>9.0f}{times}"


def _quartiles(rounds: list[float]) -> str:
    """Return the quartiles of several rounds; one has none."""
    if len(rounds) == 1:
        return ""
    low, _, high = statistics.quantiles(rounds, n=4, method="inclusive")
    return f"{low:.0f} - {high:.0f}"


def watch_memory(proxies: dict[str, Running], traffic: Traffic, flows: int) -> bool:
    flat = True
    for name, proxy in proxies.items():
        drive(lambda proxy=proxy: traffic.connect("HTTP", proxy), 16, 5000)
        first = proxy.rss
        for kind in ("HTTP", "HTTPS", "HTTP denied"):
            drive(lambda kind=kind, proxy=proxy: traffic.connect(kind, proxy), 16, flows // 3)
        flat &= proxy.rss - first < 8
        print(
            f"{name:<28} {first:.1f} MB after 5,000 flows, {proxy.rss:.1f} MB after {flows:,} more"
        )
    return flat


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--requests", type=int, default=3000)
    options.add_argument("--rounds", type=positive, default=4)
    options.add_argument(
        "--only", default="", help="only proxies whose name contains this word, and the bare one"
    )
    options.add_argument(
        "--kinds", default="; ".join(KINDS), help="kinds of traffic, separated by `; `"
    )
    options.add_argument("--before", type=Path, help="another checkout, to compare with")
    options.add_argument("--flows", type=int, default=0)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        place = Path(folder)
        for state in ("new", "old"):
            (place / state).mkdir()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(place / "ca.pem"))
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
            str(place / "site.pem")
        )
        sites = subprocess.Popen(
            [sys.executable, str(HERE / "proxying.py"), str(place / "site.pem")],
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(sites.kill)
        _pin(sites.pid, 1)
        _pin(0, 1)
        traffic = Traffic([int(port) for port in sites.stdout.readline().split()], place)
        proxies = {}
        ca = place / "conf" / "mitmproxy-ca-cert.pem"
        for name, command in commands(place).items():
            if chosen.only in name or name == BARE:
                proxies[name] = stack.enter_context(started(name, command, ca))
            if chosen.before and "robots-guard" in name and chosen.only in name:
                old = f"before: {name}"
                command = [part.replace(str(place / "new"), str(place / "old")) for part in command]
                proxies[old] = stack.enter_context(started(old, command, ca, chosen.before))
        if chosen.flows:
            sys.exit(not watch_memory(proxies, traffic, chosen.flows))
        for _ in range(chosen.rounds):
            for kind in chosen.kinds.split("; "):
                for name, proxy in proxies.items():
                    if "denied" not in kind or "robots" in name:
                        measure(proxy, traffic, kind, chosen.requests)
        sys.exit(not report(proxies))


if __name__ == "__main__":
    main()
