"""Cells: the best plan for 1, 2, 4, … GPUs of one high-bandwidth domain [C §4.3, Algorithm 1]."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise, takewhile

from cornserve_planner.errors import InfeasibleError, InvalidInputError, require_non_negative
from cornserve_planner.plan import Plan
from cornserve_planner.problem import PlanningProblem
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.infeasible import require_paths
from cornserve_planner.solve.optimization import max_rate
from cornserve_planner.solve.solver import SolverSettings
from cornserve_policies.mixture import efficient_rates


@dataclass(frozen=True, slots=True)
class Cell:
    """A complete instance of the model.

    Args:
        gpus: a power of two if the plan has several sizes.
        rate: requests per second; 0 if the model does not fit.
        plan: the plan of the cell, if known.
    """

    gpus: int
    rate: float
    plan: Plan | None = None

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise InvalidInputError("cell.gpus", f"must be at least 1, not {self.gpus}")
        require_non_negative("cell.rate", self.rate)


def solve_cells(
    problem: PlanningProblem,
    largest: int = 64,
    solver: SolverSettings | None = None,
    progress: Callable[[Cell], None] | None = None,
) -> tuple[Cell, ...]:
    """Returns the best plan for every size up to `largest`, smallest first.

    Args:
        progress: called with each solved cell.

    Raises `InfeasibleError` if the model does not fit in any size.
    """
    require_paths(problem)
    cells: list[Cell] = []
    too_small: InfeasibleError | None = None
    for gpus in takewhile(lambda size: size <= largest, (1 << exponent for exponent in range(63))):
        try:
            plan = max_rate(problem, Budget(gpus=gpus), solver)
            cells.append(Cell(gpus, plan.rate, plan))
        except InfeasibleError as error:
            too_small = error
            cells.append(Cell(gpus, 0.0))
        if progress:
            progress(cells[-1])
    if too_small and not any(cell.rate for cell in cells):
        raise too_small
    return tuple(cells)


def efficient_cells(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """Returns the cells that serve more than smaller cells on the same number of GPUs, smallest first [C Algorithm 1].

    Raises `InvalidInputError` unless every size is a multiple of all smaller ones.
    """
    ordered = sorted(cells, key=lambda cell: cell.gpus)
    for smaller, larger in pairwise(cell.gpus for cell in ordered):
        if smaller == larger:
            raise InvalidInputError("cells", f"two cells have {larger} GPUs: remove one of them")
        if larger % smaller:
            raise InvalidInputError(
                "cells", f"a cell of {larger} GPUs is not a multiple of one of {smaller}: use powers of two"
            )
    kept = efficient_rates({cell.gpus: cell.rate for cell in ordered})
    return tuple(cell for cell in ordered if cell.gpus in kept)
