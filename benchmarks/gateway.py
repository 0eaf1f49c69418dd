#!/usr/bin/env python3
"""Measures the overhead of the gateway: requests/s, latency, CPU per request, memory.

A local instance serves a composite task on one echo executor. Each chat has a response of sixteen words: not streamed,
streamed word by word, or streamed with a pause before each word. A closed loop of 1 to 512 requests in flight uses
`/v1/chat/completions` and, in the same run, calls the executor directly over one connection of its contract. With
--peers, it also measures proxies on the gateway's core in front of an HTTP server with the same responses. Every
response is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from rich.progress import Progress

from benchmarks.harness import peers
from benchmarks.harness.gateway_report import GatewayReport, GatewayRow
from benchmarks.harness.instance import BenchmarkInstance, running_instance
from benchmarks.harness.load.apps import app_source
from benchmarks.harness.load.job import MODELS, LoadJob, LoadResult, Mode
from benchmarks.harness.load_runner import LoadRunner, combine
from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.peers import PeerProcess
from benchmarks.harness.processes import CoreAssignment, resident_mib
from benchmarks.harness.sampler import START_SIGNAL


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # runs the cleanup
    options = _options()
    machine = MachineInfo.current()
    cores = CoreAssignment() if options.unpinned else CoreAssignment.split()
    apps = {MODELS[mode]: app_source(mode) for mode in options.modes}
    with ExitStack() as cleanup:
        logs = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="cornserve-benchmark-")))
        peer_processes = cleanup.enter_context(peers.peers(options.peers, cores, logs))
        instance = cleanup.enter_context(running_instance(apps, cores, _gateway(options)))
        if options.profile:
            os.kill(instance.gateway, START_SIGNAL)
        report = _measure(instance, peer_processes, machine, cores, options)
    if options.json:
        print(json.dumps(asdict(report)))
    else:
        report.print()
    if options.profile:
        print(options.profile.with_name(options.profile.name + ".top").read_text(), file=sys.stderr)


def _gateway(options: argparse.Namespace) -> tuple[str, ...]:
    module = ("benchmarks.harness.local_gateway" if options.run_in_gateway else "cornserve.gateway.__main__",)
    sampler = () if options.profile is None else ("benchmarks.harness.sampler", str(options.profile))
    return ("-m", *sampler, *module)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 64, 512], metavar="N")
    parser.add_argument("--modes", nargs="+", choices=get_args(Mode), default=[*get_args(Mode)])
    parser.add_argument(
        "--peers", nargs="+", choices=("none", "all", *peers.ALL), default=["none"], help="proxies to measure as well"
    )
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each figure (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="duration of each measurement (default: %(default)s)"
    )
    parser.add_argument(
        "--retry-seconds",
        type=float,
        default=50.0,
        help="time for repeating disturbed measurements (default: %(default)s)",
    )
    parser.add_argument(
        "--run-in-gateway", action="store_true", help="run the apps in the gateway, like tasks of cornserve_tasklib"
    )
    parser.add_argument("--unpinned", action="store_true", help="do not reserve a core for the gateway")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="sample the gateway and write its stacks to FILE")
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    if options.quick:
        options.concurrency, options.rounds, options.seconds, options.retry_seconds = [8], 1, 0.2, 0
    options.peers = [name for name in peers.ALL if {name, "all"} & set(options.peers)]
    if missing := peers.missing(options.peers):
        parser.error(f"not installed: {', '.join(missing)}: run benchmarks/peers/install")
    return options


def _measure(
    instance: BenchmarkInstance,
    peer_processes: Mapping[str, PeerProcess],
    machine: MachineInfo,
    cores: CoreAssignment,
    options: argparse.Namespace,
) -> GatewayReport:
    settings = [(mode, concurrency) for mode in options.modes for concurrency in options.concurrency]
    runner = LoadRunner(cores, options.retry_seconds)
    results: dict[tuple[Mode, int, str], list[LoadResult]] = {}
    before = resident_mib(instance.gateway)
    with Progress(disable=options.json) as progress:
        task = progress.add_task("measuring", total=options.rounds * len(settings) * (2 + len(peer_processes)))
        for _ in range(options.rounds):
            for mode, concurrency in settings:
                for target, job in _jobs(instance, peer_processes, mode, concurrency, options.seconds):
                    results.setdefault((mode, concurrency, target), []).append(runner.run(job))
                    progress.advance(task)
    return GatewayReport(
        machine=machine,
        pinned=str(cores),
        rounds=options.rounds,
        seconds=options.seconds,
        requests=sum(result.requests for key, series in results.items() if key[2] == "gateway" for result in series),
        rss_mib=(before, resident_mib(instance.gateway)),
        peers_rss_mib={name: resident_mib(peer.process) for name, peer in peer_processes.items()},
        rows=[_row(results, mode, concurrency, [*peer_processes]) for mode, concurrency in settings],
    )


def _jobs(
    instance: BenchmarkInstance,
    peer_processes: Mapping[str, PeerProcess],
    mode: Mode,
    concurrency: int,
    seconds: float,
) -> Iterator[tuple[str, LoadJob]]:
    hosts = tuple((f"app host {number}", pid) for number, pid in enumerate(instance.app_hosts))
    processes = (("gateway", instance.gateway), ("executor", instance.executor), *hosts)
    yield "executor", LoadJob("invocation", instance.endpoint, mode, concurrency, seconds, processes, instance.secret)
    yield "gateway", LoadJob("chat", f"127.0.0.1:{instance.port}", mode, concurrency, seconds, processes)
    for name, peer in peer_processes.items():
        processes = (("peer", peer.process), ("engine", peer.engine))
        yield name, LoadJob("chat", peer.address, mode, concurrency, seconds, processes)


def _row(
    results: Mapping[tuple[Mode, int, str], list[LoadResult]], mode: Mode, concurrency: int, names: Sequence[str]
) -> GatewayRow:
    gateway, executor, *others = (combine(results[mode, concurrency, name]) for name in ("gateway", "executor", *names))
    ratios = {
        name: _median_ratio(results[mode, concurrency, "gateway"], results[mode, concurrency, name]) for name in names
    }
    return GatewayRow(mode, concurrency, gateway, executor, dict(zip(names, others, strict=True)), ratios)


def _median_ratio(gateway: Sequence[LoadResult], peer: Sequence[LoadResult]) -> float:
    """Returns the median of the ratios of CPU times of all rounds, whose two measurements follow each other."""
    pairs = zip(gateway, peer, strict=True)
    return statistics.median(ours.cpu_us["gateway"] / theirs.cpu_us["peer"] for ours, theirs in pairs)


if __name__ == "__main__":
    main()
