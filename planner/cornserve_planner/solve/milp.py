"""The planning problem without topology as a mixed-integer linear program [C App. B].

Solvers use absolute tolerances, so all quantities are scaled. The unit of time is the time that the mean request needs
on the paths that use replicas least. Rates are then close to the numbers of replicas for any model. Rates on paths are
fractions of their type's share, so that rare types have the same precision as common ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property

import pulp

from cornserve_planner.plan import Objective
from cornserve_planner.problem import PlanningProblem, RequestPath
from cornserve_planner.solve.budget import Budget


class MilpProgram:
    """Variables x_{t,p} / π_t (rates on paths), r_s (replicas) and R (the total rate).

    Args:
        rate: requests per second to serve; None if the rate is a variable.
        replicas: fixed numbers of replicas. The problem is then a linear program over paths that use only these
            options.
        ceiling: an upper bound of the requests per second, which limits the useful numbers of replicas.
        whole: False for the relaxation.
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
    ) -> None:
        self.problem = problem
        self.paths = [
            path
            for path in undominated(problem.usable)
            if problem.shares[path.type] > 0 and (replicas is None or replicas.keys() >= path.seconds.keys())
        ]
        self.unit = 1 / rate if rate is not None else self._unit_of_time()
        self.lp = pulp.LpProblem("plan", pulp.LpMinimize)
        self.x = [self.lp.add_variable(f"x{index}", 0) for index in range(len(self.paths))]
        self.rate: pulp.LpVariable | None = self.lp.add_variable("R", 0) if rate is None else None
        self._add_flows()
        if replicas is None:
            ceiling = rate if rate is not None else ceiling
            self.replicas = self._replicas(budget, ceiling)
            if whole and ceiling:
                self._add_openings(ceiling)
            self._add_capacities({name: (variable, 0) for name, variable in self.replicas.items()})
            self._add_budget(budget)
        else:
            self.replicas = {}
            self._add_capacities({name: (None, replicas.get(name, 0)) for name in self._load})

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

    def minimize_gpus_then_kinds(self, better_than: tuple[int, int] | None = None) -> pulp.LpProblem:
        """Minimizes GPUs, then kinds of executors, in one solve: the weight of a GPU exceeds that of all kinds
        together.

        Args:
            better_than: GPUs and kinds of a known plan. The program is infeasible if no plan is better.
        """
        weight = float(len(self.replicas) + 1)
        terms = [(variable, weight * self.problem.option[name].gpus) for name, variable in self.replicas.items()]
        for index, variable in enumerate(self.replicas.values()):
            runs = self.lp.add_variable(f"k{index}", 0, 1, pulp.LpInteger)
            self._require([(variable, 1.0), (runs, -float(variable.upBound or 0))], pulp.LpConstraintLE, 0.0)
            terms.append((runs, 1.0))
        if better_than is not None:
            gpus, kinds = better_than
            self._require(terms, pulp.LpConstraintLE, weight * gpus + kinds - 1)
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
            for path, variable in zip(self.paths, self.x, strict=True)
        ]

    @cached_property
    def _load(self) -> dict[str, list[tuple[pulp.LpVariable, float]]]:
        """The rates that use replicas of each option, with the units of time for each request."""
        load: dict[str, list[tuple[pulp.LpVariable, float]]] = {}
        for path, variable in zip(self.paths, self.x, strict=True):
            for name, seconds in path.seconds.items():
                work = self.problem.shares[path.type] * seconds / self.unit
                load.setdefault(name, []).append((variable, work))
        return load

    def _unit_of_time(self) -> float:
        least: dict[str, float] = {}
        for path in self.paths:
            spent = sum(path.seconds.values())
            least[path.type] = min(spent, least.get(path.type, math.inf))
        return sum(self.problem.shares[name] * spent for name, spent in least.items())

    def _add_flows(self) -> None:
        """Equations 10 and 13: divides each type's rate among its paths."""
        for name in dict.fromkeys(path.type for path in self.paths):
            terms = [(x, 1.0) for x, path in zip(self.x, self.paths, strict=True) if path.type == name]
            if self.rate is None:
                self._require(terms, pulp.LpConstraintEQ, 1.0)
            else:
                self._require([*terms, (self.rate, -1.0)], pulp.LpConstraintEQ, 0.0)

    def _add_capacities(self, supply: Mapping[str, tuple[pulp.LpVariable | None, int]]) -> None:
        """Equations 11 and 14: a replica supplies one unit of work per unit of time."""
        for name, terms in self._load.items():
            variable, count = supply[name]
            supplied = [] if variable is None else [(variable, -1.0)]
            self._require([*terms, *supplied], pulp.LpConstraintLE, float(count))

    def _add_openings(self, ceiling: float) -> None:
        """Requires a replica for every used option, even if its load is below the solver's tolerance.

        Without these constraints, a type with one request in a million would be served by no replica.
        """
        for path, variable in zip(self.paths, self.x, strict=True):
            for name, seconds in path.seconds.items():
                if self.problem.shares[path.type] * seconds * ceiling < 1:
                    terms = [(variable, 1 / (ceiling * self.unit)), (self.replicas[name], -1.0)]
                    self._require(terms, pulp.LpConstraintLE, 0.0)

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

    def _replicas(self, budget: Budget, ceiling: float | None) -> dict[str, pulp.LpVariable]:
        return {
            name: self.lp.add_variable(f"r{index}", 0, self._most_replicas(name, budget, ceiling), pulp.LpInteger)
            for index, name in enumerate(self._load)
        }

    def _most_replicas(self, name: str, budget: Budget, ceiling: float | None) -> int | None:
        """Returns the number of replicas that the budget allows and that the maximum load can keep busy."""
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
            limits.append(math.ceil(busy * (1 + 1e-9)))
        return int(min(limits)) if limits else None

    def _require(self, terms: Iterable[tuple[pulp.LpVariable, float]], sense: int, limit: float) -> None:
        self.lp.addConstraint(pulp.LpConstraint(pulp.LpAffineExpression(list(terms)), sense, rhs=limit))


def undominated(paths: Iterable[RequestPath]) -> list[RequestPath]:
    """Removes paths that are dominated: another path of the same type uses no option longer."""
    paths = list(paths)
    kept: list[int] = []
    for index, path in sorted(enumerate(paths), key=lambda item: sum(item[1].seconds.values())):
        if not any(_at_most(paths[better], path) for better in kept if paths[better].type == path.type):
            kept.append(index)
    return [paths[index] for index in sorted(kept)]


def _at_most(better: RequestPath, path: RequestPath) -> bool:
    return all(seconds <= path.seconds.get(name, 0.0) for name, seconds in better.seconds.items())
