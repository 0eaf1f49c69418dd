"""[C Algorithm 2], as it is printed, to compare with."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from cornserve_planner.cells import Cell


class GreedyLoopError(Exception):
    """The algorithm takes a cell that serves nothing, for ever."""


def greedy(cells: Iterable[Cell], rate: float) -> dict[int, int]:
    """The largest cell that does not exceed what is missing, again and again; the smallest where none does.

    Args:
        cells: those that Algorithm 1 keeps. It keeps the smallest even if that serves nothing.
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
