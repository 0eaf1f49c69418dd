"""One app without a plan that is autoscaled: the loads of its executors, and the replicas that they should have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from cornserve.app.adaptation_status import AdaptationStatus, AutoscaledLoad
from cornserve.app.settings import AutoscaledExecutor, AutoscalingSettings
from cornserve.control.adaptation.app_adaptation import SpecChange
from cornserve.control.adaptation.arrival_reader import Arrivals
from cornserve.control.adaptation.decision_log import decide_replicas
from cornserve.control.metrics import ControllerMetrics
from cornserve.control.store.base import AppRecord
from cornserve_policies.arrivals import ArrivalHistory
from cornserve_policies.attainment import TargetAttainment
from cornserve_policies.autoscaling import LONGEST_HISTORY, ExecutorAutoscaling, ReplicaChange, RunningReplicas

REPORTED_DIFFERENCE = 0.1
"""The status has another load if it differs by more than this share of a replica's capacity."""


class ScaledExecutor:
    """One executor of the app.

    Args:
        replicas: the number of replicas that should run.
        now: seconds. The load is counted from then on.
    """

    def __init__(self, executor: AutoscaledExecutor, settings: AutoscalingSettings, replicas: int, now: float) -> None:
        self.executor = executor
        self.running = RunningReplicas(replicas, now)
        self._loads = ArrivalHistory(LONGEST_HISTORY, now)
        self._limits = settings.limits(executor)
        self._policy = ExecutorAutoscaling(self._limits)

    def update(self, replicas: int, now: float, *, is_decided: bool) -> None:
        """Applies a newer number of replicas.

        Args:
            is_decided: whether it was decided here. After a change by users, only later loads count.
        """
        if replicas != self.running.replicas:
            self.running = RunningReplicas(replicas, now, self.running.counted_from if is_decided else now)

    def observe(self, arrivals: Arrivals, groups: set[str], now: float) -> None:
        """Adds the load of the executor's groups since the last call."""
        counts = arrivals.tokens if self.executor.unit == "tokens" else arrivals.invocations
        loads = {group: counts.get(group, 0) for group in groups}
        self._loads.add(loads, now, is_complete=arrivals.is_complete)

    def decide(self, now: float, record: AppRecord) -> ReplicaChange | None:
        """Returns the replicas to run instead, or None."""
        if record.spec.policies.log_decisions:
            name = self.executor.name
            return decide_replicas(record.name, name, self._limits, self.running, self._loads, now)
        return self._policy.decide(self.running, self._loads, now)

    def load(self, now: float) -> AutoscaledLoad:
        """Returns the load as the status has it."""
        load = self._policy.load(self._loads, now)
        return AutoscaledLoad(
            name=self.executor.name,
            unit=self.executor.unit,
            load=None if load is None else float(f"{load:.2g}"),
            capacity=self.executor.capacity,
        )

    def utilization(self, now: float) -> float:
        """Returns the load as a share of the capacity of the replicas. An unknown load counts as 0."""
        load = self._policy.load(self._loads, now) or 0.0
        return load / (self.executor.capacity * self.running.replicas)

    def is_surplus(self, change: ReplicaChange) -> bool:
        """Whether a change stops replicas only because the load does not need them."""
        return change.replicas < self.running.replicas <= self.executor.max_replicas

    @property
    def may_grow(self) -> bool:
        """Whether another replica is within the limits."""
        return self.running.replicas < self.executor.max_replicas


class ReplicaAutoscaling:
    """Observes one app, and decides when its executors run other numbers of replicas.

    Args:
        now: seconds. The loads are counted from then on.
    """

    def __init__(self, record: AppRecord, settings: AutoscalingSettings, now: float) -> None:
        self.record = record
        self.settings = settings
        self.status = AdaptationStatus()
        self._executors = [
            ScaledExecutor(executor, settings, record.spec.replicas_of(executor.name), now)
            for executor in settings.executors
        ]
        self._decided: Mapping[str, int] = {}
        """The replicas of the change that was decided here, and is not applied yet, by executor."""
        self._attainment = TargetAttainment(settings.window_seconds, now)
        self._late_us = ArrivalHistory(settings.window_seconds, now)
        """The time that requests with missed targets took longer than others, by executor group."""
        self._complete_since = now
        """The time since which all replicas are ready."""
        self._missed_at = float("-inf")
        """The time at which a target was missed last."""

    def update(self, record: AppRecord, now: float) -> None:
        for scaled in self._executors:
            name = scaled.executor.name
            replicas = record.spec.replicas_of(name)
            scaled.update(replicas, now, is_decided=self._decided.get(name) == replicas)
        if record.generation != self.record.generation:
            self._decided = {}
        self.record = record

    def observe(self, arrivals: Arrivals, now: float) -> None:
        for scaled in self._executors:
            groups = {group.key for group in self.record.status.groups if group.executor == scaled.executor.name}
            scaled.observe(arrivals, groups, now)
        name = self.record.name
        self._attainment.add(arrivals.met.get(name, {}), arrivals.missed.get(name, {}), now)
        self._late_us.add(arrivals.late_us.get(name, {}), now)
        if any(group.ready < group.wanted for group in self.record.status.groups):
            self._complete_since = now
        loads = [scaled.load(now) for scaled in self._executors]
        known = self.status.executors
        if len(known) != len(loads) or any(map(_differ, known, loads)):
            self.status = AdaptationStatus(executors=loads)

    def next_change(self, now: float, *, may_change: bool) -> SpecChange | None:
        if not may_change:
            return None
        changes = self._changes(now)
        if not changes:
            return None
        replicas = {scaled.executor.name: change.replicas for scaled, change in changes.items()}
        self._decided = replicas
        messages = [
            f"{change.reason}: runs {change.replicas} replicas of {scaled.executor.name} instead of "
            f"{scaled.running.replicas}"
            for scaled, change in changes.items()
        ]
        executor_replicas = {**self.record.spec.executor_replicas, **replicas}
        return SpecChange({"executor_replicas": executor_replicas, "held_until": None}, "; ".join(messages))

    def _changes(self, now: float) -> Mapping[ScaledExecutor, ReplicaChange]:
        """Returns the executors that should have other numbers of replicas.

        While a target is missed, the executor that causes most of the missed time gets a replica, and none loses one.
        """
        decided = {scaled: scaled.decide(now, self.record) for scaled in self._executors}
        changes = {scaled: change for scaled, change in decided.items() if change is not None}
        last_change = max(scaled.running.since for scaled in self._executors)
        missed = self._attainment.find_missed(max(last_change, self._complete_since), now)
        if missed is not None:
            self._missed_at = now
        if now < self._missed_at + self.settings.shrink_seconds:
            changes = {scaled: change for scaled, change in changes.items() if not scaled.is_surplus(change)}
        if missed is None or changes or now < last_change + self.settings.dwell_seconds:
            return changes
        slowest, reason = self._slowest(now)
        if not slowest.may_grow:
            return changes
        return {slowest: ReplicaChange(slowest.running.replicas + 1, missed + reason)}

    def _slowest(self, now: float) -> tuple[ScaledExecutor, str]:
        """Returns the executor that causes most of the missed time, and its share for users.

        If the time is unknown, because requests were refused, the one with the highest utilization that may grow.
        """
        window = self._late_us.window(self.settings.window_seconds, now)
        late_us = Counter[str]()
        for group in self.record.status.groups:
            late_us[group.executor] += 0 if window is None else window.counts.get(group.key, 0)
        slowest = max(self._executors, key=lambda scaled: late_us[scaled.executor.name])
        if most := late_us[slowest.executor.name]:
            return slowest, f", and {slowest.executor.name} causes {most / late_us.total():.0%} of the missed time"
        return max(self._executors, key=lambda scaled: (scaled.may_grow, scaled.utilization(now))), ""

    def news(self, before: AdaptationStatus) -> Iterator[tuple[str, str]]:
        yield from ()

    def publish(self, metrics: ControllerMetrics, now: float) -> None:
        metrics.set_loads(self.record.name, [(scaled.load(now), scaled.running.replicas) for scaled in self._executors])


def _differ(known: AutoscaledLoad, load: AutoscaledLoad) -> bool:
    if known.load is None or load.load is None:
        return known.load != load.load
    return abs(known.load - load.load) > REPORTED_DIFFERENCE * load.capacity
