"""Prometheus metrics of the controller."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from cornserve.app.record import AppStatus, ReplicaState
from cornserve.control.launcher.base import Launcher, Replica, ReplicaId
from cornserve.observe.histogram import Histogram


class ControllerMetrics(Collector):
    def __init__(self, launcher: Launcher) -> None:
        self.registry = CollectorRegistry()
        self._launcher = launcher
        self._failed: set[ReplicaId] = set()
        self._failures: Counter[str] = Counter()
        self._rollouts: Counter[str] = Counter()
        self._errors = 0
        self._round_seconds = Histogram()
        ProcessCollector(registry=self.registry)
        self.registry.register(self)

    @contextmanager
    def time_round(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._round_seconds.observe(time.perf_counter() - started)

    def count_error(self) -> None:
        self._errors += 1

    def observe(self, replicas: Sequence[Replica]) -> None:
        """Counts the replicas that have failed since the last call."""
        failed = {replica.id: replica.group for replica in replicas if replica.state is ReplicaState.FAILED}
        self._failures.update(failed[id] for id in failed.keys() - self._failed)
        self._failed = set(failed)

    def count_rollout(self, app: str, before: AppStatus, now: AppStatus) -> None:
        """Counts a rollout if the route has a new generation."""
        if now.serving_generation not in (None, before.serving_generation):
            self._rollouts[app] += 1

    def retain(self, apps: set[str], groups: set[str]) -> None:
        """Removes the counters of all apps and groups except these."""
        for counts, names in ((self._rollouts, apps), (self._failures, groups)):
            for name in counts.keys() - names:
                del counts[name]

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics. Prometheus calls this in the thread of its server."""
        replicas = GaugeMetricFamily("cornserve_controller_replicas", "Replicas by state.", labels=["group", "state"])
        counts = Counter((replica.group, replica.state) for replica in self._launcher.replicas())
        for (group, state), count in counts.items():
            replicas.add_metric([group, state], count)
        failures = _counter("replica_failures", "Replicas that failed or could not start.", ["group"])
        for key, count in self._failures.copy().items():
            failures.add_metric([key], count)
        rollouts = _counter("rollouts", "Generations of an app that have been routed to.", ["app"])
        for app, count in self._rollouts.copy().items():
            rollouts.add_metric([app], count)
        errors = _counter("reconcile_errors", "Operations of a reconcile round that failed and are retried.", [])
        errors.add_metric([], self._errors)
        seconds = HistogramMetricFamily("cornserve_controller_reconcile_seconds", "Duration of a reconcile round.")
        self._round_seconds.add_to(seconds)
        yield from (replicas, failures, rollouts, errors, seconds)


def _counter(name: str, description: str, labels: list[str]) -> CounterMetricFamily:
    return CounterMetricFamily(f"cornserve_controller_{name}", description, labels=labels)
