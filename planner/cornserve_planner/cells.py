"""Cells: the best plan for 1, 2, 4, … GPUs of one high-bandwidth domain [C §4.3, Algorithm 1]."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile

from cornserve_planner.errors import InfeasibleError, InvalidInputError, require_non_negative
from cornserve_planner.plan import Plan
from cornserve_planner.problem import PlanningProblem
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.infeasible import require_paths
from cornserve_planner.solve.optimization import max_rate
from cornserve_planner.solve.solver import SolverSettings

ROUNDING_TOLERANCE = 1e-9
"""Relative tolerance: a cell is efficient only if its rate exceeds that of smaller cells by more than this."""


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

    Every size must be a multiple of all smaller ones.

    Unlike the paper, drops cells with rate 0. The paper always keeps the smallest cell, and with a rate of 0 its
    mixture algorithm does not terminate.
    """
    kept: list[Cell] = []
    for cell in sorted(cells, key=lambda cell: cell.gpus):
        if kept and cell.gpus == kept[-1].gpus:
            raise InvalidInputError("cells", f"two cells have {cell.gpus} GPUs: remove one of them")
        if kept and cell.gpus % kept[-1].gpus:
            raise InvalidInputError(
                "cells", f"a cell of {cell.gpus} GPUs is not a multiple of one of {kept[-1].gpus}: use powers of two"
            )
        if cell.rate > (cell.gpus // kept[-1].gpus * kept[-1].rate * (1 + ROUNDING_TOLERANCE) if kept else 0.0):
            kept.append(cell)
    return tuple(kept)
