"""One app without a plan that is autoscaled: the loads of its executors, and the replicas that they should have."""

from __future__ import annotations

from collections.abc import Iterator

from cornserve.app.adaptation import AdaptationStatus, StageLoad
from cornserve.app.settings import AutoscaledExecutor, AutoscalingSettings
from cornserve.control.arrival_reader import Arrivals
from cornserve.control.followed_app import SpecChange
from cornserve.control.metrics import ControllerMetrics
from cornserve.control.store.base import AppRecord
from cornserve_policies.arrivals import ArrivalHistory
from cornserve_policies.autoscaling import LONGEST_HISTORY, RunningStage, StageAutoscaling, StageChange

REPORTED_DIFFERENCE = 0.1
"""The status has another load if it differs by more than this share of a replica's capacity."""


class AutoscaledStage:
    """One executor of the app.

    Args:
        replicas: the number of replicas that should run.
        now: seconds. The load is counted from then on.
    """

    def __init__(self, executor: AutoscaledExecutor, settings: AutoscalingSettings, replicas: int, now: float) -> None:
        self.executor = executor
        self.running = RunningStage(replicas, now)
        self._loads = ArrivalHistory(LONGEST_HISTORY, now)
        self._policy = StageAutoscaling(settings.limits(executor))

    def update(self, replicas: int, now: float) -> None:
        """Applies a newer number of replicas."""
        if replicas != self.running.replicas:
            self.running = RunningStage(replicas, now)

    def observe(self, arrivals: Arrivals, groups: set[str], now: float) -> None:
        """Adds the load of the executor's groups since the last call."""
        counts = arrivals.tokens if self.executor.unit == "tokens" else arrivals.invocations
        loads = {group: counts.get(group, 0) for group in groups}
        self._loads.add(loads, now, is_complete=arrivals.is_complete)

    def decide(self, now: float) -> StageChange | None:
        """Returns the replicas to run instead, or None."""
        return self._policy.decide(self.running, self._loads, now)

    def load(self, now: float) -> StageLoad:
        """Returns the load as the status has it."""
        return StageLoad(
            name=self.executor.name,
            unit=self.executor.unit,
            load=float(f"{self._policy.load(self._loads, now):.2g}"),
            capacity=self.executor.capacity,
        )


class AutoscaledApp:
    """Observes one app, and decides when its executors run other numbers of replicas.

    Args:
        now: seconds. The loads are counted from then on.
    """

    def __init__(self, record: AppRecord, settings: AutoscalingSettings, now: float) -> None:
        self.record = record
        self.settings = settings
        self.status = AdaptationStatus()
        self._stages = [
            AutoscaledStage(executor, settings, record.spec.replicas_of(executor.name), now)
            for executor in settings.executors
        ]

    def update(self, record: AppRecord, now: float) -> None:
        self.record = record
        for stage in self._stages:
            stage.update(record.spec.replicas_of(stage.executor.name), now)

    def observe(self, arrivals: Arrivals, now: float) -> None:
        for stage in self._stages:
            groups = {group.key for group in self.record.status.groups if group.executor == stage.executor.name}
            stage.observe(arrivals, groups, now)
        loads = [stage.load(now) for stage in self._stages]
        known = self.status.executors
        if len(known) != len(loads) or any(map(_differ, known, loads)):
            self.status = AdaptationStatus(executors=loads)

    def next_change(self, now: float, *, may_change: bool) -> SpecChange | None:
        if not may_change:
            return None
        changes = {stage: change for stage in self._stages if (change := stage.decide(now)) is not None}
        if not changes:
            return None
        replicas = {stage.executor.name: change.replicas for stage, change in changes.items()}
        messages = [
            f"{change.reason}: runs {change.replicas} replicas of {stage.executor.name} instead of "
            f"{stage.running.replicas}"
            for stage, change in changes.items()
        ]
        return SpecChange(
            {"executor_replicas": {**self.record.spec.executor_replicas, **replicas}}, "; ".join(messages)
        )

    def news(self, before: AdaptationStatus) -> Iterator[tuple[str, str]]:
        yield from ()

    def publish(self, metrics: ControllerMetrics, now: float) -> None:
        metrics.set_loads(self.record.name, [(stage.load(now), stage.running.replicas) for stage in self._stages])


def _differ(known: StageLoad, load: StageLoad) -> bool:
    return abs(known.load - load.load) > REPORTED_DIFFERENCE * load.capacity
