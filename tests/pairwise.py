"""Combinations of settings for tests whose cases are too many to try all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TypeVar

Factor = TypeVar("Factor")

MAX_FACTORS = 10


def pairwise_settings(factors: Sequence[Factor]) -> list[frozenset[Factor]]:
    """Returns six sets of factors: for each two of up to ten factors, there are sets with both, with either, and with
    neither of them.

    The first set is empty. Each factor is in another three of the other five sets (Kleitman and Spencer 1973).
    """
    if len(factors) > MAX_FACTORS:
        raise ValueError(f"{len(factors)} factors: six sets combine at most {MAX_FACTORS}")
    members = dict(zip(factors, combinations(range(5), 3), strict=False))
    return [frozenset(), *(frozenset(factor for factor in factors if number in members[factor]) for number in range(5))]
