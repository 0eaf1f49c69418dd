"""When an app runs another mixture of cells, because its load has changed [C §4.3]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt

from cornserve_policies.arrivals import ArrivalHistory, WindowCounts

GROW_WINDOWS = (1, 3, 15)
"""Multiples of the shortest window. More load in one of these windows is enough to add cells."""

SHRINK_WINDOW = 3
"""Multiples of the shortest window. The window with the most load determines the cells that remain."""

HISTORY_SECONDS = 3600.0
"""The longest history that the policies here read."""

DECISION_SECONDS = 5.0
"""The longest time between two decisions."""

DEVIATIONS = 4.0
"""A load has changed if it differs by this many standard deviations: Poisson arrivals deviate as much about once in
30,000 windows."""

BENEFIT = 0.05
"""A plan replaces the running one if it serves more requests per second, or more for each GPU, by this fraction."""

RATE_TOLERANCE = 1e-6

SolveMixture = Callable[[float], Mapping[int, int]]
"""Returns the number of cells, at least 1, by size that serves a rate, in requests per second, on the fewest GPUs."""


@dataclass(frozen=True, slots=True)
class AdaptationLimits:
    """The limits of adaptations.

    Args:
        dwell_seconds: the least time between two changes.
        shrink_seconds: the time for which less load must last before cells are removed.
        min_rate, max_rate: requests per second between which mixtures are chosen.
        window_seconds: the shortest time in which arrivals are counted.
    """

    dwell_seconds: float = 60.0
    shrink_seconds: float = 900.0
    min_rate: float = 0.0
    max_rate: float = float("inf")
    window_seconds: float = 20.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_rate <= self.max_rate:
            raise ValueError(f"the rates are not between 0 and each other: {self.min_rate:g} and {self.max_rate:g}")
        longest = HISTORY_SECONDS - self.shrink_window
        if not 0 <= self.dwell_seconds <= self.shrink_seconds <= longest:
            raise ValueError(
                f"the times are not between 0 and each other: a dwell time of {self.dwell_seconds:g} s, and "
                f"{self.shrink_seconds:g} s until cells are removed (at most {longest:g} s)"
            )
        if not 0 < self.window_seconds <= HISTORY_SECONDS / GROW_WINDOWS[-1]:
            raise ValueError(
                f"the window of {self.window_seconds:g} s is not above 0 and at most "
                f"{HISTORY_SECONDS / GROW_WINDOWS[-1]:g} s"
            )

    @property
    def shrink_window(self) -> float:
        """The seconds of the windows that determine the cells that remain."""
        return SHRINK_WINDOW * self.window_seconds


@dataclass(frozen=True, slots=True)
class RunningMixture:
    """The mixture that runs.

    Args:
        counts: numbers of cells by size.
        rate: the requests per second that it serves.
        since: the time of the last change.
        counted_from: the time from which arrivals are counted for the next change.
    """

    counts: Mapping[int, int]
    rate: float
    since: float
    counted_from: float = float("-inf")

    def window(self, arrivals: ArrivalHistory, seconds: float, end: float) -> WindowCounts | None:
        """Returns the requests of the `seconds` before `end`. None if the counting began later."""
        return None if end - seconds < self.counted_from else arrivals.window(seconds, end)


@dataclass(frozen=True, slots=True)
class MixtureChange:
    """Another mixture, the rate for which it was chosen, and the reason for users."""

    counts: Mapping[int, int]
    rate: float
    reason: str


class ObservedRateAdaptation:
    """Follows the observed rate. Adds cells at once, and removes them when the load has been lower for some time."""

    def __init__(self, limits: AdaptationLimits) -> None:
        self._limits = limits

    def decide(
        self, running: RunningMixture, arrivals: ArrivalHistory, now: float, solve: SolveMixture
    ) -> MixtureChange | None:
        """Returns the mixture to run instead, or None to keep the running one. Call it every few seconds.

        The same history leads to the same decision.
        """
        if now < running.since + self._limits.dwell_seconds:
            return None
        return self._grow(running, arrivals, now, solve) or self._shrink(running, arrivals, now, solve)

    def _grow(
        self, running: RunningMixture, arrivals: ArrivalHistory, now: float, solve: SolveMixture
    ) -> MixtureChange | None:
        seconds = [multiple * self._limits.window_seconds for multiple in GROW_WINDOWS]
        windows = [running.window(arrivals, each, now) for each in seconds]
        busier = [window for window in windows if window is not None and window.rate_bound(-DEVIATIONS) > running.rate]
        if not busier:
            return None
        busiest = max(busier, key=lambda window: window.rate)
        rate = self._limited(busiest.rate)
        reason = f"{_describe(busiest)}, and the running cells serve {running.rate:.4g}"
        return self._change(running, rate, solve, reason) if rate > running.rate else None

    def _shrink(
        self, running: RunningMixture, arrivals: ArrivalHistory, now: float, solve: SolveMixture
    ) -> MixtureChange | None:
        seconds = self._limits.shrink_window
        steps = range(max(1, round(self._limits.shrink_seconds / seconds)))
        windows = [running.window(arrivals, seconds, now - step * seconds) for step in steps]
        known = [window for window in windows if window is not None and window.is_complete]
        if len(known) < len(windows):
            return None
        busiest = max(known, key=lambda window: window.rate)
        rate = self._limited(busiest.rate)
        if rate >= running.rate:
            return None
        minutes = len(known) * seconds / 60
        return self._change(running, rate, solve, f"{_describe(busiest)}, the most in {minutes:.3g} minutes")

    def _limited(self, rate: float) -> float:
        return min(max(rate, self._limits.min_rate), self._limits.max_rate)

    def _change(self, running: RunningMixture, rate: float, solve: SolveMixture, reason: str) -> MixtureChange | None:
        counts = solve(rate)
        return None if counts == running.counts else MixtureChange(counts, rate, reason)


@dataclass(frozen=True, slots=True)
class ObservedMix:
    """The observed shares of the request types, which differ from the planned ones."""

    shares: Mapping[str, float]
    distance: float
    """The share of requests that have another type than planned: half of the sum of all differences."""


def find_mix_shift(planned: Mapping[str, float], observed: WindowCounts, *, tolerance: float) -> ObservedMix | None:
    """Returns the observed mix if its distance exceeds `tolerance` and what chance explains; otherwise None.

    Chance: Pearson's chi-square statistic exceeds its mean by `DEVIATIONS` standard deviations.
    """
    total, types = observed.total, planned.keys() | observed.counts.keys()
    if not total:
        return None
    shares = {kind: observed.counts.get(kind, 0) / total for kind in sorted(types)}
    differences = {kind: share - planned.get(kind, 0.0) for kind, share in shares.items()}
    distance = sum(map(abs, differences.values())) / 2
    freedom = max(1, len(types) - 1)
    # A type that is not planned has no expected share: one request of it counts as expected.
    statistic = sum(
        total * difference**2 / max(planned.get(kind, 0.0), 1 / total) for kind, difference in differences.items()
    )
    if distance <= tolerance or statistic <= freedom + DEVIATIONS * sqrt(2 * freedom):
        return None
    return ObservedMix(shares, distance)


@dataclass(frozen=True, slots=True)
class PlanCapacity:
    """The requests per second of a mix that a plan serves, and its GPUs."""

    rate: float
    gpus: int


def is_better(plan: PlanCapacity, running: PlanCapacity, target: float | None) -> bool:
    """Returns whether a plan has a notable benefit over the running one, and serves no fewer requests that are needed.

    Args:
        target: the requests per second for which the running plan was made, or None for a number of GPUs.
    """
    needed = running.rate if target is None else min(running.rate, target)
    useful = plan.rate if target is None else min(plan.rate, target)
    if plan.rate < needed * (1 - RATE_TOLERANCE):
        return False
    more = 1 + BENEFIT
    return useful >= more * running.rate or (
        plan.gpus < running.gpus and plan.rate * running.gpus >= more * running.rate * plan.gpus
    )


def _describe(window: WindowCounts) -> str:
    return f"{window.rate:.4g} requests/s arrived in {window.seconds:g} s"
