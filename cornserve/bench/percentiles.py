"""Percentiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

from pydantic import BaseModel


class Percentiles(BaseModel):
    """Mean, percentiles and maximum of durations, in milliseconds."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float

    @classmethod
    def from_seconds(cls, seconds: Iterable[float]) -> Self | None:
        """Returns None without durations."""
        values = sorted(1000 * value for value in seconds)
        if not values:
            return None
        points = {f"p{percent}": round(percentile(values, percent), 3) for percent in (50, 90, 95, 99)}
        return cls(mean=round(sum(values) / len(values), 3), max=round(values[-1], 3), **points)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Interpolates linearly between the values next to the rank, like numpy's default."""
    rank = (len(ordered) - 1) * percent / 100
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)
