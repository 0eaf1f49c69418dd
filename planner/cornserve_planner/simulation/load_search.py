"""The highest load at which simulations meet their targets."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

PRECISION = 1.02
"""The largest ratio of two loads between which the highest one is."""

STEP = 1.3
"""The ratio of two loads while the highest one is not known to be between two."""

LEAST = 1 / 64
"""Loads below this part of the first one count as 0."""


def highest_load(meets: Callable[[float], bool], guess: float, most: float) -> float:
    """Returns the highest load, at most `most`, that meets the targets, or 0.

    Args:
        guess: the load that is tried first.
    """
    met, missed, load = 0.0, 0.0, min(guess, most)
    while not missed or not met:
        if meets(load):
            met = load
            if load >= most:
                return met
            load = min(load * STEP, most)
        else:
            missed, load = load, load / STEP
            if load < guess * LEAST:
                return 0.0
    while missed > met * PRECISION:
        middle = sqrt(met * missed)
        met, missed = (middle, missed) if meets(middle) else (met, middle)
    return met
