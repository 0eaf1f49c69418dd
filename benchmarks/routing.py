#!/usr/bin/env python3
"""Compares routing policies with queries for the loads of all replicas: cost per request, imbalance and response time.

Gateways send Poisson traffic to replicas with a set service time and one request at a time. The total rate and the
utilization are the same for each number of replicas, so more replicas are slower ones. All replicas run in one other
process; the gateways run in this one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import create_table, print_report
from benchmarks.harness.routing.gateways import QUERIES, RouteTimes, RoutingGateway
from benchmarks.harness.routing.replicas import ReplicaAddress, running_replicas

POLICIES = ("static", "power-of-two", "least-loaded", QUERIES)
SIZES = (2, 4, 8, 16, 32, 64)
RATE = 150.0
"""Requests per second of all gateways."""
UTILIZATION = 0.7


@dataclass(frozen=True, slots=True)
class RoutingRow:
    policy: str
    replicas: int
    requests: int
    cpu_us: float
    """CPU time of the gateways per request."""
    decision_us: float
    """Median time from the arrival of a request to the choice of its replica."""
    imbalance: float
    """Mean difference between the most and the fewest invocations of a replica."""
    mean_response: float
    """Mean time from arrival to end, in service times."""
    p99_response: float


async def measure(policy: str, replicas: Sequence[ReplicaAddress], gateways: int, seconds: float) -> RoutingRow:
    times, running = RouteTimes(), dict.fromkeys((replica.endpoint for replica in replicas), 0)
    arrivals, gaps = random.Random(1), random.Random(2)
    async with AsyncExitStack() as stack:
        pools = [RoutingGateway(policy, running, times) for _ in range(gateways)]
        for pool in pools:
            await pool.connect(replicas, stack)
        cpu, loop = time.process_time(), asyncio.get_running_loop()
        begin = due = loop.time()
        async with asyncio.TaskGroup() as requests:
            number = 0
            while due < begin + seconds:
                requests.create_task(arrivals.choice(pools).serve(number))
                number += 1
                due += gaps.expovariate(RATE)
                await asyncio.sleep(due - loop.time())
        cpu = time.process_time() - cpu
    service = service_seconds(len(replicas))
    responses = sorted(times.response_seconds)
    return RoutingRow(
        policy=policy,
        replicas=len(replicas),
        requests=number,
        cpu_us=1e6 * cpu / number,
        decision_us=1e6 * statistics.median(times.decision_seconds),
        imbalance=statistics.fmean(times.imbalances),
        mean_response=statistics.fmean(responses) / service,
        p99_response=responses[int(0.99 * len(responses))] / service,
    )


def service_seconds(replicas: int) -> float:
    return UTILIZATION * replicas / RATE


def main() -> None:
    options = _options()
    machine = MachineInfo.current()
    sizes, seconds = ((2, 4), 0.5) if options.quick else (SIZES, options.seconds)
    rows = []
    for size in sizes:
        with running_replicas(size, service_seconds(size)) as replicas:
            rows += [uvloop.run(measure(policy, replicas, options.gateways, seconds)) for policy in POLICIES]
    if options.plot is not None:
        plot(rows, options.plot)
    if options.json:
        print(json.dumps({"machine": asdict(machine), "rows": [asdict(row) for row in rows]}))
    else:
        _print(machine, options.gateways, rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of each measurement (default: 10)")
    parser.add_argument("--gateways", type=int, default=2, metavar="N", help="number of gateways (default: 2)")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="also draw the figures")
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    return parser.parse_args()


def plot(rows: Sequence[RoutingRow], file: Path) -> None:
    """Draws cost and imbalance by the number of replicas."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    panels = figure.subplots(1, 2)
    for policy in POLICIES:
        selected = [row for row in rows if row.policy == policy]
        sizes = [row.replicas for row in selected]
        panels[0].plot(sizes, [row.cpu_us for row in selected], marker="o", label=policy)
        panels[1].plot(sizes, [row.imbalance for row in selected], marker="o", label=policy)
    for panel, label in zip(panels, ("gateway CPU per request (µs)", "imbalance (invocations)"), strict=True):
        panel.set(xscale="log", xticks=SIZES, xticklabels=SIZES, xlabel="replicas", ylabel=label, ylim=(0, None))
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].legend(frameon=False)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def _print(machine: MachineInfo, gateways: int, rows: Sequence[RoutingRow]) -> None:
    table = create_table(
        ["policy"], ["replicas", "requests", "CPU µs", "decision µs", "imbalance", "mean response", "P99 response"]
    )
    for row in rows:
        table.add_row(
            row.policy,
            str(row.replicas),
            str(row.requests),
            f"{row.cpu_us:.0f}",
            f"{row.decision_us:.0f}",
            f"{row.imbalance:.2f}",
            f"{row.mean_response:.2f}",
            f"{row.p99_response:.1f}",
        )
    note = f"{gateways} gateways, {RATE:g} requests/s, utilization {UTILIZATION:g}; responses in service times"
    print_report(machine, note, table)


if __name__ == "__main__":
    main()
