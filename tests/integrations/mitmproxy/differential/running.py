"""Running cases: one proxy, many lanes, a case at a time in each."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import trustme
from integrations.mitmproxy.differential.cases import Case, Way, case
from integrations.mitmproxy.differential.client import Client, Entrance, NoEntry
from integrations.mitmproxy.differential.grammar import LAST
from integrations.mitmproxy.differential.judging import Judgement, Request, Violation, judge, passes
from integrations.mitmproxy.differential.origin import LIMIT, SIGN, Lane, Temper, lanes
from integrations.mitmproxy.process import Integration, running, upstream_ca

MODES = ("regular", "socks5", "reverse", "upstream")
#: The verdict is forgotten with a client that has gone.
_TRIPWIRE = re.compile("answered without a verdict")
#: With more, a proxy that shares its core answers a client after it has left (cases.QUIET).
LANES = 12
_ENTRIES = {"regular": "absolute", "upstream": "absolute", "socks5": "socks", "reverse": "direct"}
PROTOCOLS = ("http", "tls", "h2")
_FAULT = re.compile(r"Traceback|crashed|robots_guard failed|Task exception|never retrieved")


@dataclass
class Result:
    """What a run has shown."""

    cases: dict[int, Case]
    judgement: Judgement
    # Exceptions in the proxy's log, clients not let in or not served, requests that never end.
    faults: list[str]
    noted: list[str]  # what happens under load when a client leaves while mitmproxy connects for it
    statuses: Counter[str] = field(default_factory=Counter)

    @property
    def violations(self) -> list[Violation]:
        return self.judgement.violations


@dataclass
class Running:
    """A proxy in one mode with its lanes."""

    mode: str
    integration: Integration
    lanes: list[Lane]
    entrances: dict[tuple[Lane, str], Entrance]
    metrics: int | None
    faults: list[str] = field(default_factory=list)
    # Connections to origins that outlive their client.
    kept: list[str] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)

    async def run(self, seeds: Iterable[int]) -> Result:
        """Run the cases of these seeds, and judge everything that has reached the lanes so far."""
        cases: dict[int, Case] = {}
        waiting = iter(seeds)
        client = Client()
        async with asyncio.TaskGroup() as group:
            for lane in self.lanes:
                # Each takes the next seed.
                group.create_task(self._work(client, lane, waiting, cases))
        await self._look_after(client)
        recordings = [recording for lane in self.lanes for recording in lane.recordings]
        judgement = await asyncio.to_thread(judge, recordings, self.passes())
        noted = self.kept + [line for line in self.integration.output if _TRIPWIRE.search(line)]
        return Result(cases, judgement, self.faults, noted, self.statuses)

    def passes(self) -> Counter[Request]:
        """Count what the proxy has let pass so far."""
        return passes(self.integration.folder / "audit_log")

    def case(self, seed: int, lane: Lane) -> Case:
        """Make the case of a seed for a lane."""
        return case(seed, self.mode, {protocol: lane.authority(protocol) for protocol in PROTOCOLS})

    async def _work(
        self, client: Client, lane: Lane, waiting: Iterator[int], cases: dict[int, Case]
    ) -> None:
        for seed in waiting:
            cases[seed] = each = self.case(seed, lane)
            await self.send(client, lane, each)

    async def send(self, client: Client, lane: Lane, each: Case) -> bytes:
        """Send a case, and wait until the proxy has closed what it opened for it."""
        lane.case, lane.temper = each.seed, each.temper
        answered = b""
        try:
            answered = await client.send(each, self.entrances[lane, each.way.origin], lane)
        except (NoEntry, TimeoutError) as error:
            self.faults.append(f"{each}: no entry: {error!r}")
        try:
            await lane.quiet()
        except TimeoutError:
            sent = [(recording.protocol, bytes(recording.data)) for recording in lane.live]
            self.kept.append(f"{each}: the proxy keeps connections to the origin: {sent}")
            lane.give_up()  # the next cases need not wait for them, too
        self.statuses.update(re.findall(r"HTTP/1\.1 (\d\d\d) ", answered.decode("latin-1")))
        return answered

    async def _look_after(self, client: Client) -> None:
        """Note what is wrong with the proxy now. Each lane must still serve a good request."""
        self.faults += logged_faults(self.integration.output)
        for lane in self.lanes:
            way = Way(_ENTRIES[self.mode], "http1", False, "http")
            path = f"/open/after.{LAST}"
            target = f"http://{lane.authority('http')}{path}" if way.entry == "absolute" else path
            data = f"GET {target} HTTP/1.1\r\nHost: {lane.authority('http')}\r\n\r\n".encode()
            good = Case(-1, "afterwards", way, Temper.READS, (data,), patience=LIMIT)
            if SIGN not in await self.send(client, lane, good):
                self.faults.append(f"the proxy does not serve {target} afterwards")
        if self.integration.process.poll() is not None:
            self.faults.append("the proxy has ended")
        self.faults += await self._under_way()

    async def _under_way(self) -> list[str]:
        """Wait until the proxy counts no request that was let pass and is not over."""
        if self.metrics is None:
            return []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIMIT):
                # There is no event for it.
                while flows := await asyncio.to_thread(_flows, self.metrics):
                    await asyncio.sleep(0.05)
                return []
        return [f"{flows} requests never end"]


def logged_faults(output: list[str]) -> list[str]:
    """Return what a proxy's log says went wrong: of a traceback its last line, which names the exception."""
    counted: Counter[str] = Counter()
    in_traceback = False
    for line in output:
        if in_traceback and not line.startswith(" "):
            counted[line.rstrip()] += 1
        elif _FAULT.search(line) and "Traceback" not in line:
            counted[re.sub(r"^[^a-zA-Z]*", "", line.rstrip())] += 1
        in_traceback = "Traceback" in line or (in_traceback and line.startswith(" "))
    return [f"{line} ({count} times)" for line, count in counted.items()]


@contextlib.asynccontextmanager
async def proxied(kind: str, mode: str, folder: Path, count: int = LANES) -> AsyncIterator[Running]:
    """Start lanes, and a proxy in front of them."""
    started = list(lanes(count, "127.5"))
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "origins.pem"))
    certificate = authority.issue_cert(*(lane.address for lane in started))
    for lane in started:
        await lane.start(lambda protocol: _serving(certificate, protocol))
    metrics = _free_port() if kind == "proxy" else None
    options = upstream_ca(kind, folder / "origins.pem")
    options += ["--metrics", str(metrics)] if metrics else []
    specs = _specs(mode, started)
    options += [part for spec, _ in specs for part in ("--mode", spec)]
    proxy = running(kind, folder / "proxy", options, audit="all")
    integration = await asyncio.to_thread(proxy.__enter__)
    try:
        yield Running(mode, integration, started, _entrances(specs, integration, started), metrics)
    finally:
        await asyncio.to_thread(proxy.__exit__, None, None, None)
        for lane in started:
            await lane.stop()


def _specs(mode: str, started: list[Lane]) -> list[tuple[str, dict[tuple[Lane, str], Entrance]]]:
    """Return the proxy's modes. Reverse and upstream are one for each lane, on an address of its own."""
    if mode in ("regular", "socks5"):
        return [(mode, {})]
    port = _free_port()
    specs = []
    for lane in started:
        if mode == "upstream":
            host = lane.address.replace("127.5.", "127.6.", 1)
            entrances = {(lane, protocol): (host, port) for protocol in PROTOCOLS}
            specs.append((f"upstream:http://{lane.authority('parent')}@{host}:{port}", entrances))
            continue
        for number, protocol in enumerate(PROTOCOLS, 6):
            host = lane.address.replace("127.5.", f"127.{number}.", 1)
            scheme = "http" if protocol == "http" else "https"
            specs.append(
                (
                    f"reverse:{scheme}://{lane.authority(protocol)}@{host}:{port}",
                    {(lane, protocol): (host, port)},
                )
            )
    return specs


def _entrances(
    specs: list[tuple[str, dict[tuple[Lane, str], Entrance]]],
    integration: Integration,
    started: list[Lane],
) -> dict[tuple[Lane, str], Entrance]:
    """Return where clients of each lane enter for an origin of each protocol."""
    entrances = {
        (lane, protocol): (integration.host, integration.port)
        for lane in started
        for protocol in PROTOCOLS
    }
    for _, own in specs:
        entrances |= own
    return entrances


def _serving(certificate: trustme.LeafCert, protocol: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    context.set_alpn_protocols([protocol])
    return context


def _flows(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return int(float(re.search(rb"^robots_guard_flows (\S+)", answer.read(), re.MULTILINE)[1]))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
