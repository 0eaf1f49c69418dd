"""Planning with the network between nodes ([C] Appendix A), in a form that ties traffic to where replicas are.

As printed, Appendix A has replicas `y[s, h]` of an executor on a node, and bandwidth `f[s, s', h, h']` that traffic of
an edge uses between two nodes, but no constraint with both: (7) only asks that an edge's traffic adds up over *all*
pairs of nodes, and pairs (h, h) are free. So all of it may flow within a node that has no replica of either end, and
bandwidth never binds. Linked, with rates `z[t, p, s, h]` of a path at its executors' nodes in place of (5) and (7):

    Σ_h z[t, p, s, h] = x[t, p]                               each request visits each executor of its path somewhere
    Σ_{t, p} z[t, p, s, h] / w[s, t, p] ≤ y[s, h]             work is done where replicas are
    Σ_h' f[t, p, s, s', h, h'] = z[t, p, s, h]                what leaves s on h …
    Σ_h  f[t, p, s, s', h, h'] = z[t, p, s', h']              … arrives at s' on h'
    Σ_{t, p, (s, s')} b[t, p, s, s'] · f[t, p, s, s', h, h'] ≤ B[h, h']      for h ≠ h', in place of (8)

Flows, in requests per second, stay apart by type and path: added up, the traffic of two paths could trade places, and
cross no link where both do.

On many nodes it is the proof that takes long, not the plan. Without topology the optimum is found sooner, and no
placement is better. So it is found first; if its replicas can be placed so that the network carries the traffic,
nothing is left to prove; else the solver is told that nothing is better.
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
from cornserve_planner.solve import milp
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.cluster import Cluster
from cornserve_planner.solve.placement_program import Placement, PlacementProgram, Traffic
from cornserve_planner.solve.solver import SolverEngine, SolverSettings, solve_program

SLACK = 1e-6
"""By which fraction a placed plan may miss a rate: the tolerance to which solvers keep integers."""


@dataclass(frozen=True, slots=True)
class NodeFlow:
    """Requests of a type on a path, per second, whose data goes from one node to another."""

    type: str
    path: str
    edge: Edge
    start: int
    end: int
    rate: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class PlacedPlan:
    """A plan, and where it runs.

    Args:
        replicas: of each option, on each node.
        flows: between nodes.
        unconstrained: the objective's value without regard to the network: no placement is better.
    """

    plan: Plan
    replicas: Mapping[str, tuple[int, ...]]
    flows: tuple[NodeFlow, ...]
    unconstrained: float

    def bytes_per_second(self, start: int, end: int) -> float:
        """From one node to another."""
        return math.fsum(flow.bytes_per_second for flow in self.flows if (flow.start, flow.end) == (start, end))


def max_rate(
    problem: PlanningProblem, cluster: Cluster, traffic: Traffic, solver: SolverSettings | None = None
) -> PlacedPlan:
    """The plan and its placement with the highest rate on a cluster, without replicas that nothing needs.

    `Plan.bound` says how good it is known to be where the time is over before the proof.

    Raises `InfeasibleError` if nothing can be served, `NoPlanFoundError` if no plan was found in time.
    """
    solver = solver or SolverSettings()
    free = milp.max_rate(problem, Budget(gpus=sum(cluster.gpus)), solver)
    search = _Search(problem, cluster, traffic, solver, around=free.rate)
    served, bound = search.placed(free), free.bound
    if served is None or served.rate < free.rate * (1 - SLACK):
        other, bound = search.best_rate(free)
        served = max(filter(None, (served, other)), key=lambda entry: entry.rate, default=None)
    if served is None:
        raise search.out_of_time()
    if served.rate <= free.rate * SLACK:
        raise InfeasibleError("bandwidth", "some request type cannot be served over the network between these nodes")
    served = search.without_idle(served)
    bound, relaxation = max(served.rate, bound), max(served.rate, search.relaxed_rate())
    return PlacedPlan(
        plan=search.plan(Objective.RATE, served, served.rate, served.rate, bound, relaxation),
        replicas=served.replicas,
        flows=served.flows,
        unconstrained=free.value,
    )


def min_gpus(
    problem: PlanningProblem, cluster: Cluster, traffic: Traffic, rate: float, solver: SolverSettings | None = None
) -> PlacedPlan:
    """The plan and its placement with the fewest GPUs for a rate, in requests per second: [C App. A]'s objective.

    Raises `InfeasibleError` if the cluster cannot serve it, with the rate that it can, and otherwise as `max_rate`.
    """
    solver = solver or SolverSettings()
    free = milp.min_gpus(problem, rate, Budget(gpus=sum(cluster.gpus)), solver)
    search = _Search(problem, cluster, traffic, solver, around=rate)
    found = search.fewest_gpus(rate, free)
    if found is None:
        best = max_rate(problem, cluster, traffic, solver)
        raise InfeasibleError(
            "bandwidth",
            f"{rate:g} requests/s are requested, but these nodes and their network serve at most {best.plan.bound:.4g} "
            f"(without network limits: {best.unconstrained:.4g})",
        )
    most, bound = found
    served, gpus = most.scaled_to(min(rate, most.rate)), float(search.gpus(most))
    bound = min(gpus, bound)
    return PlacedPlan(
        plan=search.plan(Objective.GPUS, served, most.rate, gpus, bound, min(gpus, free.relaxation)),
        replicas=served.replicas,
        flows=served.flows,
        unconstrained=free.value,
    )


@dataclass(frozen=True, slots=True)
class _Served:
    """The most that a placement serves."""

    replicas: dict[str, tuple[int, ...]]
    rate: float
    rates: tuple[PathRate, ...]
    flows: tuple[NodeFlow, ...]

    def scaled_to(self, rate: float) -> _Served:
        factor = rate / self.rate
        rates = tuple(PathRate(type=entry.type, path=entry.path, rate=entry.rate * factor) for entry in self.rates)
        flows = tuple(
            replace(entry, rate=entry.rate * factor, bytes_per_second=entry.bytes_per_second * factor)
            for entry in self.flows
        )
        return _Served(self.replicas, rate, rates, flows)


class _Search:
    """The programs of one cluster. `around`: about the rate that comes out, of which their unit of time is made."""

    def __init__(
        self, problem: PlanningProblem, cluster: Cluster, traffic: Traffic, solver: SolverSettings, *, around: float
    ) -> None:
        self._problem, self._cluster, self._traffic, self._solver = problem, cluster, traffic, solver
        self._unit = sum(cluster.gpus) / around
        self._started = perf_counter()

    def placed(self, free: Plan) -> _Served | None:
        """The most that the replicas of a plan serve, wherever they are placed; None if none can be found."""
        program = self._program(totals=free.replicas)
        outcome = solve_program(program.maximize_rate(self._ceiling(free.bound)), self._solver)
        return self.served_by(program.placement()) if outcome.feasible else None

    def best_rate(self, free: Plan) -> tuple[_Served | None, float]:
        """The most that any replicas serve, wherever they are placed, and its bound."""
        program = self._program()
        outcome = solve_program(program.maximize_rate(self._ceiling(free.bound)), self._solver)
        if not outcome.feasible:
            return None, free.bound
        return self.served_by(program.placement()), min(free.bound, program.per_second(outcome.bound))

    def relaxed_rate(self) -> float:
        program = self._program()
        return program.per_second(solve_program(program.maximize_rate(), self._solver, relaxed=True).bound)

    def fewest_gpus(self, rate: float, free: Plan) -> tuple[_Served, float] | None:
        """A placement for a rate, and its bound; None if there is none."""
        at_least = math.ceil(free.bound - SLACK)
        program = self._program(wanted=rate, totals=free.replicas)
        if solve_program(program.minimize_gpus(at_least), self._solver).feasible:
            return self.served_by(program.placement()), free.bound
        program = self._program(wanted=rate)
        outcome = solve_program(program.minimize_gpus(at_least), self._solver)
        if outcome.feasible is None:
            raise self.out_of_time()
        if not outcome.feasible:
            return None
        bound = at_least if math.isnan(outcome.bound) else math.ceil(outcome.bound - SLACK)
        return self.served_by(program.placement()), max(at_least, bound)

    def served_by(self, replicas: dict[str, tuple[int, ...]]) -> _Served:
        """What solvers return is exact to their tolerances only: so whole replicas are taken from them, and rates
        scaled until no replica and no link has more than it can."""
        program = self._program(most=replicas)
        solve_program(program.maximize_rate(), self._solver, relaxed=True)
        fullest = max([1.0, *program.fullness(replicas)])
        rates = [(path, rate / fullest) for path, rate in program.rates()]
        return _Served(
            replicas=replicas,
            rate=math.fsum(rate for _, rate in rates),
            rates=tuple(PathRate(type=path.type, path=path.name, rate=rate) for path, rate in rates if rate > 0),
            flows=tuple(
                NodeFlow(path.type, path.name, edge, start, end, rate / fullest, size * rate / fullest)
                for path, edge, start, end, rate, size in program.flows()
            ),
        )

    def without_idle(self, served: _Served) -> _Served:
        program = self._program(wanted=served.rate * (1 - SLACK), most=served.replicas)
        outcome = solve_program(program.minimize_gpus(), self._solver)
        return self.served_by(program.placement()) if outcome.feasible else served

    def gpus(self, served: _Served) -> int:
        return sum(self._problem.option[name].gpus * sum(counts) for name, counts in served.replicas.items())

    def plan(
        self,
        objective: Objective,
        served: _Served,
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
        """CBC 2.10.3 takes a rate whose limit is a whole number for a whole number, and proves what is not so."""
        return rate if self._solver.engine is SolverEngine.HIGHS else math.inf

    def out_of_time(self) -> NoPlanFoundError:
        return NoPlanFoundError(
            f"{self._solver.engine} found no placement in {self._solver.time_limit} s: raise the time limit"
        )
