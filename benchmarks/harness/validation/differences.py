"""The differences between simulated and measured figures, relative to the measured ones."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf


def differences(simulated: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Returns the differences of figures, relative to the measured ones. Two zeros have no difference."""
    return {name: _difference(simulated[name], each) for name, each in measured.items()}


def missed(found: Mapping[str, float], tolerances: Mapping[str, float]) -> list[str]:
    """Returns the figures whose differences are above their tolerances."""
    return [name for name, tolerance in tolerances.items() if abs(found[name]) > tolerance]


def missed_text(found: Mapping[str, float], names: list[str]) -> str:
    return ", ".join(f"{name} {found[name]:+.0%}" for name in names) or "none"


def _difference(simulated: float, measured: float) -> float:
    if measured:
        return simulated / measured - 1
    return inf if simulated else 0.0
