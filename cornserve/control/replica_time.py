"""The time for which replicas have occupied GPUs or slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ReplicaTime:
    """The time for which replicas have run, by executor group.

    Args:
        before: seconds until `since`.
        running: the number of replicas since then.
        since: a time of the monotonic clock.
    """

    before: Mapping[str, float]
    running: Mapping[str, int]
    since: float

    def seconds(self, now: float) -> dict[str, float]:
        return {
            group: self.before.get(group, 0.0) + self.running.get(group, 0) * (now - self.since)
            for group in self.before.keys() | self.running.keys()
        }

    def then(self, running: Mapping[str, int], now: float) -> ReplicaTime:
        """Returns the time up to now, after which other replicas run."""
        return ReplicaTime(self.seconds(now), running, now)

    def of(self, groups: set[str]) -> ReplicaTime:
        """Returns the time of some groups."""
        before = {group: seconds for group, seconds in self.before.items() if group in groups}
        return replace(
            self, before=before, running={group: self.running[group] for group in self.running.keys() & groups}
        )
