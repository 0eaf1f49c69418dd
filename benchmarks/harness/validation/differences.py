"""The differences between simulated and measured figures, relative to the measured ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import inf
from typing import TypeVar

Measured = TypeVar("Measured")


def differences(simulated: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Returns the differences of figures, relative to the measured ones. Two zeros have no difference."""
    return {name: _difference(simulated[name], each) for name, each in measured.items()}


def above(found: Mapping[str, float], tolerances: Mapping[str, float]) -> list[str]:
    """Returns the figures whose differences are above their tolerances."""
    return [name for name, tolerance in tolerances.items() if abs(found[name]) > tolerance]


def steady_pair(
    measure: Callable[[], Measured],
    figures: Callable[[Measured], Mapping[str, float]],
    tolerances: Mapping[str, float],
    most: int,
) -> tuple[Measured, Measured]:
    """Measures until two measurements in a row differ by no more than the tolerances, at most `most` times, at least 2.

    Returns the two in a row that differ least. The choice does not depend on a simulation.
    """
    found = [measure()]

    def noise(pair: tuple[Measured, Measured]) -> float:
        between = differences(*map(figures, pair))
        return max((abs(between[name]) / max(tolerance, 1e-9) for name, tolerance in tolerances.items()), default=0.0)

    while len(found) < 2 or (len(found) < most and min(map(noise, pairwise(found))) > 1):
        found.append(measure())
    return min(pairwise(found), key=noise)


def missed_text(found: Mapping[str, float], missed: list[str], noisy: list[str]) -> str:
    """Returns the tolerances that are missed. Figures whose noise is above the tolerance show nothing."""
    texts = [
        f"{name}: noise" if name in noisy else f"{name} {found[name]:+.0%}" for name in dict.fromkeys(missed + noisy)
    ]
    return ", ".join(texts) or "none"


def _difference(simulated: float, measured: float) -> float:
    if measured:
        return simulated / measured - 1
    return inf if simulated else 0.0
