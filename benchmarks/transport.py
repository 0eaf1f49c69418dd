#!/usr/bin/env python3
"""Measures the transfer of tensors from one process to another, on one node and between two.

A hop is the time from the producer's call (which allocates space and copies the tensor there) to a readable view at the
consumer, which is already subscribed. For comparison, plain copies of the same bytes (`memcpy`) alternate with the hops
in the same process. "Own" includes a copy of the view to private memory of the consumer. Two nodes are two network
namespaces, whose processes share no memory; their baseline is a plain socket. The chunks of a stream are measured like
single tensors. With `--protocol ucx`, tagged messages of `ucx_perftest` are measured, too: over TCP between two nodes,
and through UCX's shared memory on one, where tensors pass through that of Cornserve.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.processes import machine_cpu_seconds
from benchmarks.harness.report import create_table, print_report
from benchmarks.harness.transport.namespaces import LOCAL_HOST, NetworkHost, NotPermittedError, two_hosts
from benchmarks.harness.transport.pair import Pair, pair
from benchmarks.harness.transport.perftest import tagged_gb_per_s
from cornserve.pull_protocol import PullProtocol

SIZES = {"64 KiB": 64 << 10, "4.5 MiB": 9 << 19, "109 MB": 109_000_000, "350 MB": 350_000_000, "1 GiB": 1 << 30}
QUICK = ("64 KiB", "4.5 MiB")
LOADS = (0.25, 0.5, 0.75)
"""Fractions of the throughput of a burst."""


@dataclass(frozen=True, slots=True)
class DurationStats:
    """Durations in µs."""

    p50: float
    p99: float
    min: float

    @classmethod
    def from_samples(cls, samples: Sequence[float]) -> DurationStats:
        ordered = sorted(samples)
        last = min(len(ordered) - 1, round(0.99 * len(ordered)))
        return cls(round(statistics.median(ordered), 1), round(ordered[last], 1), round(ordered[0], 1))


@dataclass(frozen=True, slots=True)
class HopLoad:
    """Hops at random times. A hop starts on time, so it includes the wait for the previous hop."""

    rate: float
    """Tensors per second."""
    hop: DurationStats


@dataclass(frozen=True, slots=True)
class TransportRow:
    nodes: int
    protocol: PullProtocol
    size: str
    hop: DurationStats
    own: DurationStats
    memcpy: DurationStats
    """Copies that alternate with the hops."""
    own_memcpy: DurationStats
    """Copies that alternate with the hops to private memory."""
    baseline: DurationStats
    """On one node, `multiprocessing.shared_memory` and pickle. Between nodes, a plain socket without the first copy."""
    burst_gb_per_s: float
    cpu_seconds_per_gb: float
    """CPU time of both processes in the burst."""
    chunk: DurationStats
    """Hops of the chunks of a stream, one by one."""
    stream_gb_per_s: float
    """A stream whose consumer reads as fast as it arrives."""
    stream_cpu_seconds_per_gb: float
    loads: Sequence[HopLoad]
    idle_cores: float
    """CPU use of both processes with open connections, and without tensors."""
    perftest_gb_per_s: float | None
    """The library's benchmark between the same hosts, which polls."""
    sleeping_perftest_gb_per_s: float | None
    """The library's benchmark, which sleeps while it waits, as executors do."""
    others_cores: float
    """CPU use of the rest of the machine."""


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # The exception lets the cleanup remove the namespaces.
    machine = MachineInfo.current()
    sizes = QUICK if options.quick else options.sizes
    budget = 0.02 if options.quick else options.gigabytes
    with ExitStack() as stack:
        pairs = [(LOCAL_HOST, LOCAL_HOST)]
        try:
            pairs.append(stack.enter_context(two_hosts()))
        except NotPermittedError as error:
            print(f"skipping two nodes: network namespaces are not permitted: {error}", file=sys.stderr)
        rows = [measure(size, *hosts, options.protocol, budget) for hosts in pairs for size in sizes]
    if options.json:
        print(json.dumps({"machine": asdict(machine), "rows": [asdict(row) for row in rows]}))
    else:
        _show(machine, rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", nargs="+", choices=SIZES, default=list(SIZES), help="sizes of the tensors (default: all)"
    )
    protocols = [protocol for protocol in PullProtocol if protocol != PullProtocol.AUTO]
    parser.add_argument(
        "--protocol",
        type=PullProtocol,
        choices=protocols,
        default=PullProtocol.TCP,
        help="copies tensors between nodes (default: %(default)s)",
    )
    parser.add_argument("--gigabytes", type=float, default=4, help="limit for each figure (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="run briefly, without useful figures")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


class OtherCpuUse:
    """Measures the CPU use of the rest of the machine."""

    def __init__(self, both: Pair) -> None:
        self._both = both
        self._before = self._now()

    def others(self) -> float:
        """Returns the average number of cores."""
        (wall, machine, ours), (wall_before, machine_before, ours_before) = self._now(), self._before
        return round(max(0.0, machine - machine_before - ours + ours_before) / (wall - wall_before), 2)

    def _now(self) -> tuple[float, float, float]:
        return time.perf_counter(), machine_cpu_seconds(), self._both.cpu_seconds()


def measure(
    size: str, producer: NetworkHost, consumer: NetworkHost, protocol: PullProtocol, gigabytes: float
) -> TransportRow:
    nbytes = SIZES[size]
    count = max(4, min(300, int(gigabytes * 1e9 / nbytes)))
    is_shared = producer is consumer
    with pair(nbytes, producer, consumer, protocol, is_shared=is_shared) as both:
        both.measure("burst", count)  # creates the slab, takes its memory, opens connections and maps segments
        busy = OtherCpuUse(both)
        alone, copies = both.measure("alone", count)
        own, own_copies = both.measure("alone", count, is_copied=True)
        baseline = both.pickled(count) if is_shared else both.sockets(count)
        burst, _ = both.measure("burst", count)
        rates = [share * count / burst.seconds for share in LOADS]
        chunks, stream = both.stream(count, is_burst=False), both.stream(count, is_burst=True)
        loads = [
            HopLoad(round(rate, 1), DurationStats.from_samples(both.measure("paced", count, rate=rate)[0].hops))
            for rate in rates
        ]
        others = busy.others()
        idle = both.idle_cores()
    polling = sleeping = None
    if protocol is PullProtocol.UCX:
        polling = tagged_gb_per_s(nbytes, count, producer, consumer, "poll")
        sleeping = tagged_gb_per_s(nbytes, count, producer, consumer, "sleep")
    return TransportRow(
        nodes=1 if is_shared else 2,
        protocol=protocol,
        size=size,
        hop=DurationStats.from_samples(alone.hops),
        own=DurationStats.from_samples(own.hops),
        memcpy=DurationStats.from_samples(copies),
        own_memcpy=DurationStats.from_samples(own_copies),
        baseline=DurationStats.from_samples(baseline),
        burst_gb_per_s=round(nbytes * count / burst.seconds / 1e9, 2),
        cpu_seconds_per_gb=round(burst.cpu_seconds / (nbytes * count) * 1e9, 3),
        chunk=DurationStats.from_samples(chunks.hops),
        stream_gb_per_s=round(nbytes * count / stream.seconds / 1e9, 2),
        stream_cpu_seconds_per_gb=round(stream.cpu_seconds / (nbytes * count) * 1e9, 3),
        loads=loads,
        idle_cores=round(idle, 3),
        perftest_gb_per_s=polling,
        sleeping_perftest_gb_per_s=sleeping,
        others_cores=others,
    )


def _show(machine: MachineInfo, rows: Sequence[TransportRow]) -> None:
    note = "µs: median (99th percentile) of hops alone; ratios are of medians; GB/s and CPU of a burst"
    one_node = create_table(
        ("one node",), ("hop", "memcpy", "÷", "own", "÷ 2", "pickled", "GB/s", "CPU s/GB", "others")
    )
    two_nodes = create_table(
        ("two nodes",), ("hop", "memcpy", "own", "socket", "hop ÷ both", "GB/s", "CPU s/GB", "others")
    )
    loads = create_table(("nodes", "size"), [f"{cell} {share:.0%}" for share in LOADS for cell in ("rate", "hop")])
    streams = create_table(("nodes", "size"), ("hop", "chunk", "GB/s", "stream GB/s", "CPU s/GB", "stream CPU s/GB"))
    pulls = create_table(
        ("nodes", "protocol", "size"),
        ("hop", "GB/s", "CPU s/GB", "idle cores", "ucx_perftest GB/s", "÷ it", "asleep GB/s", "÷ it", "others"),
    )
    for row in rows:
        rates = (f"{row.burst_gb_per_s:.2f}", f"{row.stream_gb_per_s:.2f}")
        cpu = (f"{row.cpu_seconds_per_gb:.2f}", f"{row.stream_cpu_seconds_per_gb:.2f}")
        streams.add_row(str(row.nodes), row.size, _cell(row.hop), _cell(row.chunk), *rates, *cpu)
        common = (f"{row.burst_gb_per_s:.2f}", f"{row.cpu_seconds_per_gb:.2f}", f"{row.others_cores:.2f}")
        hop, memcpy, baseline = row.hop.p50, row.memcpy.p50, row.baseline.p50
        protocol = "shared memory" if row.nodes == 1 else row.protocol
        ratios = [
            cell
            for perftest in (row.perftest_gb_per_s, row.sleeping_perftest_gb_per_s)
            for cell in (("", "") if perftest is None else (f"{perftest:.2f}", f"{row.burst_gb_per_s / perftest:.2f}"))
        ]
        pulls.add_row(
            *(
                str(row.nodes),
                protocol,
                row.size,
                _cell(row.hop),
                *common[:2],
                f"{row.idle_cores:.3f}",
                *ratios,
                common[2],
            )
        )
        if row.nodes == 1:
            first = (_cell(row.hop), _cell(row.memcpy), f"{hop / memcpy:.2f}")
            second = (_cell(row.own), f"{row.own.p50 / 2 / row.own_memcpy.p50:.2f}", _cell(row.baseline))
            one_node.add_row(row.size, *first, *second, *common)
        else:
            cells = (_cell(row.hop), _cell(row.memcpy), _cell(row.own), _cell(row.baseline))
            two_nodes.add_row(row.size, *cells, f"{hop / (memcpy + baseline):.2f}", *common)
        loaded = [cell for load in row.loads for cell in (f"{load.rate:,.0f}/s", _cell(load.hop))]
        loads.add_row(str(row.nodes), row.size, *loaded)
    print_report(machine, note, one_node, two_nodes, loads, streams, pulls)


def _cell(micros: DurationStats) -> str:
    return f"{micros.p50:,.0f} ({micros.p99:,.0f})"


if __name__ == "__main__":
    main()
