#!/usr/bin/env python3
"""Measures the deployment of a second model: its time, its CPU time and its memory.

Compares executors that are forked from a process with their engine (`cornserve.engines`) with executors that import
their engine themselves. Instances of both kinds alternate. They deploy the first model, then the second.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import distribution
from pathlib import Path
from statistics import median
from time import monotonic

import psutil

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import create_table, print_report
from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.local.state_dir import ReplicaDir
from cornserve.control.launcher.local.warm_processes import ENGINE_GROUP
from cornserve.home import Home

MIB = 2**20


@dataclass(frozen=True, slots=True)
class DeploymentCost:
    seconds: float
    """The time until `cornserve deploy` returns."""
    cpu_seconds: float
    """The time of all processes of the instance, and of those that have ended."""
    pss_mib: float
    """The memory of the executor. Memory that several processes share is divided among them."""


@dataclass(frozen=True, slots=True)
class InstanceCost:
    forked: bool
    first: DeploymentCost
    second: DeploymentCost
    pss_mib: float
    """The memory of all processes of the instance."""


class MeasuredInstance:
    def __init__(self, home: Home, environment: dict[str, str]) -> None:
        self._home = home
        self._environment = environment

    @contextmanager
    def started(self) -> Iterator[None]:
        self._cornserve("up", "--detach", "--port", "0", "--cpu-slots", "2")
        self._supervisor = psutil.Process(json.loads(self._home.instance.read_text())["pid"])
        try:
            yield
        finally:
            self._cornserve("down")

    def deploy(self, model: Path, name: str) -> DeploymentCost:
        replicas = self._replicas()
        cpu, start = self._cpu_seconds(), monotonic()
        self._cornserve("deploy", str(model), "--name", name)
        seconds, cpu = monotonic() - start, self._cpu_seconds() - cpu
        [replica] = self._replicas() - replicas
        record = ReplicaDir(self._home.replicas / replica).read_process()
        assert record is not None
        session = record.process_group.pid
        return DeploymentCost(seconds, cpu, pss_mib([pid for pid in psutil.pids() if _session(pid) == session]))

    def pss_mib(self) -> float:
        return pss_mib([process.pid for process in self._processes()])

    def _replicas(self) -> set[ReplicaId]:
        return {ReplicaId(path.name) for path in self._home.replicas.glob("*") if path.name != "ended"}

    def _processes(self) -> list[psutil.Process]:
        return [self._supervisor, *self._supervisor.children(recursive=True)]

    def _cpu_seconds(self) -> float:
        return float(sum(sum(process.cpu_times()[:4]) for process in self._processes()))

    def _cornserve(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "cornserve.cli", *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"cornserve {' '.join(arguments)}: {done.stderr}")


def pss_mib(pids: list[int]) -> float:
    return float(sum(psutil.Process(pid).memory_full_info().pss for pid in pids)) / MIB


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def measure(models: tuple[Path, Path], *, forked: bool) -> InstanceCost:
    with tempfile.TemporaryDirectory(prefix="cornserve-benchmark-") as directory:
        home = Home(Path(directory) / "home")
        environment = os.environ | {"CORNSERVE_HOME": str(home.path)}
        if not forked:
            paths = [hide_engines(Path(directory)), os.environ.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        instance = MeasuredInstance(home, environment)
        with instance.started():
            first, second = (instance.deploy(model, f"model-{number}") for number, model in enumerate(models))
            return InstanceCost(forked, first, second, instance.pss_mib())


def hide_engines(directory: Path) -> str:
    """Returns a directory for PYTHONPATH that hides the functions by which engines are imported."""
    cornserve = distribution("cornserve")
    metadata = directory / "packages" / f"cornserve-{cornserve.version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(cornserve.read_text("METADATA") or "")
    groups: dict[str, list[str]] = {}
    for point in cornserve.entry_points:
        groups.setdefault(point.group, []).append(f"{point.name} = {point.value}\n")
    del groups[ENGINE_GROUP]
    content = "".join(f"[{group}]\n{''.join(points)}" for group, points in groups.items())
    (metadata / "entry_points.txt").write_text(content)
    return str(metadata.parent)


def main() -> None:
    options = _options()
    machine = MachineInfo.current()
    models = (options.first, options.second)
    rounds = 1 if options.quick else options.rounds
    rows = [measure(models, forked=forked) for _ in range(rounds) for forked in (False, True)]
    if options.json:
        print(json.dumps({"machine": asdict(machine), "rows": [asdict(row) for row in rows]}))
        return
    table = create_table(["executors", "model"], ["s", "CPU s", "PSS MiB", "PSS of the instance MiB"])
    for forked in (False, True):
        of_kind = [row for row in rows if row.forked is forked]
        total = f"{median(row.pss_mib for row in of_kind):.0f}"
        for name, costs, of_instance in (
            ("first", [row.first for row in of_kind], ""),
            ("second", [row.second for row in of_kind], total),
        ):
            table.add_row(
                "forked" if forked else "started",
                name,
                f"{median(cost.seconds for cost in costs):.1f}",
                f"{median(cost.cpu_seconds for cost in costs):.1f}",
                f"{median(cost.pss_mib for cost in costs):.0f}",
                of_instance,
            )
    print_report(machine, f"Medians of {rounds} instances of each kind, alternating.", table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path, metavar="FIRST", help="directory of the first model")
    parser.add_argument("second", type=Path, metavar="SECOND", help="directory of the second model")
    parser.add_argument("--rounds", type=int, default=5, help="instances of each kind (default: 5)")
    parser.add_argument("--quick", action="store_true", help="start one instance of each kind")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
