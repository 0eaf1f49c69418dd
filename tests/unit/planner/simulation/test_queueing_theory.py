"""Simulated queues have the mean times of queueing theory, within the 99 % interval of batch means and 2 %."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import factorial, sqrt
from statistics import fmean, stdev

import pytest

from cornserve_planner.simulation.event_queue import EventQueue
from cornserve_planner.simulation.media_replica import BatchReplica, ConcurrentReplica, MediaJob, ServiceCurve

BATCHES = 20
T_QUANTILE = 2.861
"""The 99.5 % quantile of Student's t distribution with 19 degrees of freedom."""


class MeasuredTimes:
    """The time of each job, from its arrival to its end, in the order of arrival."""

    def __init__(self, events: EventQueue, jobs: int) -> None:
        self.events = events
        self.arrivals = [0.0] * jobs
        self.seconds = [0.0] * jobs

    def first_output(self, owner: int) -> None:
        pass

    def ended(self, owner: int) -> None:
        self.seconds[owner] = self.events.now - self.arrivals[owner]


Replica = type[ConcurrentReplica] | type[BatchReplica]


def mean_time(
    replica: Replica, curve: ServiceCurve, rate: float, work: Callable[[random.Random], float], jobs: int = 60_000
) -> tuple[float, float]:
    """Returns the mean time of jobs in a queue with Poisson arrivals, and half of its 99 % interval."""
    rng, events = random.Random(7), EventQueue()
    times = MeasuredTimes(events, jobs)
    server = replica(events, curve, times)

    def arrive(number: int) -> None:
        times.arrivals[number] = events.now
        server.submit(MediaJob(work(rng), owner=number))
        if number + 1 < jobs:
            events.add(events.now + rng.expovariate(rate), arrive, number + 1)

    events.add(0.0, arrive, 0)
    events.run()
    size = jobs // BATCHES
    means = [fmean(times.seconds[first : first + size]) for first in range(0, jobs, size)]
    return fmean(means), T_QUANTILE * stdev(means) / sqrt(BATCHES)


def exponential(rng: random.Random) -> float:
    return rng.expovariate(1.0)


def constant(_: random.Random) -> float:
    return 1.0


def two_sizes(rng: random.Random) -> float:
    """Returns a work with a mean of 1 and a second moment of 2.5."""
    return 4.0 if rng.random() < 1 / 7 else 0.5


def erlang_c_wait(rate: float, servers: int) -> float:
    """Returns the mean wait of an M/M/c queue with a service time of 1."""
    load = rate
    full = load**servers / factorial(servers) / (1 - load / servers)
    waits = full / (sum(load**number / factorial(number) for number in range(servers)) + full)
    return waits / (servers - load)


@pytest.mark.parametrize(
    ("replica", "curve", "rate", "work", "theory"),
    [
        pytest.param(ConcurrentReplica, [1.0], 0.6, exponential, 1 / (1 - 0.6), id="M/M/1"),
        pytest.param(ConcurrentReplica, [1.0], 0.7, constant, 1 + 0.7 / (2 * 0.3), id="M/D/1"),
        pytest.param(ConcurrentReplica, [1.0], 0.5, two_sizes, 1 + 0.5 * 2.5 / (2 * 0.5), id="M/G/1"),
        pytest.param(ConcurrentReplica, [1.0] * 4, 2.4, exponential, 1 + erlang_c_wait(2.4, 4), id="M/M/4"),
        pytest.param(
            ConcurrentReplica, [float(n) for n in range(1, 500)], 0.5, two_sizes, 1 / (1 - 0.5), id="processor sharing"
        ),
        pytest.param(BatchReplica, [1.0], 0.7, constant, 1 + 0.7 / (2 * 0.3), id="batches of one"),
    ],
)
def test_mean_times_are_those_of_queueing_theory(
    replica: Replica, curve: list[float], rate: float, work: Callable[[random.Random], float], theory: float
) -> None:
    mean, half_width = mean_time(replica, ServiceCurve(curve), rate, work)

    assert abs(mean - theory) <= half_width
    assert half_width <= 0.08 * theory
    assert mean == pytest.approx(theory, rel=0.02)


def mva_throughput(times: list[float], customers: int) -> float:
    """Returns the throughput of a closed network of queues, by mean value analysis [Reiser and Lavenberg 1980]."""
    lengths, throughput = [0.0] * len(times), 0.0
    for number in range(1, customers + 1):
        residence = [time * (1 + length) for time, length in zip(times, lengths, strict=True)]
        throughput = number / sum(residence)
        lengths = [throughput * seconds for seconds in residence]
    return throughput


def test_a_closed_network_has_the_throughput_of_mean_value_analysis() -> None:
    times, customers, rounds = [1.0, 0.7, 0.4], 6, 40_000
    rng, events = random.Random(5), EventQueue()
    ends: list[float] = []

    class NextQueue:
        """Sends a job to the queue after its own."""

        def __init__(self, index: int) -> None:
            self.index = index

        def first_output(self, owner: object) -> None: ...

        def ended(self, owner: object) -> None:
            if self.index == 0:
                ends.append(events.now)
            if len(ends) < rounds:
                send((self.index + 1) % len(times))

    queues = [ConcurrentReplica(events, ServiceCurve([time]), NextQueue(index)) for index, time in enumerate(times)]

    def send(index: int) -> None:
        queues[index].submit(MediaJob(exponential(rng)))

    for _ in range(customers):
        send(0)
    events.run()

    assert rounds / ends[-1] == pytest.approx(mva_throughput(times, customers), rel=0.02)
