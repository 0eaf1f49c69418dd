"""Mixtures of cells: fewest GPUs for a rate, or the maximum rate for a number of GPUs [C §4.3].

Cells are given as requests per second by size, in GPUs. Every size must be a multiple of all smaller ones, and a cell
must serve more than smaller cells on the same number of GPUs.

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
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final

MAX_RUNNING_CELLS: Final = 64
"""The most cells of an app that run."""

RATE_TOLERANCE = Fraction(1, 10**9)
"""Relative tolerance of rates, for rounding errors in sums such as 0.1 + 0.2."""


def efficient_rates(rates: Mapping[int, float]) -> dict[int, float]:
    """Returns the cells that serve more than smaller ones on the same number of GPUs [C Algorithm 1].

    Unlike the paper, drops cells with rate 0. The paper always keeps the smallest cell, and with a rate of 0 its
    mixture algorithm does not terminate.
    """
    kept: dict[int, float] = {}
    for size, rate in sorted(rates.items()):
        smaller = max(kept, default=size)
        if rate > size // smaller * kept.get(smaller, 0.0) * (1 + RATE_TOLERANCE):
            kept[size] = rate
    return kept


def cells_for_rate(rates: Mapping[int, float], rate: float) -> dict[int, int]:
    """Returns the numbers of cells by size that serve `rate` on the fewest GPUs, and among those serve the most.

    Raises ValueError if a rate is requested without cells.
    """
    missing = Fraction(rate) * (1 - RATE_TOLERANCE)
    if missing > 0 and not rates:
        raise ValueError("rates: is empty: give at least one cell")
    return _used(_close(missing, sorted(rates.items()))[1])


def cells_for_gpus(rates: Mapping[int, float], gpus: int) -> dict[int, int]:
    """Returns the numbers of cells by size that serve the most on at most `gpus` GPUs: the digits of the number.

    It is empty if no cell fits.
    """
    counts: dict[int, int] = {}
    for size in sorted(rates, reverse=True):
        counts[size], gpus = divmod(gpus, size)
    return _used(counts)


def cells_within(
    rates: Mapping[int, float],
    rate: float,
    running: Mapping[int, int],
    may_run: Callable[[Mapping[int, int]], bool],
    *,
    most_cells: int,
) -> Mapping[int, int]:
    """Returns the cells that serve `rate` on the fewest GPUs, or as much of it as may run.

    At least one cell runs. If no mixture on more GPUs than the running one may run, the running one is returned.

    Args:
        running: the numbers of running cells by size. `most_cells`: the most cells that run.
        may_run: whether a mixture may run.
    """
    counts = cells_for_rate(rates, rate) or {min(rates): 1}
    if sum(counts.values()) <= most_cells and may_run(counts):
        return counts
    largest = min(_gpus(counts) - 1, most_cells * max(rates))
    smaller = (cells_for_gpus(rates, gpus) for gpus in range(largest, _gpus(running), -1))
    fitting = (each for each in smaller if 1 <= sum(each.values()) <= most_cells and may_run(each))
    return next(fitting, running)


def _gpus(counts: Mapping[int, int]) -> int:
    return sum(size * count for size, count in counts.items())


def _close(missing: Fraction, cells: Sequence[tuple[int, float]]) -> tuple[float, dict[int, int]]:
    """Returns the fewest GPUs that serve the missing rate, and their mixture."""
    if missing <= 0:
        return 0, {}
    if not cells:
        return math.inf, {}
    *smaller, (size, rate) = cells
    whole, rest = divmod(missing, Fraction(rate))
    gpus, counts = _close(rest, smaller)
    if rest and size <= gpus:
        gpus, counts = size, {size: 1}
    counts[size] = counts.get(size, 0) + whole
    return gpus + whole * size, counts


def _used(counts: Mapping[int, int]) -> dict[int, int]:
    return {size: count for size, count in sorted(counts.items()) if count}
