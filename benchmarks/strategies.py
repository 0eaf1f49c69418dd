#!/usr/bin/env python3
"""Compares the planner's predictions with deployed plans.

A model of an encoder and a language model, whose executors wait for set times, is profiled on slots of this machine.
For three workloads, all strategies are planned from the profile, deployed, and measured: the throughput with many
requests in flight, twice, and the latencies with Poisson arrivals at 80 % of the predicted throughput.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import create_table, print_report
from benchmarks.harness.slot_instance import SlotInstance
from benchmarks.harness.strategies.measurement import DeployedStrategy, StrategyMeasurement
from benchmarks.harness.strategies.workloads import STRATEGIES, WORKLOADS


@dataclass(frozen=True, slots=True)
class StrategiesReport:
    machine: MachineInfo
    slots: int
    results: list[DeployedStrategy]

    def show(self) -> None:
        text = ("workload", "strategy", "replicas")
        numbers = ("predicted", "measured", "again", "error", "p50 ms", "p99 ms")
        table = create_table(text, numbers, f"Requests/s on {self.slots} slots")
        for row in self.results:
            replicas = ", ".join(f"{count} × {option}" for option, count in row.replicas.items())
            measured = [f"{rate:.2f}" for rate in row.measured]
            table.add_row(
                *(row.workload, row.strategy, replicas, f"{row.predicted:.2f}"),
                *(*measured, *[""] * (2 - len(measured)), f"{row.error:+.1%}", f"{row.p50:.0f}", f"{row.p99:.0f}"),
            )
        print_report(self.machine, "error: mean measured rate relative to the predicted one", table)


def main() -> None:
    options = _options()
    machine = MachineInfo.current()
    chosen = ["balanced"] if options.quick else options.workloads
    workloads = [workload for workload in WORKLOADS if workload.name in chosen]
    strategies = ["separate"] if options.quick else list(STRATEGIES)
    with tempfile.TemporaryDirectory() as directory:
        instance = SlotInstance(Path(directory) / "instance", options.slots)
        seconds, runs = (4, 1) if options.quick else (options.seconds, 2)
        measurement = StrategyMeasurement(instance, seconds, runs)
        with instance.started() as client:
            results = [
                result
                for workload in workloads
                for result in measurement.measure(client, workload, strategies, 0.3 if options.quick else 0.05)
            ]
    report = StrategiesReport(machine, options.slots, results)
    if options.json:
        print(json.dumps(asdict(report) | {"errors": [result.error for result in results]}, indent=1))
    else:
        report.show()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=2, help="slots of one core each; several may share a core")
    parser.add_argument("--seconds", type=float, default=10, help="duration of each run")
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("--workloads", nargs="+", choices=names, default=names, help="workloads to measure")
    parser.add_argument("--quick", action="store_true", help="one workload with short runs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
