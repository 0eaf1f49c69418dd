"""The planning problem without topology as a mixed-integer linear program [C App. B].

Solvers use absolute tolerances, so all quantities are scaled. The unit of time is the time that the mean request needs
on the paths that use replicas least. Rates are then close to the numbers of replicas for any model. Rates on paths are
fractions of their type's share, so that rare types have the same precision as common ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import pulp

from cornserve_planner.model.problem import PlanningProblem, RequestPath
from cornserve_planner.model.solution import Objective
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.dominance import undominated
from cornserve_planner.solve.plan_size import PlanSize

_Term = tuple[pulp.LpVariable, float]

NEARLY_IDLE = 1e-3
"""Replicas that a path keeps busy. Solvers do not notice loads of less than their tolerance of 1e-6."""


class MilpProgram:
    """Variables x_{t,p} / π_t (rates on paths), r_s (replicas) and R (the total rate).

    A rate that is served after the loss of a replica needs its own rates on paths for each loss: requests take other
    paths after it. If no replica of the lost option runs, nothing is lost.

    Args:
        rate: requests per second to serve; None if the rate is a variable.
        replicas: fixed numbers of replicas. The problem is then a linear program over paths that use only these
            options.
        ceiling: an upper bound of the requests per second, which limits the useful numbers of replicas.
        whole: False for the relaxation.
        strict: whether each path that keeps less than one replica busy requires a replica explicitly. Otherwise, only
            paths with loads that are close to the solvers' tolerances do, which is much faster.
        losses: options; after the loss of one replica of any of them, the rate is served.
    """

    def __init__(
        self,
        problem: PlanningProblem,
        budget: Budget,
        *,
        rate: float | None = None,
        replicas: Mapping[str, int] | None = None,
        ceiling: float | None = None,
        whole: bool = True,
        strict: bool = False,
        losses: Sequence[str] = (),
    ) -> None:
        self.problem = problem
        self.paths = [
            path
            for path in undominated(problem.usable)
            if problem.shares[path.type] > 0 and (replicas is None or replicas.keys() >= path.seconds.keys())
        ]
        self.unit = 1 / rate if rate is not None else self._unit_of_time()
        self.lp = pulp.LpProblem("plan", pulp.LpMinimize)
        self.rate: pulp.LpVariable | None = self.lp.add_variable("R", 0) if rate is None else None
        self._names = list(dict.fromkeys(name for path in self.paths for name in path.seconds))
        self._flows = {lost: self._paths_after(index) for index, lost in enumerate(losses or [None])}
        ceiling = rate if rate is not None else ceiling
        self.replicas = self._replicas(budget, ceiling, spare=len(losses) > 0) if replicas is None else {}
        for lost, flows in self._flows.items():
            if replicas is None:
                supply = {name: [(r, 1.0)] for name, r in self.replicas.items()}
                if lost in supply:
                    supply[lost].append((self._has_replica(lost), -1.0))
                self._add_capacities(flows, {name: (terms, 0) for name, terms in supply.items()})
                if whole and ceiling:
                    self._add_openings(flows, supply, ceiling, 1.0 if strict else NEARLY_IDLE)
            else:
                self._add_capacities(flows, {name: ([], replicas.get(name, 0)) for name in self._names})
        if replicas is None:
            self._add_budget(budget)

    def maximize_rate(self) -> pulp.LpProblem:
        assert self.rate is not None
        self.lp.sense = pulp.LpMaximize
        self.lp.setObjective(pulp.LpAffineExpression([(self.rate, 1.0)]))
        return self.lp

    def minimize(self, objective: Objective) -> pulp.LpProblem:
        """Minimizes GPUs or dollars."""
        terms = [(variable, self.cost({name: 1}, objective)) for name, variable in self.replicas.items()]
        self.lp.setObjective(pulp.LpAffineExpression(terms))
        return self.lp

    def minimize_size(self, better_than: PlanSize) -> pulp.LpProblem:
        """Minimizes the `PlanSize` in one solve, with weights. The program is infeasible if no plan is better than the
        known one."""
        option = self.problem.option
        components = {name: len(option[name].components) for name in self.replicas}
        kind = 1 + better_than.gpus * max((n / option[name].gpus for name, n in components.items()), default=0.0)
        gpu = kind * (len(self.replicas) + 1)
        terms = [(r, gpu * option[name].gpus + components[name]) for name, r in self.replicas.items()]
        for index, variable in enumerate(self.replicas.values()):
            runs = self.lp.add_variable(f"k{index}", 0, 1, pulp.LpInteger)
            self._require([(variable, 1.0), (runs, -float(variable.upBound or 0))], pulp.LpConstraintLE, 0.0)
            terms.append((runs, kind))
        known = better_than.gpus * gpu + better_than.kinds * kind + better_than.components
        self._require(terms, pulp.LpConstraintLE, known - 1)
        self.lp.setObjective(pulp.LpAffineExpression(terms))
        return self.lp

    def cost(self, replicas: Mapping[str, int], objective: Objective) -> float:
        """Returns GPUs or dollars per hour."""
        option = self.problem.option
        if objective is Objective.DOLLARS:
            return math.fsum(self.problem.price(option[name]) * count for name, count in replicas.items())
        return float(sum(option[name].gpus * count for name, count in replicas.items()))

    def value(self) -> float:
        """Returns the value of the objective in the solution."""
        return float(pulp.value(self.lp.objective))

    def solved_rate(self) -> float:
        """Returns R, in requests per second."""
        assert self.rate is not None
        return self.per_second(self.rate.varValue or 0.0)

    def per_second(self, rate: float) -> float:
        return rate / self.unit

    def solved_replicas(self) -> dict[str, int]:
        found = {name: round(variable.varValue or 0) for name, variable in self.replicas.items()}
        return {option.name: found[option.name] for option in self.problem.options if found.get(option.name)}

    def solved_rates(self) -> list[tuple[RequestPath, float]]:
        return [
            (path, self.problem.shares[path.type] * self.per_second(variable.varValue or 0.0))
            for path, variable in zip(self.paths, next(iter(self._flows.values())), strict=True)
        ]

    def _unit_of_time(self) -> float:
        least: dict[str, float] = {}
        for path in self.paths:
            spent = sum(path.seconds.values())
            least[path.type] = min(spent, least.get(path.type, math.inf))
        return sum(self.problem.shares[name] * spent for name, spent in least.items())

    def _paths_after(self, index: int) -> list[pulp.LpVariable]:
        """Equations 10 and 13: divides each type's rate among its paths."""
        flows = [self.lp.add_variable(f"x{index}_{number}", 0) for number in range(len(self.paths))]
        by_type: dict[str, list[_Term]] = {}
        for x, path in zip(flows, self.paths, strict=True):
            by_type.setdefault(path.type, []).append((x, 1.0))
        for terms in by_type.values():
            if self.rate is None:
                self._require(terms, pulp.LpConstraintEQ, 1.0)
            else:
                self._require([*terms, (self.rate, -1.0)], pulp.LpConstraintEQ, 0.0)
        return flows

    def _add_capacities(self, flows: list[pulp.LpVariable], supply: Mapping[str, tuple[list[_Term], int]]) -> None:
        """Equations 11 and 14: a replica supplies one unit of work per unit of time."""
        load: dict[str, list[_Term]] = {}
        for path, x in zip(self.paths, flows, strict=True):
            for name, seconds in path.seconds.items():
                load.setdefault(name, []).append((x, self.problem.shares[path.type] * seconds / self.unit))
        for name, terms in load.items():
            replicas, count = supply[name]
            self._require([*terms, *_negated(replicas)], pulp.LpConstraintLE, float(count))

    def _add_openings(
        self, flows: list[pulp.LpVariable], supply: Mapping[str, list[_Term]], ceiling: float, most: float
    ) -> None:
        """Requires a replica for every option of used paths that keep at most `most` replicas busy, even if the load is
        below the solver's tolerance.

        Without these constraints, a type with one request in a million would be served by no replica.
        """
        for path, x in zip(self.paths, flows, strict=True):
            for name, seconds in path.seconds.items():
                if self.problem.shares[path.type] * seconds * ceiling < most:
                    terms = [(x, 1 / (ceiling * self.unit)), *_negated(supply[name])]
                    self._require(terms, pulp.LpConstraintLE, 0.0)

    def _has_replica(self, name: str) -> pulp.LpVariable:
        has = self.lp.add_variable(f"l{self._names.index(name)}", 0, 1, pulp.LpInteger)
        most = self.replicas[name].upBound
        self._require([(self.replicas[name], 1.0), (has, -float(most or 0))], pulp.LpConstraintLE, 0.0)
        return has

    def _add_budget(self, budget: Budget) -> None:
        """Equation 15, and similar limits for GPU types and for dollars."""
        option = self.problem.option
        if budget.gpus is not None:
            terms = [(variable, float(option[name].gpus)) for name, variable in self.replicas.items()]
            self._require(terms, pulp.LpConstraintLE, float(budget.gpus))
        for gpu, limit in budget.gpus_of.items():
            terms = [(r, float(option[name].gpus)) for name, r in self.replicas.items() if option[name].gpu == gpu]
            self._require(terms, pulp.LpConstraintLE, float(limit))
        if budget.dollars is not None:
            terms = [(variable, self.problem.price(option[name])) for name, variable in self.replicas.items()]
            self._require(terms, pulp.LpConstraintLE, budget.dollars)

    def _replicas(self, budget: Budget, ceiling: float | None, spare: bool) -> dict[str, pulp.LpVariable]:
        return {
            name: self.lp.add_variable(f"r{index}", 0, limit, pulp.LpInteger)
            for index, name in enumerate(self._names)
            for limit in [self._most_replicas(name, budget, ceiling, spare)]
        }

    def _most_replicas(self, name: str, budget: Budget, ceiling: float | None, spare: bool) -> int | None:
        """Returns the number of replicas that the budget allows and that the maximum load can keep busy. `spare` adds
        one that can be lost."""
        option = self.problem.option[name]
        limits: list[float] = []
        if budget.gpus is not None:
            limits.append(budget.gpus // option.gpus)
        if option.gpu is not None and option.gpu in budget.gpus_of:
            limits.append(budget.gpus_of[option.gpu] // option.gpus)
        if budget.dollars is not None:
            limits.append(math.floor(budget.dollars / self.problem.price(option) + 1e-9))
        if ceiling is not None:
            longest: dict[str, float] = {}
            for path in self.paths:
                if name in path.seconds:
                    longest[path.type] = max(path.seconds[name], longest.get(path.type, 0.0))
            busy = ceiling * sum(self.problem.shares[kind] * seconds for kind, seconds in longest.items())
            limits.append(math.ceil(busy * (1 + 1e-9)) + spare)
        return int(min(limits)) if limits else None

    def _require(self, terms: Iterable[_Term], sense: int, limit: float) -> None:
        self.lp.addConstraint(pulp.LpConstraint(pulp.LpAffineExpression(list(terms)), sense, rhs=limit))


def _negated(terms: Iterable[_Term]) -> list[_Term]:
    return [(variable, -factor) for variable, factor in terms]
