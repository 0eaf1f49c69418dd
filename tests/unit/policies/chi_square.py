"""The chi-square test without SciPy."""

from __future__ import annotations

from math import sqrt

Z = 4.7534
"""The quantile of the normal distribution for an error probability of 1e-6."""


def chi_square_limit(degrees: int) -> float:
    """Returns the distance that a true hypothesis exceeds with a probability of 1e-6 (Wilson-Hilferty)."""
    variance = 2 / (9 * degrees)
    return degrees * (1 - variance + Z * sqrt(variance)) ** 3
