"""Prometheus metrics of a controller."""

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
    def round(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._round_seconds.observe(time.perf_counter() - started)

    def error(self) -> None:
        self._errors += 1

    def observe(self, replicas: Sequence[Replica]) -> None:
        """Counts those that have failed since."""
        failed = {replica.id: replica.group for replica in replicas if replica.state is ReplicaState.FAILED}
        self._failures.update(failed[id] for id in failed.keys() - self._failed)
        self._failed = set(failed)

    def status(self, app: str, before: AppStatus, now: AppStatus) -> None:
        """Counts what begins to be served."""
        if now.route is not None and (before.route is None or before.route.generation != now.route.generation):
            self._rollouts[app] += 1

    def retain(self, apps: set[str], groups: set[str]) -> None:
        """Forgets the others."""
        for counts, names in ((self._rollouts, apps), (self._failures, groups)):
            for name in counts.keys() - names:
                del counts[name]

    def collect(self) -> Iterator[Metric]:
        """Called by the thread that serves them."""
        replicas = GaugeMetricFamily("cornserve_controller_replicas", "Replicas, by state.", labels=["group", "state"])
        counts = Counter((replica.group, replica.state) for replica in self._launcher.replicas())
        for (group, state), count in counts.items():
            replicas.add_metric([group, state], count)
        failures = _counter("replica_failures", "Replicas that ended, or could not start, unasked.", ["group"])
        for key, count in self._failures.copy().items():
            failures.add_metric([key], count)
        rollouts = _counter("rollouts", "Generations of an app that began to be served.", ["app"])
        for app, count in self._rollouts.copy().items():
            rollouts.add_metric([app], count)
        errors = _counter("reconcile_errors", "What failed in a round, and is tried again.", [])
        errors.add_metric([], self._errors)
        seconds = HistogramMetricFamily("cornserve_controller_reconcile_seconds", "How long a round takes.")
        self._round_seconds.add_to(seconds)
        yield from (replicas, failures, rollouts, errors, seconds)


def _counter(name: str, meaning: str, labels: list[str]) -> CounterMetricFamily:
    return CounterMetricFamily(f"cornserve_controller_{name}", meaning, labels=labels)
