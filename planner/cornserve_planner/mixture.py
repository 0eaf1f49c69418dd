"""Mixtures of cells: fewest GPUs for a rate, or the maximum rate for a number of GPUs [C §4.3].

For the fewest GPUs, the paper's greedy Algorithm 2 is not optimal. It repeatedly adds the largest cell that does not
exceed the missing rate. With the cells (1 GPU, 1.0 req/s) and (2 GPUs, 2.9 req/s) and a target of 2.5 req/s, it uses
three small cells, although one large cell is enough. If the smallest cell has rate 0, it does not terminate.

The exact recursion needs one step for each size. Let r be the rate of the largest cell and q = floor(target / r). An
optimal mixture with at least q of these cells exists: smaller cells with a total rate of r or more need at least as
many GPUs, and because sizes are powers of two, a subset of them has exactly the same number of GPUs and serves at most
r. The remaining rate is less than r: it is served by one more of the largest cell or, recursively, by smaller ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from cornserve_planner.cells import Cell, efficient_cells
from cornserve_planner.errors import InfeasibleError, InvalidInputError, require_non_negative

RATE_TOLERANCE = Fraction(1, 10**9)
"""Relative tolerance of a mixture's rate, for rounding errors in targets such as 0.1 + 0.2."""


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
    return _mixture(usable, _close(missing=minimum_rate(rate), cells=usable)[1])


def most_requests(cells: Iterable[Cell], gpus: int) -> Mixture:
    """Returns the mixture with the highest rate on at most `gpus` GPUs: the binary digits of the number.

    Raises `InfeasibleError` if no cell fits.
    """
    if gpus < 0:
        raise InvalidInputError("gpus", f"must be at least 0, not {gpus}")
    usable = efficient_cells(cells)
    counts, left = {}, gpus
    for cell in reversed(usable):
        counts[cell.gpus], left = divmod(left, cell.gpus)
    if not any(counts.values()):
        least = f"the smallest usable cell needs {usable[0].gpus} GPUs" if usable else "all cells have rate 0"
        raise InfeasibleError(f"the budget of {gpus} GPUs", f"no cell fits: {least}")
    return _mixture(usable, counts)


def minimum_rate(rate: float) -> Fraction:
    """Returns the minimum rate of a mixture for a target."""
    return Fraction(rate) * (1 - RATE_TOLERANCE)


def total_rate(cells: Iterable[Cell], counts: Mapping[int, int]) -> Fraction:
    """Returns the exact total of requests per second."""
    return sum((Fraction(cell.rate) * counts.get(cell.gpus, 0) for cell in cells), Fraction())


def _close(missing: Fraction, cells: tuple[Cell, ...]) -> tuple[float, dict[int, int]]:
    """Returns the fewest GPUs that serve the missing rate, and their mixture."""
    if missing <= 0:
        return 0, {}
    if not cells:
        return math.inf, {}
    *smaller, largest = cells
    whole, rest = divmod(missing, Fraction(largest.rate))
    gpus, counts = _close(rest, tuple(smaller))
    if rest and largest.gpus <= gpus:
        gpus, counts = largest.gpus, {largest.gpus: 1}
    counts[largest.gpus] = counts.get(largest.gpus, 0) + whole
    return gpus + whole * largest.gpus, counts


def _mixture(cells: tuple[Cell, ...], counts: Mapping[int, int]) -> Mixture:
    used = {gpus: count for gpus, count in sorted(counts.items()) if count}
    return Mixture(used, sum(gpus * count for gpus, count in used.items()), float(total_rate(cells, used)))
