"""Replicas for missed latency targets: those of the stage in which the requests lose most of their time [M §4.2]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cornserve_policies.arrivals import ArrivalHistory
from cornserve_policies.attainment import TargetAttainment
from cornserve_policies.autoscaling import ReplicaChange, RunningReplicas


@dataclass(frozen=True, slots=True)
class ScaledStage:
    """An executor that is autoscaled.

    Args:
        utilization: the load relative to the capacity of the running replicas; 0 for an unknown load.
    """

    running: RunningReplicas
    max_replicas: int
    utilization: float

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
        self._missed_at = float("-inf")
        """The time at which a target was missed last."""

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
    ) -> Mapping[str, ReplicaChange]:
        """Returns the changes of replicas, by executor.

        Args:
            changes: those that follow from the loads. While a target is missed, none of them stops replicas.
            complete_since: the time since which all replicas are ready: earlier requests do not count.
        """
        last_change = max(stage.running.since for stage in stages.values())
        missed = self._attainment.find_missed(max(last_change, complete_since), now)
        if missed is not None:
            self._missed_at = now
        if now < self._missed_at + self._shrink_seconds:
            changes = {name: change for name, change in changes.items() if not stages[name].is_surplus(change)}
        if missed is None or changes or now < last_change + self._dwell_seconds:
            return changes
        slowest, reason = self._slowest(stages, now)
        if not stages[slowest].may_grow:
            return changes
        return {slowest: ReplicaChange(stages[slowest].running.replicas + 1, missed + reason)}

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
