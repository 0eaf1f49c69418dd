"""The size of a plan, which breaks ties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cornserve_planner.model.problem import PlanningProblem


@dataclass(frozen=True, slots=True, order=True)
class PlanSize:
    """The size of a plan. Of plans with the same value, the smallest is chosen: the fewest GPUs, then the fewest kinds
    of executors, then the fewest components in all replicas together."""

    gpus: int
    kinds: int
    components: int

    @classmethod
    def of(cls, problem: PlanningProblem, replicas: Mapping[str, int]) -> PlanSize:
        options = [(problem.option[name], count) for name, count in replicas.items()]
        return cls(
            gpus=sum(option.gpus * count for option, count in options),
            kinds=len(options),
            components=sum(len(option.components) * count for option, count in options),
        )
