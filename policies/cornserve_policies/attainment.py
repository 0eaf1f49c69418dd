"""The share of the requests of an app that meet its latency targets."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from cornserve_policies.arrivals import ArrivalHistory

ATTAINMENT = 0.95
"""The share of requests that should meet each target."""

LEAST_REQUESTS = 20
"""Fewer requests with a target in a window show nothing."""

DEVIATIONS = 4.0
"""A target is missed if this many standard deviations more requests miss it than may."""


class TargetAttainment:
    """The requests that have met and missed each target in a window of time.

    Args:
        seconds: the length of the window.
        start: the time at which the counting begins.
    """

    def __init__(self, seconds: float, start: float) -> None:
        self._seconds = seconds
        self._met = ArrivalHistory(seconds, start)
        self._missed = ArrivalHistory(seconds, start)

    def add(self, met: Mapping[str, int], missed: Mapping[str, int], now: float) -> None:
        """Adds the requests that have met and missed targets since the last call, by target."""
        self._met.add(met, now)
        self._missed.add(missed, now)

    def find_missed(self, since: float, now: float) -> str | None:
        """Returns the target that too few requests have met, for users. None if enough requests have met all targets.

        Args:
            since: the window may not begin before this time.
        """
        if now - self._seconds < since:
            return None
        met, missed = (counts.window(self._seconds, now) for counts in (self._met, self._missed))
        if met is None or missed is None:
            return None
        for target, misses in sorted(missed.counts.items()):
            total = misses + met.counts.get(target, 0)
            if total >= LEAST_REQUESTS and _exceeds_chance(misses, total):
                met_share = f"{1 - misses / total:.0%} of {total} requests"
                return f"{met_share} met the {target} target in {self._seconds:g} s, not {ATTAINMENT:.0%}"
        return None


def _exceeds_chance(misses: int, total: int) -> bool:
    expected = (1 - ATTAINMENT) * total
    return misses > expected + DEVIATIONS * sqrt(expected * ATTAINMENT)
