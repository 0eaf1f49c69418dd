#!/usr/bin/env python3
"""Measures what an idle instance needs: CPU time, wake-ups and memory of its processes.

Each phase starts an instance in its own home: without an app, with one app, with 50 apps that have an executor each,
and with one app whose 50 replicas produce tensors. With a model, it also measures an instance that serves it, and
`vllm serve`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.harness.instance import DEPLOY_TIMEOUT_SECONDS
from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.processes import cpu_seconds
from benchmarks.harness.report import create_table, print_report
from benchmarks.harness.slot_instance import SlotInstance
from benchmarks.harness.vllm_serve import running_vllm
from cornserve.app.spec import AppSource, AppSpec
from cornserve.client import Client
from cornserve.home import Home
from cornserve.instance import Instance

APPS = 50
SLOTS = 64

MODULES = {
    "cornserve.cli": "supervisor",
    "cornserve.gateway": "gateway",
    "cornserve.control": "controller",
    "cornserve.app_host": "app hosts",
    "cornserve_executors.base.warm_process": "warm processes",
    "cornserve_executors.base": "executors",
}
"""The kind of a process, by the module that it runs. Other processes have the kind of their parent."""


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """The CPU time and wake-ups of a process since its start, and its memory now."""

    cpu_seconds: float
    wakeups: int
    """Voluntary context switches of all threads."""
    pss: int
    """Bytes. Pages that processes share are divided among them."""
    shared: int
    """The part of `pss` that is shared memory, as slabs are."""


@dataclass(frozen=True, slots=True)
class IdleRow:
    phase: str
    processes: str
    number: int
    cpu_percent: float
    """Percent of one core."""
    wakeups: float
    """Per second."""
    pss_mib: float
    shared_mib: float
    """The part of `pss_mib` that is shared memory."""


def read_use(process: psutil.Process) -> ProcessUse:
    maps = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    sizes = {
        name: int(size.split()[0]) << 10 for name, _, size in (line.partition(":") for line in maps.split("\n")[1:-1])
    }
    return ProcessUse(cpu_seconds(process.pid), _wakeups(process.pid), sizes["Pss"], sizes["Pss_Shmem"])


def _wakeups(pid: int) -> int:
    """Returns the wake-ups of all threads. Threads that end are left out."""
    wakeups = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # The thread has ended.
            lines = (task / "status").read_text().split("\n")
            wakeups += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return wakeups


def kinds(root: psutil.Process) -> dict[psutil.Process, str]:
    """Returns the kind of the process and of each of its descendants."""
    found: dict[psutil.Process, str] = {}

    def visit(process: psutil.Process, inherited: str) -> None:
        modules = [MODULES[argument] for argument in process.cmdline() if argument in MODULES]
        found[process] = modules[0] if modules else inherited
        for child in process.children():
            visit(child, found[process])

    visit(root, "vllm serve")
    return found


def measure(phase: str, root: int, seconds: float) -> Iterator[IdleRow]:
    """Measures a process and its descendants. Raises `RuntimeError` if one ends meanwhile."""
    processes = kinds(psutil.Process(root))
    before = {process: read_use(process) for process in processes}
    start = time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - start
    if ended := [process for process in processes if not process.is_running()]:
        raise RuntimeError(f"{phase}: processes ended during the measurement: {ended}")
    after = {process: read_use(process) for process in processes}
    by_kind = defaultdict[str, list[psutil.Process]](list)
    for process, kind in processes.items():
        by_kind[kind].append(process)
    for kind, members in by_kind.items():
        cpu = sum(after[process].cpu_seconds - before[process].cpu_seconds for process in members)
        wakeups = sum(after[process].wakeups - before[process].wakeups for process in members)
        pss, shared = (sum(getattr(after[process], name) for process in members) / 2**20 for name in ("pss", "shared"))
        yield IdleRow(phase, kind, len(members), 100 * cpu / passed, wakeups / passed, pss, shared)


def echo_app(name: str) -> AppSpec:
    """Returns an app whose executor is its own."""
    return AppSpec(
        source=AppSource(
            inline="from cornserve import App\nfrom cornserve_echo import EchoTask\n\n"
            f"app = App(name={name!r}, paths=[EchoTask(prefix={name!r})])\n"
        )
    )


def tensor_app(replicas: int) -> AppSpec:
    """Returns an app whose replicas have slabs."""
    return AppSpec(
        source=AppSource(
            inline="""
from cornserve import App, Task
from cornserve_echo import EchoResponse
from cornserve_echo.notes import NoteRequest, NoteTask, ReadRequest, ReadTask


class Read(Task[NoteRequest, EchoResponse]):
    write: NoteTask
    read: ReadTask

    def invoke(self, request: NoteRequest) -> EchoResponse:
        return self.read(ReadRequest(notes=[self.write(request).note]))


app = App(name="tensors", paths=[Read(write=NoteTask(), read=ReadTask())])
"""
        ),
        executor_replicas={"echo-writer": replicas},
    )


def instance_rows(phase: str, apps: Mapping[str, AppSpec | Path], options: argparse.Namespace) -> list[IdleRow]:
    with tempfile.TemporaryDirectory() as directory:
        instance = SlotInstance(Path(directory) / "instance", SLOTS)
        with instance.started() as client:
            for name, spec in apps.items():
                client.deploy(spec, name=name, timeout=DEPLOY_TIMEOUT_SECONDS)
            wait_until_ready(client)
            time.sleep(options.settle)
            running = Instance.find_running(Home(instance.directory / "home"))
            assert running is not None
            return list(measure(phase, running.pid, options.seconds))


def wait_until_ready(client: Client) -> None:
    """Waits until all replicas are ready: an app serves with the first replica of each executor."""
    deadline = time.monotonic() + DEPLOY_TIMEOUT_SECONDS
    while any(group.ready < group.wanted for view in client.apps() for group in view.status.groups):
        if time.monotonic() > deadline:
            raise RuntimeError("the replicas did not become ready")
        time.sleep(0.2)


def vllm_rows(model: Path, options: argparse.Namespace) -> list[IdleRow]:
    memory = {"VLLM_CPU_KVCACHE_SPACE": "1"}
    with (
        tempfile.TemporaryDirectory() as directory,
        running_vllm(model, Path(directory), environment=memory) as server,
    ):
        time.sleep(options.settle)
        return list(measure("vllm serve", server.process, options.seconds))


def rows(options: argparse.Namespace) -> Iterator[IdleRow]:
    many = 2 if options.quick else options.apps
    yield from instance_rows("no app", {}, options)
    yield from instance_rows("1 app", {"one": echo_app("one")}, options)
    yield from instance_rows(f"{many} apps", {f"app-{i}": echo_app(f"app-{i}") for i in range(many)}, options)
    yield from instance_rows(f"{many} tensor producers", {"tensors": tensor_app(many)}, options)
    if options.model is not None:
        yield from instance_rows("model", {"model": options.model}, options)
        yield from vllm_rows(options.model, options)


def main() -> None:
    options = _options()
    machine = MachineInfo.current()
    found = list(rows(options))
    if options.json:
        print(json.dumps({"machine": asdict(machine), "rows": [asdict(row) for row in found]}))
        return
    table = create_table(
        ["phase", "processes"], ["number", "% of a core", "wake-ups/s", "PSS, MiB", "shared memory, MiB"]
    )
    for row in found:
        table.add_row(
            *(row.phase, row.processes, str(row.number), f"{row.cpu_percent:.2f}", f"{row.wakeups:.1f}"),
            *(f"{row.pss_mib:.0f}", f"{row.shared_mib:.0f}"),
        )
    print_report(machine, f"{options.seconds:g} seconds each, {options.settle:g} seconds after the last start", table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of each measurement (default: 60)")
    parser.add_argument("--settle", type=float, default=15.0, help="time between start and measurement (default: 15)")
    parser.add_argument("--apps", type=int, default=APPS, help=f"number of apps and of replicas (default: {APPS})")
    parser.add_argument("--model", type=Path, help="also compares an instance with `vllm serve` for this model")
    parser.add_argument("--quick", action="store_true", help="measure one second each, with two apps")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.settle = 1.0, 0.0
    return options


if __name__ == "__main__":
    main()
