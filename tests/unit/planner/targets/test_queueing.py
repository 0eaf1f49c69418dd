"""Latency bounds, compared with simulations of queues."""

from __future__ import annotations

import heapq
import random

import pytest

from cornserve_planner.targets.queueing import BatchServer, highest_utilization, latency_bound

EXCEEDING = 0.05
REQUESTS = 20_000


def arrivals(rate: float, random_source: random.Random) -> list[float]:
    now, times = 0.0, []
    for _ in range(REQUESTS):
        now += random_source.expovariate(rate)
        times.append(now)
    return times


def batch_departures(times: list[float], server: BatchServer, replicas: int) -> list[float]:
    """Returns when requests leave replicas that serve batches, each of `seconds`. A waiting batch goes to the replica
    that is idle first."""
    idle, departures, index = [0.0] * replicas, [0.0] * len(times), 0
    order = sorted(range(len(times)), key=times.__getitem__)
    while index < len(order):
        start = max(heapq.heappop(idle), times[order[index]])
        batch = [request for request in order[index : index + server.batch] if times[request] <= start]
        for request in batch:
            departures[request] = start + server.seconds
        heapq.heappush(idle, start + server.seconds)
        index += len(batch)
    return departures


def slot_departures(
    times: list[float], server: BatchServer, replicas: int, random_source: random.Random
) -> list[float]:
    """Returns when requests leave replicas with continuous batching and exponential service times."""
    slots, departures = [0.0] * (replicas * server.batch), [0.0] * len(times)
    for request in sorted(range(len(times)), key=times.__getitem__):
        departures[request] = max(heapq.heappop(slots), times[request]) + random_source.expovariate(1 / server.seconds)
        heapq.heappush(slots, departures[request])
    return departures


def exceeding(times: list[float], departures: list[float], limit: float) -> float:
    return sum(end - start > limit for start, end in zip(times, departures, strict=True)) / len(times)


@pytest.mark.parametrize("utilization", [0.3, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize("batch", [1, 4, 16])
def test_requests_to_batching_executors_stay_within_the_bound(batch: int, replicas: int, utilization: float) -> None:
    server = BatchServer(batch, seconds=1.0, delay=1.0)
    times = arrivals(utilization * replicas * batch, random.Random(batch))
    departures = batch_departures(times, server, replicas)
    assert exceeding(times, departures, latency_bound([server], utilization, EXCEEDING)) <= EXCEEDING


@pytest.mark.parametrize("utilization", [0.5, 0.8])
@pytest.mark.parametrize("batch", [1, 8])
def test_waits_for_continuous_batching_stay_within_the_bound(batch: int, utilization: float) -> None:
    source = random.Random(7)
    server = BatchServer(batch, seconds=1.0, delay=0.2, joins=True)
    times = arrivals(utilization * batch, source)
    starts = [0.0] * len(times)
    slots = [0.0] * batch
    for index, time in enumerate(times):
        starts[index] = max(heapq.heappop(slots), time)
        heapq.heappush(slots, starts[index] + source.expovariate(1.0))
    outputs = [start + server.delay for start in starts]
    fraction = exceeding(times, outputs, latency_bound([server], utilization, EXCEEDING))
    assert fraction == pytest.approx(EXCEEDING, abs=0.01) if batch == 1 else fraction <= EXCEEDING


def test_requests_on_a_path_with_two_executors_stay_within_the_bound() -> None:
    source = random.Random(3)
    encoder = BatchServer(8, seconds=0.5, delay=0.5)
    llm = BatchServer(16, seconds=2.0, delay=2.0 * 3, joins=True)  # most exponential service times are shorter
    utilization = 0.7
    times = arrivals(utilization * 8, source)  # llm: 8 requests/s, encoder: 16 requests/s
    departures = slot_departures(batch_departures(times, encoder, 1), llm, 1, source)
    limit = latency_bound([encoder, llm], utilization, EXCEEDING)
    assert exceeding(times, departures, limit) <= EXCEEDING


def test_the_highest_utilization_meets_the_target_exactly() -> None:
    servers = [BatchServer(4, 1.0, 1.0), BatchServer(1, 0.5, 0.5)]
    utilization = highest_utilization(servers, 20.0, EXCEEDING)
    assert 0 < utilization < 1
    assert latency_bound(servers, utilization, EXCEEDING) == pytest.approx(20.0, rel=1e-4)


def test_a_target_below_the_time_without_queue_has_no_utilization() -> None:
    assert highest_utilization([BatchServer(4, 1.0, 1.0)], 1.9, EXCEEDING) == 0
