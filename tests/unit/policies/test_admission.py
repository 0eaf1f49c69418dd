"""Early refusal of requests, in a simulated queue with a made clock."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import pytest

from cornserve_policies.admission import AdmittedRequest, LatencyAdmission, Refusal
from cornserve_policies.latency_estimate import LatencyEstimate


@dataclass
class QueuedRequest:
    arrived: float
    latency: float | None = None
    """The seconds to its end, or to its first output. None if it was refused."""


@dataclass
class Queue:
    """Servers with a queue in order of arrival, behind an admission.

    Args:
        service: returns the seconds that the next request takes without waiting.
        first_seconds: if given, responses are streams, whose first output takes this time without waiting.
    """

    servers: int
    service: Callable[[], float]
    admission: LatencyAdmission
    first_seconds: float | None = None
    outcomes: list[QueuedRequest] = field(default_factory=list)

    def run(self, arrivals: Sequence[float]) -> list[QueuedRequest]:
        events: list[tuple[float, int, QueuedRequest, AdmittedRequest | None]] = []
        for number, arrival in enumerate(arrivals):
            heapq.heappush(events, (arrival, number, QueuedRequest(arrival), None))
        waiting = deque[tuple[QueuedRequest, AdmittedRequest]]()
        busy, number = 0, len(arrivals)
        while events:
            now, _, outcome, request = heapq.heappop(events)
            if request is None:
                self.outcomes.append(outcome)
                admitted = self.admission.admit(now, streams=self.first_seconds is not None)
                if isinstance(admitted, Refusal):
                    continue
                waiting.append((outcome, admitted))
            else:
                busy -= 1
                request.record_end(now - outcome.arrived, now, is_complete=True)
                if self.first_seconds is None:
                    outcome.latency = now - outcome.arrived
            while waiting and busy < self.servers:
                busy, number = busy + 1, number + 1
                outcome, request = waiting.popleft()
                heapq.heappush(events, (now + self.service(), number, outcome, request))
                if self.first_seconds is not None:
                    outcome.latency = now + self.first_seconds - outcome.arrived
                    request.record_first_output(outcome.latency, now)
        return self.outcomes


def poisson(rate: float, start: float, end: float, seed: int = 0) -> list[float]:
    numbers, times, now = random.Random(seed), list[float](), start
    while (now := now + numbers.expovariate(rate)) < end:
        times.append(now)
    return times


def attainment(outcomes: Sequence[QueuedRequest], target: float) -> float:
    latencies = [outcome.latency for outcome in outcomes if outcome.latency is not None]
    return sum(latency <= target for latency in latencies) / len(latencies)


def between(outcomes: Sequence[QueuedRequest], start: float, end: float) -> list[QueuedRequest]:
    return [outcome for outcome in outcomes if start <= outcome.arrived < end]


PAGE = Path(__file__).parents[3] / "docs/how-to/set-latency-targets.md"

LENGTHS: dict[str, Callable[[random.Random], float]] = {
    "equal": lambda numbers: 1.0,
    "10 % to 190 % of the mean": lambda numbers: numbers.uniform(0.1, 1.9),
    "exponential": lambda numbers: numbers.expovariate(1.0),
}
"""Distributions of the time that a request takes without waiting, whose mean is 1 s."""


@pytest.mark.parametrize(
    ("servers", "target", "lengths", "attained", "refused"),
    [
        (1, 5, "equal", 0.99, 0.05),
        (4, 3, "equal", 0.99, 0.01),
        (64, 2, "equal", 0.99, 0.01),
        (1, 5, "10 % to 190 % of the mean", 0.9, 0.1),
        (4, 3, "10 % to 190 % of the mean", 0.9, 0.05),
        (64, 3, "10 % to 190 % of the mean", 0.9, 0.01),
        (1, 5, "exponential", 0.8, 0.2),
        (16, 3, "exponential", 0.7, 0.05),
        (64, 3, "exponential", 0.8, 0.01),
    ],
)
def test_admitted_requests_meet_the_target_as_documented(
    servers: int, target: float, lengths: str, attained: float, refused: float
) -> None:
    numbers = random.Random(1)

    def run(arrivals: Sequence[float]) -> list[QueuedRequest]:
        return Queue(servers, lambda: LENGTHS[lengths](numbers), LatencyAdmission(None, target)).run(arrivals)

    busy = run(poisson(0.8 * servers, 0, 3000 / servers))
    overloaded = run([*poisson(servers / 2, 0, 60), *poisson(3 * servers, 60, 60 + 4000 / servers + 20 * target)])

    met = attainment(between(overloaded, 60 + 20 * target, inf), target)
    assert met >= attained
    assert sum(outcome.latency is None for outcome in busy) / len(busy) <= refused
    row = f"| {servers} | {target} | {lengths} | {100 * attained:.0f} % | {100 * refused:.0f} % |"
    assert row in PAGE.read_text().splitlines()


def test_under_threefold_load_admitted_streams_begin_in_time() -> None:
    arrivals = [*poisson(8, 0, 60), *poisson(48, 60, 200)]
    outcomes = Queue(16, lambda: 1.0, LatencyAdmission(0.5, None), first_seconds=0.05).run(arrivals)

    overloaded = between(outcomes, 70, 200)
    admitted = [outcome for outcome in overloaded if outcome.latency is not None]
    assert attainment(overloaded, 0.5) > 0.9
    assert len(admitted) / 130 == pytest.approx(16, rel=0.05)


def test_without_admission_nearly_none_meets_the_target() -> None:
    outcomes = Queue(1, lambda: 0.1, LatencyAdmission(None, None)).run(poisson(30, 0, 20))

    assert attainment(between(outcomes, 5, 20), 0.5) == 0


def test_everything_is_admitted_when_the_load_has_fallen() -> None:
    arrivals = [*poisson(30, 0, 30), *poisson(3, 31, 60)]
    outcomes = Queue(1, lambda: 0.1, LatencyAdmission(None, 1.0)).run(arrivals)

    assert any(outcome.latency is None for outcome in between(outcomes, 0, 30))
    assert all(outcome.latency is not None for outcome in between(outcomes, 31, 60))


def test_a_burst_is_admitted_as_long_as_nobody_has_waited() -> None:
    arrivals = [*(n * 2.0 for n in range(50)), *(100 + n / 100 for n in range(16))]
    outcomes = Queue(16, lambda: 1.0, LatencyAdmission(None, 1.5)).run(arrivals)

    assert all(outcome.latency == pytest.approx(1.0) for outcome in outcomes)


def test_a_request_without_others_ahead_is_always_admitted() -> None:
    """Even if all requests miss the target."""
    outcomes = Queue(1, lambda: 1.0, LatencyAdmission(None, 0.01)).run([n * 1.001 for n in range(50)])

    assert all(outcome.latency is not None for outcome in outcomes)


def test_the_estimate_follows_more_servers() -> None:
    """Probes show that more than one request can be served at a time."""
    queue = Queue(1, lambda: 1.0, LatencyAdmission(None, 1.2))
    queue.run(poisson(3, 0, 60))
    queue.servers = 4
    queue.outcomes = []
    outcomes = queue.run(poisson(3.5, 100, 400))

    assert sum(outcome.latency is not None for outcome in between(outcomes, 250, 400)) / 150 > 2


def ended(estimate: LatencyEstimate, latencies: Sequence[float], now: float = 0.0) -> LatencyEstimate:
    """Lets requests end that all began before the first of them ended."""
    places = [estimate.start() for _ in latencies]
    for place, seconds in zip(places, latencies, strict=True):
        estimate.finish(place, seconds, now)
    return estimate


def test_the_expected_latency_is_that_per_request_in_flight() -> None:
    estimate = ended(LatencyEstimate(3.0), [1.0, 2.0, 3.0, 4.0, 5.0])
    for _ in range(3):
        estimate.start()

    excess = estimate.state(0.0).excess(0.0)

    assert excess is not None
    assert excess.latency == pytest.approx(4.0)  # 4 requests end in 4 s
    assert excess.excess == pytest.approx(4.0 - 0.9 * 3.0)
    assert Refusal("e2e", 3.0, *excess).retry_after == 2


def test_observations_are_forgotten() -> None:
    estimate = ended(LatencyEstimate(3.0), [1.0, 2.0, 3.0, 4.0, 5.0])
    for _ in range(9):
        estimate.start()

    assert estimate.state(6.0).excess(6.0) is not None
    assert estimate.state(6.1).excess(6.1) is None


def test_three_observations_are_not_enough() -> None:
    estimate = ended(LatencyEstimate(0.1), [1.0, 2.0, 3.0])
    for _ in range(9):
        estimate.start()

    assert estimate.state(0.0).excess(0.0) is None


def test_only_streams_are_refused_by_their_ttft() -> None:
    admission = LatencyAdmission(ttft_seconds=0.5, e2e_seconds=None)
    requests = [admission.admit(0.0, streams=True) for _ in range(10)]
    for second, request in enumerate(requests, start=1):
        assert isinstance(request, AdmittedRequest)
        request.record_first_output(second, float(second))
    waiting = [admission.admit(10.0, streams=True) for _ in range(3)]

    assert isinstance(waiting[-1], Refusal)  # the second one was a probe
    assert (waiting[-1].target, waiting[-1].expected_seconds) == ("ttft", 3.0)
    assert isinstance(admission.admit(10.0, streams=False), AdmittedRequest)


def test_requests_that_end_before_their_first_output_do_not_wait_any_more() -> None:
    admission = LatencyAdmission(ttft_seconds=0.5, e2e_seconds=2.0)
    assert admission.ttft is not None
    assert admission.e2e is not None
    request = admission.admit(0.0, streams=True)
    assert isinstance(request, AdmittedRequest)

    request.record_end(0.1, 0.1, is_complete=False)

    assert (admission.ttft.in_flight, admission.e2e.in_flight) == (0, 0)


def test_requests_that_fail_late_count_as_observations() -> None:
    """Otherwise an app whose clients all give up would never refuse a request."""
    admission = LatencyAdmission(None, e2e_seconds=1.0)
    requests = [admission.admit(0.0, streams=False) for _ in range(8)]
    for request in requests:
        assert isinstance(request, AdmittedRequest)
        request.record_end(2.0, 2.0, is_complete=False)

    decisions = [admission.admit(2.0, streams=False) for _ in range(9)]

    assert isinstance(decisions[-1], Refusal)
