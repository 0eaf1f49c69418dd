"""Mixtures of cells: fewest GPUs for a rate, or most requests within a number of GPUs [C §4.3].

The paper's greedy Algorithm 2 for the first is not optimal. It takes the largest cell that does not exceed what is
missing: of cells (1 GPU, 1.0 req/s) and (2 GPUs, 2.9 req/s), for 2.5 req/s, three small ones, where one large one is
enough. Where the smallest cell serves nothing, it never ends.

An exact recursion takes as long as there are sizes. Let the largest cell serve r, and q = floor(target / r). Some best
mixture holds at least q of it: smaller cells that together serve r or more take at least as many GPUs, and since sizes
are powers of two, some of them take exactly as many and serve no more than it does. Less than r is then missing:
either one more of the largest closes it, or smaller ones do, by the same rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from cornserve_planner.cells import Cell, efficient_cells
from cornserve_planner.errors import InfeasibleError, InvalidInputError

RATE_TOLERANCE = Fraction(1, 10**9)
"""By which fraction a mixture may miss its target: what rounding does to a target such as 0.1 + 0.2."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """How many cells of each size run: `counts` by GPUs of a cell."""

    counts: Mapping[int, int]
    gpus: int
    rate: float


def fewest_gpus(cells: Iterable[Cell], rate: float) -> Mixture:
    """The mixture that serves `rate` on the fewest GPUs; of several, one with the most headroom.

    Raises `InfeasibleError` if no cell serves anything.
    """
    if not (math.isfinite(rate) and rate >= 0):
        raise InvalidInputError("rate", f"must be a number of at least 0, not {rate}")
    usable = efficient_cells(cells)
    if rate and not usable:
        raise InfeasibleError("cells", f"all cells have rate 0, but {rate:g} requests/s are requested")
    return _mixture(usable, _close(missing=minimum_rate(rate), cells=usable)[1])


def most_requests(cells: Iterable[Cell], gpus: int) -> Mixture:
    """The mixture with the highest rate on at most `gpus` GPUs: the number's digits to the base two.

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
    """What a mixture has to serve for a target."""
    return Fraction(rate) * (1 - RATE_TOLERANCE)


def total_rate(cells: Iterable[Cell], counts: Mapping[int, int]) -> Fraction:
    """Exactly, in requests per second."""
    return sum((Fraction(cell.rate) * counts.get(cell.gpus, 0) for cell in cells), Fraction())


def _close(missing: Fraction, cells: tuple[Cell, ...]) -> tuple[float, dict[int, int]]:
    """The fewest GPUs that serve what is missing, and their mixture."""
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
