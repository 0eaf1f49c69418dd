"""Changes the replicas of executors with their loads, by the policy of the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.simulation.event_queue import EventQueue
from cornserve_planner.simulation.request_run import RequestRun
from cornserve_planner.simulation.running_cells import ReplicaGroup, RunningCells, ServingReplica
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.startup_times import ReplicaStartups
from cornserve_policies.adaptation import DECISION_SECONDS
from cornserve_policies.admission import Refusal
from cornserve_policies.arrivals import ArrivalHistory
from cornserve_policies.autoscaling import (
    LONGEST_HISTORY,
    ExecutorAutoscaling,
    ExecutorLimits,
    ReplicaChange,
    RunningReplicas,
)
from cornserve_policies.late_stages import StageTimes
from cornserve_policies.target_scaling import ScaledStage, TargetScaling


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
        limits: those of the policy, with the requests per second that one replica takes.
        gpus: the GPUs of one replica.
    """

    def __init__(self, groups: Mapping[str, ReplicaGroup], limits: ExecutorLimits, gpus: int) -> None:
        self.groups = groups
        self.limits = limits
        self.gpus = gpus * len(groups)
        self.policy = ExecutorAutoscaling(limits)
        self.loads = ArrivalHistory(LONGEST_HISTORY, 0.0)
        self.running = RunningReplicas(max(group.running for group in groups.values()), 0.0)


class _CountedTargets:
    """The requests that have met and missed targets since the last decision, and the missed time of executors."""

    def __init__(self, settings: ServingSettings) -> None:
        self._settings = settings
        self._met, self._missed = Counter[str](), Counter[str]()
        self._times = StageTimes()
        self._taken = Counter[str]()
        """The missed time of earlier decisions."""

    def count_refused(self, target: str) -> None:
        self._missed[target] += 1

    def count(self, run: RequestRun, now: float) -> None:
        """Counts a request that ends now."""
        results = self._results(run, now)
        for target, is_met in results.items():
            (self._met if is_met else self._missed)[target] += 1
        if "ttft" in results:
            stages = run.stage_seconds(run.first, to_first_output=True)
            self._times.add(stages, to_first_output=True, is_met=results.pop("ttft"))
        if results:
            stages = run.stage_seconds(now, to_first_output=False)
            self._times.add(stages, to_first_output=False, is_met=all(results.values()))

    def take(self, scaling: TargetScaling, now: float) -> None:
        """Moves the counts to a policy."""
        late_us = Counter(self._times.late_us)
        scaling.add(self._met, self._missed, late_us - self._taken, now)
        self._met, self._missed, self._taken = Counter(), Counter(), late_us

    def _results(self, run: RequestRun, now: float) -> dict[str, bool]:
        settings, request = self._settings, run.request
        results: dict[str, bool] = {}
        if settings.ttft is not None:
            results["ttft"] = run.first - request.arrival <= settings.ttft
        tokens = request.output or 1
        if settings.tbt is not None and tokens > 1 and run.last_token > run.first:
            results["tbt"] = (run.last_token - run.first) / (tokens - 1) <= settings.tbt
        if settings.e2e is not None:
            results["e2e"] = now - request.arrival <= settings.e2e
        return results


class SimulatedAutoscaling:
    """Counts the invocations of executors, and decides every few seconds how many replicas of each run.

    Args:
        limits: those of the policy, by option.
        startups: the seconds until started replicas serve.
        settings: their latency targets also start replicas when they are missed, and their GPUs limit all replicas.
        hand_over: moves the streams of a replica that stops to others.

    Raises `InvalidInputError` for options that do not run.
    """

    def __init__(
        self,
        events: EventQueue,
        plan: PlanFile,
        cells: RunningCells,
        limits: Mapping[str, ExecutorLimits],
        startups: ReplicaStartups,
        settings: ServingSettings,
        hand_over: Callable[[ServingReplica], None],
    ) -> None:
        self._events = events
        self._cells = cells
        self._startups = startups
        self._hand_over = hand_over
        self._scaled: dict[str, _ScaledGroup] = {}
        self._free: dict[str | None, float] = {None: settings.most_gpus - plan.gpus}
        for option, limit in limits.items():
            executor = cells.executors[option]
            groups = {name: cell.groups[executor] for name, cell in cells.cells.items() if executor in cell.groups}
            if not groups:
                raise InvalidInputError(f"--autoscale {option}", "no cell runs it: use another option")
            self._scaled[executor] = _ScaledGroup(groups, limit, plan.options[executor].gpus)
        first = next(iter(limits.values()))
        self._targets = TargetScaling(first.window_seconds, first.shrink_seconds, first.dwell_seconds, 0.0)
        self._counted = _CountedTargets(settings)
        self._complete_since = 0.0
        """The time from which all replicas serve."""
        self._has_ended = False
        self.changes: list[ReplicaCountChange] = []

    def begin(self) -> None:
        self._events.add(self._events.now + DECISION_SECONDS, self._decide, None)

    def end(self) -> None:
        """Makes no further decisions: no more requests arrive."""
        self._has_ended = True

    def request_ended(self, run: RequestRun) -> None:
        self._counted.count(run, self._events.now)

    def request_refused(self, refusal: Refusal) -> None:
        self._counted.count_refused(refusal.target)

    def _decide(self, _: None) -> None:
        if self._has_ended:
            return
        now = self._events.now
        decided: dict[str, ReplicaChange] = {}
        for executor, scaled in self._scaled.items():
            scaled.loads.add({name: group.take_arrived() for name, group in scaled.groups.items()}, now)
            if change := scaled.policy.decide(scaled.running, scaled.loads, now):
                decided[executor] = change
        self._counted.take(self._targets, now)
        stages = {
            executor: ScaledStage.of(scaled.limits, scaled.running, scaled.loads, now, scaled.gpus)
            for executor, scaled in self._scaled.items()
        }
        for executor, change in self._targets.decide(stages, decided, self._complete_since, now, self._free).items():
            scaled = self._scaled[executor]
            self._free[None] -= scaled.gpus * (change.replicas - scaled.running.replicas)
            scaled.running = RunningReplicas(change.replicas, now)
            self.changes.append(ReplicaCountChange(now, executor, change.replicas, change.reason))
            for name, group in scaled.groups.items():
                self._scale(executor, name, group, change.replicas)
        self.begin()

    def _scale(self, executor: str, cell: str, group: ReplicaGroup, replicas: int) -> None:
        now = self._events.now
        while group.running > replicas:
            self._hand_over(group.stop_newest(now))
        for _ in range(replicas - group.running):
            started, serves = self._cells.start_replica(cell, executor, group), now + self._startups.of(executor)
            self._events.add(serves, group.serve, started)
            self._complete_since = max(self._complete_since, serves)
