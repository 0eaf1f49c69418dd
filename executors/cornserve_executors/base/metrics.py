"""Prometheus metrics of an executor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


@dataclass(slots=True)
class Observed:
    code: str = "CANCELLED"


class Metrics:
    def __init__(self, gauges: Callable[[], Mapping[str, float]]) -> None:
        self.registry = CollectorRegistry()
        self._running = Gauge("cornserve_executor_running", "Invocations that run.", registry=self.registry)
        self._ended = Counter(
            "cornserve_executor_invocations", "Invocations that ended, by code.", ["code"], registry=self.registry
        )
        self._seconds = Histogram(
            "cornserve_executor_invocation_seconds",
            "From start to end of an invocation.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.registry.register(_Gauges(gauges))

    @contextmanager
    def invocation(self) -> Iterator[Observed]:
        observed = Observed()
        started = time.perf_counter()
        self._running.inc()
        try:
            yield observed
        finally:
            self._running.dec()
            self._ended.labels(observed.code).inc()
            self._seconds.observe(time.perf_counter() - started)


class _Gauges(Collector):
    """The executor's own figures, read when they are asked for."""

    def __init__(self, read: Callable[[], Mapping[str, float]]) -> None:
        self._read = read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, value in self._read().items():
            yield GaugeMetricFamily(name, name, value=value)
