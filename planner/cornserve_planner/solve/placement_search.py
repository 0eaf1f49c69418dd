"""The programs that `placement.py` solves for one cluster, and the exact rates of placements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter

from cornserve_planner.errors import InfeasibleError, NoPlanFoundError
from cornserve_planner.model.graph import Edge
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Loss, Objective, PathRate, Solution
from cornserve_planner.solve.cluster import Cluster
from cornserve_planner.solve.solver import SolverEngine, SolverSettings, solve_program
from cornserve_planner.solve.topology_milp import Placement, PlacementProgram, Traffic, losses

SLACK = 1e-6
"""Relative tolerance of the rate of a placed plan: the tolerance with which solvers keep integers."""


@dataclass(frozen=True, slots=True)
class NodeFlow:
    """Requests per second of a type on a path whose data is sent from one node to another."""

    type: str
    path: str
    edge: Edge
    start: int
    end: int
    rate: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class PlacementRates:
    """The rates that a placement serves.

    Args:
        capacity: the maximum rate before a loss.
    """

    replicas: dict[str, tuple[int, ...]]
    rate: float
    capacity: float
    rates: tuple[PathRate, ...]
    flows: tuple[NodeFlow, ...]

    def scaled_to(self, rate: float) -> PlacementRates:
        factor = rate / self.rate
        rates = tuple(PathRate(type=entry.type, path=entry.path, rate=entry.rate * factor) for entry in self.rates)
        flows = tuple(
            replace(entry, rate=entry.rate * factor, bytes_per_second=entry.bytes_per_second * factor)
            for entry in self.flows
        )
        return replace(self, rate=rate, rates=rates, flows=flows)


class PlacementSearch:
    """The programs of one cluster. `around` is the approximate rate, from which the unit of time is computed."""

    def __init__(
        self,
        problem: PlanningProblem,
        cluster: Cluster,
        traffic: Traffic,
        solver: SolverSettings,
        survive: Loss | None,
        *,
        around: float,
    ) -> None:
        self._problem, self._cluster, self._traffic, self._solver = problem, cluster, traffic, solver
        self._survive = survive
        self._unit = sum(cluster.gpus) / around
        self._started = perf_counter()

    def placed(self, unconstrained: Solution) -> PlacementRates | None:
        """Returns the best placement of a plan's replicas, or None if none is found."""
        program = self._program(totals=unconstrained.replicas, survive=self._survive)
        outcome = solve_program(program.maximize_rate(self._ceiling(unconstrained.bound)), self._solver)
        return self.rates_of(program.placement()) if outcome.feasible else None

    def best_rate(self, unconstrained: Solution) -> tuple[PlacementRates | None, float]:
        """Returns the placement with the highest rate, for any numbers of replicas, and its bound."""
        program = self._program(survive=self._survive)
        outcome = solve_program(program.maximize_rate(self._ceiling(unconstrained.bound)), self._solver)
        if not outcome.feasible:
            return None, unconstrained.bound
        return self.rates_of(program.placement()), min(unconstrained.bound, program.per_second(outcome.bound))

    def relaxed_rate(self) -> float:
        program = self._program(survive=self._survive)
        return program.per_second(solve_program(program.maximize_rate(), self._solver, relaxed=True).bound)

    def fewest_gpus(self, rate: float, unconstrained: Solution) -> tuple[PlacementRates, float] | None:
        """Returns a placement for a rate and its bound, or None if the rate cannot be served."""
        at_least = math.ceil(unconstrained.bound - SLACK)
        program = self._program(wanted=rate, totals=unconstrained.replicas, survive=self._survive)
        if solve_program(program.minimize_gpus(at_least), self._solver).feasible:
            return self.rates_of(program.placement()), unconstrained.bound
        program = self._program(wanted=rate, survive=self._survive)
        outcome = solve_program(program.minimize_gpus(at_least), self._solver)
        if outcome.feasible is None:
            raise self.out_of_time()
        if not outcome.feasible:
            return None
        bound = at_least if math.isnan(outcome.bound) else math.ceil(outcome.bound - SLACK)
        return self.rates_of(program.placement()), max(at_least, bound)

    def rates_of(self, replicas: dict[str, tuple[int, ...]]) -> PlacementRates:
        """Computes the rates of a placement exactly, and reduces them to those that are served after a loss."""
        served = self._rates_before_loss(replicas)
        if self._survive is None or served.rate == 0:
            return served
        left = [lost.remaining(replicas) for lost in losses(self._survive, replicas, len(self._cluster.gpus))]
        rate = min(self._rates_before_loss(remaining).rate for remaining in left)
        return served.scaled_to(min(rate, served.rate))

    def _rates_before_loss(self, replicas: dict[str, tuple[int, ...]]) -> PlacementRates:
        """Computes the rates of a placement.

        Solutions are exact only up to the solvers' tolerances, so the rates are scaled until no replica and no link is
        overloaded.
        """
        program = self._program(most=replicas, survive=None)
        solve_program(program.maximize_rate(), self._solver, relaxed=True)
        fullest = max([1.0, *program.fullness(replicas)])
        rates = [(path, rate / fullest) for path, rate in program.rates()]
        rate = math.fsum(rate for _, rate in rates)
        return PlacementRates(
            replicas=replicas,
            rate=rate,
            capacity=rate,
            rates=tuple(PathRate(type=path.type, path=path.name, rate=rate) for path, rate in rates if rate > 0),
            flows=tuple(
                NodeFlow(path.type, path.name, edge, start, end, rate / fullest, size * rate / fullest)
                for path, edge, start, end, rate, size in program.flows()
            ),
        )

    def without_unused(self, served: PlacementRates) -> PlacementRates:
        program = self._program(wanted=served.rate * (1 - SLACK), most=served.replicas, survive=self._survive)
        outcome = solve_program(program.minimize_gpus(), self._solver)
        return self.rates_of(program.placement()) if outcome.feasible else served

    def gpus(self, served: PlacementRates) -> int:
        return sum(self._problem.option[name].gpus * sum(counts) for name, counts in served.replicas.items())

    def plan(
        self,
        objective: Objective,
        served: PlacementRates,
        value: float,
        bound: float,
        relaxation: float,
    ) -> Solution:
        replicas = {name: sum(counts) for name, counts in served.replicas.items()}
        return Solution(
            objective=objective,
            replicas=replicas,
            rates=served.rates,
            rate=served.rate,
            capacity=served.capacity,
            survives=self._survive,
            gpus=self.gpus(served),
            dollars=self._problem.dollars(replicas),
            value=value,
            bound=bound,
            relaxation=relaxation,
            proven=abs(bound - value) <= SLACK * max(bound, value),
            ties_settled=False,
            solver=self._solver.engine,
            solve_seconds=perf_counter() - self._started,
        )

    def _program(
        self,
        *,
        survive: Loss | None,
        wanted: float | None = None,
        most: Placement | None = None,
        totals: Mapping[str, int] | None = None,
    ) -> PlacementProgram:
        return PlacementProgram(
            *(self._problem, self._cluster, self._traffic),
            unit=self._unit,
            rate=wanted,
            most=most,
            totals=totals,
            survive=survive,
        )

    def _ceiling(self, rate: float) -> float:
        """Returns the upper bound for the solver. CBC 2.10.3 treats a rate with an integer bound as an integer."""
        return rate if self._solver.engine is SolverEngine.HIGHS else math.inf

    def nothing_served(self) -> InfeasibleError:
        if self._survive is None:
            return InfeasibleError(
                "bandwidth", "some request type cannot be served over the network between these nodes"
            )
        return InfeasibleError(
            f"the loss of a {self._survive}", "no placement on these nodes serves every request type after it"
        )

    def out_of_time(self) -> NoPlanFoundError:
        return NoPlanFoundError(
            f"{self._solver.engine} found no placement in {self._solver.time_limit} s: raise the time limit"
        )
