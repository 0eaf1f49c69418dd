#!/usr/bin/env python3
"""Fails if a figure of Cornserve's cost is 15 % worse than the committed one, in about two minutes.

Times are ratios to something that does not change and is measured in the same run: another proxy, the same code with
plain functions, a copy of the same bytes, a loop. Memory and wake-ups are absolute. A group with a worse figure is
measured twice more, and the least cost over the least baseline counts. A change that makes a figure worse on purpose
commits the new one: `--update` writes that of five measurements into `guard.json`. Ratios differ between processors,
so the figures are committed for each model: on another one, nothing is compared.
"""

from __future__ import annotations

import argparse
import functools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.planner.speed import shipped
from benchmarks.harness.report import create_table, print_report
from benchmarks.idle import echo_app, instance_rows

COMMITTED = Path(__file__).with_name("guard.json")
TOLERANCE = 1.15
MEASUREMENTS = 3
"""The most measurements of a group."""
MEASUREMENTS_OF_UPDATE = 5


class Figure(NamedTuple):
    """A cost, and what it is compared with in the same run. Other programs make both longer, never shorter."""

    cost: float
    baseline: float = 1.0

    @property
    def ratio(self) -> float:
        return self.cost / self.baseline

    def least(self, other: Figure) -> Figure:
        """Returns the least cost and the least baseline of two measurements."""
        return Figure(min(self.cost, other.cost), min(self.baseline, other.baseline))


Figures = dict[str, Figure]


def gateway() -> Figures:
    """CPU time of a request in the gateway, and in FastAPI with aiohttp on the same core, in turns."""
    settings = ("--modes", "whole", "stream", "--concurrency", "8", "--rounds", "7", "--seconds", "0.5")
    report = _report("gateway", "--run-in-gateway", "--peers", "fastapi-aiohttp", *settings, "--retry-seconds", "0")
    return {
        f"gateway, {row['mode']} chat ÷ FastAPI + aiohttp": Figure(row["peer_ratios"]["fastapi-aiohttp"])
        for row in report["rows"]
    }


def record_replay() -> Figures:
    """Recording ten calls while the code waits for values, replaying them, and the same code with plain functions.

    The time of waiting for values varies by 20 % between runs, so that the shape `chain of values` is left out.
    """
    rows = [row for row in _report("record_replay", "--repeats", "20")["rows"] if row["invocations"] == 10]
    return {
        f"{kind} {row['shape']} ÷ plain calls": Figure(row[kind]["min"], row["plain"]["min"])
        for row in rows
        if row["shape"] != "chain of values"
        for kind in ("resume", "replay")
    }


def tensors() -> Figures:
    """A hop of a tensor between two processes of one node, and a copy of its bytes."""
    report = _report("transport", "--sizes", "4.5 MiB", "--gigabytes", "0.5")
    (row,) = (row for row in report["rows"] if row["nodes"] == 1)
    return {"hop of 4.5 MiB ÷ memcpy": Figure(row["hop"]["min"], row["memcpy"]["min"])}


def planner() -> Figures:
    """CPU time of the cells of the shipped models, and of a loop."""
    planned = _alternated(lambda: sum(model.cpu for model in shipped(8, 60.0)), lambda: _cpu_seconds(_loop), 4)
    return {"planner ÷ loop": planned}


def command_line() -> Figures:
    """CPU time of a Python process that imports all commands, and of an isolated one that imports nothing."""
    imported = _alternated(
        lambda: _cpu_seconds(lambda: _run_python("-c", "import cornserve.cli.commands")),
        lambda: _cpu_seconds(lambda: _run_python("-I", "-c", "pass")),
        12,
    )
    return {"import of the commands ÷ start of Python": imported}


def idle_instance() -> Figures:
    """Memory and wake-ups of an idle instance with one app. The CPU time of a wake-up varies with the machine."""
    settings = argparse.Namespace(settle=8.0, seconds=15.0)
    rows = {row.processes: row for row in instance_rows("1 app", {"one": echo_app("one")}, settings)}
    figures = {f"memory of the {name}, MiB PSS": Figure(rows[name].pss_mib) for name in ("gateway", "controller")}
    wakeups = sum(row.wakeups for name, row in rows.items() if name != "executors")
    return figures | {"wake-ups of an idle instance without executors, 1/s": Figure(wakeups)}


GROUPS: Mapping[str, Callable[[], Figures]] = {
    measure.__name__: measure for measure in (gateway, record_replay, tensors, planner, command_line, idle_instance)
}


def main() -> None:
    options = _options()
    machine = MachineInfo.current()
    all_committed: dict[str, dict[str, float]] = json.loads(COMMITTED.read_text())
    committed = all_committed.get(machine.cpu, {})
    found: Figures = {}
    for name in options.groups:
        if not options.json:
            print(f"measuring {name}", file=sys.stderr)
        found |= best(GROUPS[name], MEASUREMENTS_OF_UPDATE) if options.update else measured(GROUPS[name], committed)
    if options.update:
        figures = committed | {name: round(figure.ratio, 3) for name, figure in found.items()}
        updated = all_committed | {machine.cpu: figures}
        COMMITTED.write_text(json.dumps(updated, indent=2, ensure_ascii=False) + "\n")
        return
    worse = [name for name, figure in found.items() if is_worse(name, figure, committed)] if committed else []
    if options.json:
        figures = {name: figure.ratio for name, figure in found.items()}
        print(json.dumps({"figures": figures, "committed": committed, "worse": worse}))
    else:
        _print(machine, found, committed)
    if not committed:
        print(f"guard: no figures are committed for {machine.cpu}: nothing is compared", file=sys.stderr)
    if worse:
        print(f"guard: more than {TOLERANCE - 1:.0%} worse: {', '.join(worse)}", file=sys.stderr)
        sys.exit(1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=[*GROUPS], help="by default, all")
    parser.add_argument("--update", action="store_true", help="write the figures, each the least of five")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


def measured(measure: Callable[[], Figures], committed: Mapping[str, float]) -> Figures:
    """Returns the least of up to three measurements of each figure. The first one is enough if it is as committed."""
    found = measure()
    if any(is_worse(name, figure, committed) for name, figure in found.items()):
        found = _least(found, best(measure, MEASUREMENTS - 1))
    return found


def best(measure: Callable[[], Figures], times: int) -> Figures:
    """Returns the least of a number of measurements of each figure."""
    return functools.reduce(_least, (measure() for _ in range(times)))


def _least(first: Figures, second: Figures) -> Figures:
    return {name: figure.least(second[name]) for name, figure in first.items()}


def is_worse(name: str, figure: Figure, committed: Mapping[str, float]) -> bool:
    """Whether the figure is not committed, or 15 % above the committed one."""
    return name not in committed or figure.ratio > TOLERANCE * committed[name]


def _print(machine: MachineInfo, found: Figures, committed: Mapping[str, float]) -> None:
    table = create_table(("figure",), ("now", "committed", "change"))
    for name, figure in found.items():
        before = committed.get(name)
        change = ("", "") if before is None else (f"{before:.2f}", f"{figure.ratio / before - 1:+.0%}")
        table.add_row(name, f"{figure.ratio:.2f}", *change)
    print_report(machine, f"worse is more than {TOLERANCE - 1:.0%} above the committed figure", table)


def _report(script: str, *options: str) -> Any:
    command = [sys.executable, "-m", f"benchmarks.{script}", "--json", *options]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def _alternated(cost: Callable[[], float], baseline: Callable[[], float], times: int) -> Figure:
    """Returns the least results. Other processes make CPU times longer, by up to a third."""
    return functools.reduce(Figure.least, (Figure(cost(), baseline()) for _ in range(times)))


def _run_python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True)


def _cpu_seconds(work: Callable[[], object]) -> float:
    """Returns the CPU time of this process and of its ended children."""
    before = _used()
    work()
    return _used() - before


def _used() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _loop() -> int:
    total = 0
    for number in range(5_000_000):
        total += number
    return total


if __name__ == "__main__":
    main()
