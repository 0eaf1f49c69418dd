"""Cells: the best plan for 1, 2, 4, … GPUs of one high-bandwidth domain, and mixtures of them [C §4.3, Algorithm 1]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise, takewhile

from cornserve_plan.fields import MAX_COUNT
from cornserve_planner.errors import InfeasibleError, InvalidInputError, require_non_negative
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Solution
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.infeasible import require_paths
from cornserve_planner.solve.optimization import max_rate
from cornserve_planner.solve.solver import SolverSettings
from cornserve_policies.mixture import RATE_TOLERANCE, cells_for_gpus, cells_for_rate, efficient_rates


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
    plan: Solution | None = None

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


@dataclass(frozen=True, slots=True)
class Mixture:
    """The number of running cells of each size: `counts` by GPUs of a cell."""

    counts: Mapping[int, int]
    gpus: int
    rate: float


def fewest_gpus(cells: Iterable[Cell], rate: float) -> Mixture:
    """Returns the mixture that serves `rate` on the fewest GPUs, and among those the one with the highest rate.

    Raises `InfeasibleError` if all cells have rate 0, and `InvalidInputError` for a rate that needs too many cells.
    """
    require_non_negative("rate", rate)
    usable = efficient_cells(cells)
    if rate and not usable:
        raise InfeasibleError("cells", f"all cells have rate 0, but {rate:g} requests/s are requested")
    return _mixture("rate", usable, cells_for_rate(_rates(usable), rate))


def most_requests(cells: Iterable[Cell], gpus: int) -> Mixture:
    """Returns the mixture with the highest rate on at most `gpus` GPUs: the binary digits of the number.

    Raises `InfeasibleError` if no cell fits, and `InvalidInputError` for too many GPUs.
    """
    if gpus < 0:
        raise InvalidInputError("gpus", f"must be at least 0, not {gpus}")
    usable = efficient_cells(cells)
    counts = cells_for_gpus(_rates(usable), gpus)
    if not counts:
        least = f"the smallest usable cell needs {usable[0].gpus} GPUs" if usable else "all cells have rate 0"
        raise InfeasibleError(f"the budget of {gpus} GPUs", f"no cell fits: {least}")
    return _mixture("gpus", usable, counts)


def minimum_rate(rate: float) -> Fraction:
    """Returns the minimum rate of a mixture for a target."""
    return Fraction(rate) * (1 - RATE_TOLERANCE)


def total_rate(cells: Iterable[Cell], counts: Mapping[int, int]) -> Fraction:
    """Returns the exact total of requests per second."""
    return sum((Fraction(cell.rate) * counts.get(cell.gpus, 0) for cell in cells), Fraction())


def _mixture(field: str, cells: tuple[Cell, ...], counts: Mapping[int, int]) -> Mixture:
    if (largest := max(counts.values(), default=0)) > MAX_COUNT:
        raise InvalidInputError(field, f"needs {Decimal(largest):.3g} cells: give one that needs at most {MAX_COUNT:g}")
    return Mixture(counts, sum(gpus * count for gpus, count in counts.items()), float(total_rate(cells, counts)))


def _rates(cells: tuple[Cell, ...]) -> dict[int, float]:
    return {cell.gpus: cell.rate for cell in cells}
