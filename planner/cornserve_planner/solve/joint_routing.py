"""The nodes on which requests visit the executors of their paths, and the traffic between these nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, product

import pulp

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.graph import Edge
from cornserve_planner.model.problem import RequestPath
from cornserve_planner.solve.cluster import Cluster
from cornserve_planner.solve.tree_decomposition import Bag, decompose

MOST_VARIABLES = 500_000
"""Number of combinations of nodes above which a program does not fit in memory."""

Term = tuple[pulp.LpVariable, float]
Nodes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RoutedPath:
    """A path, the bytes of a request on each edge, and a tree decomposition of these edges."""

    path: RequestPath
    sizes: Mapping[Edge, float]
    bags: tuple[Bag, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bags", decompose(self.sizes))

    @classmethod
    def of(cls, path: RequestPath, sizes: Mapping[Edge, float]) -> RoutedPath:
        """Keeps the edges on which data is sent between options of the path."""
        options = path.seconds.keys()
        return cls(path, {edge: n for edge, n in sizes.items() if n > 0 and edge[0] != edge[1] and options >= {*edge}})

    def edges_in(self, bag: Bag) -> list[tuple[Edge, int, int]]:
        """Returns the edges in a bag, and the positions of their ends."""
        ends = {option: position for position, option in enumerate(bag.options)}
        return [(edge, ends[edge[0]], ends[edge[1]]) for edge in self.sizes if ends.keys() >= {*edge}]


class JointRouting:
    """Variables x[t, p], z[t, p, s, h] and q[t, p, bag, nodes], as documented in `placement.py`.

    Args:
        name: prefix of the variables.
        nodes: by option, the nodes on which requests can visit it.
        unit: the unit of time in seconds.
    """

    def __init__(
        self,
        lp: pulp.LpProblem,
        name: str,
        routes: Sequence[RoutedPath],
        cluster: Cluster,
        nodes: Mapping[str, Sequence[int]],
        unit: float,
    ) -> None:
        self._lp, self._routes, self._cluster, self._nodes, self._unit = lp, routes, cluster, nodes, unit
        self._names = (f"{name}{number}" for number in count())
        _require_manageable(routes, nodes)
        self.x = [self._variable() for _ in routes]
        self._z = [self._visits(routed.path, x) for routed, x in zip(routes, self.x, strict=True)]
        self._q = [
            [self._joint_rates(routed, visits, bag) for bag in routed.bags]
            for routed, visits in zip(routes, self._z, strict=True)
        ]
        for routed, joint in zip(routes, self._q, strict=True):
            self._connect(routed.bags, joint)
        self._add_links()

    @cached_property
    def load(self) -> dict[tuple[str, int], list[Term]]:
        """The replicas that requests keep busy, by option and node."""
        load: dict[tuple[str, int], list[Term]] = {}
        for routed, visits in zip(self._routes, self._z, strict=True):
            for option, rates in visits.items():
                for node, rate in rates.items():
                    load.setdefault((option, node), []).append((rate, routed.path.seconds[option] / self._unit))
        return load

    def sent(self) -> Iterator[tuple[RoutedPath, Edge, int, int, pulp.LpVariable]]:
        """Yields path, edge, start node, end node, and a rate of requests between them."""
        for routed, joint in zip(self._routes, self._q, strict=True):
            seen: set[Edge] = set()
            for bag, rates in zip(routed.bags, joint, strict=True):
                edges = [(edge, start, end) for edge, start, end in routed.edges_in(bag) if edge not in seen]
                seen.update(edge for edge, _, _ in edges)
                for nodes, rate in rates.items():
                    for edge, start, end in edges:
                        if nodes[start] != nodes[end]:
                            yield routed, edge, nodes[start], nodes[end], rate

    def _visits(self, path: RequestPath, x: pulp.LpVariable) -> dict[str, dict[int, pulp.LpVariable]]:
        visits = {option: {node: self._variable() for node in self._nodes[option]} for option in path.seconds}
        for rates in visits.values():
            self._equal(rates.values(), [x])
        return visits

    def _joint_rates(
        self, routed: RoutedPath, visits: Mapping[str, Mapping[int, pulp.LpVariable]], bag: Bag
    ) -> dict[Nodes, pulp.LpVariable]:
        ends = [(start, end) for _, start, end in routed.edges_in(bag)]
        rates = {
            nodes: self._variable()
            for nodes in product(*(self._nodes[option] for option in bag.options))
            if all(nodes[a] == nodes[b] or self._cluster.bandwidth[nodes[a]][nodes[b]] for a, b in ends)
        }
        for position, option in enumerate(bag.options):
            marginal = _marginals(rates, (position,))
            for node, visited in visits[option].items():
                self._equal(marginal.get((node,), ()), [visited])
        return rates

    def _connect(self, bags: Sequence[Bag], joint: Sequence[Mapping[Nodes, pulp.LpVariable]]) -> None:
        """Bags that share several options agree on their nodes. For one option, `_joint_rates` ensures it."""
        for bag, rates in zip(bags, joint, strict=True):
            if bag.parent is not None and len(bag.separator) > 1:
                above = bags[bag.parent].options
                own = _marginals(rates, [bag.options.index(option) for option in bag.separator])
                other = _marginals(joint[bag.parent], [above.index(option) for option in bag.separator])
                for nodes in own.keys() | other.keys():
                    self._equal(own.get(nodes, ()), other.get(nodes, ()))

    def _add_links(self) -> None:
        """(8), as fractions of each link's bandwidth."""
        used: dict[tuple[int, int], list[Term]] = {}
        for routed, edge, start, end, rate in self.sent():
            bandwidth = self._cluster.bandwidth[start][end]
            if not math.isinf(bandwidth):
                used.setdefault((start, end), []).append((rate, routed.sizes[edge] / self._unit / bandwidth))
        for terms in used.values():
            require(self._lp, terms, pulp.LpConstraintLE, 1.0)

    def _equal(self, some: Iterable[pulp.LpVariable], others: Iterable[pulp.LpVariable]) -> None:
        terms = [*((variable, 1.0) for variable in some), *((variable, -1.0) for variable in others)]
        require(self._lp, terms, pulp.LpConstraintEQ, 0.0)

    def _variable(self) -> pulp.LpVariable:
        return self._lp.add_variable(next(self._names), 0)


def require(lp: pulp.LpProblem, terms: Iterable[Term], sense: int, limit: float) -> None:
    """Adds a constraint. Terms with the same variable are added up."""
    total: dict[pulp.LpVariable, float] = {}
    for variable, factor in terms:
        total[variable] = total.get(variable, 0.0) + factor
    lp.addConstraint(pulp.LpConstraint(pulp.LpAffineExpression(total), sense, rhs=limit))


def _marginals(rates: Mapping[Nodes, pulp.LpVariable], positions: Sequence[int]) -> dict[Nodes, list[pulp.LpVariable]]:
    """Groups the rates by the nodes at some positions."""
    found: dict[Nodes, list[pulp.LpVariable]] = {}
    for nodes, rate in rates.items():
        found.setdefault(tuple(nodes[position] for position in positions), []).append(rate)
    return found


def _require_manageable(routes: Sequence[RoutedPath], nodes: Mapping[str, Sequence[int]]) -> None:
    total = sum(math.prod(len(nodes[option]) for option in bag.options) for routed in routes for bag in routed.bags)
    if total > MOST_VARIABLES:
        raise InvalidInputError(
            "cluster",
            f"the paths can be placed on its nodes in {total:,} ways, and at most {MOST_VARIABLES:,} are supported: "
            "plan for fewer nodes, or for fewer paths",
        )
