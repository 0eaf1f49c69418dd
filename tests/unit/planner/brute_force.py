"""Small planning problems, and their optimal plans found by enumeration.

For fixed replicas, the highest rate is the optimum of a linear program. The dual minimizes the value of the replicas,
over prices of the options' time at which the mean request costs 1 on its cheapest paths. The vertices of the dual do
not depend on the replicas, so one list of prices gives the rates of all plans.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from cornserve_planner.model.graph import DeploymentOption
from cornserve_planner.model.problem import GpuType, PlanningProblem, RequestPath

Array = Any  # numpy's types take minutes to check
CLOSE = 1e-7
SECONDS = (0.125, 0.25, 0.3, 0.375, 0.5, 0.625, 0.7, 1.0, 1.1, 1.5, 2.5)


UTILIZATION = (0.5, 0.7, 0.8, 0.9, 1.0)


def random_problem(seed: int) -> PlanningProblem:
    """Returns a problem with up to four options on two GPU types, and up to three request types with up to three paths
    each. Half of the problems limit the utilization of some options."""
    rng = Random(seed)
    options = tuple(
        DeploymentOption(f"option{index}", _parts(index, rng), rng.choice([1, 1, 2]), rng.choice(["A", "B"]))
        for index in range(rng.randint(1, 4))
    )
    weights = [rng.randint(1, 4) for _ in range(rng.randint(1, 3 if len(options) < 4 else 2))]
    paths = tuple(
        RequestPath(f"type{kind}", f"path{kind}.{index}", _seconds(rng, options))
        for kind in range(len(weights))
        for index in range(rng.randint(1, 3 if len(weights) < 3 else 2))
    )
    shares = {f"type{kind}": weight / sum(weights) for kind, weight in enumerate(weights)}
    limited = rng.sample(options, rng.choice([0, rng.randint(1, len(options))]))
    return PlanningProblem(
        *(options, shares, paths),
        gpus={"A": GpuType("A", price=2.0), "B": GpuType("B", price=0.9)},
        max_utilization={option.name: rng.choice(UTILIZATION) for option in limited},
    )


def _parts(option: int, rng: Random) -> tuple[str, ...]:
    return tuple(f"part{option}.{index}" for index in range(rng.randint(1, 3)))


def _seconds(rng: Random, options: tuple[DeploymentOption, ...]) -> dict[str, float]:
    used = rng.sample(options, rng.randint(1, min(3, len(options))))
    return {option.name: rng.choice(SECONDS) for option in used}


problems = st.integers(0, 2**40).map(random_problem)
"""Drawn by seed, because drawing each part separately takes longer than planning."""


@dataclass(frozen=True)
class BruteForce:
    """All plans of at most `gpus` GPUs, and their rates."""

    problem: PlanningProblem
    gpus: int

    @cached_property
    def replicas(self) -> Array:
        """Replicas by plan and option."""
        options = self.problem.options
        grid = np.indices([self.gpus // option.gpus + 1 for option in options]).reshape(len(options), -1).T
        return grid[grid @ [option.gpus for option in options] <= self.gpus]

    @cached_property
    def rates(self) -> Array:
        """Requests per second by plan."""
        return self._rates_of(self.replicas)

    @cached_property
    def rates_after_a_loss(self) -> Array:
        """Requests per second by plan, after the loss of the replica that is missed most."""
        units = np.eye(len(self.problem.options))
        left = [self._rates_of(self.replicas - lost * (self.replicas > 0)) for lost in units]
        return np.min(left, axis=0)

    def _rates_of(self, replicas: Array) -> Array:
        usable = replicas * [self.problem.max_utilization.get(option.name, 1.0) for option in self.problem.options]
        rates = (usable @ self._prices.T).min(axis=1)
        return np.where(rates < CLOSE, 0.0, rates)

    @cached_property
    def gpus_of(self) -> Array:
        return self.replicas @ [option.gpus for option in self.problem.options]

    @cached_property
    def dollars_of(self) -> Array:
        return self.replicas @ [self.problem.price(option) for option in self.problem.options]

    @cached_property
    def kinds_of(self) -> Array:
        return (self.replicas > 0).sum(axis=1)

    @cached_property
    def components_of(self) -> Array:
        return self.replicas @ [len(option.components) for option in self.problem.options]

    def serving(self, rate: float) -> Array:
        """Returns a mask of the plans that serve a rate."""
        return self.rates >= rate * (1 - CLOSE)

    @cached_property
    def _prices(self) -> Array:
        """Returns the vertices: the number of tight constraints at each equals the number of variables."""
        kinds, options, paths = list(self.problem.shares), self.problem.options, self.problem.paths
        size = len(options) + len(kinds)
        rows = np.zeros((len(paths) + len(options), size))
        for row, path in zip(rows, paths, strict=False):
            row[: len(options)] = [path.seconds.get(option.name, 0.0) for option in options]
            row[len(options) + kinds.index(path.type)] = -1
        rows[len(paths) :, : len(options)] = np.eye(len(options))
        normal = np.array([0.0] * len(options) + [self.problem.shares[kind] for kind in kinds])
        tight = np.array(list(combinations(range(len(rows)), size - 1)))
        systems = np.concatenate([rows[tight], np.broadcast_to(normal, (len(tight), 1, size))], axis=1)
        systems = systems[np.abs(np.linalg.det(systems)) > 1e-9]
        found = np.linalg.solve(systems, np.eye(size)[-1][:, None])[..., 0]
        return found[(found @ rows.T >= -1e-9).all(axis=1), : len(options)]
