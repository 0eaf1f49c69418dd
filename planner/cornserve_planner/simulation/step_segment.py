"""Consecutive steps of an engine that compute the same sequences.

Step `i` takes `a + g * i` seconds, because each step adds the same number of tokens to the context.
"""

from __future__ import annotations

from math import sqrt


class StepSegment:
    """Steps of one batch.

    Args:
        started: the time at which the first step begins.
        first_seconds, growth: the seconds of the first step, and those that each further step takes longer.
    """

    __slots__ = ("_first_seconds", "_growth", "started")

    def __init__(self, started: float, first_seconds: float, growth: float) -> None:
        self.started = started
        self._first_seconds = first_seconds
        self._growth = growth

    def end(self, steps: int) -> float:
        """Returns the time at which a number of steps has ended."""
        return self.started + (steps * self._first_seconds + self._growth * (steps * (steps - 1) / 2))

    def steps_until(self, time: float) -> float:
        """Returns the steps that end until a time: the root of `end`."""
        seconds, growth = time - self.started, self._growth
        half = self._first_seconds - growth / 2
        divisor = half + sqrt(half * half + 2 * growth * seconds)
        return 2 * seconds / divisor if divisor else 0.0
