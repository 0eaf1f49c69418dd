"""The stages of an app in which requests that miss a latency target lose their time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Final

from cornserve.gateway.observe.request_spans import AttemptSpan

WEIGHT: Final = 0.05
"""The weight of a new request in the mean time of a stage."""


def stage_seconds(attempts: Iterable[AttemptSpan], until: float, *, to_first_output: bool) -> dict[str, float]:
    """Returns the time of each stage in one request, by executor group.

    A stage begins when an invocation is called and the invocations exist whose outputs it reads. It ends with its last
    output. Its invocations run at the same time.

    Args:
        until: seconds after the arrival of the request. Later outputs do not count.
        to_first_output: whether a stage ends with the first output of its invocations, for the TTFT.
    """
    ends: dict[int, float] = {}
    begins: dict[str, float] = {}
    finishes: dict[str, float] = {}
    for attempt in attempts:
        begin = min(until, max([attempt.queued, *(ends.get(index, attempt.queued) for index in attempt.after)]))
        end = until if attempt.end is None else min(attempt.end, until)
        ends[attempt.index] = max(end, ends.get(attempt.index, 0.0))
        output = attempt.first_output if to_first_output and attempt.first_output is not None else end
        begins[attempt.group] = min(begin, begins.get(attempt.group, begin))
        finishes[attempt.group] = max(min(output, until), finishes.get(attempt.group, 0.0))
    return {group: max(0.0, finishes[group] - begin) for group, begin in begins.items()}


class StageTimes:
    """Compares the stages of requests that miss a target with those of requests that meet all targets."""

    def __init__(self) -> None:
        self.late_us: Counter[str] = Counter()
        """Microseconds that requests with a missed target took longer than others, by executor group."""
        self._usual: dict[str, float] = {}
        """The mean seconds in requests that meet all targets."""

    def add(self, seconds: Mapping[str, float], *, is_met: bool) -> None:
        """Adds a request.

        Args:
            seconds: the time of each stage.
            is_met: whether it has met all targets.
        """
        for group, spent in seconds.items():
            usual = self._usual.get(group)
            if is_met:
                self._usual[group] = spent if usual is None else usual + WEIGHT * (spent - usual)
            else:
                self.late_us[group] += int(1e6 * max(0.0, spent - (usual or 0.0)))

    def retain_groups(self, groups: Set[str]) -> None:
        """Removes all other executor groups."""
        for counts in (self.late_us, self._usual):
            for group in counts.keys() - groups:
                del counts[group]
