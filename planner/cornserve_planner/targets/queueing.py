"""Bounds on the latency of requests that wait for an executor.

Arrivals are Poisson. The service time S is new better than used in expectation: the expected rest of a service is never
longer than a complete one, as for constant and exponential times. By the Pollaczek-Khinchine formula, the wait W for a
server at utilization ρ is a geometric sum of such rests, so P(W > t) ≤ ρ exp(-(1 - ρ) t / E[S]), with equality for
exponential times. An executor that serves batches of up to b requests in L(b) seconds is bounded as a server with
E[S] = L(b) / b. If requests cannot join a running batch, they also wait until it ends, at most L(b).

The bound is applied to the replicas of an option together, because a gateway sends each request to the replica with the
fewest requests in flight. For batches and several replicas it is not proven: the tests compare it with simulations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cornserve_planner.errors import require_positive

PRECISION = 1e-6
"""Absolute precision of a utilization."""


@dataclass(frozen=True, slots=True)
class BatchServer:
    """A replica that serves up to `batch` requests at a time.

    Args:
        seconds: L(b), from the start of a full batch to its end.
        delay: seconds from the start of a request to the output that matters; for the complete response, `seconds`.
        joins: whether requests join a running batch, as in continuous batching.
    """

    batch: int
    seconds: float
    delay: float
    joins: bool = False

    def __post_init__(self) -> None:
        require_positive("batch", self.batch)
        require_positive("seconds", self.seconds)
        require_positive("delay", self.delay)

    @property
    def least(self) -> float:
        """Seconds without queue: at most one running batch, then the request itself."""
        return self.delay + (0.0 if self.joins or self.batch == 1 else self.seconds)

    @property
    def seconds_per_request(self) -> float:
        return self.seconds / self.batch


def latency_bound(servers: Sequence[BatchServer], utilization: float, exceeding: float) -> float:
    """Returns seconds that at most a fraction `exceeding` of the requests need longer than.

    Each of the servers, which a request visits one after another, gets an equal part of the fraction.
    """
    waits = max(0.0, math.log(utilization * len(servers) / exceeding)) / (1 - utilization) if utilization else 0.0
    return sum(server.least + server.seconds_per_request * waits for server in servers)


def highest_utilization(servers: Sequence[BatchServer], target: float, exceeding: float) -> float:
    """Returns the highest utilization below 1 at which `latency_bound` is at most the target, or 0."""
    if sum(server.least for server in servers) > target:
        return 0.0
    low, high = 0.0, 1.0
    while high - low > PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if latency_bound(servers, middle, exceeding) <= target else (low, middle)
    return low
