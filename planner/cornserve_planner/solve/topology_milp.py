"""The planning problem with topology as a mixed-integer linear program. `placement.py` documents the constraints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pulp

from cornserve_planner.model.graph import DeploymentOption, Edge
from cornserve_planner.model.problem import PlanningProblem, RequestPath
from cornserve_planner.model.solution import Loss
from cornserve_planner.solve.cluster import Cluster
from cornserve_planner.solve.joint_routing import JointRouting, RoutedPath, Term, require

Traffic = Callable[[RequestPath], Mapping[Edge, float]]
"""Returns the bytes b_{s,s'} [C App. A] that a request on a path sends along each edge."""
Placement = Mapping[str, Sequence[int]]
"""Replicas of each option on each node, y[s, h]."""


@dataclass(frozen=True, slots=True)
class LostReplicas:
    """The loss of one replica of an option on a node; without an option, of all replicas on a node; without a node, of
    nothing."""

    option: str | None = None
    node: int | None = None

    @property
    def all(self) -> bool:
        return self.option is None

    def remaining(self, placement: Placement) -> dict[str, tuple[int, ...]]:
        """Returns the replicas that are left."""
        return {
            name: tuple(
                count if node != self.node else 0 if self.all else max(0, count - (name == self.option))
                for node, count in enumerate(counts)
            )
            for name, counts in placement.items()
        }


def losses(survive: Loss | None, options: Iterable[str], nodes: int) -> list[LostReplicas]:
    """Returns the losses after which a rate is served."""
    match survive:
        case Loss.REPLICA:
            return [LostReplicas(name, node) for name in options for node in range(nodes)]
        case Loss.NODE:
            return [LostReplicas(node=node) for node in range(nodes)]
        case None:
            return [LostReplicas()]


class PlacementProgram:
    """Variables R, y[s, h], and those of `JointRouting`, once for each loss that the plan survives.

    Args:
        unit: the unit of time in seconds, chosen because solvers use absolute tolerances.
        rate: requests per second to serve; None if the rate is a variable.
        most: upper bounds of the replicas of each option on each node; None for the number that fits.
        totals: fixed numbers of replicas of each option on all nodes together.
        survive: the loss after which the rate is served; None for no loss.
    """

    def __init__(
        self,
        problem: PlanningProblem,
        cluster: Cluster,
        traffic: Traffic,
        *,
        unit: float,
        rate: float | None = None,
        most: Placement | None = None,
        totals: Mapping[str, int] | None = None,
        survive: Loss | None = None,
    ) -> None:
        self._problem, self._cluster, self._unit = problem, cluster, unit
        self._nodes = range(len(cluster.gpus))
        self._routes = [RoutedPath.of(path, traffic(path)) for path in problem.usable if problem.shares[path.type] > 0]
        self._names = sorted({name for routed in self._routes for name in routed.path.seconds})
        self.lp = pulp.LpProblem("placed", pulp.LpMinimize)
        self._rate = None if rate is not None else self.lp.add_variable("R", 0)
        self._y = {name: self._replicas(problem.option[name], most) for name in self._names}
        self._routings = [
            self._routing(f"l{index}_", lost, rate)
            for index, lost in enumerate(losses(survive, self._names, len(cluster.gpus)))
        ]
        self._add_gpus()
        for name, count in (totals or {}).items():
            require(self.lp, [(y, 1.0) for y in self._y[name]], pulp.LpConstraintEQ, float(count))

    def maximize_rate(self, at_most: float = math.inf) -> pulp.LpProblem:
        """Maximizes the rate. `at_most` is a known upper bound in requests per second."""
        assert self._rate is not None
        self._rate.upBound = at_most * self._unit if math.isfinite(at_most) else None
        self.lp.sense = pulp.LpMaximize
        self.lp.setObjective(self._rate + 0.0)
        return self.lp

    def minimize_gpus(self, at_least: int = 0) -> pulp.LpProblem:
        """Minimizes the GPUs. `at_least` is a known lower bound."""
        gpus = [(y, float(self._option(name).gpus)) for name, replicas in self._y.items() for y in replicas]
        require(self.lp, gpus, pulp.LpConstraintGE, float(at_least))
        self.lp.sense = pulp.LpMinimize
        self.lp.setObjective(pulp.LpAffineExpression(gpus))
        return self.lp

    def per_second(self, rate: float) -> float:
        return rate / self._unit

    def solved_rate(self) -> float:
        assert self._rate is not None
        return self._solved(self._rate)

    def placement(self) -> dict[str, tuple[int, ...]]:
        found = {name: tuple(round(y.varValue or 0) for y in replicas) for name, replicas in self._y.items()}
        return {name: replicas for name, replicas in found.items() if any(replicas)}

    def rates(self) -> list[tuple[RequestPath, float]]:
        """Returns the rates on the paths before a loss."""
        return [(routed.path, self._solved(x)) for routed, x in zip(self._routes, self._routings[0].x, strict=True)]

    def fullness(self, placement: Placement) -> Iterator[float]:
        """Yields the used fraction of each option's replicas on each node, and of each link, before a loss."""
        for (name, node), terms in self._routings[0].load.items():
            if name in placement and placement[name][node]:
                yield math.fsum(max(0.0, z.varValue or 0.0) * work for z, work in terms) / placement[name][node]
        sent: dict[tuple[int, int], float] = {}
        for _, _, start, end, rate, size in self.flows():
            sent[start, end] = sent.get((start, end), 0.0) + rate * size
        for (start, end), bytes_per_second in sent.items():
            if bandwidth := self._cluster.bandwidth[start][end]:
                yield bytes_per_second / bandwidth

    def flows(self) -> Iterator[tuple[RequestPath, Edge, int, int, float, float]]:
        """Yields path, edge, start node, end node, requests per second, and bytes per request, before a loss."""
        found: dict[tuple[int, Edge, int, int], float] = {}
        numbers = {id(routed): index for index, routed in enumerate(self._routes)}
        for routed, edge, start, end, variable in self._routings[0].sent():
            if rate := self._solved(variable):
                key = numbers[id(routed)], edge, start, end
                found[key] = found.get(key, 0.0) + rate
        for (index, edge, start, end), rate in found.items():
            yield self._routes[index].path, edge, start, end, rate, self._routes[index].sizes[edge]

    def _solved(self, variable: pulp.LpVariable) -> float:
        return self.per_second(max(0.0, variable.varValue or 0.0))

    def _option(self, name: str) -> DeploymentOption:
        return self._problem.option[name]

    def _replicas(self, option: DeploymentOption, most: Placement | None) -> list[pulp.LpVariable]:
        fit = [gpus // option.gpus for gpus in self._cluster.gpus]
        limits = fit if most is None else most.get(option.name, [0] * len(fit))
        index = self._names.index(option.name)
        return [self.lp.add_variable(f"y{index}_{node}", 0, limit, pulp.LpInteger) for node, limit in enumerate(limits)]

    def _routing(self, prefix: str, lost: LostReplicas, wanted: float | None) -> JointRouting:
        nodes = {
            name: [node for node, y in enumerate(self._y[name]) if y.upBound and not (lost.all and node == lost.node)]
            for name in self._names
        }
        routing = JointRouting(self.lp, prefix, self._routes, self._cluster, nodes, self._unit)
        self._add_rates(routing, wanted)
        for (name, node), terms in routing.load.items():
            supply = [(self._y[name][node], -1.0)]
            if (name, node) == (lost.option, lost.node):
                supply.append((self._has_replica(name, node), 1.0))
            require(self.lp, [*terms, *supply], pulp.LpConstraintLE, 0.0)
        return routing

    def _has_replica(self, name: str, node: int) -> pulp.LpVariable:
        y = self._y[name][node]
        has = self.lp.add_variable(f"k{self._names.index(name)}_{node}", 0, 1, pulp.LpInteger)
        require(self.lp, [(y, 1.0), (has, -float(y.upBound or 0))], pulp.LpConstraintLE, 0.0)
        return has

    def _add_rates(self, routing: JointRouting, wanted: float | None) -> None:
        """(4): divides each type's rate among its paths."""
        by_type: dict[str, list[Term]] = {}
        for routed, x in zip(self._routes, routing.x, strict=True):
            by_type.setdefault(routed.path.type, []).append((x, 1.0))
        for name, terms in by_type.items():
            share = self._problem.shares[name]
            if self._rate is not None:
                require(self.lp, [*terms, (self._rate, -share)], pulp.LpConstraintEQ, 0.0)
            elif wanted is not None:
                require(self.lp, terms, pulp.LpConstraintEQ, share * wanted * self._unit)

    def _add_gpus(self) -> None:
        """(6): limits the GPUs of each node."""
        for node, gpus in enumerate(self._cluster.gpus):
            terms = [(self._y[name][node], float(self._option(name).gpus)) for name in self._names]
            require(self.lp, terms, pulp.LpConstraintLE, float(gpus))
