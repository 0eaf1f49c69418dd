"""The figures of one gateway, and their sums over all gateways."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel

from cornserve.gateway.context import GatewayContext
from cornserve.gateway.observe.app_counts import Counts, Key, added, app_counts
from cornserve.gateway.observe.app_history import FigureHistory


class AppCounts(BaseModel):
    """The counts of an app in one gateway."""

    running: int
    total: list[tuple[Key, int]]
    window: list[tuple[Key, int]]


class ReplicaFigures(BaseModel):
    """The invocations of one gateway at a replica."""

    group: str
    running: int
    codes: dict[str, int]
    seconds: dict[int, int]
    """Durations by bucket."""


class GatewayFigures(BaseModel):
    window_seconds: float
    apps: dict[str, AppCounts]
    replicas: dict[str, ReplicaFigures]
    """The replicas of the app by id, if the figures are those of one app."""


@dataclass(slots=True)
class AppSums:
    """The counts of an app in all gateways."""

    running: int = 0
    total: Counts = field(default_factory=dict)
    window: Counts = field(default_factory=dict)


@dataclass(slots=True)
class ReplicaSums:
    """The invocations of all gateways at a replica."""

    running: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    seconds: Counter[int] = field(default_factory=Counter)


@dataclass(slots=True)
class Sums:
    window_seconds: float
    apps: dict[str, AppSums] = field(default_factory=dict)
    replicas: dict[str, ReplicaSums] = field(default_factory=dict)

    @classmethod
    def of(cls, gateways: Iterable[GatewayFigures], window_seconds: float) -> Sums:
        """Adds the figures of gateways. Their windows may differ by a step: rates are those of the longest."""
        found = [*gateways]
        sums = cls(max((each.window_seconds for each in found), default=window_seconds))
        for figures in found:
            for name, counts in figures.apps.items():
                app = sums.apps.setdefault(name, AppSums())
                app.running += counts.running
                app.total = _sum(app.total, counts.total)
                app.window = _sum(app.window, counts.window)
            for id, replica in figures.replicas.items():
                known = sums.replicas.setdefault(id, ReplicaSums())
                known.running += replica.running
                known.codes.update(replica.codes)
                known.seconds.update(replica.seconds)
        return sums

    def app(self, name: str) -> AppSums:
        return self.apps.get(name) or AppSums()


def _sum(counts: Counts, others: Sequence[tuple[Key, int]]) -> Counts:
    return added(counts, dict(others)) if counts else dict(others)


def gateway_figures(
    context: GatewayContext, history: FigureHistory, window_seconds: float, app: str | None = None
) -> GatewayFigures:
    """Returns the figures of this gateway, of all apps or of one with its replicas."""
    now = time.monotonic()
    counts: dict[str, AppCounts] = {}
    seconds = window_seconds
    for name, stats in context.metrics.apps.items():
        if app in (None, name):
            window = history.window(name, window_seconds, now)
            seconds = window.seconds
            total = [*app_counts(stats).items()]
            counts[name] = AppCounts(running=stats.running, total=total, window=[*window.counts.items()])
    replicas: dict[str, ReplicaFigures] = {}
    if app is not None:
        groups = {group.key for group in context.apps.executor_groups().get(app, ())}
        for replica in context.replicas.stats:
            if replica.group in groups:
                found = {bucket: count for bucket, count in enumerate(replica.seconds.counts) if count}
                replicas[replica.replica] = ReplicaFigures(
                    group=replica.group, running=replica.running, codes=replica.codes, seconds=found
                )
    return GatewayFigures(window_seconds=seconds, apps=counts, replicas=replicas)
