"""The goodput of a plan: the highest rate at which enough requests meet their targets, by simulation [T §2.2]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.inputs.request_targets import GoodputTargets
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.simulation.event_queue import EventQueue
from cornserve_planner.simulation.executor_model import ExecutorModel
from cornserve_planner.simulation.load_search import highest_load
from cornserve_planner.simulation.request_run import RequestRun, StageInvocation
from cornserve_planner.simulation.serving import ServingSimulation
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.simulated_request import SimulatedRequest, read_load
from cornserve_policies.admission import Refusal
from cornserve_policies.registry import DEFAULT_ROUTING, routing_policy

MOST_REQUESTS = 20_000
"""Requests that decide among the best candidates."""

LEAST_REQUESTS = 100

BLOCKS = 5
"""Blocks of requests in sequence whose goodputs are compared."""

T_QUANTILE = 2.776
"""The 97.5 % quantile of Student's t distribution with `BLOCKS - 1` degrees of freedom."""


@dataclass(frozen=True, slots=True)
class GoodputInterval:
    """Requests per second that meet the targets, with the 95 % interval by blocks of requests."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ReplayedSystem:
    """A plan to simulate.

    Args:
        bound: the requests per second that it serves without queues. It serves more only until its queues are long.
    """

    plan: PlanFile
    models: Mapping[str, ExecutorModel]
    bound: float


class Replay:
    """Simulates plans with the same requests at different rates.

    Args:
        requests: in the order of arrival, one per second on average.
    """

    def __init__(self, requests: Sequence[SimulatedRequest], targets: GoodputTargets) -> None:
        self.requests = requests
        self.targets = targets
        self._settings = ServingSettings(ttft=targets.of("", "ttft"), e2e=targets.of("", "e2e"))
        self.runs = 0
        """The number of simulations."""

    def meets(self, system: ReplayedSystem, rate: float, first: int, last: int) -> bool:
        """Returns whether enough of the requests from `first` to `last` meet their targets at a rate.

        The simulation ends as soon as the result is certain.
        """
        self.runs += 1
        verdict = _Verdict(self.targets, last - first)
        simulation = ServingSimulation(
            system.plan, system.models, routing_policy(DEFAULT_ROUTING), self._settings, verdict
        )
        verdict.events = simulation.events
        begin = self.requests[first].arrival
        simulation.run(
            SimulatedRequest(each.id, (each.arrival - begin) / rate, each.kind, each.text, each.media, each.output)
            for each in self.requests[first:last]
        )
        return verdict.is_met

    def goodput(self, system: ReplayedSystem, guess: float, first: int, last: int) -> float:
        """Returns the highest rate at which the targets are met, at most the bound of the system, or 0.

        Args:
            guess: the rate that is tried first.
        """
        return highest_load(lambda rate: self.meets(system, rate, first, last), guess, system.bound)

    def interval(self, system: ReplayedSystem, guess: float) -> GoodputInterval:
        """Returns the goodput with its interval, from blocks of all requests."""
        size = len(self.requests) // BLOCKS
        found = [self.goodput(system, guess, size * block, size * (block + 1)) for block in range(BLOCKS)]
        mean, half = fmean(found), T_QUANTILE * stdev(found) / sqrt(BLOCKS)
        return GoodputInterval(mean, max(0.0, mean - half), mean + half)


def read_replayed(
    plan: PlanFile, models: Mapping[str, ExecutorModel], workload: Path | None, count: int | None = None
) -> list[SimulatedRequest]:
    """Returns the requests to replay, one per second on average: those of a file, or random ones (Poisson).

    Args:
        count: the most requests; by default, `MOST_REQUESTS`.

    Raises `InvalidInputError` if they are too few for an interval.
    """
    simulation = ServingSimulation(
        plan, models, routing_policy(DEFAULT_ROUTING), ServingSettings(), _Verdict(GoodputTargets({}), 0)
    )
    found = list(read_load(plan, workload, simulation.find_type, rate=1.0, count=count or MOST_REQUESTS, seed=0))
    if len(found) < LEAST_REQUESTS:
        raise InvalidInputError("--workload", f"has {len(found)} requests: replay needs at least {LEAST_REQUESTS}")
    return found


class _Verdict:
    """Counts the requests that meet all of their targets, and ends the simulation when enough do or too few can."""

    def __init__(self, targets: GoodputTargets, requests: int) -> None:
        self.events: EventQueue
        self.is_met = False
        self._targets = targets
        self._may_miss = int(requests * (1 - targets.percentile / 100))
        self._must_meet = requests - self._may_miss

    def request_refused(self, request: SimulatedRequest, refusal: Refusal | None) -> None:
        self._count(met=False)

    def request_failed(self, run: RequestRun) -> None:
        self._count(met=False)

    def stage_ended(self, invocation: StageInvocation) -> None: ...

    def request_ended(self, run: RequestRun) -> None:
        request, targets, kind = run.request, self._targets, run.way.request_type
        ttft, tbt, e2e = targets.of(kind, "ttft"), targets.of(kind, "tbt"), targets.of(kind, "e2e")
        met = ttft is None or run.first - request.arrival <= ttft
        if met and tbt is not None and run.last_token > run.first and request.output is not None and request.output > 1:
            met = (run.last_token - run.first) / (request.output - 1) <= tbt
        self._count(met=met and (e2e is None or self.events.now - request.arrival <= e2e))

    def _count(self, *, met: bool) -> None:
        if met:
            self._must_meet -= 1
            self.is_met = self._must_meet <= 0
        else:
            self._may_miss -= 1
        if self.is_met or self._may_miss < 0:
            self.events.clear()
