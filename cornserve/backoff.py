"""Exponential backoff."""

from __future__ import annotations

MAX_EXPONENT = 30
"""Bounds the power of two, so that any number of failures gives a finite number."""


def backoff_seconds(failures: int, *, first: float, longest: float) -> float:
    """Returns the pause after `failures` consecutive failures: 0, `first`, then doubled each time, up to `longest`."""
    return min(longest, first * 2 ** (min(failures, MAX_EXPONENT) - 1)) if failures else 0.0
