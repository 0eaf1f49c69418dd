"""Mixtures of cells, from `cornserve_policies.mixture`, with the errors and the exact rates of the planner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from cornserve_planner.cells import Cell, efficient_cells
from cornserve_planner.errors import InfeasibleError, InvalidInputError, require_non_negative
from cornserve_policies.mixture import RATE_TOLERANCE, cells_for_gpus, cells_for_rate


@dataclass(frozen=True, slots=True)
class Mixture:
    """The number of running cells of each size: `counts` by GPUs of a cell."""

    counts: Mapping[int, int]
    gpus: int
    rate: float


def fewest_gpus(cells: Iterable[Cell], rate: float) -> Mixture:
    """Returns the mixture that serves `rate` on the fewest GPUs, and among those the one with the highest rate.

    Raises `InfeasibleError` if all cells have rate 0.
    """
    require_non_negative("rate", rate)
    usable = efficient_cells(cells)
    if rate and not usable:
        raise InfeasibleError("cells", f"all cells have rate 0, but {rate:g} requests/s are requested")
    return _mixture(usable, cells_for_rate(_rates(usable), rate))


def most_requests(cells: Iterable[Cell], gpus: int) -> Mixture:
    """Returns the mixture with the highest rate on at most `gpus` GPUs: the binary digits of the number.

    Raises `InfeasibleError` if no cell fits.
    """
    if gpus < 0:
        raise InvalidInputError("gpus", f"must be at least 0, not {gpus}")
    usable = efficient_cells(cells)
    counts = cells_for_gpus(_rates(usable), gpus)
    if not counts:
        least = f"the smallest usable cell needs {usable[0].gpus} GPUs" if usable else "all cells have rate 0"
        raise InfeasibleError(f"the budget of {gpus} GPUs", f"no cell fits: {least}")
    return _mixture(usable, counts)


def minimum_rate(rate: float) -> Fraction:
    """Returns the minimum rate of a mixture for a target."""
    return Fraction(rate) * (1 - RATE_TOLERANCE)


def total_rate(cells: Iterable[Cell], counts: Mapping[int, int]) -> Fraction:
    """Returns the exact total of requests per second."""
    return sum((Fraction(cell.rate) * counts.get(cell.gpus, 0) for cell in cells), Fraction())


def _mixture(cells: tuple[Cell, ...], counts: Mapping[int, int]) -> Mixture:
    return Mixture(counts, sum(gpus * count for gpus, count in counts.items()), float(total_rate(cells, counts)))


def _rates(cells: tuple[Cell, ...]) -> dict[int, float]:
    return {cell.gpus: cell.rate for cell in cells}
