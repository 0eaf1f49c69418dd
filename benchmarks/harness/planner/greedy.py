"""[C Algorithm 2] as printed, for comparison."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from cornserve_planner.solve.cells import Cell


class GreedyLoopError(Exception):
    """The algorithm adds a cell with rate 0 forever."""


def greedy(cells: Iterable[Cell], rate: float) -> dict[int, int]:
    """Repeatedly adds the largest cell that does not exceed the missing rate, or otherwise the smallest cell.

    Args:
        cells: the cells that Algorithm 1 keeps, which always include the smallest, even with rate 0.
    """
    sizes = sorted((cell.gpus, Fraction(cell.rate)) for cell in cells)
    missing, counts = Fraction(rate), dict[int, int]()
    while missing > 0:
        gpus, served = max(((gpus, served) for gpus, served in sizes if served <= missing), default=sizes[0])
        if not served:
            raise GreedyLoopError
        counts[gpus] = counts.get(gpus, 0) + 1
        missing -= served
    return counts
