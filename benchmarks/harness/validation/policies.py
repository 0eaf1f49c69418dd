"""Routing policies: a gateway and echo executors with set service times, and the simulation of both (V3)."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import accumulate

import uvloop

from benchmarks.harness.routing.gateways import RouteTimes, RoutingGateway
from benchmarks.harness.routing.replicas import ReplicaAddress, running_replicas
from benchmarks.harness.validation.differences import above, differences, steady_pair
from benchmarks.harness.validation.simulated import simulated_responses

MOST_RATE = 40.0
"""The most requests per second."""

LEAST_SERVICE_SECONDS = 0.14
"""The least time of a replica for a request: waits of gateway and executors for a core are a small part of it."""

UTILIZATION = 0.7

TOLERANCES = {"throughput": 0.05, "mean": 0.10, "p99": 0.25}

Figures = dict[str, float]
"""Requests per second as `throughput`, and the response times `mean` and `p99` in seconds."""


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A load in simulation and measured.

    Args:
        differences: those of the simulated figures from the measured ones, relative to them.
        noise: those between two measurements.
        missed: the tolerances that are missed.
        noisy: the figures whose noise is above the tolerance: the comparison shows nothing about them.
    """

    policy: str
    replicas: int
    requests: int
    measured: Figures
    simulated: Figures
    differences: Figures
    noise: Figures
    missed: list[str]
    noisy: list[str]


def compare_policies(policies: Sequence[str], sizes: Iterable[int], seconds: float, most: int) -> Iterator[PolicyRow]:
    """Yields a row for each number of replicas and each policy, with loads of `seconds`.

    Args:
        most: the most measurements, of which the first pair with little noise counts.
    """
    for size in sizes:
        service = max(LEAST_SERVICE_SECONDS, UTILIZATION * size / MOST_RATE)
        arrivals = poisson_arrivals(UTILIZATION * size / service, seconds)
        with running_replicas(size, service) as replicas:
            for policy in policies:
                yield _compare(policy, replicas, service, arrivals, most)


def poisson_arrivals(rate: float, seconds: float) -> list[float]:
    """Returns the times of about `rate * seconds` requests, always the same ones."""
    gaps = random.Random(1)
    return list(accumulate(gaps.expovariate(rate) for _ in range(round(rate * seconds))))


def _figures(responses: Sequence[float], seconds: float) -> Figures:
    ordered = sorted(responses)
    return {
        "throughput": len(ordered) / seconds,
        "mean": statistics.fmean(ordered),
        "p99": ordered[int(0.99 * len(ordered))],
    }


async def _measure(policy: str, replicas: Sequence[ReplicaAddress], arrivals: Sequence[float]) -> Figures:
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
    return _figures(times.response_seconds, seconds)


def _compare(
    policy: str, replicas: Sequence[ReplicaAddress], service: float, arrivals: Sequence[float], most: int
) -> PolicyRow:
    first, measured = steady_pair(
        lambda: uvloop.run(_measure(policy, replicas, arrivals)), lambda figures: figures, TOLERANCES, most
    )
    load = simulated_responses(policy, len(replicas), service, arrivals)
    simulated = _figures([seconds for seconds in load.responses if seconds is not None], load.end)
    found, noise = differences(simulated, measured), differences(first, measured)
    noisy = above(noise, TOLERANCES)
    return PolicyRow(
        policy=policy,
        replicas=len(replicas),
        requests=len(arrivals),
        measured=measured,
        simulated=simulated,
        differences=found,
        noise=noise,
        missed=[name for name in above(found, TOLERANCES) if name not in noisy],
        noisy=noisy,
    )
