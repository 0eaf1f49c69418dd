"""Plans for nodes and the network between them ([C] Appendix A), with traffic tied to the positions of replicas.

As printed, Appendix A has variables `y[s, h]` for the replicas of an executor on a node, and `f[s, s', h, h']` for the
bandwidth of an edge between two nodes, but no constraint that contains both. Constraint (7) only requires that an
edge's traffic adds up over *all* pairs of nodes, and pairs (h, h) are not limited. So all traffic may flow within a
node that has no replica of either executor, and the bandwidth never limits a plan. This module connects them with rates
`z[t, p, s, h]` of a path at an executor on a node, in place of (5) and (7):

    Σ_h z[t, p, s, h] = x[t, p]                               each request visits each executor of its path on a node
    Σ_{t, p} z[t, p, s, h] / w[s, t, p] ≤ y[s, h]             replicas limit the work on their node
    Σ_h' f[t, p, s, s', h, h'] = z[t, p, s, h]                traffic leaves s on h …
    Σ_h  f[t, p, s, s', h, h'] = z[t, p, s', h']              … and arrives at s' on h'
    Σ_{t, p, (s, s')} b[t, p, s, s'] · f[t, p, s, s', h, h'] ≤ B[h, h']      for h ≠ h', in place of (8)

Flows, in requests per second, are separate for each type and path. If they were summed, the traffic of two paths could
be exchanged and would not cross a link that both paths cross.

With many nodes, the proof takes longer than the search for a plan. The optimum without topology is found faster, and is
an upper bound of all placements. It is therefore solved first. If its replicas can be placed so that the network
carries the traffic, the placement is optimal. Otherwise, its value is given to the solver as a bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter

from cornserve_planner.errors import InfeasibleError, NoPlanFoundError
from cornserve_planner.graph import Edge
from cornserve_planner.plan import Objective, PathRate, Plan
from cornserve_planner.problem import PlanningProblem
from cornserve_planner.solve import optimization
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.cluster import Cluster
from cornserve_planner.solve.solver import SolverEngine, SolverSettings, solve_program
from cornserve_planner.solve.topology_milp import Placement, PlacementProgram, Traffic

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
class PlacedPlan:
    """A plan and the nodes of its replicas.

    Args:
        replicas: by option, the number on each node.
        flows: traffic between nodes.
        unconstrained: value of the objective without network limits, which no placement exceeds.
    """

    plan: Plan
    replicas: Mapping[str, tuple[int, ...]]
    flows: tuple[NodeFlow, ...]
    unconstrained: float

    def bytes_per_second(self, start: int, end: int) -> float:
        """Returns the traffic from one node to another."""
        return math.fsum(flow.bytes_per_second for flow in self.flows if (flow.start, flow.end) == (start, end))


def max_rate(
    problem: PlanningProblem, cluster: Cluster, traffic: Traffic, solver: SolverSettings | None = None
) -> PlacedPlan:
    """Returns the plan and placement with the highest rate on a cluster, without unused replicas.

    If the time limit is reached before the proof, `Plan.bound` limits the distance from the optimum.

    Raises `InfeasibleError` if nothing can be served, and `NoPlanFoundError` if the time limit is too short.
    """
    solver = solver or SolverSettings()
    unconstrained = optimization.max_rate(problem, Budget(gpus=sum(cluster.gpus)), solver)
    search = _PlacementSearch(problem, cluster, traffic, solver, around=unconstrained.rate)
    served, bound = search.placed(unconstrained), unconstrained.bound
    if served is None or served.rate < unconstrained.rate * (1 - SLACK):
        other, bound = search.best_rate(unconstrained)
        served = max(filter(None, (served, other)), key=lambda entry: entry.rate, default=None)
    if served is None:
        raise search.out_of_time()
    if served.rate <= unconstrained.rate * SLACK:
        raise InfeasibleError("bandwidth", "some request type cannot be served over the network between these nodes")
    served = search.without_unused(served)
    bound, relaxation = max(served.rate, bound), max(served.rate, search.relaxed_rate())
    return PlacedPlan(
        plan=search.plan(Objective.RATE, served, served.rate, served.rate, bound, relaxation),
        replicas=served.replicas,
        flows=served.flows,
        unconstrained=unconstrained.value,
    )


def min_gpus(
    problem: PlanningProblem, cluster: Cluster, traffic: Traffic, rate: float, solver: SolverSettings | None = None
) -> PlacedPlan:
    """Returns the plan and placement with the fewest GPUs for a rate: the objective of [C App. A].

    Raises `InfeasibleError` with the highest possible rate if the cluster cannot serve `rate`; other errors as
    `max_rate`.
    """
    solver = solver or SolverSettings()
    unconstrained = optimization.min_gpus(problem, rate, Budget(gpus=sum(cluster.gpus)), solver)
    search = _PlacementSearch(problem, cluster, traffic, solver, around=rate)
    found = search.fewest_gpus(rate, unconstrained)
    if found is None:
        best = max_rate(problem, cluster, traffic, solver)
        raise InfeasibleError(
            "bandwidth",
            f"{rate:g} requests/s are requested, but these nodes and their network serve at most {best.plan.bound:.4g} "
            f"(without network limits: {best.unconstrained:.4g})",
        )
    placement, bound = found
    served, gpus = placement.scaled_to(min(rate, placement.rate)), float(search.gpus(placement))
    bound = min(gpus, bound)
    return PlacedPlan(
        plan=search.plan(Objective.GPUS, served, placement.rate, gpus, bound, min(gpus, unconstrained.relaxation)),
        replicas=served.replicas,
        flows=served.flows,
        unconstrained=unconstrained.value,
    )


@dataclass(frozen=True, slots=True)
class _PlacementRates:
    """The rates that a placement serves."""

    replicas: dict[str, tuple[int, ...]]
    rate: float
    rates: tuple[PathRate, ...]
    flows: tuple[NodeFlow, ...]

    def scaled_to(self, rate: float) -> _PlacementRates:
        factor = rate / self.rate
        rates = tuple(PathRate(type=entry.type, path=entry.path, rate=entry.rate * factor) for entry in self.rates)
        flows = tuple(
            replace(entry, rate=entry.rate * factor, bytes_per_second=entry.bytes_per_second * factor)
            for entry in self.flows
        )
        return _PlacementRates(self.replicas, rate, rates, flows)


class _PlacementSearch:
    """The programs of one cluster. `around` is the approximate rate, from which the unit of time is computed."""

    def __init__(
        self, problem: PlanningProblem, cluster: Cluster, traffic: Traffic, solver: SolverSettings, *, around: float
    ) -> None:
        self._problem, self._cluster, self._traffic, self._solver = problem, cluster, traffic, solver
        self._unit = sum(cluster.gpus) / around
        self._started = perf_counter()

    def placed(self, unconstrained: Plan) -> _PlacementRates | None:
        """Returns the best placement of a plan's replicas, or None if none is found."""
        program = self._program(totals=unconstrained.replicas)
        outcome = solve_program(program.maximize_rate(self._ceiling(unconstrained.bound)), self._solver)
        return self.rates_of(program.placement()) if outcome.feasible else None

    def best_rate(self, unconstrained: Plan) -> tuple[_PlacementRates | None, float]:
        """Returns the placement with the highest rate, for any numbers of replicas, and its bound."""
        program = self._program()
        outcome = solve_program(program.maximize_rate(self._ceiling(unconstrained.bound)), self._solver)
        if not outcome.feasible:
            return None, unconstrained.bound
        return self.rates_of(program.placement()), min(unconstrained.bound, program.per_second(outcome.bound))

    def relaxed_rate(self) -> float:
        program = self._program()
        return program.per_second(solve_program(program.maximize_rate(), self._solver, relaxed=True).bound)

    def fewest_gpus(self, rate: float, unconstrained: Plan) -> tuple[_PlacementRates, float] | None:
        """Returns a placement for a rate and its bound, or None if the rate cannot be served."""
        at_least = math.ceil(unconstrained.bound - SLACK)
        program = self._program(wanted=rate, totals=unconstrained.replicas)
        if solve_program(program.minimize_gpus(at_least), self._solver).feasible:
            return self.rates_of(program.placement()), unconstrained.bound
        program = self._program(wanted=rate)
        outcome = solve_program(program.minimize_gpus(at_least), self._solver)
        if outcome.feasible is None:
            raise self.out_of_time()
        if not outcome.feasible:
            return None
        bound = at_least if math.isnan(outcome.bound) else math.ceil(outcome.bound - SLACK)
        return self.rates_of(program.placement()), max(at_least, bound)

    def rates_of(self, replicas: dict[str, tuple[int, ...]]) -> _PlacementRates:
        """Computes the rates of a placement exactly.

        Solutions are exact only up to the solvers' tolerances, so the rates are scaled until no replica and no link is
        overloaded.
        """
        program = self._program(most=replicas)
        solve_program(program.maximize_rate(), self._solver, relaxed=True)
        fullest = max([1.0, *program.fullness(replicas)])
        rates = [(path, rate / fullest) for path, rate in program.rates()]
        return _PlacementRates(
            replicas=replicas,
            rate=math.fsum(rate for _, rate in rates),
            rates=tuple(PathRate(type=path.type, path=path.name, rate=rate) for path, rate in rates if rate > 0),
            flows=tuple(
                NodeFlow(path.type, path.name, edge, start, end, rate / fullest, size * rate / fullest)
                for path, edge, start, end, rate, size in program.flows()
            ),
        )

    def without_unused(self, served: _PlacementRates) -> _PlacementRates:
        program = self._program(wanted=served.rate * (1 - SLACK), most=served.replicas)
        outcome = solve_program(program.minimize_gpus(), self._solver)
        return self.rates_of(program.placement()) if outcome.feasible else served

    def gpus(self, served: _PlacementRates) -> int:
        return sum(self._problem.option[name].gpus * sum(counts) for name, counts in served.replicas.items())

    def plan(
        self,
        objective: Objective,
        served: _PlacementRates,
        capacity: float,
        value: float,
        bound: float,
        relaxation: float,
    ) -> Plan:
        replicas = {name: sum(counts) for name, counts in served.replicas.items()}
        return Plan(
            objective=objective,
            replicas=replicas,
            rates=served.rates,
            rate=served.rate,
            capacity=capacity,
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
        )

    def _ceiling(self, rate: float) -> float:
        """Returns the upper bound for the solver. CBC 2.10.3 treats a rate with an integer bound as an integer."""
        return rate if self._solver.engine is SolverEngine.HIGHS else math.inf

    def out_of_time(self) -> NoPlanFoundError:
        return NoPlanFoundError(
            f"{self._solver.engine} found no placement in {self._solver.time_limit} s: raise the time limit"
        )
