#!/usr/bin/env python3
"""Compares the simulator with theory, with other implementations, and with real executors.

V0 is queueing theory, V1 one event for each step of a language model and vLLM's scheduler, and V2 the logged decisions
of gateways and controllers: their tests must all pass. V3 is a gateway with echo executors, for every routing policy.
V4 are language models, alone and with their encoder apart, which are profiled before and after each load. V5 are
replicas that start, fail and stop under load. V3 to V5 print the differences and the tolerances that are missed, V3
and V4 also the noise between two measurements. They measure a load until two measurements in a row differ by no more
than the tolerances, at most a few times; a figure whose noise is above its tolerance shows nothing.

    benchmarks/validation.py
    benchmarks/validation.py V4 --text-model ~/models/SmolLM2-135M-Instruct --image-model ~/models/tiny-qwen25vl
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.table import Table

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import create_table, print_report
from benchmarks.harness.validation.changes import SCENARIOS, ChangeRow, compare_changes
from benchmarks.harness.validation.differences import missed_text
from benchmarks.harness.validation.engines import EngineRow, compare_engines
from benchmarks.harness.validation.policies import PolicyRow, compare_policies
from benchmarks.harness.validation.suites import SUITES, SuiteRow, run_suite
from cornserve_policies.registry import routing_policy_names

SIZES = (1, 2, 4, 8, 16)

MOST_MEASUREMENTS = 4
"""The most measurements of a load, until two in a row differ little."""


def policy_rows(options: argparse.Namespace) -> list[PolicyRow]:
    if options.quick:
        return [*compare_policies(routing_policy_names()[:2], (2,), 0.5, 2)]
    return [*compare_policies(routing_policy_names(), SIZES, options.seconds, MOST_MEASUREMENTS)]


def engine_rows(options: argparse.Namespace) -> list[EngineRow]:
    rows: list[EngineRow] = []
    for model, is_multimodal in ((options.text_model, False), (options.image_model, True)):
        if model is not None:
            with TemporaryDirectory(prefix="cornserve-benchmark-") as folder:
                rows += compare_engines(
                    Path(folder) / "instance",
                    model,
                    is_multimodal=is_multimodal,
                    seconds=options.seconds,
                    most=2 if options.quick else MOST_MEASUREMENTS,
                    quick=options.quick,
                )
    return rows


def change_rows(options: argparse.Namespace) -> list[ChangeRow]:
    with TemporaryDirectory(prefix="cornserve-benchmark-") as folder:
        scenarios, seconds, runs = (SCENARIOS[:1], 4.0, 1) if options.quick else (SCENARIOS, options.seconds, 3)
        return [*compare_changes(Path(folder) / "instance", scenarios, seconds, runs)]


MEASURES: dict[str, Callable[[argparse.Namespace], Sequence[Any]]] = {
    "V3": policy_rows,
    "V4": engine_rows,
    "V5": change_rows,
}


CASES = (*SUITES, *MEASURES)


def main() -> None:
    options = _options()
    machine = MachineInfo.current()
    found: dict[str, Sequence[Any]] = {}
    for case in options.cases:
        found[case] = [run_suite(case)] if case in SUITES else MEASURES[case](options)
    if options.json:
        rows = {case: [asdict(row) for row in of_case] for case, of_case in found.items()}
        print(json.dumps({"machine": asdict(machine), **rows}))
        return
    suites = [(case, row) for case in SUITES for row in found.get(case, ())]
    tables = [_suite_table(suites)] if suites else []
    tables += [table(found[case]) for case, table in TABLES.items() if found.get(case)]
    print_report(
        machine, "differences of simulated from measured figures; noise: those between two measurements", *tables
    )


def _suite_table(rows: Sequence[tuple[str, SuiteRow]]) -> Table:
    table = create_table(["case", "compared with"], ["tests passed", "failed", "seconds"])
    for case, row in rows:
        table.add_row(case, row.compared_with, str(row.passed), str(row.failed), f"{row.seconds:.0f}")
    return table


def _policy_table(rows: Sequence[PolicyRow]) -> Table:
    names = ("replicas", "requests", "mean ms", "simulated", "noise", "P99 ms", "simulated", "noise", "missed")
    table = create_table(["V3: policy"], names)
    for row in rows:
        texts = [
            text
            for name in ("mean", "p99")
            for text in (f"{1000 * row.measured[name]:.1f}", f"{row.differences[name]:+.1%}", f"{row.noise[name]:+.1%}")
        ]
        missed = missed_text(row.differences, row.missed, row.noisy)
        table.add_row(row.policy, str(row.replicas), str(row.requests), *texts, missed)
    return table


def _engine_table(rows: Sequence[EngineRow]) -> Table:
    names = ("load", "requests", "figure", "measured", "simulated", "difference", "noise", "missed")
    table = create_table(["V4: model"], names)
    for row in rows:
        for name, measured in row.measured.items():
            table.add_row(
                row.model,
                f"{row.load:g}",
                str(row.requests),
                name,
                f"{measured:.4g}",
                f"{row.simulated[name]:.4g}",
                f"{row.differences[name]:+.1%}",
                f"{row.noise[name]:+.1%}",
                "noise" if name in row.noisy else "yes" if name in row.missed else "no",
            )
    return table


def _change_table(rows: Sequence[ChangeRow]) -> Table:
    names = ("run", "requests", "start s", "recovery s", "simulated s", "difference", "failed", "simulated", "missed")
    table = create_table(["V5: change"], names)
    for row in rows:
        table.add_row(
            row.change,
            str(row.run),
            str(row.requests),
            f"{row.startup:.2f}",
            f"{row.measured.recovery:.2f}",
            f"{row.simulated.recovery:.2f}",
            f"{row.differences['recovery']:+.0%}",
            str(row.measured.failed),
            str(row.simulated.failed),
            missed_text(row.differences, row.missed, []),
        )
    return table


TABLES: dict[str, Callable[[Sequence[Any]], Table]] = {
    "V3": _policy_table,
    "V4": _engine_table,
    "V5": _change_table,
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=CASES, help=f"{', '.join(CASES)} (default: all)")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each load of V3 to V5 (default: 20)")
    parser.add_argument("--text-model", type=Path, help="V4: directory of a language model")
    parser.add_argument("--image-model", type=Path, help="V4: directory of a model that reads images")
    parser.add_argument("--quick", action="store_true", help="run minimal measurements")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    if unknown := sorted({*options.cases}.difference(CASES)):
        parser.error(f"unknown case {unknown[0]}: use {', '.join(CASES)}")
    return options


if __name__ == "__main__":
    main()
