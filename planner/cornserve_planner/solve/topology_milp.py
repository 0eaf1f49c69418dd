"""The planning problem with topology as a mixed-integer linear program. `placement.py` documents the constraints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import pulp

from cornserve_planner.graph import DeploymentOption, Edge
from cornserve_planner.problem import PlanningProblem, RequestPath
from cornserve_planner.solve.cluster import Cluster

Traffic = Callable[[RequestPath], Mapping[Edge, float]]
"""Returns the bytes b_{s,s'} [C App. A] that a request on a path sends along each edge."""
Placement = Mapping[str, Sequence[int]]
"""Replicas of each option on each node, y[s, h]."""

_Term = tuple[pulp.LpVariable, float]


class PlacementProgram:
    """Variables R, x[t, p], y[s, h], z[t, p, s, h] and f[t, p, s, s', h, h'].

    Args:
        unit: the unit of time in seconds, chosen because solvers use absolute tolerances.
        rate: requests per second to serve; None if the rate is a variable.
        most: upper bounds of the replicas of each option on each node; None for the number that fits.
        totals: fixed numbers of replicas of each option on all nodes together.
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
    ) -> None:
        self._problem, self._cluster, self._unit = problem, cluster, unit
        self._nodes = range(len(cluster.gpus))
        self._routes = [path for path in problem.usable if problem.shares[path.type] > 0]
        self._names = sorted({name for path in self._routes for name in path.seconds})
        self.lp = pulp.LpProblem("placed", pulp.LpMinimize)
        self._rate = None if rate is not None else self._variable("R")
        self._x = [self._variable(f"x{index}") for index in range(len(self._routes))]
        self._y = {name: self._replicas(problem.option[name], most) for name in self._names}
        self._z = [
            {
                name: [self._variable(f"z{index}_{self._names.index(name)}_{node}") for node in self._nodes]
                for name in seconds
            }
            for index, seconds in enumerate(path.seconds for path in self._routes)
        ]
        self._f: dict[tuple[int, Edge, int, int], pulp.LpVariable] = {}
        self._bytes = [traffic(path) for path in self._routes]
        self._add_rates(rate)
        self._add_work()
        self._add_flows()
        self._add_links()
        self._add_gpus()
        for name, count in (totals or {}).items():
            self._require([(y, 1.0) for y in self._y[name]], pulp.LpConstraintEQ, float(count))

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
        self._require(gpus, pulp.LpConstraintGE, float(at_least))
        self.lp.sense = pulp.LpMinimize
        self.lp.setObjective(pulp.LpAffineExpression(gpus))
        return self.lp

    def per_second(self, rate: float) -> float:
        return rate / self._unit

    def placement(self) -> dict[str, tuple[int, ...]]:
        found = {name: tuple(round(y.varValue or 0) for y in replicas) for name, replicas in self._y.items()}
        return {name: replicas for name, replicas in found.items() if any(replicas)}

    def rates(self) -> list[tuple[RequestPath, float]]:
        return [(path, self._solved(x)) for path, x in zip(self._routes, self._x, strict=True)]

    def fullness(self, placement: Placement) -> Iterator[float]:
        """Yields the used fraction of each option's replicas on each node, and of each link."""
        busy: dict[tuple[str, int], float] = {}
        for path, visits in zip(self._routes, self._z, strict=True):
            for name, rates in visits.items():
                for node, rate in enumerate(rates):
                    busy[name, node] = busy.get((name, node), 0.0) + self._solved(rate) * path.seconds[name]
        for (name, node), replicas in busy.items():
            if name in placement and placement[name][node]:
                yield replicas / placement[name][node]
        sent: dict[tuple[int, int], float] = {}
        for _, _, start, end, rate, size in self.flows():
            sent[start, end] = sent.get((start, end), 0.0) + rate * size
        for (start, end), bytes_per_second in sent.items():
            if bandwidth := self._cluster.bandwidth[start][end]:
                yield bytes_per_second / bandwidth

    def flows(self) -> Iterator[tuple[RequestPath, Edge, int, int, float, float]]:
        """Yields path, edge, start node, end node, requests per second, and bytes per request."""
        for (index, edge, start, end), variable in self._f.items():
            if start != end and (rate := self._solved(variable)) > 0:
                yield self._routes[index], edge, start, end, rate, self._bytes[index][edge]

    def _solved(self, variable: pulp.LpVariable) -> float:
        return self.per_second(max(0.0, variable.varValue or 0.0))

    def _option(self, name: str) -> DeploymentOption:
        return self._problem.option[name]

    def _replicas(self, option: DeploymentOption, most: Placement | None) -> list[pulp.LpVariable]:
        fit = [gpus // option.gpus for gpus in self._cluster.gpus]
        limits = fit if most is None else most.get(option.name, [0] * len(fit))
        index = self._names.index(option.name)
        return [self.lp.add_variable(f"y{index}_{node}", 0, limit, pulp.LpInteger) for node, limit in enumerate(limits)]

    def _add_rates(self, wanted: float | None) -> None:
        """(4): divides each type's rate among its paths."""
        for name, share in self._problem.shares.items():
            terms = [(x, 1.0) for x, path in zip(self._x, self._routes, strict=True) if path.type == name]
            if not terms:
                continue
            if self._rate is not None:
                self._require([*terms, (self._rate, -share)], pulp.LpConstraintEQ, 0.0)
            elif wanted is not None:
                self._require(terms, pulp.LpConstraintEQ, share * wanted * self._unit)

    def _add_work(self) -> None:
        """Replaces (5): each request visits each executor of its path on some node and uses replicas there."""
        load: dict[tuple[str, int], list[_Term]] = {}
        for path, x, visits in zip(self._routes, self._x, self._z, strict=True):
            for name, rates in visits.items():
                self._require([(x, -1.0), *((z, 1.0) for z in rates)], pulp.LpConstraintEQ, 0.0)
                for node, z in enumerate(rates):
                    load.setdefault((name, node), []).append((z, path.seconds[name] / self._unit))
        for (name, node), terms in load.items():
            self._require([*terms, (self._y[name][node], -1.0)], pulp.LpConstraintLE, 0.0)

    def _add_flows(self) -> None:
        """Replaces (7): data that leaves an executor on a node arrives at the next executor on a node."""
        for index, traffic in enumerate(self._bytes):
            for number, (edge, size) in enumerate(traffic.items()):
                if size <= 0 or not set(edge) <= self._z[index].keys():
                    continue
                for start in self._nodes:
                    for end in self._nodes:
                        name = f"f{index}_{number}_{start}_{end}"
                        self._f[index, edge, start, end] = self._variable(name)
                for node in self._nodes:
                    leaves = [(self._f[index, edge, node, end], 1.0) for end in self._nodes]
                    arrives = [(self._f[index, edge, start, node], 1.0) for start in self._nodes]
                    producer, consumer = (self._z[index][name][node] for name in edge)
                    self._require([*leaves, (producer, -1.0)], pulp.LpConstraintEQ, 0.0)
                    self._require([*arrives, (consumer, -1.0)], pulp.LpConstraintEQ, 0.0)

    def _add_links(self) -> None:
        """(8), as fractions of each link's bandwidth."""
        used: dict[tuple[int, int], list[_Term]] = {}
        for (index, edge, start, end), flow in self._f.items():
            bandwidth = self._cluster.bandwidth[start][end]
            if start == end or math.isinf(bandwidth):
                continue
            if bandwidth == 0:
                flow.upBound = 0
            else:
                share = self._bytes[index][edge] / self._unit / bandwidth
                used.setdefault((start, end), []).append((flow, share))
        for terms in used.values():
            self._require(terms, pulp.LpConstraintLE, 1.0)

    def _add_gpus(self) -> None:
        """(6): limits the GPUs of each node."""
        for node, gpus in enumerate(self._cluster.gpus):
            terms = [(self._y[name][node], float(self._option(name).gpus)) for name in self._names]
            self._require(terms, pulp.LpConstraintLE, float(gpus))

    def _variable(self, name: str) -> pulp.LpVariable:
        return self.lp.add_variable(name, 0)

    def _require(self, terms: Sequence[_Term], sense: int, limit: float) -> None:
        self.lp.addConstraint(pulp.LpConstraint(pulp.LpAffineExpression(list(terms)), sense, rhs=limit))
