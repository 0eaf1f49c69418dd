"""Prometheus metrics of the controller."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from cornserve.app.adaptation_status import AutoscaledLoad
from cornserve.app.record import AppStatus, ReplicaState, occupies_gpus
from cornserve.control.launcher.base import Launcher, Replica, ReplicaId
from cornserve.control.replica_time import ReplicaTime
from cornserve.observe.histogram import Histogram

START_SECONDS = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
"""Bounds of the times that replicas take to start."""


class ControllerMetrics(Collector):
    def __init__(self, launcher: Launcher) -> None:
        self.registry = CollectorRegistry()
        self._launcher = launcher
        self._failed: set[ReplicaId] = set()
        self._failures: Counter[str] = Counter()
        self._starting: dict[ReplicaId, float] = {}
        """The times at which the replicas that start were seen first."""
        self._start_seconds: dict[str, Histogram] = {}
        """The times of starts, by executor group."""
        self._replica_time = ReplicaTime({}, {}, time.monotonic())
        self._rollouts: Counter[str] = Counter()
        self._adaptations: Counter[str] = Counter()
        self._rates: dict[str, Mapping[str, tuple[float, float]]] = {}
        """The planned and the observed rate of each type, by app."""
        self._loads: dict[str, Sequence[tuple[AutoscaledLoad, int]]] = {}
        """The loads and the numbers of replicas of autoscaled executors, by app."""
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
        """Counts the replicas that have failed since the last call, and the times of those that have become ready."""
        failed = {replica.id: replica.group for replica in replicas if replica.state is ReplicaState.FAILED}
        self._failures.update(failed[id] for id in failed.keys() - self._failed)
        self._failed = set(failed)
        now = time.monotonic()
        self._replica_time = self._replica_time.then(
            Counter(each.group for each in replicas if occupies_gpus(each.state, each.reason)), now
        )
        for replica in replicas:
            if replica.state is ReplicaState.READY and replica.id in self._starting:
                histogram = self._start_seconds.setdefault(replica.group, Histogram(START_SECONDS))
                histogram.observe(now - self._starting[replica.id])
        starting = (replica.id for replica in replicas if replica.state is ReplicaState.STARTING)
        self._starting = {id: self._starting.get(id, now) for id in starting}

    def count_rollout(self, app: str, before: AppStatus, now: AppStatus) -> None:
        """Counts a rollout if the route has a new generation."""
        if now.serving_generation not in (None, before.serving_generation):
            self._rollouts[app] += 1

    def count_adaptation(self, app: str) -> None:
        """Counts a change of the running cells or of the replicas, because the load has changed."""
        self._adaptations[app] += 1

    def set_rates(self, app: str, rates: Mapping[str, tuple[float, float]]) -> None:
        """Sets the planned and the observed requests per second of each type of a planned app."""
        self._rates[app] = rates

    def set_loads(self, app: str, loads: Sequence[tuple[AutoscaledLoad, int]]) -> None:
        """Sets the loads and the numbers of replicas of the executors of an autoscaled app."""
        self._loads[app] = loads

    def forget_loads(self, app: str) -> None:
        """Removes the rates and loads of an app that no longer follows its load."""
        self._rates.pop(app, None)
        self._loads.pop(app, None)

    def retain(self, apps: set[str], groups: set[str]) -> None:
        """Removes the counters of all apps and groups except these."""
        for counts, names in ((self._rollouts, apps), (self._adaptations, apps), (self._failures, groups)):
            for name in counts.keys() - names:
                del counts[name]
        for name in self._start_seconds.keys() - groups:
            del self._start_seconds[name]
        self._replica_time = self._replica_time.of(groups)

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics. Prometheus calls this in the thread of its server."""
        replicas = GaugeMetricFamily("cornserve_controller_replicas", "Replicas by state.", labels=["group", "state"])
        counts = Counter((replica.group, replica.state) for replica in self._launcher.replicas())
        for (group, state), count in counts.items():
            replicas.add_metric([group, state], count)
        failures = _counter("replica_failures", "Replicas that failed or could not start.", ["group"])
        for key, count in self._failures.copy().items():
            failures.add_metric([key], count)
        starts = HistogramMetricFamily(
            "cornserve_controller_replica_start_seconds", "Time until a replica is ready.", labels=["group"]
        )
        for key, histogram in self._start_seconds.copy().items():
            histogram.add_to(starts, [key])
        replica_seconds = _counter("replica_seconds", "Time for which replicas occupied GPUs or slots.", ["group"])
        for key, spent in self._replica_time.seconds(time.monotonic()).items():
            replica_seconds.add_metric([key], spent)
        rollouts = _counter("rollouts", "Generations of an app that have been routed to.", ["app"])
        for app, count in self._rollouts.copy().items():
            rollouts.add_metric([app], count)
        errors = _counter("reconcile_errors", "Operations of a reconcile round that failed and are retried.", [])
        errors.add_metric([], self._errors)
        seconds = HistogramMetricFamily("cornserve_controller_reconcile_seconds", "Duration of a reconcile round.")
        self._round_seconds.add_to(seconds)
        adaptations = _counter(
            "adaptations", "Changes of an app's cells, plan or replicas, because its load changed.", ["app"]
        )
        for app, count in self._adaptations.copy().items():
            adaptations.add_metric([app], count)
        yield from (
            replicas,
            failures,
            starts,
            replica_seconds,
            rollouts,
            errors,
            seconds,
            adaptations,
            *self._rate_metrics(),
            *self._load_metrics(),
        )

    def _rate_metrics(self) -> Iterator[Metric]:
        planned, observed = (
            GaugeMetricFamily(f"cornserve_controller_{name}_requests_per_second", description, labels=["app", "type"])
            for name, description in (
                ("planned", "Requests of a type that the running cells of an app with a plan serve."),
                ("arriving", "Requests of a type that arrive at an app with a plan, over a minute by default."),
            )
        )
        for app, rates in self._rates.copy().items():
            for kind, (planned_rate, observed_rate) in rates.items():
                planned.add_metric([app, kind], planned_rate)
                observed.add_metric([app, kind], observed_rate)
        yield from (planned, observed)

    def _load_metrics(self) -> Iterator[Metric]:
        labels = ["app", "executor", "unit"]
        load = GaugeMetricFamily(
            "cornserve_controller_executor_load", "Load per second of an autoscaled executor.", labels=labels
        )
        capacity = GaugeMetricFamily(
            "cornserve_controller_executor_capacity",
            "Load per second that the replicas of an autoscaled executor take together.",
            labels=labels,
        )
        for app, loads in self._loads.copy().items():
            for each, replicas in loads:
                if each.load is not None:
                    load.add_metric([app, each.name, each.unit], each.load)
                capacity.add_metric([app, each.name, each.unit], each.capacity * replicas)
        yield from (load, capacity)


def _counter(name: str, description: str, labels: list[str]) -> CounterMetricFamily:
    return CounterMetricFamily(f"cornserve_controller_{name}", description, labels=labels)
