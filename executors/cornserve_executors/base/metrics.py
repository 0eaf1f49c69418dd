"""Prometheus metrics of an executor."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from cornserve.observe.histogram import Histogram


@dataclass(slots=True)
class Observed:
    code: str = "CANCELLED"


class Metrics(Collector):
    """Counts invocations, and adds what the executor says of itself."""

    def __init__(self, own: Callable[[], Iterable[Metric]]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._own = own
        self._running = 0
        self.waiting = 0
        """Of the invocations that run, those that wait for tensors of others."""
        self._ended: Counter[str] = Counter()
        self._seconds = Histogram()
        self.registry.register(self)

    def refused(self) -> None:
        """An invocation for which there was no room."""
        self._ended["RESOURCE_EXHAUSTED"] += 1

    @contextmanager
    def invocation(self) -> Iterator[Observed]:
        observed = Observed()
        started = time.perf_counter()
        self._running += 1
        try:
            yield observed
        finally:
            self._running -= 1
            self._ended[observed.code] += 1
            self._seconds.observe(time.perf_counter() - started)

    def collect(self) -> Iterator[Metric]:
        """Called by the thread that serves them."""
        yield GaugeMetricFamily("cornserve_executor_running", "Invocations that run.", value=self._running)
        yield GaugeMetricFamily(
            "cornserve_executor_waiting", "Of these, those that wait for tensors of others.", value=self.waiting
        )
        ended = CounterMetricFamily(
            "cornserve_executor_invocations", "Invocations that ended, by code.", labels=["code"]
        )
        for code, count in self._ended.copy().items():
            ended.add_metric([code], count)
        yield ended
        seconds = HistogramMetricFamily("cornserve_executor_invocation_seconds", "From start to end of an invocation.")
        self._seconds.add_to(seconds)
        yield seconds
        yield from self._own()
