"""Changes the cells of a simulation with its load, by the policy of the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from cornserve_plan.plan import describe_cells
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.simulation.event_queue import EventQueue
from cornserve_planner.simulation.running_cells import RunningCells, ServingCell
from cornserve_planner.simulation.startup_times import ReplicaStartups
from cornserve_policies.adaptation import (
    DECISION_SECONDS,
    HISTORY_SECONDS,
    AdaptationLimits,
    ObservedRateAdaptation,
    RunningMixture,
)
from cornserve_policies.arrivals import ArrivalHistory
from cornserve_policies.mixture import MAX_RUNNING_CELLS, cells_within


@dataclass(frozen=True, slots=True)
class CellChange:
    """A change of the running cells. `seconds`: its time. `reason`: for users."""

    seconds: float
    cells: str
    reason: str


class SimulatedAdaptation:
    """Counts arrivals, and decides every few seconds whether other cells run.

    Cells that are not needed any more serve until the new ones have started, if their GPUs suffice for both.

    Args:
        most_gpus: the GPUs that cells may have at most.
        startups: the seconds until started replicas serve. A cell serves with the last one of its options.
    """

    def __init__(
        self, events: EventQueue, plan: PlanFile, cells: RunningCells, *, most_gpus: float, startups: ReplicaStartups
    ) -> None:
        self._events = events
        self._plan = plan
        self._cells = cells
        self._most_gpus = most_gpus
        self._startups = startups
        self._rates = plan.efficient_rates
        self._used = plan.used_gpus
        self._policy = ObservedRateAdaptation(AdaptationLimits())
        self._history = ArrivalHistory(HISTORY_SECONDS, 0.0)
        self._arrived = Counter[str]()
        self._counts: Mapping[int, int] = plan.counts
        self._serving = list(cells.cells.values())
        self._since = 0.0
        self._is_changing = self._has_ended = False
        self.changes: list[CellChange] = []

    def begin(self) -> None:
        self._events.add(self._events.now + DECISION_SECONDS, self._decide, None)

    def count(self, kind: str) -> None:
        """Counts a request that arrives."""
        self._arrived[kind] += 1

    def end(self) -> None:
        """Makes no further decisions: no more requests arrive."""
        self._has_ended = True

    def _decide(self, _: None) -> None:
        if self._has_ended:
            return
        now = self._events.now
        self._history.add(self._arrived, now)
        self._arrived.clear()
        self.begin()
        if self._is_changing:
            return
        rate = sum(cell.rate * self._counts.get(cell.gpus, 0) for cell in self._plan.cells)
        running = RunningMixture(self._counts, rate, self._since, 0.0)
        change = self._policy.decide(running, self._history, now, self._solve)
        if change is not None:
            self.changes.append(CellChange(now, describe_cells(change.counts), change.reason))
            self._change(change.counts)

    def _solve(self, rate: float) -> Mapping[int, int]:
        def may_run(counts: Mapping[int, int]) -> bool:
            """Whether the cells fit, and without a common cell, which serves until they have started, also both."""
            has_common = any(count and self._counts.get(size) for size, count in counts.items())
            running = 0 if has_common else self._gpus(self._counts)
            return self._gpus(counts) + running <= self._most_gpus

        return cells_within(self._rates, rate, self._counts, may_run, most_cells=MAX_RUNNING_CELLS)

    def _change(self, counts: Mapping[int, int]) -> None:
        """Starts the cells that are missing, and replaces the others when all of them serve.

        Others end before if there are too few GPUs for all.
        """
        kept: list[ServingCell] = []
        left = Counter(counts)
        for cell in self._serving:
            if left[cell.planned.gpus]:
                left[cell.planned.gpus] -= 1
                kept.append(cell)
        if self._gpus(Counter(cell.planned.gpus for cell in self._serving) + left) > self._most_gpus:
            self._cells.serve(kept)
        started = [self._cells.start(gpus) for gpus in sorted(left.elements())]
        self._counts, self._since = counts, self._events.now
        self._serving = kept + started
        self._is_changing = True
        delay = max((self._startups.longest(cell.planned.replicas) for cell in started), default=0.0)
        self._events.add(self._events.now + delay, self._serve, None)

    def _gpus(self, counts: Mapping[int, int]) -> int:
        return sum(self._used[size] * count for size, count in counts.items())

    def _serve(self, _: None) -> None:
        self._is_changing = False
        self._cells.serve(self._serving)
