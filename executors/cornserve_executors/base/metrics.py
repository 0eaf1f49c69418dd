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
from cornserve_executors.base.compute_time import ComputeClock


@dataclass(slots=True)
class InvocationOutcome:
    code: str = "CANCELLED"


class ExecutorMetrics(Collector):
    """Counts invocations, and exports the executor's own metrics with them."""

    def __init__(self, executor_metrics: Callable[[], Iterable[Metric]]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._executor_metrics = executor_metrics
        self._running = 0
        self.waiting = 0
        """The number of running invocations that wait for tensors of other invocations."""
        self.compute_clock = ComputeClock()
        self._ended: Counter[str] = Counter()
        self._seconds = Histogram()
        self.registry.register(self)

    def count_refused(self) -> None:
        """Counts an invocation that the queue limit refused."""
        self._ended["RESOURCE_EXHAUSTED"] += 1

    @contextmanager
    def invocation(self) -> Iterator[InvocationOutcome]:
        outcome = InvocationOutcome()
        started = time.perf_counter()
        self._running += 1
        try:
            yield outcome
        finally:
            self._running -= 1
            self._ended[outcome.code] += 1
            self._seconds.observe(time.perf_counter() - started)

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics. Called by the thread that serves them."""
        yield GaugeMetricFamily("cornserve_executor_invocations_running", "Invocations that run.", value=self._running)
        yield GaugeMetricFamily(
            "cornserve_executor_invocations_waiting",
            "Running invocations that wait for tensors of other invocations.",
            value=self.waiting,
        )
        ended = CounterMetricFamily(
            "cornserve_executor_invocations", "Invocations that have ended, by code.", labels=["code"]
        )
        for code, count in self._ended.copy().items():
            ended.add_metric([code], count)
        yield ended
        seconds = HistogramMetricFamily("cornserve_executor_invocation_seconds", "From start to end of an invocation.")
        self._seconds.add_to(seconds)
        yield seconds
        yield CounterMetricFamily(
            "cornserve_executor_compute_seconds",
            "Time in which at least one invocation did not wait for tensors.",
            value=self.compute_clock.busy_seconds,
        )
        yield from self._executor_metrics()
