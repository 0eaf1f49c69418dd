#!/usr/bin/env python3
"""Measures the planner's solve times and the quality of its plans.

* one cell of 64 GPUs: random problems that resemble those of real models, with HiGHS and with CBC;
* the fewest GPUs for a rate, without cells;
* all cells up to 64 GPUs for the shipped models;
* mixtures for a million GPUs;
* the paper's greedy mixtures, and mixtures of cells, compared with the optimum.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.table import Table

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.planner import comparisons, speed
from benchmarks.harness.planner.comparisons import MixtureQuality
from benchmarks.harness.planner.speed import MixtureSpeed, ModelCells, SolveTimings
from benchmarks.harness.report import create_table, print_report


@dataclass(frozen=True, slots=True)
class PlannerReport:
    machine: MachineInfo
    time_limit: float
    cells: list[SolveTimings]
    rates: list[SolveTimings]
    models: list[ModelCells]
    mixtures: list[MixtureSpeed]
    quality: MixtureQuality

    def show(self) -> None:
        note = f"seconds: median (longest); time limit of each solve {self.time_limit:g} s"
        solves = _solves("One cell of 64 GPUs", self.cells), _solves("Fewest GPUs for a rate", self.rates)
        others = _models(self.models), _mixtures(self.mixtures)
        print_report(self.machine, note, *solves, *others, _quality(self.quality))


def main() -> None:
    options = _options()
    instances, largest, targets = (2, 8, 5) if options.quick else (options.instances, 64, 40)
    limit, sizes = options.limit, speed.SHORT_SIZES if options.quick else speed.SIZES
    report = PlannerReport(
        machine=MachineInfo.current(),
        time_limit=limit,
        cells=speed.cells(sizes, instances, largest, limit),
        rates=speed.rates(sizes, instances, largest, limit),
        models=speed.shipped(largest, limit),
        mixtures=speed.mixtures(),
        quality=comparisons.mixtures(instances, targets),
    )
    if options.json:
        print(json.dumps(asdict(report)))
    else:
        report.show()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=20, help="number of random problems (default: %(default)s)")
    parser.add_argument(
        "--limit", type=float, default=60.0, help="time limit of each solve in seconds (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="run a short version, as a smoke test")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args()


def _solves(title: str, rows: Sequence[SolveTimings]) -> Table:
    table = create_table(("problem", "solver"), ("solves", "wall s", "CPU s", "proven", "worst gap"), title)
    for row in rows:
        table.add_row(
            *(row.size, row.engine, str(row.count)),
            *(f"{timing.median:.2f} ({timing.longest:.2f})" for timing in (row.wall, row.cpu)),
            *(f"{row.proven} of {row.count}", f"{row.worst_gap:.2%}"),
        )
    return table


def _models(rows: Sequence[ModelCells]) -> Table:
    table = create_table(
        ("model",), ("types", "paths", "cells", "kept", "wall s", "CPU s"), "All cells of shipped models"
    )
    for row in rows:
        kept = ", ".join(map(str, row.kept))
        table.add_row(
            row.model, str(row.types), str(row.paths), str(row.cells), kept, f"{row.wall:.2f}", f"{row.cpu:.2f}"
        )
    return table


def _mixtures(rows: Sequence[MixtureSpeed]) -> Table:
    table = create_table(("mixture",), ("GPUs", "µs", "counts"), "Mixtures of seven cells")
    for row in rows:
        counts = " + ".join(f"{count:,} × {gpus}" for gpus, count in row.counts.items())
        table.add_row(row.what, f"{row.gpus:,}", f"{row.microseconds:.0f}", counts)
    return table


def _quality(row: MixtureQuality) -> Table:
    table = create_table(("mixtures for random rates",), ("",), "Compared with the optimum")
    table.add_row("targets", str(row.targets))
    table.add_row("greedy needs more GPUs than the optimum", f"{row.worse:.1%}")
    table.add_row("  additional GPUs, mean and maximum", f"{row.mean_excess:.2f}, {row.most_excess}")
    table.add_row("  worst ratio", f"{row.worst_ratio:.2f}")
    table.add_row("greedy does not terminate, if cells with rate 0 are kept", f"{row.non_terminating:.1%}")
    table.add_row("GPUs of the best mixture / GPUs of one plan without cells, mean", f"{row.mean_to_direct:.3f}")
    table.add_row("  maximum", f"{row.worst_to_direct:.2f}")
    return table


if __name__ == "__main__":
    main()
