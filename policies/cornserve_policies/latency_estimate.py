"""The expected latency of a request, from the requests in flight and from those that have ended.

A request that finds `n` requests ahead of it ends when `n + 1` requests have ended. By Little's law, this takes
`(n + 1) * g` seconds, where `g` is the observed latency per request in flight.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import NamedTuple

USABLE_PART = 0.9
"""The part of a target that the 90th percentile of the expected latency may use."""

LEAST_USABLE_PART = 0.7
"""The part of a target that the mean of the expected latency may use, however much latencies deviate from it."""

DEVIATIONS = 1.7
"""The mean absolute deviations between the mean and about the 90th percentile: 1.6 for normal and uniform
distributions, 1.8 for exponential ones."""

DEVIATION_WEIGHT = 0.05
"""The weight of a new observation in the mean absolute deviation."""

WAITING_FACTOR = 1.25
"""Requests wait for each other if their mean latency exceeds that of requests with no others ahead by this factor."""

WAITING_PART = 0.4
"""Requests whose mean latency is within this part of the target do not count as waiting."""

WAITING_TARGETS = 2.0
"""The multiple of the target for which requests are refused after they have waited for each other."""

ALONE_REQUESTS = 50
"""The requests with no others ahead over which their latency is averaged: a new one has at least this part of the
weight."""

MIN_REQUESTS = 4
"""The least number of observed requests with which a request is refused."""

RECENT_REQUESTS = 32
"""The requests that count, however fast they followed each other."""

RECENT_PART = 0.25
"""Requests that ended within this part of the target count, even if they are more than `RECENT_REQUESTS`."""

MAX_REQUESTS = 256
"""The most requests that count."""

MEMORY_SECONDS = 10.0
"""Requests that ended before do not count, unless the target is long."""

MEMORY_TARGETS = 2.0
"""Requests that ended within this multiple of the target may count."""


class ExpectedExcess(NamedTuple):
    """The expected latency of a request, and the part of it that the target does not allow, in seconds."""

    latency: float
    excess: float


class EstimateState(NamedTuple):
    """The numbers from which the expected latency of a request follows.

    Args:
        target: seconds of the latency.
        in_flight: requests that have not ended.
        places, seconds: the sums of the places and of the latencies of the requests that count.
        deviation: the mean absolute deviation of their latencies.
        alone: the mean latency of requests with no others ahead.
        waited: the last time when requests waited for each other.
    """

    target: float
    in_flight: int
    places: int
    seconds: float
    deviation: float
    alone: float
    waited: float

    def excess(self, now: float) -> ExpectedExcess | None:
        """Returns the expected latency of a new request if the target does not allow it."""
        if not self.in_flight or not self.places or now > self.waited + WAITING_TARGETS * self.target:
            return None
        expected = (self.in_flight + 1) * self.seconds / self.places
        allowed = max(USABLE_PART * self.target - DEVIATIONS * self.deviation, self.without_waiting(LEAST_USABLE_PART))
        return ExpectedExcess(expected, expected - allowed) if expected > allowed else None

    def without_waiting(self, part: float) -> float:
        """Returns a mean latency that does not show that requests wait: at least a part of the target."""
        return min(max(WAITING_FACTOR * self.alone, part * self.target), self.target)


class _Ended(NamedTuple):
    at: float
    place: int
    seconds: float


class LatencyEstimate:
    """Estimates one latency of the requests to an app, such as the TTFT.

    Args:
        target: the target of the latency, in seconds.
    """

    def __init__(self, target: float) -> None:
        self.target = target
        self.in_flight = 0
        self._ended = deque[_Ended]()
        self._places = 0
        self._seconds = 0.0
        self._deviation = 0.0
        self._alone = 0.0
        self._alone_requests = 0
        self._waited = -inf
        """The last time when requests waited for each other."""

    def start(self) -> int:
        """Counts a new request. Returns its place: 1 if no others are ahead of it."""
        self.in_flight += 1
        return self.in_flight

    def leave(self) -> None:
        """Removes a request without learning from its latency, for example if it failed."""
        self.in_flight -= 1

    def finish(self, place: int, seconds: float, now: float) -> None:
        """Removes a request, and learns from its latency."""
        self.in_flight -= 1
        self._forget(now)
        if self._places:
            deviation = abs(seconds - place * self._seconds / self._places)
            self._deviation += DEVIATION_WEIGHT * (deviation - self._deviation)
        if place == 1:
            self._alone_requests = min(self._alone_requests + 1, ALONE_REQUESTS)
            self._alone += (seconds - self._alone) / self._alone_requests
        self._ended.append(_Ended(now, place, seconds))
        self._places += place
        self._seconds += seconds
        count = len(self._ended)
        if count >= MIN_REQUESTS and self._seconds > count * self._state().without_waiting(WAITING_PART):
            self._waited = now

    def state(self, now: float) -> EstimateState:
        """Returns the numbers from which the expected latency of a request follows that arrives now."""
        self._forget(now)
        return self._state()

    def _state(self) -> EstimateState:
        return EstimateState(
            self.target, self.in_flight, self._places, self._seconds, self._deviation, self._alone, self._waited
        )

    def _forget(self, now: float) -> None:
        """Removes the requests that do not count any more."""
        ended = self._ended
        oldest = now - max(MEMORY_SECONDS, MEMORY_TARGETS * self.target)
        oldest_of_many = now - RECENT_PART * self.target
        while ended and (
            ended[0].at < oldest
            or len(ended) > MAX_REQUESTS
            or (len(ended) > RECENT_REQUESTS and ended[0].at < oldest_of_many)
        ):
            forgotten = ended.popleft()
            self._places -= forgotten.place
            self._seconds -= forgotten.seconds
