"""Limits on the GPUs and the price of a plan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cornserve_planner.errors import InvalidInputError, require_non_negative
from cornserve_planner.model.problem import PlanningProblem

ROUNDING_TOLERANCE = 1e-9
"""Relative tolerance of the dollar limit."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a plan. None means no limit.

    Args:
        gpus: GPUs of all types together.
        gpus_of: GPUs by type.
        dollars: dollars per hour.
    """

    gpus: int | None = None
    gpus_of: Mapping[str, int] = field(default_factory=dict)
    dollars: float | None = None

    def __post_init__(self) -> None:
        limits = {"gpus": self.gpus, "dollars": self.dollars, **{f"gpus.{name}": n for name, n in self.gpus_of.items()}}
        for where, limit in limits.items():
            if limit is not None:
                require_non_negative(f"budget.{where}", limit)
            if where != "dollars" and not (limit is None or type(limit) is int):
                raise InvalidInputError(f"budget.{where}", f"must be a whole number, not {limit}")

    def allows(self, problem: PlanningProblem, replicas: Mapping[str, int]) -> bool:
        """Returns whether the replicas, given by option name, are within the limits."""
        used: dict[str | None, int] = {}
        for name, count in replicas.items():
            option = problem.option[name]
            used[option.gpu] = used.get(option.gpu, 0) + option.gpus * count
        if self.gpus is not None and sum(used.values()) > self.gpus:
            return False
        if any(used.get(gpu, 0) > limit for gpu, limit in self.gpus_of.items()):
            return False
        if self.dollars is None:
            return True
        dollars = math.fsum(problem.price(problem.option[name]) * count for name, count in replicas.items())
        return dollars <= self.dollars * (1 + ROUNDING_TOLERANCE)

    def limits(self, problem: PlanningProblem, options: Iterable[str]) -> bool:
        """Returns whether the budget limits the number of replicas of these options."""
        has_total = self.gpus is not None or self.dollars is not None
        return has_total or any(problem.option[name].gpu in self.gpus_of for name in options)

    def __str__(self) -> str:
        """Formats the limits for messages: `8 GPUs, 4 H100`."""
        parts = [] if self.gpus is None else [f"{self.gpus} GPU{'s' * (self.gpus != 1)}"]
        parts += [f"{limit} {name}" for name, limit in self.gpus_of.items()]
        parts += [] if self.dollars is None else [f"${self.dollars:g} an hour"]
        return ", ".join(parts) or "no limit"
