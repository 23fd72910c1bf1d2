"""Metrics of a proxy for Prometheus, on a loopback port of its own.

The guard's counts are read when the metrics are requested; only the duration of decisions is
observed as they happen.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from robots_guard.core.verdict import Action, Decision
from robots_guard.errors import SettingsError
from robots_guard.mitmproxy.body_memory import MEMORY

_ACTIONS = frozenset(Action)
_SECONDS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.01, 0.1, 1.0, 5.0, 35.0)


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """The sources of the figures: totals, unfinished and waiting flows, and whether requests are judged.

    They are read in the thread that serves the metrics, also while the event loop is blocked.
    """

    counts: Callable[[], Counts[str]]
    under_way: Callable[[], int]
    waiting: Callable[[], int]
    ready: Callable[[], bool]
    body_bytes: Callable[[], int] = lambda: MEMORY.used


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
        """Serve the metrics on a port of 127.0.0.1, in a thread. Raises SettingsError."""
        try:
            start_http_server(port, "127.0.0.1", registry=self._registry)
        except OSError as error:
            raise SettingsError(
                f"--metrics {port}: cannot listen on 127.0.0.1 ({error.strerror}): choose another port"
            ) from None

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
        for name, count in sorted(dict(self._source.counts()).items()):
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
        yield GaugeMetricFamily(
            "robots_guard_body_bytes",
            "Bytes of request bodies in memory.",
            self._source.body_bytes(),
        )
        yield GaugeMetricFamily(
            "robots_guard_ready", "Whether requests are judged.", float(self._source.ready())
        )
