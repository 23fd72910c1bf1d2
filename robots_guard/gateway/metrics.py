"""Metrics for Prometheus, on a loopback port of their own, and /ready and /health for health checks.

The guard's counts are read when the metrics are requested; only the duration of decisions is
observed as they happen.

A record of the audit log is written before its decision is released, in the event loop itself. So a
disk that does not respond blocks the whole process, and only the thread that serves the metrics can
report it: a heartbeat shows it whether the loop still runs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter as Counts
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import ClassVar

from prometheus_client import CollectorRegistry, Counter, Histogram, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from robots_guard.decisions.verdict import Action, Decision, Exemption
from robots_guard.errors import SettingsError

EVERY = 1.0  # seconds between two beats
#: Seconds after which the loop counts as blocked: longer than one iteration of a busy loop.
STALE = 5.0


class Heartbeat:
    """Beats in an event loop while that runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._beat()

    def is_recent(self) -> bool:
        """Whether the loop has run recently. Safe to call from any thread."""
        return time.monotonic() - self._last < STALE

    def _beat(self) -> None:
        self._last = time.monotonic()
        self._loop.call_later(EVERY, self._beat)


_ACTIONS = frozenset(Action)
#: Counts that are 0 before the first failure: `increase` misses the first of a count that begins at 1.
FAILURES = (
    "accept/error",
    "audit_log/error",
    "drop/internal-error",
    "drop/unrecorded",
    "escaped",
    "no_room",
    "overrides/invalid",
    "overrides/unread",
    "rules/error",
    "store/damaged",
    "store/error",
    "turn/lapsed",
)
_SECONDS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.01, 0.1, 1.0, 5.0, 35.0)


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """The sources of the figures: totals, unfinished and waiting flows, and whether requests are judged.
    `body_bytes` is None where no bodies are held, and `is_alive` whether the event loop runs.

    They are read in the thread that serves the metrics, also while the event loop is blocked.
    """

    counts: Callable[[], Counts[str]]
    under_way: Callable[[], int]
    waiting: Callable[[], int]
    exemptions: Callable[[], tuple[Exemption, ...]]
    ready: Callable[[], bool]
    body_bytes: Callable[[], int] | None = None
    is_alive: Callable[[], bool] = lambda: True


class Metrics(Collector):
    """The collector of the metrics. `observe` must be called with each decision."""

    def __init__(self, source: MetricsSource) -> None:
        self._source = source
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._took = Histogram(
            "robots_guard_decision_seconds",
            "From question to verdict.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._policies = Counter(
            "robots_guard_policies",
            "Decisions by the source of their policy: memory, the store, or a fetch.",
            ["source"],
            registry=self._registry,
        )
        self._relaxed = Counter(
            "robots_guard_relaxed",
            "Decisions that a setting relaxed.",
            ["setting"],
            registry=self._registry,
        )

    def observe(self, decision: Decision) -> None:
        """Observe a decision."""
        self._took.observe(decision.elapsed)
        if decision.source:
            self._policies.labels(decision.source).inc()
        if decision.verdict.relaxed is not None:
            self._relaxed.labels(decision.verdict.relaxed).inc()

    def serve(self, port: int) -> None:
        """Serve the metrics and /ready on a port of 127.0.0.1, in threads. Raises SettingsError."""
        handler = type(
            "_BoundHandler", (_Handler,), {"registry": self._registry, "source": self._source}
        )
        try:
            server = _Server(("127.0.0.1", port), handler)
        except OSError as error:
            raise SettingsError(
                f"--metrics {port}: cannot listen on 127.0.0.1 ({error.strerror}): choose another port"
            ) from None
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()

    def collect(self) -> Iterator[Metric]:
        """Return the current metrics to the registry."""
        yield from self._counters()
        yield from self._gauges()

    def _counters(self) -> Iterator[Metric]:
        verdicts = CounterMetricFamily(
            "robots_guard_verdicts", "Verdicts.", labels=["action", "reason"]
        )
        events = CounterMetricFamily(
            "robots_guard_events", "Fetches and failures.", labels=["event"]
        )
        counts = dict.fromkeys(FAILURES, 0) | dict(self._source.counts())
        for name, count in sorted(counts.items()):
            action, _, reason = name.partition("/")
            if action in _ACTIONS:
                verdicts.add_metric([action, reason], count)
            else:
                events.add_metric([name], count)
        yield verdicts
        yield events

    def _gauges(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "robots_guard_flows",
            "Permitted requests that have not ended.",
            self._source.under_way(),
        )
        yield GaugeMetricFamily(
            "robots_guard_held", "Requests that wait for their turn.", self._source.waiting()
        )
        if self._source.body_bytes is not None:
            yield GaugeMetricFamily(
                "robots_guard_body_bytes",
                "Bytes of request bodies in memory.",
                self._source.body_bytes(),
            )
        expiry = GaugeMetricFamily(
            "robots_guard_override_expiry_timestamp_seconds",
            "When an override expires or has expired, in seconds since 1970.",
            labels=["override"],
        )
        for name, expires in {each.id: each.expires for each in self._source.exemptions()}.items():
            expiry.add_metric([name], expires)
        yield expiry
        yield GaugeMetricFamily(
            "robots_guard_ready", "Whether requests are judged.", float(self._source.ready())
        )


class _Handler(MetricsHandler):
    """Answers /ready (requests are judged) and /health (the process runs), and every other path with
    the metrics.

    /ready of the proxy's own page asks for the credentials of `--proxyauth`, and does not answer
    while the event loop is blocked. This one does.
    """

    source: ClassVar[MetricsSource]

    def do_GET(self) -> None:  # noqa: N802  (the name of the base class)
        """Answer a request."""
        path = self.path.partition("?")[0]
        if path == "/ready":
            self._answer("ready", self.source.ready())
        elif path == "/health":
            self._answer("healthy", self.source.is_alive())
        else:
            super().do_GET()

    def _answer(self, state: str, is_so: bool) -> None:
        body = f"{state}\n".encode() if is_so else f"not {state}\n".encode()
        self.send_response(200 if is_so else 503)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
