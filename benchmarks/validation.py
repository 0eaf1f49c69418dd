#!/usr/bin/env python3
"""Compares simulations with a real gateway and echo executors that have set service times, for every routing policy.

Requests arrive at the same random times in both. The tolerances are 5 % of the throughput, 10 % of the mean response
time, and 25 % of its 99th percentile. A tolerance that is missed is printed with its size; a second measurement of each
load shows the noise of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from itertools import accumulate

import uvloop

from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.report import create_table, print_report
from benchmarks.harness.routing.gateways import RouteTimes, RoutingGateway
from benchmarks.harness.routing.replicas import ReplicaAddress, running_replicas
from benchmarks.harness.routing.simulated import simulated_responses
from cornserve_policies.registry import routing_policy_names

SIZES = (1, 2, 4, 8, 16)
RATE = 40.0
"""Requests per second. Service times are tens of milliseconds, of which the gateway takes a small part."""

UTILIZATION = 0.7

TOLERANCES = {"throughput": 0.05, "mean": 0.10, "p99": 0.25}


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """The figures of one load: requests per second, and response times in seconds."""

    throughput: float
    mean: float
    p99: float

    @classmethod
    def of(cls, arrivals: Sequence[float], responses: Sequence[float], seconds: float) -> LoadFigures:
        ordered = sorted(responses)
        return cls(len(arrivals) / seconds, statistics.fmean(ordered), ordered[int(0.99 * len(ordered))])

    def differences(self, other: LoadFigures) -> dict[str, float]:
        """Returns the differences from another load, relative to it."""
        return {name: getattr(self, name) / getattr(other, name) - 1 for name in TOLERANCES}


@dataclass(frozen=True, slots=True)
class ValidationRow:
    """A load in simulation and measured.

    Args:
        differences: those of the simulated figures from the measured ones, relative to them.
        noise: those between two measurements.
        missed: the tolerances that are missed.
    """

    policy: str
    replicas: int
    requests: int
    measured: LoadFigures
    simulated: LoadFigures
    differences: dict[str, float]
    noise: dict[str, float]
    missed: list[str]


def service_seconds(replicas: int) -> float:
    return UTILIZATION * replicas / RATE


async def measure(policy: str, replicas: Sequence[ReplicaAddress], arrivals: Sequence[float]) -> LoadFigures:
    times, running = RouteTimes(), dict.fromkeys((replica.endpoint for replica in replicas), 0)
    async with AsyncExitStack() as stack:
        gateway = RoutingGateway(policy, running, times)
        await gateway.connect(replicas, stack)
        loop = asyncio.get_running_loop()
        begin = loop.time()
        async with asyncio.TaskGroup() as requests:
            for number, arrival in enumerate(arrivals):
                await asyncio.sleep(begin + arrival - loop.time())
                requests.create_task(gateway.serve(number))
        seconds = loop.time() - begin
    return LoadFigures.of(arrivals, times.response_seconds, seconds)


def compare(policy: str, replicas: Sequence[ReplicaAddress], arrivals: Sequence[float]) -> ValidationRow:
    first, measured = (uvloop.run(measure(policy, replicas, arrivals)) for _ in range(2))
    load = simulated_responses(policy, len(replicas), service_seconds(len(replicas)), arrivals)
    simulated = LoadFigures.of(arrivals, load.responses, load.end)
    differences = simulated.differences(measured)
    return ValidationRow(
        policy=policy,
        replicas=len(replicas),
        requests=len(arrivals),
        measured=measured,
        simulated=simulated,
        differences=differences,
        noise=first.differences(measured),
        missed=[name for name, tolerance in TOLERANCES.items() if abs(differences[name]) > tolerance],
    )


def main() -> None:
    options = _options()
    machine = MachineInfo.current()
    sizes, seconds = ((2,), 0.5) if options.quick else (SIZES, options.seconds)
    policies = routing_policy_names()[:2] if options.quick else routing_policy_names()
    gaps = random.Random(1)
    arrivals = list(accumulate(gaps.expovariate(RATE) for _ in range(round(RATE * seconds))))
    rows = []
    for size in sizes:
        with running_replicas(size, service_seconds(size)) as replicas:
            rows += [compare(policy, replicas, arrivals) for policy in policies]
    if options.json:
        print(json.dumps({"machine": asdict(machine), "rows": [asdict(row) for row in rows]}))
        return
    names = ("replicas", "requests", "mean ms", "simulated", "noise", "P99 ms", "simulated", "noise", "missed")
    table = create_table(["policy"], names)
    for row in rows:
        table.add_row(
            row.policy,
            str(row.replicas),
            str(row.requests),
            *(text for name in ("mean", "p99") for text in _texts(row, name)),
            ", ".join(f"{name} {row.differences[name]:+.0%}" for name in row.missed) or "none",
        )
    print_report(machine, f"{RATE:g} requests/s, utilization {UTILIZATION:g}, one gateway", table)


def _texts(row: ValidationRow, name: str) -> tuple[str, str, str]:
    measured: float = getattr(row.measured, name)
    return f"{1000 * measured:.1f}", f"{row.differences[name]:+.1%}", f"{row.noise[name]:+.1%}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each measurement (default: 20)")
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
