"""The decision service as a program: its listeners, workers, metrics and signals.

    SIGTERM, SIGINT   drain: new and held requests are refused, the responses to permitted ones are
                      awaited for at most `drain` seconds; a second SIGINT ends it at once
    SIGHUP            the overrides are read again

The sockets are opened before the workers are forked, so that all workers accept from the same ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from robots_guard.configuration.settings import REPORT_ONLY
from robots_guard.gateway.decision_log import LOGGER as DECISIONS
from robots_guard.gateway.listeners import listening, raise_file_limit, report_exhaustion
from robots_guard.gateway.workers import Say, run
from robots_guard.serve.peers import Peers, PeerService, peers_of
from robots_guard.serve.plan import Plan, check
from robots_guard.serve.service import STARTS, DecisionService, Running, Server

log = logging.getLogger("robots_guard")

#: The sockets of each protocol: one for all workers, or one for each.
Listeners = Mapping[str, Sequence[socket.socket]]

_LOG_EVERY = 5.0  # seconds between two checks for counts to be logged
_CLOSE_TIMEOUT = 2.0  # seconds for the last answers to be written
_POLL = 0.05  # seconds between two checks for requests that are under way


def serve(plan: Plan, announce: Callable[[Plan], None]) -> None:
    """Run a decision service until SIGINT or SIGTERM. `announce` is called when it listens. Raises
    SettingsError."""
    check(plan)
    raise_file_limit()
    _log_to_standard_error()
    with _listeners(plan) as listeners, peers_of(plan.workers) as peers:
        if plan.workers == 1:
            _run(plan, listeners, peers, 0, lambda: announce(plan))
            return

        def work(number: int, say: Say) -> None:
            _run(plan, listeners, peers, number, lambda: say({}))

        run(plan.workers, work, lambda _: announce(plan))


@contextmanager
def _listeners(plan: Plan) -> Iterator[Listeners]:
    with contextlib.ExitStack() as opened:
        yield {
            name: [
                opened.enter_context(listening(address, f"--{name}"))
                for address in plan.addresses_of(name)
            ]
            for name in plan.listen
        }


def _run(
    plan: Plan, listeners: Listeners, peers: Peers, number: int, started: Callable[[], None]
) -> None:
    """Run one worker to its end."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(Worker(plan, listeners, peers, number).run(started))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes an event loop: uvloop, which takes less CPU time for each question; or None for
    asyncio's own, if uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class Worker:
    """One process of the service. `number` counts them from 0."""

    def __init__(self, plan: Plan, listeners: Listeners, peers: Peers, number: int) -> None:
        self._plan = plan
        self._listeners = listeners
        self._peers = peers
        self._number = number

    async def run(self, started: Callable[[], None]) -> None:
        """Serve until a signal, and drain. Raises SettingsError."""
        loop, plan = asyncio.get_running_loop(), self._plan
        self._stopped, self._forced = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)
        service = PeerService(self._peers, self._number, plan)
        report_exhaustion(loop, lambda: service.counts)
        try:
            loop.add_signal_handler(signal.SIGHUP, service.reload_overrides)
            servers = await self._start(service)
            started()
            _end_log_windows(loop, service)
            await self._stopped.wait()
            service.drain()
            await self._until_answered(service)
            await self._end(servers)
        finally:
            await service.close()

    async def _start(self, service: PeerService) -> list[Server]:
        self._serve_metrics(service)
        servers: list[Server] = [await service.listen()]
        for name, sockets in self._listeners.items():
            listener = sockets[self._number % len(sockets)]
            running = Running(self._plan, service, listener, self._number)
            servers.append(await STARTS[name](running))
        return servers

    async def _end(self, servers: Sequence[Server]) -> None:
        """Close the servers, and wait until the answers are written."""
        for server in servers:
            server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                for server in servers:
                    await server.wait_closed()

    def _serve_metrics(self, service: DecisionService) -> None:
        if self._plan.metrics is None:
            return
        from robots_guard.gateway.metrics import Heartbeat, Metrics, MetricsSource

        heartbeat = Heartbeat(asyncio.get_running_loop())
        source = MetricsSource(
            counts=lambda: service.counts,
            under_way=service.under_way,
            waiting=lambda: service.waiting,
            exemptions=lambda: service.exemptions,
            ready=lambda: service.fault is None and heartbeat.is_recent(),
            is_alive=heartbeat.is_recent,
        )
        metrics = Metrics(source)
        metrics.serve(self._plan.metrics + self._number)
        service.on_decision = metrics.observe

    def _stop(self, number: int) -> None:
        if self._stopped.is_set() and number == signal.SIGINT:
            self._forced.set()
        self._stopped.set()

    async def _until_answered(self, service: DecisionService) -> None:
        """Wait for the requests that are under way, for at most `drain` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._plan.drain):
                while service.under_way() and not self._forced.is_set():  # noqa: ASYNC110  requests can end in many ways
                    await asyncio.sleep(_POLL)


def _end_log_windows(loop: asyncio.AbstractEventLoop, service: DecisionService) -> None:
    """Log counts of repeated decisions when they are due, also while no decision is made."""
    service.end_log_windows()
    loop.call_later(_LOG_EVERY, _end_log_windows, loop, service)


def _log_to_standard_error() -> None:
    printer = logging.StreamHandler()
    printer.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    # gRPC would report each stream that the shutdown ends, with a traceback.
    printer.addFilter(lambda record: not record.name.startswith("grpc"))
    logging.getLogger().addHandler(printer)
    logging.getLogger(DECISIONS).setLevel(logging.INFO)


def notice(plan: Plan) -> str:
    """The line that the program prints when it listens."""
    settings = plan.settings
    places = ", ".join(f"{name} on {address}" for name, address in plan.listen.items())
    log_place, store = settings.shown("audit_log"), settings.shown("store")
    text = f"guarding {settings.agent}, {places} (audit log: {log_place}; store: {store})"
    if settings.report_only:
        text += f"; {REPORT_ONLY}"
    return text
