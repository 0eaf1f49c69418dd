"""Replicas for missed latency targets: those of the stage in which the requests lose most of their time [M §4.2].

Stages may share a number of GPUs. One that needs more gets those of replicas that the loads of the others do not need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType
from typing import Self

from cornserve_policies.arrivals import ArrivalHistory
from cornserve_policies.attainment import TargetAttainment
from cornserve_policies.autoscaling import ExecutorAutoscaling, ExecutorLimits, ReplicaChange, RunningReplicas

NO_LIMITS: Mapping[str | None, float] = MappingProxyType({})
"""The free GPUs of an app whose replicas may have any number of them."""


@dataclass(frozen=True, slots=True)
class ScaledStage:
    """An executor that is autoscaled.

    Args:
        utilization: the load relative to the capacity of the running replicas; 0 for an unknown load.
        gpus: the GPUs or slots of a replica.
        gpu_type: their type. None: any.
    """

    running: RunningReplicas
    max_replicas: int
    utilization: float
    gpus: int = 0
    gpu_type: str | None = None

    @classmethod
    def of(
        cls,
        limits: ExecutorLimits,
        running: RunningReplicas,
        loads: ArrivalHistory,
        now: float,
        gpus: int = 0,
        gpu_type: str | None = None,
    ) -> Self:
        """Returns the stage with its present load."""
        load = ExecutorAutoscaling(limits).load(loads, now) or 0.0
        return cls(running, limits.max_replicas, load / (limits.capacity * running.replicas), gpus, gpu_type)

    @property
    def may_grow(self) -> bool:
        """Whether another replica is within the limits."""
        return self.running.replicas < self.max_replicas

    def is_surplus(self, change: ReplicaChange) -> bool:
        """Whether a change stops replicas only because the load does not need them."""
        return change.replicas < self.running.replicas <= self.max_replicas


class TargetScaling:
    """Adds a replica of the executor that causes most of the missed time while a target is missed.

    Args:
        window_seconds: the time in which requests are counted.
        shrink_seconds: the time for which all targets must be met before replicas stop.
        dwell_seconds: the least time between two changes.
        now: seconds. Requests are counted from then on.
    """

    def __init__(self, window_seconds: float, shrink_seconds: float, dwell_seconds: float, now: float) -> None:
        self._window_seconds = window_seconds
        self._shrink_seconds = shrink_seconds
        self._dwell_seconds = dwell_seconds
        self._attainment = TargetAttainment(window_seconds, now)
        self._late_us = ArrivalHistory(window_seconds, now)
        self._missed_at = -inf
        """The time at which a target was missed last."""
        self._grown_at: dict[str, float] = {}
        """The time at which an executor got its last replica for a missed target."""

    def add(self, met: Mapping[str, int], missed: Mapping[str, int], late_us: Mapping[str, int], now: float) -> None:
        """Adds what has happened since the last call.

        Args:
            met, missed: requests by target.
            late_us: microseconds that requests with a missed target took longer than others, by executor.
        """
        self._attainment.add(met, missed, now)
        self._late_us.add(late_us, now)

    def decide(
        self,
        stages: Mapping[str, ScaledStage],
        changes: Mapping[str, ReplicaChange],
        complete_since: float,
        now: float,
        free_gpus: Mapping[str | None, float] = NO_LIMITS,
    ) -> Mapping[str, ReplicaChange]:
        """Returns the changes of replicas, by executor.

        Args:
            changes: those that follow from the loads. While a target is missed, surplus replicas stop only if another
                executor needs their GPUs.
            complete_since: the time since which all replicas are ready: earlier requests do not count.
            free_gpus: the GPUs or slots that further replicas may have, by type. Other types have no limit.
        """
        last_change = max(stage.running.since for stage in stages.values())
        missed = self._attainment.find_missed(max(last_change, complete_since), now)
        if missed is not None:
            self._missed_at = now
        surplus = {name: change for name, change in changes.items() if stages[name].is_surplus(change)}
        if now < self._missed_at + self._shrink_seconds:
            changes = {name: change for name, change in changes.items() if name not in surplus}
        # An executor keeps a replica that it got for a missed target: others do not take it back at once.
        lent = {
            name: change
            for name, change in surplus.items()
            if now >= self._grown_at.get(name, -inf) + self._shrink_seconds
        }
        fitting = _fitting(stages, changes, lent, free_gpus)
        if missed is None or fitting or now < last_change + self._dwell_seconds:
            return fitting
        slowest, reason = self._slowest(stages, now)
        if not stages[slowest].may_grow:
            return {}
        larger = ReplicaChange(stages[slowest].running.replicas + 1, missed + reason)
        fitting = _fitting(stages, {slowest: larger}, lent, free_gpus)
        if fitting:
            self._grown_at[slowest] = now
        return fitting

    def _slowest(self, stages: Mapping[str, ScaledStage], now: float) -> tuple[str, str]:
        """Returns the executor that causes most of the missed time, and its share for users.

        If the time is unknown, because requests were refused, the one with the highest utilization that may grow.
        """
        window = self._late_us.window(self._window_seconds, now)
        late_us = {} if window is None else window.counts
        slowest = max(stages, key=lambda name: late_us.get(name, 0))
        if most := late_us.get(slowest, 0):
            return slowest, f", and {slowest} causes {most / sum(late_us.values()):.0%} of the missed time"
        return max(stages, key=lambda name: (stages[name].may_grow, stages[name].utilization)), ""


def _fitting(
    stages: Mapping[str, ScaledStage],
    changes: Mapping[str, ReplicaChange],
    surplus: Mapping[str, ReplicaChange],
    free_gpus: Mapping[str | None, float],
) -> Mapping[str, ReplicaChange]:
    """Returns the changes with only those replicas for which GPUs are free. The busiest executor gets the next one.

    Args:
        surplus: changes that stop replicas. Only those replicas stop whose GPUs others need.
    """
    replicas = Counter({name: stage.running.replicas for name, stage in stages.items()})
    free = dict(free_gpus)

    def take(name: str) -> bool:
        """Takes the GPUs of one more replica. Returns whether there are enough."""
        stage, stopped = stages[name], Counter[str]()
        left = free.get(stage.gpu_type, inf) if stage.gpus else inf
        for other, change in surplus.items():
            lender = stages[other]
            if other != name and lender.gpus and lender.gpu_type == stage.gpu_type:
                while left < stage.gpus and replicas[other] - stopped[other] > change.replicas:
                    stopped[other] += 1
                    left += lender.gpus
        if left < stage.gpus:
            return False
        replicas.subtract(stopped)
        replicas[name] += 1
        if stage.gpus and stage.gpu_type in free:
            free[stage.gpu_type] = left - stage.gpus
        return True

    for name, change in changes.items():
        stage = stages[name]
        if change.replicas < replicas[name]:
            if stage.gpu_type in free:
                free[stage.gpu_type] += stage.gpus * (replicas[name] - change.replicas)
            replicas[name] = change.replicas
    growing = [name for name, change in changes.items() if change.replicas > replicas[name]]
    while growing:
        name = max(growing, key=lambda name: stages[name].utilization * stages[name].running.replicas / replicas[name])
        if not take(name) or replicas[name] == changes[name].replicas:
            growing.remove(name)
    found = {**surplus, **changes}
    return {
        name: replace(found[name], replicas=number)
        for name, number in replicas.items()
        if number != stages[name].running.replicas
    }
