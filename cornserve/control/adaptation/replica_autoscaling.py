"""One app that is autoscaled: the loads of its executors, and the replicas that they should have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from cornserve.app.adaptation_status import AdaptationStatus, AutoscaledLoad
from cornserve.app.planned_replicas import PlannedReplicas, planned_replicas
from cornserve.app.settings import AutoscaledExecutor, AutoscalingSettings
from cornserve.control.adaptation.app_adaptation import SpecChange
from cornserve.control.adaptation.arrival_reader import Arrivals
from cornserve.control.adaptation.decision_log import decide_replicas
from cornserve.control.metrics import ControllerMetrics
from cornserve.control.store.base import AppRecord
from cornserve_policies.arrivals import ArrivalHistory
from cornserve_policies.autoscaling import LONGEST_HISTORY, ExecutorAutoscaling, ReplicaChange, RunningReplicas
from cornserve_policies.target_scaling import NO_LIMITS, ScaledStage, TargetScaling

REPORTED_DIFFERENCE = 0.1
"""The status has another load if it differs by more than this share of a replica's capacity."""


class ScaledExecutor:
    """One executor of the app.

    Args:
        replicas: the number of replicas that should run. 0 if the plan has no such executor.
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

    def observe(self, arrivals: Arrivals, record: AppRecord, now: float) -> None:
        """Adds the load of the executor's groups since the last call.

        In an app with a plan, the load is that of the app alone, because its replicas are added to those of the other
        apps. A restart moves it from one group to another.
        """
        counts = arrivals.tokens if self.executor.unit == "tokens" else arrivals.invocations
        groups = {group.key for group in record.status.groups if group.executor == self.executor.name}
        if record.spec.plan is None:
            loads = {group: sum(of_app.get(group, 0) for of_app in counts.values()) for group in groups}
        else:
            of_app = counts.get(record.name, {})
            loads = {self.executor.name: sum(of_app.get(group, 0) for group in groups)}
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

    def stage(self, now: float, planned: PlannedReplicas | None) -> ScaledStage:
        """Returns the executor as the rule for missed targets reads it."""
        gpus, gpu_type = (0, None) if planned is None else (planned.gpus, planned.gpu_type)
        return ScaledStage.of(self._limits, self.running, self._loads, now, gpus, gpu_type)


class ReplicaAutoscaling:
    """Observes one app, and decides when its executors run other numbers of replicas.

    Args:
        now: seconds. The loads are counted from then on.
    """

    def __init__(self, record: AppRecord, settings: AutoscalingSettings, now: float) -> None:
        self.record = record
        self.settings = settings
        self.status = AdaptationStatus()
        self._planned = planned_replicas(record.spec, record.status.groups)
        """The replicas by the plan, by executor. Empty without a plan."""
        self._executors = [
            ScaledExecutor(executor, settings, self._replicas(record, executor.name), now)
            for executor in settings.executors
        ]
        self._decided: Mapping[str, int] = {}
        """The replicas of the change that was decided here, and is not applied yet, by executor."""
        self._targets = TargetScaling(settings.window_seconds, settings.shrink_seconds, settings.dwell_seconds, now)
        self._complete_since = now
        """The time since which all replicas are ready."""

    def _replicas(self, record: AppRecord, executor: str) -> int:
        """Returns the replicas of an executor that should run for this app."""
        if record.spec.plan is None:
            return record.spec.replicas_of(executor)
        planned = self._planned.get(executor)
        return 0 if planned is None else planned.running(record.spec.executor_replicas.get(executor))

    def update(self, record: AppRecord, now: float) -> None:
        self._planned = planned_replicas(record.spec, record.status.groups)
        for scaled in self._executors:
            name = scaled.executor.name
            replicas = self._replicas(record, name)
            scaled.update(replicas, now, is_decided=self._decided.get(name) == replicas)
        if record.generation != self.record.generation:
            self._decided = {}
        self.record = record

    def observe(self, arrivals: Arrivals, now: float) -> None:
        for scaled in self._executors:
            scaled.observe(arrivals, self.record, now)
        name = self.record.name
        late_us, late_of_groups = Counter[str](), arrivals.late_us.get(name, {})
        for group in self.record.status.groups:
            late_us[group.executor] += late_of_groups.get(group.key, 0)
        self._targets.add(arrivals.met.get(name, {}), arrivals.missed.get(name, {}), late_us, now)
        if any(group.ready < group.wanted for group in self.record.status.groups):
            self._complete_since = now
        loads = [scaled.load(now) for scaled in self._running]
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

    @property
    def _running(self) -> list[ScaledExecutor]:
        """The executors that should run. The running cell of a plan may lack some."""
        return [scaled for scaled in self._executors if scaled.running.replicas]

    @property
    def _free_gpus(self) -> Mapping[str | None, float]:
        """The GPUs or slots of the plan that no replica has, by type."""
        if self.record.spec.plan is None:
            return NO_LIMITS
        free = dict.fromkeys((planned.gpu_type for planned in self._planned.values()), 0)
        for executor, planned in self._planned.items():
            free[planned.gpu_type] += (planned.planned - self._replicas(self.record, executor)) * planned.gpus
        return free

    def _changes(self, now: float) -> Mapping[ScaledExecutor, ReplicaChange]:
        """Returns the executors that should have other numbers of replicas."""
        executors = {scaled.executor.name: scaled for scaled in self._running}
        if not executors:
            return {}
        decided = {name: scaled.decide(now, self.record) for name, scaled in executors.items()}
        changes = self._targets.decide(
            {name: scaled.stage(now, self._planned.get(name)) for name, scaled in executors.items()},
            {name: change for name, change in decided.items() if change is not None},
            self._complete_since,
            now,
            self._free_gpus,
        )
        return {executors[name]: change for name, change in changes.items()}

    def news(self, before: AdaptationStatus) -> Iterator[tuple[str, str]]:
        yield from ()

    def publish(self, metrics: ControllerMetrics, now: float) -> None:
        metrics.set_loads(self.record.name, [(scaled.load(now), scaled.running.replicas) for scaled in self._running])


def _differ(known: AutoscaledLoad, load: AutoscaledLoad) -> bool:
    if known.name != load.name or known.load is None or load.load is None:
        return known != load
    return abs(known.load - load.load) > REPORTED_DIFFERENCE * load.capacity
