"""The GPU seconds of executor groups and the seconds of invocations in the last hour."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

from pydantic import BaseModel

from cornserve.concurrency import Broadcast
from cornserve.control.store.base import AppRecord
from cornserve.gateway.live.replica_prices import Cost, group_price
from cornserve.gateway.observe.request_stats import AppStats
from cornserve.gpu_prices import GpuPrices

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

STEP_SECONDS: Final = 15.0
"""Seconds between two readings without a change of an app."""

PAUSE_SECONDS: Final = 1.0
"""Seconds between two readings with changes."""

SNAPSHOT_SECONDS: Final = 60.0
SNAPSHOTS: Final = 61
"""An hour, and its begin."""


class ComputeSeconds(BaseModel):
    """The seconds of replicas that invocations of one gateway took, by app and executor group."""

    apps: dict[str, dict[str, float]]


@dataclass(slots=True)
class GroupUse:
    """An executor group that an app needs, or has needed.

    Args:
        gpus: GPUs or slots of one replica.
        dollars_per_hour: the price of one GPU or slot; None if it is unknown.
        apps: the apps that need it, with the name of its executor in each.
    """

    gpus: int
    dollars_per_hour: Cost
    apps: dict[str, str] = field(default_factory=dict)


class CostWindow(NamedTuple):
    """The counts of a time that ends with the last reading.

    Args:
        seconds: its length.
        occupied: GPU seconds by group.
        computed: the seconds of invocations in this gateway.
        groups: the groups with GPU seconds.
    """

    seconds: float
    occupied: Mapping[str, float]
    computed: ComputeSeconds
    groups: Mapping[str, GroupUse]


class _Snapshot(NamedTuple):
    at: float
    occupied: dict[str, float]
    computed: dict[tuple[str, str], float]


class CostHistory:
    """Adds up times by reading the state of the apps after each change.

    Args:
        records: returns the records of all apps.
        stats: returns the counts of this gateway.
        now: the time of the monotonic clock at which counting begins.
    """

    def __init__(
        self,
        records: Callable[[], Mapping[str, AppRecord]],
        stats: Callable[[], Mapping[str, AppStats]],
        prices: GpuPrices,
        now: float,
    ) -> None:
        self._records = records
        self._stats = stats
        self._prices = prices
        self._at = now
        self._gpus: Mapping[str, int] = {}
        """The GPUs that the replicas of each group occupy since the last reading."""
        self._occupied = defaultdict[str, float](float)
        self._computed = defaultdict[tuple[str, str], float](float)
        self._last: dict[tuple[str, str], float] = {}
        """The counts of the last reading."""
        self.groups: dict[str, GroupUse] = {}
        self._snapshots = deque[_Snapshot]([_Snapshot(now, {}, {})], maxlen=SNAPSHOTS)

    async def run(self, changes: Broadcast) -> None:
        """Reads the state after each change, and every `STEP_SECONDS`, until cancelled."""
        while True:
            change = changes.next_change()
            self.read(time.monotonic())
            await asyncio.sleep(PAUSE_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(STEP_SECONDS):
                    await change.wait()

    def read(self, now: float) -> None:
        """Adds the times since the last reading."""
        elapsed, self._at = now - self._at, now
        for group, gpus in self._gpus.items():
            self._occupied[group] += gpus * elapsed
        for app, stats in self._stats().items():
            for group, seconds in stats.compute_seconds.items():
                before = self._last.get((app, group), 0.0)
                self._last[app, group] = seconds
                self._computed[app, group] += seconds - before if seconds >= before else seconds
        self._gpus = self._occupied_gpus()
        if now - self._snapshots[-1].at >= SNAPSHOT_SECONDS:
            self._snapshots.append(_Snapshot(now, dict(self._occupied), dict(self._computed)))
            self._forget()

    def window(self, seconds: float) -> CostWindow:
        """Returns the counts of this time or of up to a minute more, or of less after the start."""
        start = next((each for each in reversed(self._snapshots) if self._at - each.at >= seconds), self._snapshots[0])
        occupied = {
            group: grown for group, count in self._occupied.items() if (grown := count - start.occupied.get(group, 0.0))
        }
        apps: dict[str, dict[str, float]] = {}
        for (app, group), count in self._computed.items():
            if grown := count - start.computed.get((app, group), 0.0):
                apps.setdefault(app, {})[group] = grown
        groups = {group: replace(self.groups[group], apps=dict(self.groups[group].apps)) for group in occupied}
        return CostWindow(self._at - start.at, occupied, ComputeSeconds(apps=apps), groups)

    def _occupied_gpus(self) -> dict[str, int]:
        replicas: dict[str, tuple[str, int]] = {}
        for app, record in self._records().items():
            for group in record.status.groups:
                price = group_price(record.spec, group, self._prices)
                use = self.groups.setdefault(group.key, GroupUse(group.gpus, price))
                use.gpus, use.dollars_per_hour = group.gpus, price
                use.apps[app] = group.executor
                replicas |= {replica.id: (group.key, group.gpus) for replica in group.occupying}
        gpus = Counter[str]()
        for key, count in replicas.values():
            gpus[key] += count
        return gpus

    def _forget(self) -> None:
        """Removes groups and counts that have not changed in the time that is kept.

        The last app of a group remains, so that its costs are charged to an app.
        """
        oldest = self._snapshots[0]
        present = {(app, group) for app, stats in self._stats().items() for group in stats.compute_seconds}
        _remove(self._last, set(self._last) - present)
        needed = {(app, group.key) for app, record in self._records().items() for group in record.status.groups}
        unchanged = {key for key, count in self._computed.items() if oldest.computed.get(key) == count}
        for computed in (self._computed, *(snapshot.computed for snapshot in self._snapshots)):
            _remove(computed, unchanged - present)
        old = {group for group, count in self._occupied.items() if oldest.occupied.get(group) == count}
        old -= {group for _, group in needed}
        for occupied in (self._occupied, *(snapshot.occupied for snapshot in self._snapshots)):
            _remove(occupied, old)
        kept = {*self._occupied, *(group for _, group in needed), *(group for _, group in self._computed)}
        _remove(self.groups, self.groups.keys() - kept)
        for group, use in self.groups.items():
            gone = {app for app in use.apps if (app, group) not in needed and (app, group) not in self._computed}
            if gone != use.apps.keys():
                _remove(use.apps, gone)


def _remove(counts: dict[KeyT, ValueT], keys: Iterable[KeyT]) -> None:
    for key in keys:
        del counts[key]
