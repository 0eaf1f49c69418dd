#!/usr/bin/env python3
"""Compares the planner's predictions with deployed plans.

A model is profiled on slots of this machine. For each workload, all strategies are planned from the profile, deployed,
and measured: the throughput with many requests in flight, twice, and the latencies with Poisson arrivals at 80 % of the
predicted throughput.

By default, the model has an encoder and a language model, and the executors wait for set times. With MODEL, a directory
of a multimodal model, they run this model:

    benchmarks/strategies.py MODEL

Other workloads are images and speech, of a Qwen-Image and a Qwen3-Omni, by default those of `cornserve demo`:

    benchmarks/strategies.py --workloads images spoken half-spoken
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import create_table, print_report
from benchmarks.harness.slot_instance import SlotInstance
from benchmarks.harness.strategies.measurement import DeployedStrategy, StrategyMeasurement
from benchmarks.harness.strategies.model_workloads import model_workloads
from benchmarks.harness.strategies.output_workloads import image_workloads, speech_workloads
from benchmarks.harness.strategies.stage_workloads import STAGE_WORKLOADS
from benchmarks.harness.strategies.workloads import StrategyWorkload
from cornserve_demo.round_trip import MODELS


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
    chosen = [workload for workload in _workloads(options.model) if workload.name in options.workloads]
    results = []
    with tempfile.TemporaryDirectory() as directory:
        instance = SlotInstance(Path(directory) / "instance", options.slots)
        measurement = StrategyMeasurement(instance, options.seconds, options.runs, options.error, options.budget)
        with instance.started() as client:
            for workload in chosen:
                strategies = [name for name in workload.strategies if name in options.strategies]
                for result in measurement.measure(client, workload, strategies):
                    print(result, file=sys.stderr)
                    results.append(result)
    report = StrategiesReport(machine, options.slots, results)
    if options.json:
        print(json.dumps(asdict(report) | {"errors": [result.error for result in results]}, indent=1))
    else:
        report.show()


def _workloads(model: Path | None) -> tuple[StrategyWorkload, ...]:
    model = None if model is None else model.resolve()
    chats: tuple[StrategyWorkload, ...] = STAGE_WORKLOADS if model is None else model_workloads(model)
    images = image_workloads(model or MODELS / "drawer-model")
    return *chats, *images, *speech_workloads(model or MODELS / "speller-model")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", metavar="MODEL", help="the directory of a model")
    parser.add_argument("--slots", type=int, default=2, help="slots of one core each; several may share a core")
    parser.add_argument("--seconds", type=float, default=10, help="smallest duration of each run")
    parser.add_argument("--error", type=float, default=0.05, help="half width of the intervals of the profile")
    parser.add_argument("--budget", default="30m", help="device time for the profile of a workload")
    parser.add_argument("--runs", type=int, default=2, help="runs with many requests in flight")
    chats = [workload.name for workload in STAGE_WORKLOADS]
    _add_choice(parser, "--workloads", [workload.name for workload in _workloads(None)], chats)
    strategies = list(STAGE_WORKLOADS[0].strategies)
    _add_choice(parser, "--strategies", strategies, strategies)
    parser.add_argument("--quick", action="store_true", help="one strategy of one workload with a short run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.quick:
        options.workloads, options.strategies = ["balanced"], ["separate"]
        options.seconds, options.runs, options.error = 4, 1, 0.3
    return options


def _add_choice(parser: argparse.ArgumentParser, option: str, names: list[str], default: list[str]) -> None:
    text = f"the {option[2:]} to measure (default: {' '.join(default)})"
    parser.add_argument(option, nargs="+", choices=names, default=default, metavar="NAME", help=f"{text}: %(choices)s")


if __name__ == "__main__":
    main()
