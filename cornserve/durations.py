"""Times for users."""

from __future__ import annotations

from math import ceil


def describe_duration(seconds: float) -> str:
    """Returns whole minutes, or whole seconds below two minutes, rounded up."""
    whole = ceil(seconds)
    if whole < 120:
        return "1 second" if whole == 1 else f"{whole} seconds"
    return f"{ceil(whole / 60):,} minutes"


def describe_estimate(seconds: float) -> str:
    """Returns a duration that is not known exactly: tens of seconds, at least 10, or minutes."""
    return describe_duration(max(1, ceil(seconds / 10)) * 10)
