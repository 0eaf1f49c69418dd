"""Changes the replicas of executors with their loads, by the policy of the controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.simulation.event_queue import EventQueue
from cornserve_planner.simulation.running_cells import ReplicaGroup, RunningCells
from cornserve_policies.adaptation import DECISION_SECONDS
from cornserve_policies.arrivals import ArrivalHistory
from cornserve_policies.autoscaling import LONGEST_HISTORY, ExecutorAutoscaling, ExecutorLimits, RunningReplicas

MAX_REPLICAS = 4096
"""The most replicas of an executor in a cell."""


@dataclass(frozen=True, slots=True)
class ReplicaCountChange:
    """A change of the replicas of an executor in each cell. `seconds`: its time. `reason`: for users."""

    seconds: float
    executor: str
    replicas: int
    reason: str


class _ScaledGroup:
    """The replicas of an executor, of which all cells have equally many.

    Args:
        capacity: requests per second that one replica takes.
    """

    def __init__(self, groups: Mapping[str, ReplicaGroup], capacity: float) -> None:
        self.groups = groups
        self.policy = ExecutorAutoscaling(ExecutorLimits(capacity, max_replicas=MAX_REPLICAS))
        self.loads = ArrivalHistory(LONGEST_HISTORY, 0.0)
        self.running = RunningReplicas(max(group.running for group in groups.values()), 0.0)


class SimulatedAutoscaling:
    """Counts the invocations of executors, and decides every few seconds how many replicas of each run.

    Args:
        capacities: by option, the requests per second that one replica takes.
        startup: seconds until a started replica serves; None for those of the plan's option.

    Raises `InvalidInputError` for options that do not run, and capacities that are not positive.
    """

    def __init__(
        self,
        events: EventQueue,
        plan: PlanFile,
        cells: RunningCells,
        capacities: Mapping[str, float],
        startup: float | None,
    ) -> None:
        self._events = events
        self._plan = plan
        self._cells = cells
        self._startup = startup
        self._scaled: dict[str, _ScaledGroup] = {}
        for option, capacity in capacities.items():
            executor = cells.executors[option]
            groups = {name: cell.groups[executor] for name, cell in cells.cells.items() if executor in cell.groups}
            if not groups:
                raise InvalidInputError(f"--autoscale {option}", "no cell runs it: use another option")
            self._scaled[executor] = _ScaledGroup(groups, capacity)
        self._has_ended = False
        self.changes: list[ReplicaCountChange] = []

    def begin(self) -> None:
        self._events.add(self._events.now + DECISION_SECONDS, self._decide, None)

    def end(self) -> None:
        """Makes no further decisions: no more requests arrive."""
        self._has_ended = True

    def _decide(self, _: None) -> None:
        if self._has_ended:
            return
        now = self._events.now
        for executor, scaled in self._scaled.items():
            scaled.loads.add({name: group.take_arrived() for name, group in scaled.groups.items()}, now)
            change = scaled.policy.decide(scaled.running, scaled.loads, now)
            if change is not None:
                scaled.running = RunningReplicas(change.replicas, now)
                self.changes.append(ReplicaCountChange(now, executor, change.replicas, change.reason))
                for name, group in scaled.groups.items():
                    self._scale(executor, name, group, change.replicas)
        self.begin()

    def _scale(self, executor: str, cell: str, group: ReplicaGroup, replicas: int) -> None:
        startup = self._plan.options[executor].startup or 0.0 if self._startup is None else self._startup
        while group.running > replicas:
            group.stop_newest(self._events.now)
        for _ in range(replicas - group.running):
            started = self._cells.start_replica(cell, executor, group)
            self._events.add(self._events.now + startup, group.serve, started)
