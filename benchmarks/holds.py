"""The cost of held requests in a real mitmdump: memory, stalls of the event loop, and effects on
other traffic.

    python benchmarks/holds.py [--held 2000] [--places 10000] [--seconds 10]

Many clients wait at once, each for a different origin that was just requested (Crawl-delay: 60),
while one client keeps requesting a site without a delay. They have a few addresses, because a client
holds no more requests than there are places left. Then one more client opens connections until it is
refused, and another one must still find a place. In the end all clients disconnect.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from origins import Origins

ADDRESSES = 16  # of the clients that wait
EXAMPLE = Path(__file__).parents[1] / "examples" / "mitmproxy_addon.py"

# An addon that prints the longest stall of the event loop and the number of waiting requests as
# JSON, every 0.1 s.
BEAT = """
import asyncio, json, time
from mitmproxy import ctx
async def beat():
    worst, printed = 0.0, time.monotonic()
    with open({path!r}, "w") as file:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            worst = max(worst, time.monotonic() - before - 0.005)
            if time.monotonic() > printed + 0.1:
                held = ctx.master.addons.get("robots_guard_enforcer").waiting()
                print(json.dumps([time.time(), worst, held]), file=file, flush=True)
                worst, printed = 0.0, time.monotonic()
def running():
    global task
    ctx.master.addons.get("robots_guard_enforcer")._waits._most = {places}
    task = asyncio.ensure_future(beat())
"""


@contextlib.contextmanager
def mitmdump(folder: Path, places: int) -> Iterator[tuple[int, int]]:
    """Run mitmdump, and yield its port and process id."""
    script = folder / "beat.py"
    script.write_text(BEAT.format(places=places, path=str(folder / "beats")))
    values = {
        "confdir": folder,
        "flow_detail": 0,
        "robots_guard_agent": "mybot",
        "robots_guard_store": "memory:",
        "robots_guard_audit_log": folder / "audit_log",
        "robots_guard_hold_max": 36_000,
        "robots_guard_allow_private": "127.0.0.0/8",
        "robots_guard_connect_ports": "1-65535",
    }
    sets = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    listen = ["--listen-host", "127.0.0.1", "--listen-port", "0"]
    program = Path(sys.executable).parent / "mitmdump"
    command = [str(program), *listen, "-s", str(EXAMPLE), "-s", str(script), *sets]
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        while not (folder / "beats").exists() or "listening at" not in log.read_text():
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        listening = re.search(r"listening at [0-9.]+:([0-9]+)", log.read_text())
        assert listening is not None
        yield int(listening[1]), process.pid
    finally:
        process.terminate()
        process.wait()


class Client:
    """A connection to the proxy from an address of the loopback network."""

    def __init__(self, port: int, timeout: float = 120, address: str = "127.0.0.1") -> None:
        self.connection = socket.create_connection(
            ("127.0.0.1", port), timeout=timeout, source_address=(address, 0)
        )

    def ask(self, url: str) -> None:
        authority = url.split("/")[2]
        self.connection.sendall(f"GET {url} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())

    def answer(self) -> int:
        """Return the status of the response."""
        return int(self.reply()[0].split()[1])

    def reply(self) -> tuple[bytes, bytes]:
        """Return the head and the body of the response."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, end, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *([0-9]+)", head, re.IGNORECASE)
        while length and len(body) < int(length[1]):
            body += self._more()
        return head + end, body

    def _more(self) -> bytes:
        data = self.connection.recv(65536)
        if not data:
            raise ConnectionResetError("the proxy closed the connection")
        return data


def resident(pid: int) -> float:
    """Return the resident memory of a process, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def traffic(port: int, url: str, seconds: float) -> list[float]:
    """Return the milliseconds of each request of one client, in batches on fresh connections."""
    spent, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.perf_counter()
        client = Client(port)
        client.ask(f"{url}/{len(spent)}")
        assert client.answer() == 200
        client.connection.close()
        spent.append((time.perf_counter() - began) * 1000)
        time.sleep(0.005)
    return spent


def stalls(folder: Path, begins: float, ends: float) -> float:
    """Return the milliseconds of the longest stall in that time."""
    beats = [json.loads(line) for line in (folder / "beats").read_text().splitlines()]
    return max((worst for at, worst, _ in beats if begins <= at <= ends + 0.1), default=0.0) * 1000


def waiting(folder: Path) -> int:
    held: int = json.loads((folder / "beats").read_text().splitlines()[-1])[2]
    return held


def show(when: str, spent: list[float], stall: float, memory: float) -> None:
    ordered = sorted(spent)
    middle, late = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    printed = f"other traffic {middle:6.1f} ms median {late:6.1f} ms p99 ({len(spent)} requests)"
    print(f"  {when:22} {printed}   longest stall {stall:5.1f} ms   RSS {memory:6.1f} MiB")


def measured(when: str, folder: Path, port: int, pid: int, url: str, seconds: float) -> float:
    begins = time.time()
    spent = traffic(port, url, seconds)
    memory = resident(pid)
    time.sleep(0.2)
    show(when, spent, stalls(folder, begins, time.time()), memory)
    return memory


def run(slow: Origins, quick: Origins, options: argparse.Namespace) -> None:
    with (
        tempfile.TemporaryDirectory() as temporary,
        mitmdump(Path(temporary), options.places) as (port, pid),
    ):
        folder = Path(temporary)
        clients = [
            Client(port, address=f"127.0.0.{2 + number % ADDRESSES}")
            for number in range(options.held)
        ]
        for number, client in enumerate(clients):
            client.ask(f"{slow.url(number)}/first")
            assert client.answer() == 200
        print(f"{options.held} clients:")
        measured("before", folder, port, pid, quick.url(0), options.seconds)
        begins = time.time()
        for client in clients:
            client.ask(f"{quick.url(0)}/burst")
        assert {client.answer() for client in clients} == {200}
        time.sleep(0.2)
        print(
            f"  as many at once that need not wait: longest stall {stalls(folder, begins, time.time()):.1f} ms"
        )
        before, begins = resident(pid), time.time()
        for number, client in enumerate(clients):
            client.ask(f"{slow.url(number)}/second")
        while waiting(folder) < options.held:
            time.sleep(0.1)
        print(
            f"  {waiting(folder)} held, longest stall while they came {stalls(folder, begins, time.time()):.1f} ms"
        )
        during = measured("while they are held", folder, port, pid, quick.url(0), options.seconds)
        print(f"  {(during - before) * 1024 / options.held:.1f} KiB for each that is held")
        crowd = besiege(
            folder, port, [slow.url(number) for number in range(options.held)], options.places
        )
        measured("while one holds the rest", folder, port, pid, quick.url(0), options.seconds)
        begins = time.time()
        for client in (*clients, *crowd):
            client.connection.close()
        while waiting(folder):
            time.sleep(0.05)
        print(f"  all gone {time.time() - begins:.2f} s after they left")
        measured("when they have left", folder, port, pid, quick.url(0), options.seconds)
        sent = [target for _, target, _ in slow.received()]
        assert not {"/second", "/third"} & set(sent), "a held request reached its origin"


def besiege(folder: Path, port: int, urls: Sequence[str], places: int) -> list[Client]:
    """Let one client ask for more than it may hold, and another one for one page more."""
    held, crowd, selector = waiting(folder), [], selectors.DefaultSelector()
    for number in range(places // 2 + 1):
        crowd.append(Client(port, address="127.0.0.250"))
        selector.register(crowd[-1].connection, selectors.EVENT_READ, crowd[-1])
        crowd[-1].ask(f"{urls[number % len(urls)]}/third")
    refused = 0
    while waiting(folder) + refused < held + len(crowd):
        refused = len(selector.select(0.5))
    statuses = Counter(key.data.answer() for key, _ in selector.select(0))
    print(
        f"  another client asks for {len(crowd)} pages, and holds {len(crowd) - refused}: {statuses}"
    )
    crowd.append(Client(port, address="127.0.0.251"))
    crowd[-1].ask(f"{urls[0]}/third")
    while waiting(folder) < held + len(crowd) - refused:
        time.sleep(0.1)
    print("  a further client still finds a place")
    return crowd


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--held", type=int, default=2000, help="number of clients that wait at once"
    )
    parser.add_argument("--places", type=int, default=10_000, help="places for held requests")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="seconds of other traffic per measurement"
    )
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with Origins("User-agent: *\nCrawl-delay: 60\n") as slow, Origins("") as quick:
        run(slow, quick, options)


if __name__ == "__main__":
    main()
