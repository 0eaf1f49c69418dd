"""Numbers of replicas of executors for their loads [M §4.2].

The replicas are the load divided by the capacity of one replica. The paper leaves open over which time the load is
measured, when replicas stop, and which changes are chance: `ExecutorAutoscaling` adds all three.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from statistics import median

from cornserve_policies.arrivals import ArrivalHistory, WindowCounts

LONG_WINDOW = 5
"""Multiple of the short window. The larger mean of both windows is the load."""

LONGEST_HISTORY = 3600.0
"""Seconds of the longest history that the policy reads."""

MAX_WINDOWS = 240
"""The most short windows in `shrink_seconds`: each decision reads all of them."""

DEVIATIONS = 3.0
"""Loads that differ by this many standard deviations of earlier windows may be equal."""

LEAST_WINDOWS, MOST_WINDOWS = 5, 15
"""The numbers of windows from which a standard deviation is computed."""

MEDIAN_BEND = 0.605
"""The standard deviation of normal variables, relative to the median of the absolute values of second differences."""

LEAST_CAPACITY = 1e-6
"""The least load per second that a replica takes: the replicas for any load are then a finite number."""

ROUNDING = 1e-9
"""A load of 2.0000000001 replicas needs 2."""


@dataclass(frozen=True, slots=True)
class ExecutorLimits:
    """The limits of the autoscaling of an executor.

    Args:
        capacity: the most load per second that one replica takes within its latency targets.
        min_replicas, max_replicas: numbers of replicas between which the executor is scaled.
        window_seconds: the shorter of the two times over which the load is averaged.
        shrink_seconds: the time in which fewer replicas must have been enough before replicas stop.
        dwell_seconds: the least time between two changes.
    """

    capacity: float
    min_replicas: int = 1
    max_replicas: int = 64
    window_seconds: float = 60.0
    shrink_seconds: float = 900.0
    dwell_seconds: float = 60.0

    def __post_init__(self) -> None:
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise ValueError(
                f"{self.min_replicas} to {self.max_replicas} replicas: the first number must be from 1 to the second"
            )
        if self.capacity < LEAST_CAPACITY:
            raise ValueError(f"the capacity of a replica is below {LEAST_CAPACITY:g}: {self.capacity:g}")
        longest = LONGEST_HISTORY - self.window_seconds
        if not 0 < LONG_WINDOW * self.window_seconds <= LONGEST_HISTORY or self.shrink_seconds > longest:
            raise ValueError(
                f"the times are longer than {LONGEST_HISTORY:g} s together: a window of {self.window_seconds:g} s, and "
                f"{self.shrink_seconds:g} s until replicas stop"
            )
        if self.shrink_seconds > MAX_WINDOWS * self.window_seconds:
            raise ValueError(
                f"{self.shrink_seconds:g} s until replicas stop are more than {MAX_WINDOWS} windows of "
                f"{self.window_seconds:g} s"
            )
        if not 0 <= self.dwell_seconds <= self.shrink_seconds or self.window_seconds > self.shrink_seconds:
            raise ValueError(
                f"{self.shrink_seconds:g} s until replicas stop are less than the dwell time of "
                f"{self.dwell_seconds:g} s or than the window of {self.window_seconds:g} s"
            )


@dataclass(frozen=True, slots=True)
class RunningReplicas:
    """The replicas of an executor that should run.

    Args:
        since: the time of the last change.
        counted_from: the time from which loads are counted for the next change.
    """

    replicas: int
    since: float
    counted_from: float = float("-inf")


@dataclass(frozen=True, slots=True)
class ReplicaChange:
    """Another number of replicas, and the reason for users."""

    replicas: int
    reason: str


class ExecutorAutoscaling:
    """Adds replicas at once, and stops them when fewer have been enough for some time.

    Changes of the load within the deviations of earlier windows are not followed: they are those of random arrivals.
    The loads are counted by executor group. Groups of one executor have equal numbers of replicas, so that the busiest
    group determines the number.
    """

    def __init__(self, limits: ExecutorLimits) -> None:
        self._limits = limits

    def load(self, loads: ArrivalHistory, now: float, counted_from: float = float("-inf")) -> float | None:
        """Returns the load per second: the larger mean of a short and a long window. None before the first is over.

        Args:
            counted_from: windows that begin earlier do not count.
        """
        lengths = [multiple * self._limits.window_seconds for multiple in (1, LONG_WINDOW)]
        windows = (loads.window(seconds, now) for seconds in lengths if now - seconds >= counted_from)
        return max((_rate(window) for window in windows if window is not None), default=None)

    def decide(self, running: RunningReplicas, loads: ArrivalHistory, now: float) -> ReplicaChange | None:
        """Returns the replicas to run instead, or None to keep the running ones. Call it every few seconds.

        The same history leads to the same decision.
        """
        limits = self._limits
        bounded = self._bounded(running.replicas)
        if bounded != running.replicas:
            return ReplicaChange(bounded, f"{limits.min_replicas} to {limits.max_replicas} replicas may run")
        if now < running.since + limits.dwell_seconds:
            return None
        load, spread = self.load(loads, now, running.counted_from), self._spread(loads, now, running.counted_from)
        if load is not None and self._needed(load - DEVIATIONS * spread) > running.replicas:
            return ReplicaChange(self._needed(load), self._reason(load))
        busiest = self._busiest(loads, now, running.counted_from)
        if busiest is None or (needed := self._needed(busiest + DEVIATIONS * spread)) >= running.replicas:
            return None
        minutes = limits.shrink_seconds / 60
        return ReplicaChange(needed, f"{self._reason(busiest)}, the most in {minutes:.3g} minutes")

    def _spread(self, loads: ArrivalHistory, now: float, counted_from: float) -> float:
        """Returns the standard deviation of the loads of the short windows before the last long one, without trends.

        It follows from the median of the second differences, which trends and single steps do not change. 0 if there
        are too few windows.
        """
        seconds = self._limits.window_seconds
        ends = (now - step * seconds for step in range(LONG_WINDOW, LONG_WINDOW + MOST_WINDOWS))
        windows = [loads.window(seconds, end) for end in ends if end - seconds >= counted_from]
        rates = [_rate(window) for window in windows if window is not None]
        if len(rates) < LEAST_WINDOWS:
            return 0.0
        bends = (abs(a - 2 * b + c) for a, b, c in zip(rates, rates[1:], rates[2:], strict=False))
        return MEDIAN_BEND * median(bends)

    def _busiest(self, loads: ArrivalHistory, now: float, counted_from: float) -> float | None:
        """Returns the largest load of a short window in the time until replicas stop. None if it is not known."""
        if now - self._limits.shrink_seconds - self._limits.window_seconds < counted_from:
            return None
        rates = []
        for window in self._recent_windows(loads, now):
            if window is None or not window.is_complete:
                return None
            rates.append(_rate(window))
        return max(rates)

    def _recent_windows(self, loads: ArrivalHistory, now: float) -> Iterator[WindowCounts | None]:
        """Yields the short windows that end in the time until replicas stop. Each overlaps half of the next."""
        seconds = self._limits.window_seconds
        for half in range(round(2 * self._limits.shrink_seconds / seconds) + 1):
            yield loads.window(seconds, now - half * seconds / 2)

    def _needed(self, load: float) -> int:
        return self._bounded(ceil(load / self._limits.capacity - ROUNDING))

    def _bounded(self, replicas: int) -> int:
        return min(max(replicas, self._limits.min_replicas), self._limits.max_replicas)

    def _reason(self, load: float) -> str:
        return f"a load of {load:.4g}/s arrived, and a replica takes {self._limits.capacity:.4g}/s"


def _rate(window: WindowCounts) -> float:
    """Returns the load per second of the busiest group."""
    return max(window.counts.values(), default=0) / window.seconds
