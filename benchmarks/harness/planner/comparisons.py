"""Compares mixtures of cells with the paper's greedy mixtures and with plans without cells."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass

from benchmarks.harness.planner.greedy import GreedyLoopError, greedy
from benchmarks.harness.planner.instances import OMNI, random_problem
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.solve.cells import Cell, efficient_cells, fewest_gpus, solve_cells
from cornserve_planner.solve.optimization import min_gpus

LARGEST = 32
MOST = 2.0
"""Targets are spread evenly up to this multiple of the largest cell's rate."""
DIRECT = 3
"""The number of targets of each problem that are also planned without cells."""


@dataclass(frozen=True, slots=True)
class MixtureQuality:
    targets: int
    worse: float
    mean_excess: float
    """Mean number of additional GPUs, where greedy needs more."""
    most_excess: int
    worst_ratio: float
    non_terminating: float
    direct_targets: int
    mean_to_direct: float
    worst_to_direct: float


def mixtures(instances: int, targets: int) -> MixtureQuality:
    excess, ratios, non_terminating, direct = [], [], 0, []
    for seed in range(100, 100 + instances):
        problem = random_problem(seed, OMNI)
        cells = solve_cells(problem, LARGEST)
        rates = _targets(seed, cells, targets)
        for rate in rates:
            best, taken = fewest_gpus(cells, rate).gpus, _gpus(greedy(efficient_cells(cells), rate))
            excess.append(taken - best)
            ratios.append(taken / best)
            non_terminating += _does_not_terminate([cells[0], *efficient_cells(cells[1:])], rate)
        direct += [_ratio_to_direct(problem, cells, rate) for rate in rates[:DIRECT]]
    worse = [more for more in excess if more]
    return MixtureQuality(
        targets=len(excess),
        worse=len(worse) / len(excess),
        mean_excess=statistics.fmean(worse) if worse else 0.0,
        most_excess=max(excess),
        worst_ratio=max(ratios),
        non_terminating=non_terminating / len(excess),
        direct_targets=len(direct),
        mean_to_direct=statistics.fmean(direct),
        worst_to_direct=max(direct),
    )


def _targets(seed: int, cells: tuple[Cell, ...], count: int) -> list[float]:
    rng = random.Random(seed)
    return [rng.uniform(0.02, MOST) * cells[-1].rate for _ in range(count)]


def _ratio_to_direct(problem: PlanningProblem, cells: tuple[Cell, ...], rate: float) -> float:
    return fewest_gpus(cells, rate).gpus / min_gpus(problem, rate).gpus


def _gpus(counts: dict[int, int]) -> int:
    return sum(gpus * count for gpus, count in counts.items())


def _does_not_terminate(cells: list[Cell], rate: float) -> bool:
    try:
        greedy(cells, rate)
    except GreedyLoopError:
        return True
    return False
