#!/usr/bin/env python3
"""Measures the cost of running the code of an app in an app host: its start, its memory, and one run of a task.

A run calls `invoke` once, from the request to its first suspension: most requests need two, to record and to replay.
Other rows are the same run in the gateway's process, and runs that follow a dry record of the request's type, as in
apps with a plan.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass
from functools import partial

import psutil
import uvloop

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import create_table, print_report
from cornserve.app.load import load_app
from cornserve.app.response_readers import JSON
from cornserve.app.spec import AppSource, AppSpec
from cornserve.app_host.app_host import AppHost
from cornserve.app_host.fork_client import ForkServer
from cornserve.blocking_apps import CurrentApp
from cornserve.gateway.observe.app_logs import AppLogLines, RequestLog
from cornserve.gateway.task_runs.hosted_app import HostedApp
from cornserve.gateway.task_runs.local_app import LocalApp
from cornserve.gateway.task_runs.stream_buffer import StreamBuffer
from cornserve.gateway.task_runs.task_runner import AppCode, RunSettings
from cornserve.limits import MIB, Limits
from cornserve.task.errors import Suspension
from cornserve.task.references import Origin
from cornserve_policies.replayable_random import ReplayableRandom

SPEC = AppSpec(
    source=AppSource(
        inline="""
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

class Repeat(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> EchoResponse:
        return self.echo.invoke(request)

app = App(name="repeat", paths=[Repeat()])
"""
    )
)
BODY = json.dumps({"text": " ".join(["word"] * 100)}).encode()


@dataclass(frozen=True, slots=True)
class StartRow:
    first_ms: float
    """The first host, including the start of the fork server."""
    next_ms: float
    fork_server_mib: float
    """Memory that is not shared with hosts, and the server's part of the shared memory."""
    host_mib: float


@dataclass(frozen=True, slots=True)
class RunRow:
    process: str
    is_typed: bool
    """Whether the request's type is determined before the run."""
    p50_us: float
    p99_us: float
    gateway_cpu_us: float


def open_stream(origin: Origin) -> StreamBuffer:
    raise NotImplementedError("the task of the benchmark returns no streams")


async def run(app: AppCode, *, is_typed: bool) -> float:
    """Returns the seconds of one run, with the request's type before it if `is_typed`."""
    random = ReplayableRandom("benchmark")
    started = time.perf_counter()
    request, _ = await app.parse(BODY)
    deadline = time.monotonic() + 600
    log = RequestLog(AppLogLines(), "benchmark", "benchmark")
    runner = app.start(RunSettings("benchmark", random, deadline, open_stream, lambda seconds: None, log))
    if is_typed:
        assert await runner.needed_components([request]) == {"echo"}
    result = await runner.run([request], JSON)
    elapsed = time.perf_counter() - started
    assert isinstance(result, Suspension)
    runner.close()
    return elapsed


async def measure_runs(process: str, app: AppCode, count: int, *, is_typed: bool) -> RunRow:
    for _ in range(count // 10):
        await run(app, is_typed=is_typed)
    cpu = time.process_time()
    seconds = [await run(app, is_typed=is_typed) for _ in range(count)]
    cpu = time.process_time() - cpu
    p50, p99 = statistics.median(seconds), statistics.quantiles(seconds, n=100)[98]
    return RunRow(process, is_typed, p50 * 1e6, p99 * 1e6, cpu / count * 1e6)


async def measure(starts: int, runs: int) -> tuple[StartRow, list[RunRow]]:
    fork_server = ForkServer()
    start = partial(AppHost.start, fork_server, "repeat", SPEC, "benchmark_host", Limits())
    seconds, hosts = [], []
    for _ in range(starts):
        started = time.perf_counter()
        hosts.append(await start())
        seconds.append(time.perf_counter() - started)
    memory = [psutil.Process(host.pid).memory_full_info().pss / MIB for host in hosts]
    server = psutil.Process(hosts[0].pid).parent()
    assert server is not None
    server_memory = server.memory_full_info().pss / MIB
    row = StartRow(seconds[0] * 1e3, statistics.median(seconds[1:]) * 1e3, server_memory, statistics.median(memory))
    for host in hosts[1:]:
        host.close()
    hosted, local = (
        HostedApp(hosts[0], start, print),
        LocalApp(load_app("repeat", SPEC, "benchmark_local"), CurrentApp.of_process()),
    )
    rows = [
        await measure_runs(process, app, runs, is_typed=is_typed)
        for process, app in (("gateway", local), ("app host", hosted))
        for is_typed in (False, True)
    ]
    hosted.close()
    await fork_server.close()
    return row, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5000, metavar="N")
    parser.add_argument("--hosts", type=int, default=20, metavar="N")
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    machine = MachineInfo.current()
    hosts, runs = (3, 100) if options.quick else (options.hosts, options.runs)
    start, rows = uvloop.run(measure(hosts, runs))
    if options.json:
        report = {"machine": asdict(machine), "start": asdict(start), "runs": [asdict(row) for row in rows]}
        print(json.dumps(report))
        return
    note = (
        f"start: {start.first_ms:.0f} ms for the first host, {start.next_ms:.0f} ms for each further host; "
        f"memory: {start.host_mib:.0f} MiB for each of {hosts} hosts, {start.fork_server_mib:.0f} MiB for their server"
    )
    table = create_table(("run in",), ("p50, µs", "p99, µs", "µs CPU of the gateway"))
    for row in rows:
        process = f"{row.process}, with type" if row.is_typed else row.process
        table.add_row(process, *(f"{figure:.0f}" for figure in (row.p50_us, row.p99_us, row.gateway_cpu_us)))
    print_report(machine, note, table)


if __name__ == "__main__":
    main()
