"""Adapts a running mixture of cells to a new target rate [C §4.3]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pulp

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.solve.cells import Cell, Mixture, fewest_gpus, minimum_rate, total_rate
from cornserve_planner.solve.solver import SolverSettings, solve_program
from cornserve_policies.mixture import RATE_TOLERANCE


@dataclass(frozen=True, slots=True)
class Adaptation:
    """The cells to start and to stop, as counts by GPUs of a cell. All other cells continue to run."""

    mixture: Mixture
    starts: Mapping[int, int]
    stops: Mapping[int, int]

    @property
    def changes(self) -> int:
        return sum(self.starts.values()) + sum(self.stops.values())


def adapt_mixture(cells: Iterable[Cell], running: Mapping[int, int], rate: float) -> Adaptation:
    """Changes `running` (counts by GPUs of a cell) to a mixture for `rate` with the fewest GPUs, then the fewest
    changes.

    Keeps running cells that are not efficient if the result needs no more GPUs.
    """
    cells = tuple(cells)
    for gpus, count in running.items():
        if count < 0:
            raise InvalidInputError(f"running.{gpus}", f"must be at least 0, not {count}")
        if gpus not in {cell.gpus for cell in cells}:
            raise InvalidInputError(
                f"running.{gpus}", f"no cell has {gpus} GPUs: use one of {', '.join(str(cell.gpus) for cell in cells)}"
            )
    best = fewest_gpus(cells, rate)
    candidates = [best.counts]
    if total_rate(cells, found := _closest(cells, running, rate, best.gpus)) >= minimum_rate(rate):
        candidates.append(found)
    return min(
        (_difference(cells, running, counts) for counts in candidates), key=lambda adaptation: adaptation.changes
    )


def _closest(cells: tuple[Cell, ...], running: Mapping[int, int], rate: float, gpus: int) -> dict[int, int]:
    """Returns the counts for `rate` on exactly `gpus` GPUs that differ least from the running ones."""
    lp = pulp.LpProblem("adapt", pulp.LpMinimize)
    counts = {
        cell.gpus: lp.add_variable(f"n{cell.gpus}", 0, gpus // cell.gpus, pulp.LpInteger) for cell in cells if cell.rate
    }
    changes = {size: lp.add_variable(f"d{size}", 0) for size in counts}
    lp.setObjective(pulp.lpSum(changes.values()))
    for size, count in counts.items():
        lp += count - changes[size] <= running.get(size, 0)
        lp += count + changes[size] >= running.get(size, 0)
    lp += pulp.lpSum(size * count for size, count in counts.items()) == gpus
    if rate:
        scale = 1e4 / rate  # scale to the solvers' absolute tolerance of 1e-6
        lp += pulp.lpSum(cell.rate * scale * counts[cell.gpus] for cell in cells if cell.rate) >= 1e4 * float(
            1 - RATE_TOLERANCE / 2
        )
    solve_program(lp, SolverSettings())
    return {size: round(count.varValue or 0) for size, count in counts.items()}


def _difference(cells: tuple[Cell, ...], running: Mapping[int, int], counts: Mapping[int, int]) -> Adaptation:
    sizes = sorted(running.keys() | counts.keys())
    changes = {size: counts.get(size, 0) - running.get(size, 0) for size in sizes}
    used = {size: counts[size] for size in sizes if counts.get(size)}
    mixture = Mixture(used, sum(size * count for size, count in used.items()), float(total_rate(cells, used)))
    return Adaptation(
        mixture,
        starts={size: change for size, change in changes.items() if change > 0},
        stops={size: -change for size, change in changes.items() if change < 0},
    )
