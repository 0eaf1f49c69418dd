"""Early refusal of requests that are not expected to meet the latency targets of their app."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import Literal

from cornserve_policies.latency_estimate import EstimateState, LatencyEstimate

LatencyTarget = Literal["ttft", "tbt", "e2e"]

PROBE_TARGETS = 10.0
"""Once in this multiple of the target, a request is admitted that would be refused. If more requests can be served than
known, its latency shows it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason to refuse a request.

    Args:
        target: the target that the request is not expected to meet.
        target_seconds, expected_seconds: the target and the expected latency.
        excess_seconds: the time until enough requests have ended.
    """

    target: LatencyTarget
    target_seconds: float
    expected_seconds: float
    excess_seconds: float

    @property
    def retry_after(self) -> int:
        """Seconds after which to try again, at least 1."""
        return max(1, ceil(self.excess_seconds))


@dataclass(frozen=True, slots=True)
class AdmissionState:
    """All that the decision about a request reads.

    Args:
        ttft, e2e: the estimates of the targets that apply to the request, or None.
        next_probe: the time from which a request is admitted that would be refused.
    """

    ttft: EstimateState | None
    e2e: EstimateState | None
    next_probe: float

    def expected_miss(self, now: float) -> Refusal | None:
        """Returns the target that a request that arrives now is not expected to meet."""
        return _expected_miss("ttft", self.ttft, now) or _expected_miss("e2e", self.e2e, now)

    def refusal(self, now: float) -> Refusal | None:
        """Returns the refusal of a request that arrives now; None to admit it, also as a probe."""
        return self.expected_miss(now) if now < self.next_probe else None


class LatencyAdmission:
    """Refuses requests that are not expected to meet a target.

    Args:
        ttft_seconds, e2e_seconds: the targets, or None.
    """

    def __init__(self, ttft_seconds: float | None, e2e_seconds: float | None) -> None:
        self.ttft = None if ttft_seconds is None else LatencyEstimate(ttft_seconds)
        self.e2e = None if e2e_seconds is None else LatencyEstimate(e2e_seconds)
        self._next_probe = -inf

    @property
    def targets(self) -> list[LatencyTarget]:
        """The targets by which requests are refused."""
        given: list[tuple[LatencyTarget, LatencyEstimate | None]] = [("ttft", self.ttft), ("e2e", self.e2e)]
        return [name for name, estimate in given if estimate is not None]

    def state(self, now: float, *, streams: bool) -> AdmissionState:
        """Returns all that the decision about a request reads that arrives now.

        Args:
            streams: whether the response is streamed. Only these requests have a TTFT.
        """
        ttft = None if self.ttft is None or not streams else self.ttft.state(now)
        return AdmissionState(ttft, None if self.e2e is None else self.e2e.state(now), self._next_probe)

    def admit(self, now: float, *, streams: bool) -> AdmittedRequest | Refusal:
        """Admits or refuses a request that arrives now."""
        missed = self.state(now, streams=streams).expected_miss(now)
        if missed is not None:
            if now < self._next_probe:
                return missed
            self._next_probe = now + PROBE_TARGETS * missed.target_seconds
        return AdmittedRequest(self.ttft if streams else None, self.e2e)


class AdmittedRequest:
    """An admitted request, which reports its latencies to the estimates."""

    __slots__ = ("_e2e", "_e2e_place", "_ttft", "_ttft_place")

    def __init__(self, ttft: LatencyEstimate | None, e2e: LatencyEstimate | None) -> None:
        self._ttft = ttft
        self._ttft_place = 0 if ttft is None else ttft.start()
        self._e2e = e2e
        self._e2e_place = 0 if e2e is None else e2e.start()

    def record_first_output(self, seconds: float, now: float) -> None:
        """Call it when the first output arrives, `seconds` after the request."""
        if self._ttft is not None:
            self._ttft.finish(self._ttft_place, seconds, now)
            self._ttft = None

    def record_end(self, seconds: float, now: float, *, is_complete: bool) -> None:
        """Call it when the request ends, `seconds` after it arrived.

        Estimates learn from complete responses, and from others only if they have already exceeded the target.
        """
        for estimate, place in ((self._ttft, self._ttft_place), (self._e2e, self._e2e_place)):
            if estimate is None:
                continue
            if is_complete or seconds > estimate.target:
                estimate.finish(place, seconds, now)
            else:
                estimate.leave()


def _expected_miss(target: LatencyTarget, estimate: EstimateState | None, now: float) -> Refusal | None:
    expected = None if estimate is None else estimate.excess(now)
    if estimate is None or expected is None:
        return None
    return Refusal(target, estimate.target, *expected)
