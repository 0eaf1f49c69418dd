"""The stages of an app in which requests that miss a latency target lose their time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from typing import Final

WEIGHT: Final = 0.05
"""The weight of a new request in the mean time of a stage."""


class StageTimes:
    """Compares the stages of requests that miss a target with those of requests that meet it."""

    def __init__(self) -> None:
        self.late_us: Counter[str] = Counter()
        """Microseconds that requests with a missed target took longer than others, by executor group."""
        self._usual: dict[tuple[str, bool], float] = {}
        """The mean seconds in requests that meet the targets, until the first output (true) or until the end."""

    def add(self, seconds: Mapping[str, float], *, to_first_output: bool, is_met: bool) -> None:
        """Adds a request.

        Args:
            seconds: the time of each stage.
            to_first_output: whether the stages are those until the first output of the request.
            is_met: whether the request has met the targets that apply to this time.
        """
        for group, spent in seconds.items():
            usual = self._usual.get((group, to_first_output))
            if is_met:
                mean = spent if usual is None else usual + WEIGHT * (spent - usual)
                self._usual[group, to_first_output] = mean
            else:
                self.late_us[group] += int(1e6 * max(0.0, spent - (usual or 0.0)))

    def retain_groups(self, groups: Set[str]) -> None:
        """Removes all other executor groups."""
        for group in self.late_us.keys() - groups:
            del self.late_us[group]
        for key in [key for key in self._usual if key[0] not in groups]:
            del self._usual[key]
