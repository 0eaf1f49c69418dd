"""Cases in which the paper's greedy mixtures [C Algorithm 2] are not optimal or do not terminate."""

from __future__ import annotations

from benchmarks.harness.planner.greedy import GreedyLoopError, greedy
from benchmarks.reproduction.markdown import prose, table
from cornserve_planner.solve.cells import Cell, fewest_gpus

CASES: tuple[tuple[tuple[tuple[int, float], ...], float], ...] = (
    (((1, 1.0), (2, 2.9)), 2.5),
    (((1, 1.0), (2, 2.9)), 2.0),
    (((1, 1.0), (2, 2.1), (4, 4.3)), 4.25),
    (((8, 1.0), (16, 2.68)), 2.5),
    (((8, 1.0), (16, 2.68)), 5.0),
    (((1, 1.0), (8, 100.0)), 99.0),
    (((1, 0.0), (2, 1.0)), 0.5),
)


def section() -> str:
    header = ["cells (GPUs: requests/s)", "target", "greedy", "GPUs", "best", "GPUs"]
    return prose("mixtures").format(cases=table(header, [_row(*case) for case in CASES]))


def _row(cells: tuple[tuple[int, float], ...], rate: float) -> list[object]:
    kept = [Cell(gpus, served) for gpus, served in cells]
    best = fewest_gpus(kept, rate)
    named = ", ".join(f"{gpus}: {served:g}" for gpus, served in cells)
    try:
        counts = greedy(kept, rate)
        taken = [_counts(counts), sum(gpus * count for gpus, count in counts.items())]
    except GreedyLoopError:
        taken = ["does not terminate", "–"]
    return [named, f"{rate:g}", *taken, _counts(dict(best.counts)), best.gpus]


def _counts(counts: dict[int, int]) -> str:
    return " + ".join(f"{count} × {gpus}" for gpus, count in sorted(counts.items(), reverse=True))
