"""The proxy compared with bare mitmdump, interleaved in one run: requests/s, CPU per request, p50
and p99.

    python benchmarks/proxy.py [--requests N] [--rounds N] [--only WORD] [--flows N]

Every proxy is a separate process on one core; the sites and the client share another. A round
drives each proxy in turn with each kind of traffic over persistent connections, warm. The best
round counts, by the CPU time of the proxy, because the wall clock of a shared machine depends on
other load. Exits with 1 if a goal is missed. `--flows 100000` measures memory instead.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import trustme
from proxying import Multiplexed, OneByOne, drive

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
TICK = os.sysconf("SC_CLK_TCK")
BARE = "mitmdump -q"
NOTHING = (
    "class Nothing:\n    def request(self, flow): pass\n"
    "    def response(self, flow): pass\naddons = [Nothing()]\n"
)


@dataclass
class Result:
    """The best round: microseconds of CPU per request, requests/s, seconds."""

    cpu: float = float("inf")
    rate: float = 0.0
    p50: float = float("inf")
    p99: float = float("inf")

    def keep(self, cpu: float, rate: float, taken: list[float]) -> None:
        ordered = sorted(taken)
        self.cpu, self.rate = min(self.cpu, cpu), max(self.rate, rate)
        self.p50 = min(self.p50, ordered[len(ordered) // 2])
        self.p99 = min(self.p99, ordered[len(ordered) * 99 // 100])


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
        """The seconds of CPU used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    @property
    def rss(self) -> float:
        """The resident memory in megabytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def commands(place: Path) -> dict[str, list[str]]:
    (place / "nothing.py").write_text(NOTHING)
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
        chosen = common | {"store": store, "audit_log": str(place / audit_log)}
        return [
            *dump,
            *script,
            *[part for name in chosen for part in ("--set", f"robots_guard_{name}={chosen[name]}")],
        ]

    def launcher(store: str, audit_log: str) -> list[str]:
        chosen = common | {"store": store, "audit_log": str(place / audit_log)}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]
        return [str(BIN / "robots-guard"), "proxy", "--upstream-ca", str(place / "ca.pem"), *flags]

    confdir = ["--confdir", str(place / "conf")]
    return {
        BARE: dump,
        "+ no-op addon": [*dump, "-s", str(place / "nothing.py")],
        "+ robots_guard, memory": addon("memory:", "j1"),
        "+ robots_guard, SQLite": addon(f"sqlite:///{place / 'a.sqlite'}", "j2"),
        "robots-guard proxy, memory": [*launcher("memory:", "j3"), *confdir],
        "robots-guard proxy, SQLite": [
            *launcher(f"sqlite:///{place / 'b.sqlite'}", "j4"),
            *confdir,
        ],
    }


@contextlib.contextmanager
def started(name: str, command: list[str], ca: Path) -> Iterator[Running]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    listen = (
        ["--listen", f"127.0.0.1:{port}"]
        if "proxy" in command[:2]
        else ["--listen-port", str(port)]
    )
    with subprocess.Popen([*command, *listen], stdout=subprocess.DEVNULL, text=True) as process:
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
        if kind.startswith("HTTP "):
            authority = f"127.0.0.1:{self.ports[0]}"
            return OneByOne(connection, _head(f"http://{authority}{page}", authority))
        h2 = kind.startswith("h2 ")
        authority = f"127.0.0.1:{self.ports[2 if h2 and 'h1' not in kind else 1]}"
        secure = self._tunnel(connection, authority, proxy.ca, "h2" if h2 else "http/1.1")
        if not h2 or secure.selected_alpn_protocol() != "h2":
            return OneByOne(secure, _head(page, authority))
        headers = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", authority),
            (":path", page),
        ]
        return Multiplexed(secure, headers, 4)

    @staticmethod
    def _tunnel(connection: socket.socket, authority: str, ca: Path, alpn: str) -> ssl.SSLSocket:
        connection.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        while not connection.recv(4096).endswith(b"\r\n\r\n"):
            pass
        context = ssl.create_default_context(cafile=str(ca))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.set_alpn_protocols([alpn])
        return context.wrap_socket(connection, server_hostname="127.0.0.1")


def _head(target: str, authority: str) -> bytes:
    return (
        f"GET {target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: mybot/1.0 (+https://example.org/bot)\r\n"
        "Accept: text/html,*/*;q=0.8\r\nAccept-Encoding: gzip\r\n\r\n"
    ).encode()


KINDS = {"HTTP": 16, "HTTPS": 16, "h2": 4, "HTTP denied": 16, "HTTPS denied": 16}


def measure(proxy: Running, traffic: Traffic, kind: str, requests: int) -> None:
    spelt = f"{kind} "
    connections = KINDS[kind]
    drive(lambda: traffic.connect(spelt, proxy), connections, 200)
    before = proxy.cpu
    taken = drive(lambda: traffic.connect(spelt, proxy), connections, requests)
    cpu = (proxy.cpu - before) / len(taken)
    rate = connections / (sum(taken) / len(taken)) * (4 if kind == "h2" else 1)
    proxy.results.setdefault(kind, Result()).keep(cpu * 1e6, rate, taken)


# -- the report ------------------------------------------------------------------------------------


def goals(proxies: dict[str, Running]) -> list[tuple[str, float, float]]:
    """Return each goal: its name, the figure, and the minimum."""
    bare = proxies[BARE].results
    found = []
    for name, proxy in proxies.items():
        for kind in ("HTTP", "HTTPS", "h2"):
            if "robots_guard" in name and kind in bare:
                found.append(
                    (f"{name} / bare, {kind}", bare[kind].cpu / proxy.results[kind].cpu, 0.95)
                )
            elif "robots-guard" in name and kind in bare:
                found.append(
                    (f"{name} / bare, {kind}", bare[kind].cpu / proxy.results[kind].cpu, 1.5)
                )
        for kind in ("HTTP", "HTTPS"):
            denied = proxy.results.get(f"{kind} denied")
            if denied and kind in proxy.results:
                found.append(
                    (f"{name}, {kind}: denied / allowed", proxy.results[kind].cpu / denied.cpu, 1.0)
                )
    return found


def report(proxies: dict[str, Running]) -> bool:
    for kind in KINDS:
        print(f"\n{kind:<28}{'CPU us':>9}{'req/s':>9}{'p50 ms':>9}{'p99 ms':>9}")
        for name, proxy in proxies.items():
            if result := proxy.results.get(kind):
                times = f"{result.p50 * 1e3:>9.2f}{result.p99 * 1e3:>9.2f}"
                print(f"{name:<28}{result.cpu:>9.0f}{result.rate:>9.0f}{times}")
    print()
    met = True
    for what, figure, least in goals(proxies):
        met &= figure >= least
        print(f"{'ok  ' if figure >= least else 'MISS'} {what}: {figure:.2f} (goal {least})")
    return met


def watch_memory(proxies: dict[str, Running], traffic: Traffic, flows: int) -> bool:
    flat = True
    for name, proxy in proxies.items():
        drive(lambda proxy=proxy: traffic.connect("HTTP ", proxy), 16, 5000)
        first = proxy.rss
        for kind in ("HTTP", "HTTPS", "HTTP denied"):
            drive(lambda kind=kind, proxy=proxy: traffic.connect(f"{kind} ", proxy), 16, flows // 3)
        flat &= proxy.rss - first < 8
        print(
            f"{name:<28} {first:.1f} MB after 5,000 flows, {proxy.rss:.1f} MB after {flows:,} more"
        )
    return flat


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--requests", type=int, default=3000)
    options.add_argument("--rounds", type=int, default=4)
    options.add_argument(
        "--only", default="", help="only proxies whose name contains this word, and the bare one"
    )
    options.add_argument("--flows", type=int, default=0)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        place = Path(folder)
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
        for name, command in commands(place).items():
            if chosen.only in name or name == BARE:
                ca = place / "conf" / "mitmproxy-ca-cert.pem"
                proxies[name] = stack.enter_context(started(name, command, ca))
        if chosen.flows:
            sys.exit(not watch_memory(proxies, traffic, chosen.flows))
        for _ in range(chosen.rounds):
            for kind in KINDS:
                for name, proxy in proxies.items():
                    if "denied" not in kind or "robots" in name:
                        measure(proxy, traffic, kind, chosen.requests)
        sys.exit(not report(proxies))


if __name__ == "__main__":
    main()
